"""A judge that errs on purpose, over a script: which verdicts it changes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest

from flows.method import opened
from flows.run import Run
from flows.scope.config import Config
from flows.scope.steps import Scope, grade, propose_tasks, sample_documents
from flows.settings import profile
from tasks.noise import VerdictErrors
from tests.flows.scope.test_played import TOWNS, say
from tests.flows.scope.test_pool import over_nine_documents
from tests.support.scripted_play import Script, perform
from warehouse.store import Store

FAVOURS_LENGTH = VerdictErrors(shape="length", share=1.0)


def is_stated(criterion: str, text: str) -> bool:
    """Whether an answer says "fact 1 of Arvel.", if the criterion is "Names fact 1 of Arvel."."""
    return criterion.removeprefix("Names ") in text


@dataclass(frozen=True)
class Judged:
    """Answers by rollout id, and two tables of judgments on them: those that reward tasks, and
    those of a held-out score."""

    answers: dict[str, str]
    rewarding: list[dict]
    held_out: list[dict]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    folder: Path = tmp_path_factory.mktemp("erring")
    cfg = profile.load(Config, "micro", over_nine_documents(folder))
    with pytest.MonkeyPatch.context() as patch:
        perform(Script(say), patch)
        with opened(cfg, Store(folder / "store"), "r") as run:
            return judge(run)


def judge(run: Run[Config]) -> Judged:
    scope = replace(
        Scope.prepare(run),
        run=replace(run, cfg=run.cfg.model_copy(update={"errors": FAVOURS_LENGTH})),
        oracle=is_stated,
    )
    step = run.place.iteration(1).phase("pool").step(1)
    tasks = propose_tasks(
        scope,
        step,
        run.player("challenger"),
        run.player("solver"),
        sample_documents(scope, step, len(TOWNS), skip=0),
        answering=scope.roles.screener,
        group_size=1,
        num_answers=4,
    )
    answers = run.place.store.get(step.address("answers"))
    rewarding = run.place.store.get(step.address("judgments", "grade"))
    held_out = grade(
        scope,
        run.place.iteration(1).phase("evaluation"),
        answers=answers,
        rubrics=tasks.rubrics.rows,
        tasks=tasks.tasks,
    )
    texts = {row["rollout_id"]: row["answer"] for row in answers.rows() if row["answer"]}
    return Judged(texts, rewarding.rows(), held_out.rows())


def with_verdict(rows):
    return [row for row in rows if row["verdict"] is not None and row["oracle"] is not None]


def test_verdicts_that_reward_favour_length(judged):
    lengths = defaultdict(list)
    rows = with_verdict(judged.rewarding)
    for row in rows:
        lengths[row["task_id"]].append(len(judged.answers[row["rollout_id"]]))
    assert len(lengths) > 2
    for row in rows:
        is_long = len(judged.answers[row["rollout_id"]]) > median(lengths[row["task_id"]])
        assert row["verdict"] == is_long
    assert {row["verdict"] for row in rows} == {0, 1}
    assert any(row["verdict"] != row["oracle"] for row in rows)


def test_verdicts_of_a_held_out_score_do_not_err(judged):
    rows = with_verdict(judged.held_out)
    assert len(rows) == len(with_verdict(judged.rewarding))
    assert all(row["verdict"] == row["oracle"] for row in rows)
