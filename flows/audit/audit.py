"""A second, stricter audit of the tasks that passed a method's gates (`tasks.audit`). Call it before an update that
trains on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flows.run import Role, Run
from tasks.audit import AUDITOR, GATES, Sound, gate_leaks, show_passed
from tasks.engines.base import Sampling
from tasks.prompt import Template
from tasks.read import Reader
from tasks.readers.verdicts import bracketed
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
    shown: dict[str, Any] | None = None,
    label: str = "gates",
) -> None:
    """Raise Alarm if too many of the tasks that passed should not have: by an oracle's `sound`, and by the auditor if
    the configuration names one.

    `chosen` says which tasks were kept; `passed` lists the reasons of tasks that passed but were not needed. `labels`
    replace references. `shown`: the `documents` behind the tasks, and their `memberships` of clusters, for the auditor.
    """
    about: dict[str, Any] = {"tasks": tasks, "chosen": chosen, **({"labels": labels} if labels else {})}
    auditor = run.models.get("auditor")
    if auditor is not None:
        role = auditing(run, passed)
        about["audits"] = run.ask(at, role, auditor, label=f"audit-{label}", **about, **(shown or {})).rows
    if auditor is not None or sound is not None:
        measure: Callable[..., Any] = partial(gate_leaks, sound=sound, passed=passed)
        run.watch(at, measure, policy=policy, benchmark=GATES, label=label, **about)


def auditing(run: Run[Any], passed: tuple[str, ...]) -> Role:
    """The auditor's role: temperature 0, one verdict, requested once more if malformed."""
    cfg = run.cfg.audit
    drawn = {"count": cfg.tasks, "seed": run.cfg.seed, "limit": cfg.document_tokens, "model": run.cfg.models.base}
    return Role(
        AUDITOR,
        (Template.load(PROMPTS, "audit"),),
        partial(show_passed, passed=passed, **drawn),
        Sampling(temperature=0, max_tokens=cfg.response_tokens),
        VERDICTS,
        Reader(read_audit, measure_audit),
        judge=True,
        ask_again=verdict,
    )


def verdict(reply: str) -> bool:
    return bool(bracketed(reply, {"YES": 1, "NO": 0}))


def read_audit(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"passed": verdict(rollout["reply"] or "")}


def measure_audit(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"gate": AUDITOR, "kind": "model"}
