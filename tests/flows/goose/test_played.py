"""Golden Goose once over a scripted engine: four texts, of which two make tasks that are not easy.

Every number is worked out by hand from the script: four attempts at a task, and two updates on two
tasks with four answers each.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.app.viewer.equations import show
from flows.environments.environment import environment_of
from flows.environments.recorded import Recording
from flows.goose.config import Config
from flows.goose.flow import goose_iteration
from flows.pilot.play import play_pilot
from flows.pilot.signals import measure
from flows.runtime.record import last_request
from flows.runtime.request import Request
from flows.settings import profile
from tasks.scorers.equality import agree
from tests.support.scripted_play import (
    Asked,
    Script,
    any_text_model,
    changed_if,
    first_stale_in_fork,
    perform,
)
from warehouse.query import query
from warehouse.schemas import REWARDS, UPDATES
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "documents": 4,
    "steps": 2,
    "tasks_per_step": 3,  # more than are kept
    "answers": 4,
    "mini_batch": 2,
    "author.num_distractors": 5,
    "author.group_size": 1,
    "difficulty.attempts": 4,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.chat_template": "model",
    "dialogues.stop": [],
    "dialogues.author_stop": [],
    "dialogues.document_tokens": 512,
    "dialogues.author_tokens": 1024,
    "dialogues.response_tokens": 512,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "monitor.max_flat_group": None,
}
NAMES = ("easy", "half", "hard", "bad")


def text_of(name: str) -> str:
    return (
        f"The {name} number is even. It is twice another, and its square is four times that one's."
        f" Therefore the square of the {name} number is even, too."
    )


def say(asked: Asked) -> str:
    name = next(name for name in NAMES if f"The {name} number" in asked.text)
    step = f"the square of the {name} number is even"
    if asked.template == "author":
        if name == "bad":
            step = "words that stand nowhere in it"
        wrong = [f"the square of the {name} number is {i}" for i in range(5)]
        options = "".join(f"<distractor>{text}</distractor>" for text in wrong)
        return f"A step.\n<step>{step}</step>\n{options}"
    right = next(line[0] for line in asked.text.splitlines() if line.endswith(f") {step}"))
    other = "A" if right != "A" else "F"
    times_right = {"easy": 4, "half": 2, "hard": 0}[name]
    letter = right if asked.sample < times_right else other
    return rf"So \boxed{{{letter}}}"


def play(folder: Path, **changed: object) -> tuple[Store, Script]:
    script = Script(say)
    store = Store(folder / "store")
    texts = folder / "texts.jsonl"
    folder.mkdir(exist_ok=True)
    texts.write_text(
        "".join(json.dumps({"id": name, "text": text_of(name)}) + "\n" for name in NAMES)
    )
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        settings = {**SETTINGS, "models.base": model, **changed}
        goose_iteration("smollm2", "r", settings, str(texts))
    return store, script


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("goose"))


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_tasks_that_are_always_solved_are_dropped(played) -> None:
    kept = rows(
        played,
        """
        select document_id, num_correct, num_judged, mean_score, reason
        from selections order by document_id
        """,
    )
    assert kept == [
        ("bad", None, None, None, "malformed: the step is not in the text"),
        ("easy", 4, 4, 1.0, "too easy"),
        ("half", 2, 4, 0.5, None),
        ("hard", 0, 4, 0.0, None),
    ]


def test_each_update_sees_both_tasks_and_learns_from_the_one_that_is_not_always_wrong(
    played,
) -> None:
    """Two of four answers to `half` are right: one standard deviation from their mean each."""
    advantages = rows(
        played,
        """
        select a.step, t.document_id, list(round(a.advantage, 3) order by a.advantage)
        from advantages as a
        join answers as b using (rollout_id)
        join (select distinct task_id, document_id from tasks) as t on t.task_id = b.task_id
        group by all order by all
        """,
    )
    assert advantages == [
        (step, name, values)
        for step in (1, 2)
        for name, values in (("half", [-1.0, -1.0, 1.0, 1.0]), ("hard", [0.0] * 4))
    ]
    assert len(list(played[0].tables("r", UPDATES))) == 2


def test_the_solver_sees_the_mask_and_six_options_but_no_step(played) -> None:
    [shown] = {
        asked.text
        for asked in played[1].asked
        if asked.template == "solver" and "half" in asked.text
    }
    before, _, options = shown.partition("One of these options")
    assert "Therefore [MASK], too." in before and "the square of" not in before
    assert sum(f"{letter}) the square of" in options for letter in "ABCDEF") == 6


def test_the_viewer_shows_an_equation_that_gives_every_reward(played) -> None:
    for table in played[0].tables("r", REWARDS):
        for reward in table.rows():
            shown = show(table.recipe["params"], reward["components"], reward["reward"], [])
            assert shown is not None and shown.general == "g"


def test_a_rerun_makes_equal_tables(played, tmp_path: Path) -> None:
    assert changed_if(goose_iteration, played[0], tmp_path) == set()


def test_a_fork_continues_without_making_anything_again(played, tmp_path: Path) -> None:
    assert first_stale_in_fork(goose_iteration, played[0], tmp_path) is None


def test_without_the_filter_easy_tasks_stay_and_nothing_before_it_changes(
    played, tmp_path: Path
) -> None:
    changed = changed_if(
        goose_iteration, played[0], tmp_path, **{"difficulty.enabled": False, "steps": 0}
    )
    assert {name.partition(".")[0] for name in changed} == {"selections"}


def test_without_tasks_nothing_is_trained(tmp_path: Path) -> None:
    store, _ = play(tmp_path / "none", **{"author.min_words": 40, "unread": "warn"})
    assert not list(store.tables("r", UPDATES))
    [(reason,)] = [
        tuple(r.values()) for r in query(store.root, "select distinct reason from selections")
    ]
    assert reason == "malformed: the step has fewer than 40 words"


def test_kept_tasks_can_be_exported_with_their_rule(played) -> None:
    store = played[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        recording = goose_iteration.play_by(Recording(), last_request(store, "r"), {})
    environment = environment_of(recording, "r")
    assert len(environment.tasks) == 2 and environment.scorer.compare is agree
    assert all(len(task["options"]) == 6 for task in environment.tasks)


def test_a_pilot_goes_through_both_roles_and_trains_nothing(played, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = str(any_text_model(tmp_path / "model"))
    corpus = str(played[0].root.parent / "texts.jsonl")
    settings = {**SETTINGS, "models.base": model, "corpus": corpus}
    request = Request(flow="goose-iteration", profile="smollm2", run="r", overrides=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(say), patch)
        notes = play_pilot(goose_iteration, request)
        cfg = profile.load(Config, "smollm2", request.settings)
        signals = measure(store, "r", cfg, notes)
    assert notes.stopped is None and len(notes.updates) == 1
    assert {role.name for role in signals.roles} == {"author", "solver"}
    assert not list(store.tables("r", UPDATES))
