"""Export a policy of a run as a model.

The folder gets its weights or adapter, and a model card that states its origin.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import yaml

from warehouse.clean import lacks_files
from warehouse.lake import Lake
from warehouse.new_folder import new_folder
from warehouse.provenance import NO_DRY_RUN, DryRun, by_reason, led_to, made_with, stale
from warehouse.publish import LICENCES, cell
from warehouse.store import Store
from warehouse.table import Cleaned, Table, check_iteration
from warehouse.usage import usage_of

CARD = Path(__file__).parent / "model_card.md.jinja"
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
# returns what to change in the config.json of a folder, given the parameter `yarn` of an update
Stretched = Callable[[Path, dict[str, Any]], dict[str, Any]]


def write_policy(
    store: Store,
    run: str,
    role: str,
    iteration: int | None,
    folder: Path,
    checked: DryRun = NO_DRY_RUN,
    stretched: Stretched | None = None,
) -> str:
    """Copy a role's policy as it was after an iteration (None: the last), and write its card.

    Full weights that were trained with stretched positions (YaRN) get a config.json that says so,
    with what `stretched` returns. In the store, config.json stays that of the base model, because
    every update applies the stretching again. An adapter has no such file, so only its card says
    it.

    Returns the policy's id. `checked` says which tables the run would rebuild now; the card names
    those among the tables that the policy was made from.

    Raises ValueError for a role without updates, an iteration that does not exist or a folder that
    is not empty, Cleaned if the weights were removed, and Damaged if they changed since they were
    published.
    """
    updates = _updates(store, run, role, iteration)
    last = updates[-1].rows()[-1]
    source = updates[-1].file(last["adapter"] or last["weights"])
    inside = source.relative_to(updates[-1].folder).as_posix()
    if lacks_files(updates[-1], inside):
        raise Cleaned(
            f"the weights of {updates[-1].address} were cleaned away, or left out by `selfplay"
            f" pull` (repeat that with --weights); `selfplay rerun {run} updates --only --iteration"
            f" {updates[-1].at.iteration} --step {updates[-1].at.step}` rebuilds them"
        )
    updates[-1].check_files(inside)
    with new_folder(folder) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
        _make_readable(partial)
        yarn = updates[-1].recipe.get("params", {}).get("yarn")
        if yarn and last["adapter"] is None and stretched is not None:
            _write_positions(partial, stretched(partial, yarn))
        _write_base(partial)
        text = card(store, run, role, updates, checked)
        (partial / "README.md").write_text(text, encoding="utf-8")
    return last["policy"]


def _make_readable(folder: Path) -> None:
    """Give the copies the modes of new files: trainers write weights for their owner only."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def _write_base(folder: Path) -> None:
    """Make the path of an adapter's base absolute, if the base is a local folder."""
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return
    config = json.loads(path.read_text(encoding="utf-8"))
    base = config.get("base_model_name_or_path")
    if base:
        config["base_model_name_or_path"] = _anywhere(base)
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _write_positions(folder: Path, positions: dict[str, Any]) -> None:
    """Write positions into config.json; with old names if an old version of the library made it."""
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    is_old = "rope_theta" in config or "rope_scaling" in config
    config |= positions
    if is_old:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope["rope_theta"]
        config["rope_scaling"] = {key: rope[key] for key in rope if key != "rope_theta"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _updates(store: Store, run: str, role: str, iteration: int | None) -> list[Table]:
    """The role's updates in order, up to and including an iteration."""
    by_role: dict[str, list[Table]] = {}
    for table in store.updates(run):
        by_role.setdefault(table.rows()[-1]["role"], []).append(table)
    updates = by_role.get(role, [])
    when = ""
    if iteration is not None:
        check_iteration(run, store.tables(run), iteration)
        updates = [table for table in updates if (table.at.iteration or 0) <= iteration]
        when = f" up to iteration {iteration}"
    if not updates:
        raise ValueError(
            f"run {run!r} has no update of a policy {role!r}{when}; there are"
            f" {', '.join(by_role) or 'none at all'}"
        )
    return updates


def card(
    store: Store, run: str, role: str, updates: list[Table], checked: DryRun = NO_DRY_RUN
) -> str:
    """The model card, as Markdown, of the policy that the last of `updates` trained.

    It has a header for the hub, training, scores, lineage, and licences of the documents it read.
    `checked` says which tables the run would rebuild now.
    """
    lake = Lake(store)
    last = updates[-1].rows()[-1]
    base = updates[0].rows()[0]["parent"]
    weights = base
    base_hash = None
    policies = _rows(lake, run, BASE, base=base)
    if policies:
        weights = policies[0]["weights"]
        base_hash = policies[0]["policy_hash"]
    request = store.kept(run, "request.json") or {}
    usage = usage_of(store, run, updates)
    used = led_to(list(store.tables(run)), updates)
    tags = ["selfplay", "reinforcement-learning"]
    if request.get("flow"):
        tags.append(request["flow"])
    header: dict[str, Any] = {
        "library_name": "peft" if last["adapter"] else "transformers",
        "pipeline_tag": "text-generation",
        "license": "other",
        "license_name": "see-the-base-model",
        "tags": tags,
    }
    if _is_on_the_hub(weights):
        header["base_model"] = weights
    template = jinja2.Template(
        CARD.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True
    )
    return template.render(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        run=run,
        role=role,
        asked=request,
        made=time.strftime("%Y-%m-%d"),
        last=last,
        base=weights,
        base_hash=base_hash,
        num_steps=sum(table.num_rows for table in updates),
        updates=[{"at": table.at, **table.rows()[-1]} for table in updates],
        settings=json.dumps(
            updates[-1].recipe.get("params", {}).get("settings", {}), indent=1, ensure_ascii=True
        ),
        adapter=bool(last["adapter"]),
        usage=usage and usage.markdown(_anywhere(weights), is_adapter=bool(last["adapter"])),
        yarn=updates[-1].recipe.get("params", {}).get("yarn"),
        made_with=made_with(used),
        stale=by_reason(stale(store, used, checked.stale)),
        unchecked=checked.problem,
        evaluations=_rows(lake, run, EVALUATIONS),
        trained=_rows(lake, run, TRAINED, role=role, iteration=updates[-1].at.iteration or 0),
        licences=_rows(lake, run, LICENCES),
        cell=cell,
    )


BASE = "select weights, policy_hash from policies where run = $run and policy = $base"
EVALUATIONS = """
    select iteration, benchmark, policy, n, score, standard_error from evaluations
    where run = $run and metric = 'score' order by benchmark, iteration
"""
TRAINED = """
    select batches.iteration, count(distinct rollout_id) as rollouts,
        sum(len(completion_token_ids)) as tokens,
        sum((advantage > 0)::int) as better, sum((advantage < 0)::int) as worse
    from batches semi join updates
        on updates.run = batches.run and updates.role = $role
        and updates.step is not distinct from batches.step
        and updates.phase is not distinct from batches.phase
        and updates.iteration is not distinct from batches.iteration
    where batches.run = $run and coalesce(batches.iteration, 0) <= $iteration
    group by all order by all
"""


def _rows(lake: Lake, run: str, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    return lake.query(run, sql, {"run": run, **parameters}).rows


def _anywhere(weights: str) -> str:
    """A model's name, or the absolute path of its folder."""
    if Path(weights).is_dir():
        return str(Path(weights).resolve())
    return weights


def _is_on_the_hub(weights: str) -> bool:
    """Whether `weights` is the name of a model on the hub, not a folder.

    >>> _is_on_the_hub("Qwen/Qwen3-4B-Base")
    True
    >>> _is_on_the_hub("data/micro/base"), _is_on_the_hub("/models/mine")
    (False, False)
    """
    return weights.count("/") == 1 and not weights.startswith("/") and not Path(weights).exists()
