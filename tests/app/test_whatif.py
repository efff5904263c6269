"""`selfplay whatif`: rewards and selections under other settings and other code, from stored
rollouts alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from scipy.stats import spearmanr

from flows.app.command import cli
from flows.app.whatif.compare import compare_kept, compare_rewards
from flows.rzero.rewards import challenger_rewards
from tests.flows.rzero.test_played import CANDIDATES, EASY, HARD, MOST, QUARTERS, TRAINING, play
from tests.support.rows import publish, row
from warehouse.schemas import Label, Novelty, Row, Task
from warehouse.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One iteration of R-Zero over the script of `test_rzero_played`."""
    return play(tmp_path_factory.mktemp("whatif"), *TRAINING, *CANDIDATES)[0]


@pytest.fixture
def ask(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    monkeypatch.setattr("flows.app.command.tables.PIPE_WIDTH", 400)
    return lambda *arguments: CliRunner().invoke(cli.main, ["whatif", "r", *arguments])


def cells(told: Result, word: str) -> list[list[str]]:
    """The cells of the printed rows that contain a word."""
    assert told.exit_code == 0, told.output
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in told.output.splitlines()
        if word in line
    ]


def contents(store: Store) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in store.runs.rglob("*") if path.is_file()}


def test_a_run_asked_about_as_it_was_played_changes_nothing(ask, store) -> None:
    before = contents(store)
    told = ask()
    assert (
        "stages rerun on stored tables: 0; tables of rewards and selections that would differ: 0"
        " of 9" in told.output
    )
    assert contents(store) == before


def test_a_wider_window_names_the_tasks_that_it_would_keep(ask, store) -> None:
    """The share of HARD is 1/8: outside 0.5 - 0.25, inside 0.5 - 0.4."""
    before = contents(store)
    told = ask("--set", "solver.delta=0.4")
    assert [tuple(line[3:]) for line in cells(told, "Roll one")] == [("too hard", "kept", HARD)]
    assert "1 of 1, by name" in told.output
    assert contents(store) == before


def test_a_narrower_window_names_the_tasks_that_it_would_drop(ask) -> None:
    told = ask("--set", "solver.delta=0.2")
    named = [line[3:] for word in ("Name a prime", "Pick any digit") for line in cells(told, word)]
    assert named == [["kept", "too easy", MOST], ["kept", "too hard", QUARTERS]]
    pool, *_ = cells(told, "iter-001/pool")
    assert pool[1:] == ["3", "1"]


def test_another_weight_changes_three_rewards_and_no_rank(ask) -> None:
    """Without the penalty for similar questions HALF earns 1 twice, MOST 1/2 and EASY 0; before,
    0.6, 0.3 and 0. The reply without a question earns 0, and the one that was not sampled has no
    reward."""
    (of_scores,) = cells(
        ask("advantages", "--set", "challenger.repetition_weight=0"), "challenger/advantages"
    )
    assert of_scores[1:] == ["6", "3", "1.000", "0.300", "0.500", "1", "1", "0"]


def reversed_pay(
    tasks: list[Task], labels: list[Label], novelties: list[Novelty], *, weight: float
) -> Iterator[Row]:
    for paid in challenger_rewards(tasks, labels, novelties, weight=weight):
        yield {**paid, "reward": None if paid["reward"] is None else -paid["reward"]}


def test_an_edited_reward_is_taken_as_it_stands_now(ask, monkeypatch) -> None:
    """EASY and the malformed reply still earn 0; the others' ranks and signs are reversed.
    Advantages were 1.2, 0, -1.2 and 1, -1."""
    monkeypatch.setattr("flows.rzero.flow.challenger_rewards", reversed_pay)
    (of_rewards,) = cells(ask("challenger/advantages"), "challenger/advantages")
    assert of_rewards[1:] == ["6", "3", "-1.000", "0.300", "-0.300", "1", "1", "4"]


def test_what_needs_sampling_is_refused_with_the_setting(ask) -> None:
    told = ask("--set", "solver.answers=4")
    assert (
        told.exit_code == 1
        and "group_size 8, now 4" in told.output
        and "selfplay why" in told.output
    )


