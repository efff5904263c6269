"""The worked method, its copies, and the snippets of the guide to writing methods."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import flows
from flows.app.command.new import write_method
from flows.app.service.deployments import declared
from flows.app.service.site import Site
from flows.run import Role
from flows.runtime.request import Request
from flows.runtime.store_root import SOURCE
from flows.settings import profile
from tests.support.rows import row, turn


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a copy of the worked method, `my_idea`, importable as a package of flows."""
    written = write_method("my_idea", tmp_path)
    assert "flows/my_idea/flow.py" in written
    assert "flows/my_idea/profiles/smollm2.toml" in written
    monkeypatch.setattr(flows, "__path__", [*flows.__path__, str(tmp_path / "flows")])
    yield tmp_path
    for module in [name for name in sys.modules if name.startswith("flows.my_idea")]:
        del sys.modules[module]


def test_a_copied_method_has_profiles_and_deployments(copied: Path) -> None:
    config = importlib.import_module("flows.my_idea.config").Config
    cfg = profile.load(config, "micro")
    assert (cfg.engine.model, cfg.update.beta) == ("data/micro/spice", 0.0)
    assert cfg.update.learning_rate == 1e-4
    deployments = declared(Site(copied, copied / "home"))
    assert [deployment["name"] for deployment in deployments] == ["micro", "smollm2", "sums"]
    assert {d["entrypoint"] for d in deployments} == {"flows/my_idea/flow.py:my_idea_iteration"}
    assert {d["work_pool"]["name"] for d in deployments} == {"cpu"}


def test_a_new_method_is_the_worked_one_under_its_own_name(tmp_path: Path) -> None:
    write_method("my_idea", tmp_path)
    assert (
        "from flows.my_idea.config import Config"
        in (tmp_path / "flows" / "my_idea" / "flow.py").read_text()
    )
    with pytest.raises(ValueError, match="my_idea exists"):
        write_method("my_idea", tmp_path)


@pytest.mark.parametrize(
    "name, why",
    [
        ("My-Idea", "'My-Idea' cannot be a method: use lower-case letters"),
        ("2ttrl", "beginning with a letter"),
        ("class", "Python reserves the word"),
        # flows/run would hide it from every method
        ("run", r"flows/run\.py exists: give another name"),
    ],
)
def test_a_new_method_gets_no_name_that_would_break_it_or_the_others(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "run.py").touch()
    with pytest.raises(ValueError, match=why):
        write_method(name, tmp_path)


@pytest.mark.parametrize("name", ["a", "my_idea", "rent", "zebra"])
def test_imports_of_a_new_method_are_in_order(tmp_path: Path, name: str) -> None:
    write_method(name, tmp_path)
    imports = re.findall(
        r"^from (flows\S+)", (tmp_path / "flows" / name / "flow.py").read_text(), re.MULTILINE
    )
    assert f"flows.{name}.config" in imports and imports == sorted(imports)


def snippet(*parts: str) -> str:
    """The block of Python in the guide that contains these parts."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$",
        (SOURCE / "flows" / "README.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
    [found] = [block for block in blocks if all(part in block for part in parts)]
    return found


def test_the_role_that_asks_reads_a_question_either_way(place) -> None:
    from functools import partial

    from tasks.ask import ask, repeatedly
    from tasks.models.engine import Sampling
    from tasks.prompt import Template
    from tasks.read import reads
    from tasks.readers.named import named_text
    from warehouse.schemas import TASKS

    known = {
        "reads": reads,
        "partial": partial,
        "named_text": named_text,
        "Role": Role,
        "TASKS": TASKS,
    }
    known |= {
        "repeatedly": repeatedly,
        "sampling": Sampling(max_tokens=9),
        "template": lambda name: Template(name, "ask"),
    }
    exec(snippet("challenger = Role").partition("# one prompt")[0], known)
    assert [
        row["messages"][0]["content"] for row in ask(place, known["challenger"].prompt).rows()
    ] == ["ask"]
    for reply in ("<question>Why?</question>", '{"question": "Why?"}'):
        rollout = row(
            "rollouts", rollout_id="r", reply=reply, finish_reason="final", turns=[turn(reply)]
        )
        (read,) = known["question"].rows(TASKS, rollout, row("prompts", prompt_id="p"))
        assert (read["text"], read["malformed"]) == ("Why?", None)


def test_the_reward_pays_for_questions_that_are_answered_wrongly() -> None:
    from collections.abc import Iterator
    from statistics import fmean

    from tasks.score import scored
    from tasks.stage import rows_by
    from warehouse.schemas import Reward, Row, Task

    known = {"Iterator": Iterator, "fmean": fmean, "scored": scored, "rows_by": rows_by}
    known |= {"Row": Row, "Reward": Reward, "Task": Task}
    exec(snippet("def challenger_rewards").partition("\n\nrewards =")[0], known)
    tasks = [
        row("tasks", task_id=name, rollout_id=name, prompt_id="p", text="Why?")
        for name in ("hard", "open")
    ]
    solved = [row("rewards", task_id="hard", reward=total) for total in (1.0, 0.0, 0.0, 0.0, None)]
    paid = [
        (made["reward"], made["unscorable"]) for made in known["challenger_rewards"](tasks, solved)
    ]
    assert paid == [(0.75, None), (None, "no answer could be scored")]


def test_the_guides_own_reward_takes_a_cost_for_every_token() -> None:
    known: dict[str, object] = {}
    exec(snippet("def short_answer_reward"), known)
    answers = [
        row("answers", rollout_id=name, answer=answer, malformed=malformed)
        for name, answer, malformed in (
            ("right", "4", None),
            ("wrong", "5", None),
            ("unreadable", None, "no box"),
            ("failed", "6", None),
        )
    ]
    matched = {"right": True, "wrong": False, "failed": None}
    matches = [row("matches", rollout_id=name, matched=equal) for name, equal in matched.items()]
    rollouts = [
        row("rollouts", rollout_id=answer["rollout_id"], num_sampled_tokens=10)
        for answer in answers
    ]
    paid = known["short_answer_reward"](answers, matches, rollouts, token_cost=0.01)
    assert [made["reward"] for made in paid] == [
        pytest.approx(0.9),
        pytest.approx(-0.1),
        pytest.approx(-0.1),
        None,
    ]


@pytest.mark.slow
def test_the_worked_method_learns(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warehouse.query import query

    monkeypatch.setenv("SELFPLAY_STORE", str(copied / "store"))
    monkeypatch.chdir(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    method = importlib.import_module("flows.my_idea.flow").my_idea_iteration
    settings = {"iterations": 1, "evaluation.num_tasks": 240}
    asked = Request(flow="my-idea-iteration", profile="micro", run="mine", overrides=settings)
    method.run(asked)
    scores = query(
        copied / "store",
        "select iteration, score from evaluations where metric = 'score' order by iteration",
    )
    before, after = (row["score"] for row in scores)
    assert after - before > 0.1  # about three standard errors of 240 answers
    assert all(why is None for _, why in method.inquire(asked, {}).reasons)
