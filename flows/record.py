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

from flows.request import Request, RerunRequest
from flows.service.site import open_store
from warehouse.address import no_run
from warehouse.fork import check_own
from warehouse.freshness import Playing
from warehouse.query import write_views
from warehouse.rerun import Enough, Rerun, chosen
from warehouse.schemas import UPDATES
from warehouse.store import Store
from warehouse.table import Damaged

CONFIG, REQUEST = "config.json", "request.json"
log = logging.getLogger("selfplay")


@contextlib.contextmanager
def open_run(asked: Request, cfg: BaseModel, rerun: RerunRequest | None = None, force: bool = False) -> Iterator[Store]:
    """The store, opened to work on a run, with its request and configuration recorded.

    Raises ValueError for stages to rerun that do not exist, and as `check_request` does.
    """
    log.setLevel(logging.INFO)
    store = open_store()
    store.freshness = Playing() if rerun is None else make_rerun(store, asked.run, rerun)
    save_request(store, asked, cfg, force)
    store.sweep()
    with contextlib.suppress(duckdb.Error):  # a damaged table of any run must not stop this one
        write_views(store)
    try:
        yield store
    except Enough as enough:
        log.info("%s", enough)


def check_left(store: Store, run: str) -> None:
    """Record which updates of a run are left over: the flow has now ended without reaching them. Raises ValueError if
    it reached none of the stages to rerun."""
    rule = store.freshness
    assert isinstance(rule, Playing)
    left = [table.address for table in store.tables(run, UPDATES) if table.address not in rule.reached]
    store.note_left(run, left)
    if left:
        log.warning(
            "%s: %d update(s) are left over from other settings or another version of the flow, %s the last: "
            "`evaluate` and `export` pass over them, views and reports do not",
            *(run, len(left), left[-1]),
        )
    if isinstance(rule, Rerun) and (others := rule.not_reached):
        why = f"not rerun, since the flow no longer reaches them: {', '.join(others)}"
        if len(others) == len(rule.addresses):
            raise ValueError(why)
        log.warning("%s", why)


def make_rerun(store: Store, run: str, rerun: RerunRequest) -> Rerun:
    """The rerun rule of this flow run; its retries have the same id and continue with what is left."""
    context = sys.modules.get("prefect.context")
    flow_run = context.FlowRunContext.get() if context else None
    rerun_id = str(flow_run.flow_run.id) if flow_run and flow_run.flow_run else uuid.uuid4().hex
    addresses = chosen(store, run, rerun.stage, rerun.iteration, rerun.step)
    check_own(store, addresses)
    return Rerun(rerun_id, addresses, rerun.dependents, rerun.only)


def save_request(store: Store, asked: Request, config: BaseModel, force: bool = False) -> None:
    """Write the request and the resolved configuration beside the run; raises ValueError as `check_request` does.

    With `force` the old configuration is kept beside the new one, and stages that depend on a changed setting are
    rebuilt.
    """
    before, now = store.kept(asked.run, CONFIG), config.model_dump(mode="json")
    check_request(store, asked, config, force)
    if before and before != now:
        store.keep(asked.run, f"config-until-{time.strftime('%Y%m%d-%H%M%S')}.json", before)
    store.keep(asked.run, CONFIG, now)
    store.keep(asked.run, REQUEST, asked.model_dump(mode="json"))


def check_request(store: Store, asked: Request, config: BaseModel, force: bool = False) -> None:
    """Raise ValueError if the run is another flow's, or was made with another configuration, unless `force`. Limits of
    monitors may change: they are in no recipe."""
    before, now = store.kept(asked.run, CONFIG), config.model_dump(mode="json")
    last = _request(store, asked.run)
    if last and last.flow != asked.flow:
        raise ValueError(f"run {asked.run!r} is one of {last.flow}; give this run of {asked.flow} another name")
    before, now = ({key: value for key, value in some.items() if key != "monitor"} for some in (before or now, now))
    if not force and (changed := differences(before, now)):
        raise ValueError(
            f"run {asked.run!r} was made with {'; '.join(changed[:5])}. Give this run a new name, undo the change, "
            "or add --force: what depends on it is rebuilt."
        )


def last_request(store: Store, run: str) -> Request:
    """The last request of a run. Raises ValueError if there is no such run."""
    asked = _request(store, run)
    if asked is None:
        raise no_run(run)
    return asked


def _request(store: Store, run: str) -> Request | None:
    kept = store.kept(run, REQUEST)
    try:
        return None if kept is None else Request.model_validate(kept)
    except ValidationError:
        path = store.folder(run) / REQUEST
        raise Damaged(f"{path} holds no request: remove it, then repeat the original `selfplay run` command") from None


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """`key before, now value` for every setting that differs.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b 1, now 2']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        return [d for key in keys for d in differences(before.get(key), now.get(key), f"{where}.{key}".lstrip("."))]
    return [] if before == now else [f"{where} {before}, now {now}"]
