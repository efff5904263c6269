"""What R-Zero, MAE and EAPO mark with `@ahead`: slices of one prompt sample all that the step asks for, and no more."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import flows.eapo.flow as eapo
import flows.mae.flow as mae
import flows.rzero.flow as rzero
from flows import profile
from flows.eapo.config import Config as EapoConfig
from flows.machines import Machines
from flows.mae.config import Config as MaeConfig
from flows.profile import MethodSettings
from flows.run import Player, Run
from flows.rzero.config import Config as RzeroConfig
from tests.support.rows import publish, row
from tests.support.talkers import BASE, Talkers
from warehouse.store import Place, Store, Table

Play = Callable[[Run[Any], Place], Any]
PLAYER = Player("p", BASE)
PARTS = "<analysis>a</analysis>\n<evidence>\n{}\n</evidence>\n<reasoning>r</reasoning>\n<answer>{}</answer>"
QUESTIONS = ("who", "when", "when")


def talk(role: str, prompt: str, sample: int) -> str:
    """A fourth question, the one after "whence", its answers and every second answer are malformed."""
    if role in ("challenger", "proposer"):
        is_lost = sample == 3 or "whence" in prompt
        return "nothing comes to mind" if is_lost else f"<question>{QUESTIONS[sample]}</question>"
    if role == "solver":
        is_lost = sample == 1 or "whence" in prompt
        return "I do not know" if is_lost else rf"<answer>{sample}</answer> \boxed{{{sample}}}"
    if role == "policy":
        return "I do not know" if sample == 1 else PARTS.format(re.findall("fact [0-9]", prompt)[0], "yes")
    if role == "reward_model":
        return '{"scores": [5, 4]}' if "fact 1" in prompt else "no object"
    return "<score>7</score> [[CORRECT]]"


def rzero_questions(run: Run[Any], step: Place) -> None:
    size = {"count": 3, "n": 4, "m": 2}
    rzero.ask_and_answer(run, rzero.Roles(run.cfg), step, PLAYER, PLAYER, **size)


def mae_questions(run: Run[Any], step: Place) -> None:
    mae.ask_questions(run, mae.Roles(run.cfg), step, PLAYER, draws(step, "who", "whence"))


def mae_answers(run: Run[Any], step: Place) -> None:
    """To draws of which every one comes twice."""
    mae.solve(run, mae.Roles(run.cfg), step, PLAYER, pool(step, "who", "whence"), None)


def eapo_answers(run: Run[Any], step: Place) -> None:
    names = [f"q{n}" for n in range(3)]
    asked = (
        row("tasks", task_id=n, document_id=n, text=f"{n}?", reference="yes", task_type="multi_hop") for n in names
    )
    tasks = publish(step, "tasks", *asked)
    contexts = publish(step, "documents", *(row("documents", document_id=n, text=f"fact {n[1]}") for n in names))
    eapo.answer_and_compare(run, eapo.Roles(run.cfg), step, PLAYER, PLAYER, tasks, contexts)


def draws(step: Place, *texts: str) -> Table:
    return publish(
        step, "draws", *(row("draws", draw_id=t, task_id=t, entry_id=t, text=t) for t in texts), label="given"
    )


def pool(step: Place, *texts: str) -> Table:
    given = (row("pools", entry_id=t, task_id=t, text=t, kept=True) for t in texts)
    return publish(step, "pools", *given, label="given")


@pytest.mark.parametrize(
    ("config", "play", "roles"),
    [
        (RzeroConfig, rzero_questions, {"challenger": 3 * 4, "solver": 9 * 2}),
        (MaeConfig, mae_questions, {"proposer": 4, "solver": 3 * 3, "judge": 3 + 3 * 2}),
        (MaeConfig, mae_answers, {"solver": 4, "judge": 2}),
        (EapoConfig, eapo_answers, {"policy": 3 * 3, "judge": 3 * 2, "reward_model": 1 + 2 * 2}),  # two asked again
    ],
    ids=["rzero", "mae-propose", "mae-solve", "eapo"],
)
def test_all_that_a_method_asks_for_follows_from_single_first_prompts(
    tmp_path, config: type[MethodSettings], play: Play, roles: dict[str, int]
) -> None:
    tables, asked = [], []
    for size in (100, 1):
        fleet, place, run = bench(config, Store(tmp_path / str(size)), size)
        threads = set[str]()
        fleet.say = lambda *said, seen=threads: seen.add(threading.current_thread().name[:5]) or talk(*said)
        play(run, place)
        assert threads == {"ahead"}
        tables.append({table.address: table.rows() for table in place.store.tables("r")})
        asked.append(Counter(fleet.asked))
    assert asked[0] == asked[1] and tables[0] == tables[1]
    assert Counter(role for role, *_ in asked[0].elements()) == roles


def bench(config: type[MethodSettings], store: Store, size: int) -> tuple[Talkers, Place, Run[Any]]:
    settings = {"models.base": "base", "dialogues.prompts": "english", "dialogues.response_tokens": 64, "ahead": size}
    if config is EapoConfig:
        settings |= {"outcome": "judge", "group_size": 3}
    if config is MaeConfig:
        settings |= {"batch_size": 4}
    cfg = profile.load(config, "micro", settings)
    fleet = Talkers(talk, cfg, store.root)
    run = Run(cfg, store.run("r"), {"base": BASE}, Machines(fleet, fleet, None))  # type: ignore[arg-type]
    return fleet, run.place.iteration(1).phase("training").step(1), run
