"""The request and the configuration of a run, stored beside its tables."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
from pydantic import BaseModel, ValidationError

from flows.runtime.request import Request, RerunRequest
from flows.runtime.store_root import open_store
from warehouse.address import no_run
from warehouse.fork import check_own
from warehouse.freshness import Playing
from warehouse.query import write_views
from warehouse.rerun import Enough, Rerun, chosen
from warehouse.schemas import UPDATES
from warehouse.stopped import remembered
from warehouse.store import Store
from warehouse.table import Damaged

CONFIG = "config.json"
REQUEST = "request.json"
IN_NO_RECIPE = ("monitor", "trainer_place")
log = logging.getLogger("selfplay")


@contextlib.contextmanager
def open_run(
    request: Request, cfg: BaseModel, rerun: RerunRequest | None = None, force: bool = False
) -> Iterator[Store]:
    """The store, opened to work on a run, with its request and configuration recorded.

    Raises ValueError for stages to rerun that do not exist, and as `check_request` does.
    """
    log.setLevel(logging.INFO)
    store = open_store()
    store.freshness = Playing()
    store.watchers.append(store.note_reached)
    if rerun is not None:
        store.freshness = make_rerun(store, request.run, rerun)
    save_request(store, request, cfg, force)
    store.sweep()
    with contextlib.suppress(duckdb.Error):  # a damaged table of any run must not stop this one
        write_views(store)
    with store.playing(request.run), remembered(store, request.run):
        try:
            yield store
        except Enough as enough:  # not a failure: everything that was asked for is rebuilt
            log.info("%s", enough)


def note_orphaned(store: Store, run: str) -> list[str]:
    """Record which updates of a run are orphaned, because the flow will train no more and has not
    reached them; returns their addresses. There are none if stages are played without a flow, or if
    the flow is a dry run, whose settings are only assumed."""
    rule = store.freshness
    if not isinstance(rule, Playing) or not rule.builds:
        return []
    updates = [table.address for table in store.tables(run, UPDATES)]
    orphaned = [address for address in updates if address not in rule.reached]
    store.note_orphaned(run, orphaned)
    return orphaned


def report_orphaned(store: Store, run: str) -> None:
    """Record and report which updates of a run are orphaned, now that its flow has ended.

    Raises ValueError if the flow reached none of the stages to rerun.
    """
    orphaned = note_orphaned(store, run)
    rule = store.freshness
    if orphaned:
        log.warning(
            "%s: %d update(s) are left over from other settings or another version of the flow, %s"
            " the last: evaluations, exports, reports and the viewer pass over them; `selfplay sql`"
            " shows them",
            run,
            len(orphaned),
            orphaned[-1],
        )
    if isinstance(rule, Rerun) and rule.not_reached:
        not_reached = rule.not_reached
        why = f"not rerun, since the flow no longer reaches them: {', '.join(not_reached)}"
        if len(not_reached) == len(rule.addresses):
            raise ValueError(why)
        log.warning("%s", why)


def make_rerun(store: Store, run: str, rerun: RerunRequest) -> Rerun:
    """The rerun rule of this flow run; its retries have the same id and continue with what is left.

    Raises ValueError if the run has no such stage, or if one of the stage's tables is inherited
    from another run.
    """
    addresses = chosen(store, run, rerun.stage, rerun.iteration, rerun.step)
    check_own(store, addresses)
    return Rerun(_flow_run_id() or uuid.uuid4().hex, addresses, rerun.dependents, rerun.only)


def _flow_run_id() -> str | None:
    """The id of Prefect's flow run; None outside of one, where Prefect may not even be imported."""
    module = sys.modules.get("prefect.context")
    if module is None:
        return None
    context = module.FlowRunContext.get()
    if context is None or context.flow_run is None:
        return None
    return str(context.flow_run.id)


