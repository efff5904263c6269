"""A second, stricter audit of the tasks that passed a method's gates (`tasks.monitors.audit`).

Call it before an update that trains on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flows.run import Role, Run
from tasks.models.engine import Sampling
from tasks.monitors.audit import AUDITOR, GATES, Sound, gate_leaks, show_passed
from tasks.prompt import Template
from tasks.read import Reader, of_reply
from tasks.readers.verdicts import yes_or_no
from tasks.stage import Tables
from warehouse.schemas import GATES as VERDICTS
from warehouse.schemas import PromptRow, Rollout, Row
from warehouse.store import Place

PROMPTS = Path(__file__).parent / "prompts" / "english"


def watch_gates(
    run: Run[Any],
    at: Place,
    policy: str,
    *,
    tasks: Tables,
    chosen: Tables,
    passed: tuple[str, ...] = (),
    sound: Sound | None = None,
    labels: Tables = (),
    shown: Mapping[str, Tables] | None = None,
    label: str = "gates",
) -> None:
    """Raise Alarm if too many of the tasks that passed should not have.

    This is decided by an oracle's `sound`, and by the auditor if the configuration names one; with
    neither, nothing is measured. `chosen` says which tasks were kept; `passed` lists the reasons of
    tasks that passed but were not needed. `labels` replace references. `shown`: for the auditor,
    the table `documents` behind the tasks and the table `memberships` of clusters.
    """
    auditor = run.models.get("auditor")
    if auditor is None and sound is None:
        return
    tables: dict[str, Any] = {"tasks": tasks, "chosen": chosen}
    if labels:
        tables["labels"] = labels
    if auditor is not None:
        role = auditing(run, passed)
        shown_too: dict[str, Any] = {**tables, **(shown or {})}
        tables["audits"] = run.ask(at, role, auditor, label=f"audit-{label}", **shown_too).rows
    run.watch(
        at,
        partial(gate_leaks, sound=sound, passed=passed),
        policy=policy,
        benchmark=GATES,
        label=label,
        **tables,
    )


def auditing(run: Run[Any], passed: tuple[str, ...]) -> Role:
    """The auditor's role: one verdict at temperature 0. After a malformed verdict, an API is asked
    once more; an engine would just repeat it."""
    cfg = run.cfg.audit
    return Role(
        AUDITOR,
        (Template.load(PROMPTS, "audit"),),
        partial(
            show_passed,
            passed=passed,
            count=cfg.tasks,
            seed=run.cfg.seed,
            limit=cfg.document_tokens,
            model=run.cfg.models.base,
        ),
        Sampling(temperature=0, max_tokens=cfg.response_tokens),
        VERDICTS,
        Reader(read_audit, measure_audit),
        on_judge_engine=True,
        ask_again=of_reply(yes_or_no),
    )


def read_audit(rollout: Rollout, prompt: PromptRow) -> Row:
    """The column `passed` of a row of `gates`: the auditor's verdict on a task. Raises Malformed as
    `yes_or_no` does."""
    return {"passed": bool(yes_or_no(rollout["reply"] or ""))}


def measure_audit(rollout: Rollout, prompt: PromptRow) -> Row:
    """The other columns of that row, which even a malformed reply has: the gate is the auditor, and
    its kind is a model."""
    return {"gate": AUDITOR, "kind": "model"}