def test_where_the_flow_would_go_further_than_it_went_the_comparison_ends(ask) -> None:
    told = ask("--set", "challenger.steps=2")
    assert (
        "what follows is not compared: r/iter-001/challenger/step-002/prompts.challenger was never"
        " made" in told.output
    )


def test_a_stage_without_rewards_is_refused_with_those_that_have_some(ask) -> None:
    told = ask("labels")
    assert told.exit_code == 1 and "whatif compares rewards: advantages, rewards" in told.output
    assert EASY not in told.output


def test_the_rank_correlation_is_scipys_with_ties_and_over_all_steps(tmp_path) -> None:
    draw = random.Random(0)
    stored = Store(tmp_path / "stored")
    other = Store(tmp_path / "other")
    totals: dict[Store, list[float | None]] = {stored: [], other: []}
    for step in range(1, 4):
        for one in totals:
            paid = [draw.choice([None, 0.0, 0.25, 0.5, draw.random()]) for _ in range(60)]
            totals[one] += paid
            rows = [
                row("advantages", rollout_id=f"{step}-{i}", reward=total)
                for i, total in enumerate(paid)
            ]
            publish(one.run("r").iteration(1).phase("p").step(step), "advantages", *rows)
    (found,) = compare_rewards(
        list(stored.tables("r")), {table.address: table for table in other.tables("r")}
    )
    both = [
        (a, b) for a, b in zip(*totals.values(), strict=True) if a is not None and b is not None
    ]
    assert found["rank_correlation"] == pytest.approx(
        spearmanr(*zip(*both, strict=True)).statistic, abs=1e-12
    )
    assert found["place"] == "r/iter-001/p/advantages" and found["rollouts"] == 180


def test_rewards_that_are_all_equal_have_no_rank_correlation(tmp_path) -> None:
    stored = Store(tmp_path / "stored")
    other = Store(tmp_path / "other")
    for one, paid in ((stored, (0.0, 1.0)), (other, (0.5, 0.5))):
        rows = [row("advantages", rollout_id=str(i), reward=total) for i, total in enumerate(paid)]
        publish(one.run("r").iteration(1), "advantages", *rows)
    (found,) = compare_rewards(
        list(stored.tables("r")), {table.address: table for table in other.tables("r")}
    )
    assert found["rank_correlation"] is None
    assert (found["changed"], found["rollouts"]) == (2, 2)


def test_a_candidate_on_one_side_only_is_no_candidate_on_the_other(tmp_path) -> None:
    stored = Store(tmp_path / "stored")
    other = Store(tmp_path / "other")
    place = "r/iter-001/selections"
    publish(stored.run("r").iteration(1), "selections", row("selections", task_id="a", kept=True))
    publish(other.run("r").iteration(1), "selections", row("selections", task_id="b", kept=True))
    tasks = publish(
        stored.run("r").iteration(1), "tasks", row("tasks", task_id="b", text="a question")
    )
    found = compare_kept([stored.get(place)], {place: other.get(place)}, [tasks])
    assert [(of["id"], of["was"], of["would_be"], of["task"]) for of in found] == [
        ("b", "no candidate", "kept", "a question"),
        ("a", "kept", "no candidate", None),
    ]


def test_a_candidate_is_named_with_the_step_that_selected_it(tmp_path) -> None:
    stored = Store(tmp_path / "stored")
    other = Store(tmp_path / "other")
    for step in (1, 2):
        at = stored.run("r").iteration(1).phase("play").step(step)
        publish(at, "selections", row("selections", task_id=f"t{step}", kept=True))
        at = other.run("r").iteration(1).phase("play").step(step)
        publish(at, "selections", row("selections", task_id=f"t{step}", kept=False, reason="hard"))
    tables = list(stored.tables("r"))
    found = compare_kept(tables, {table.address: other.get(table.address) for table in tables}, [])
    assert [(of["place"], of["step"], of["id"]) for of in found] == [
        ("r/iter-001/play/selections", 1, "t1"),
        ("r/iter-001/play/selections", 2, "t2"),
    ]