def save_request(store: Store, request: Request, config: BaseModel, force: bool = False) -> None:
    """Write the request and the resolved configuration beside the run.

    With `force` the old configuration is kept beside the new one, and stages that depend on a
    changed setting are rebuilt. Raises ValueError as `check_request` does.
    """
    before = store.kept(request.run, CONFIG)
    now = config.model_dump(mode="json")
    check_request(store, request, config, force)
    if before and before != now:
        store.keep(request.run, f"config-until-{time.strftime('%Y%m%d-%H%M%S')}.json", before)
    store.keep(request.run, CONFIG, now)
    store.keep(request.run, REQUEST, request.model_dump(mode="json"))


def check_request(store: Store, request: Request, config: BaseModel, force: bool = False) -> None:
    """Raise ValueError if the run belongs to another flow or was made with another configuration.

    With `force`, the configuration may differ. Limits of monitors, and the places of engines and
    trainer, may always change, since they are part of no recipe. So may the context length of
    engines, which is part of no recipe of replies: after an alarm about prompts that do not fit, a
    larger context applies to everything sampled from then on. A recipe holds only those settings of
    an API that determine its replies: its cap, prices, rates and key may change. A setting that did
    not exist when the run began counts as its default.
    """
    last = _request(store, request.run)
    if last and last.flow != request.flow:
        raise ValueError(
            f"run {request.run!r} is one of {last.flow}; give this run of {request.flow} another"
            " name"
        )
    before = store.kept(request.run, CONFIG)
    if force or not before:
        return
    now = config.model_dump(mode="json")
    changed = differences(_recorded(_with_new_settings(before, config)), _recorded(now))
    if changed:
        raise ValueError(
            f"run {request.run!r} was made with {'; '.join(changed[:5])}. Give this run a new name,"
            " undo the change, or add --force: what depends on it is rebuilt."
        )


def _with_new_settings(before: dict[str, Any], config: BaseModel) -> dict[str, Any]:
    """`before`, with defaults for settings that it lacks, if the current settings can parse it.

    Settings in no recipe take their current values, so a limit that no longer exists does not keep
    a run from continuing.
    """
    readable = {key: value for key, value in before.items() if key not in IN_NO_RECIPE}
    now = config.model_dump(mode="json", include=set(IN_NO_RECIPE))
    try:
        return type(config).model_validate(readable | now).model_dump(mode="json")
    except ValidationError:
        return before


def _recorded(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that may be part of a recipe."""
    recorded = {key: value for key, value in config.items() if key not in IN_NO_RECIPE}
    for key in ("engine", "judge_engine"):
        if key in recorded:
            recorded[key] = _recorded_of_engine(recorded[key])
    if recorded.get("api"):
        recorded["api"] = _recorded_of_api(recorded["api"])
    return recorded


def _recorded_of_engine(engine: dict[str, Any] | None) -> dict[str, Any] | None:
    if engine is None:
        return None
    return {key: value for key, value in engine.items() if key not in ("place", "max_model_len")}


def _recorded_of_api(api: dict[str, Any]) -> dict[str, Any]:
    """The settings that are part of the identity of an API's models (`ChatEndpoint.policy`)."""
    deciding = ("provider" if api.get("provider") else "url", "extra", "omit")
    return {key: api.get(key) for key in deciding}


def last_request(store: Store, run: str) -> Request:
    """The last request of a run. Raises ValueError if there is no such run, and Damaged if the run
    has lost its request."""
    request = _request(store, run)
    if request is not None:
        return request
    path = store.folder(run) / REQUEST
    if (path.parent / CONFIG).exists():
        raise Damaged(f"{path} is lost: repeat the original `selfplay run` command")
    raise no_run(run)


def _request(store: Store, run: str) -> Request | None:
    kept = store.kept(run, REQUEST)
    if kept is None:
        return None
    try:
        return Request.model_validate(kept)
    except ValidationError:
        path = store.folder(run) / REQUEST
        raise Damaged(
            f"{path} holds no request: remove it, then repeat the original `selfplay run` command"
        ) from None


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """One text `NAME OLD, now NEW` for every setting that differs, with its dotted name, which
    begins with `where`.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b 1, now 2']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        differing = list[str]()
        for key in sorted(before.keys() | now.keys()):
            inner = f"{where}.{key}".lstrip(".")
            differing += differences(before.get(key), now.get(key), inner)
        return differing
    if before == now:
        return []
    return [f"{where} {before}, now {now}"]
