"""`scope-iteration/smollm2`, scripted: a search, a task or an answer on one line, a criterion a
line, and a verdict of one word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.store_root import SOURCE
from flows.scope.config import Config
from flows.scope.flow import scope_iteration
from flows.scope.readers import read_rubric
from flows.settings import profile
from tasks.readers.malformed import Malformed
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

TOWNS = ("Arvel", "Borin", "Cestra", "Dorven")
SETTINGS = {
    "challenger.prompts_per_step": len(TOWNS),
    "challenger.group_size": 2,
    "challenger.solver_rollouts": 2,
    "pool.candidates_per_batch": len(TOWNS),
    "pool.max_batches": 1,
    "pool.solver_rollouts": 4,
    "solver.steps": 1,
    "solver.prompts_per_step": 1,
    "solver.group_size": 4,
    "judge.canaries": 4,
    "engine.max_model_len": 4096,
    "dialogues.challenger_prompt_tokens": 4000,
    "dialogues.solver_prompt_tokens": 4000,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "monitor.max_malformed": None,
    "monitor.max_flat_group": None,
}
# an example of the prompt
COPY = "How does the life of Ole Berg explain the story of his film The Long Voyage?"


def say(asked: Asked) -> str:
    if asked.template == "challenger":
        return propose(asked)
    if asked.template == "rubrics":
        return " Names the founder.\n- Names the river.\n\nTask: more"
    if asked.template == "solver":
        return answer(asked)
    if asked.template == "grade":
        return grade(asked)
    return " yes"


def propose(asked: Asked) -> str:
    town = re.findall(r"Text: \[(\w+)\]", asked.text)[-1]
    if asked.turn == 0:
        return f" river of {town}\n"
    if town == "Cestra" or (town == "Dorven" and asked.sample == 1):
        return " \n"
    if town == "Borin":
        return f" {COPY}\n"
    return f" What is {town} proud of ?\n"


def answer(asked: Asked) -> str:
    if asked.turn == 0:
        return " what a town is proud of\n"
    if asked.sample == 3:
        return "\n"
    if asked.sample == 0:
        return " Its bridge.\n"
    return " Its founder and its river.\n"


def grade(asked: Asked) -> str:
    answered, criterion = re.findall(r"Answer: (.*)\nCriterion: Names the (\w+)", asked.text)[-1]
    return " yes" if criterion in answered else " no"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Script]:
    folder = tmp_path_factory.mktemp("lines")
    rows = [
        {"id": t, "title": t, "text": f"{t} has a founder, a river and a bridge."} for t in TOWNS
    ]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    script = Script(say)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        patch.chdir(SOURCE)  # profiles name their files from there
        perform(script, patch)
        settings = {**SETTINGS, "models.base": model, "engine.model": model}
        scope_iteration("smollm2", "r", settings, str(corpus))
    return folder / "store", script


def rows(played: tuple[Path, Script], sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query(played[0], sql)]


def test_a_task_is_a_line_after_a_search_and_no_example_of_the_prompt(played) -> None:
    tasks = rows(
        played,
        "select document_id, text, malformed, format.tool as tool from tasks where phase = 'pool'"
        " order by document_id",
    )
    assert tasks == [
        ("Arvel", "What is Arvel proud of ?", None, 1.0),
        ("Borin", None, "a copy of the prompt's own words", 1.0),
        ("Cestra", None, "out of turns", 1.0),
        ("Dorven", "What is Dorven proud of ?", None, 1.0),
    ]


def test_what_a_search_found_is_shown_on_a_line_and_the_conversation_goes_on(played) -> None:
    turns = rows(
        played,
        "select rollouts.turns[1].text, rollouts.turns[1].queries, rollouts.turns[1].message"
        " from rollouts"
        " join prompts using (prompt_id) where rollouts.phase = 'pool' and document_id = 'Arvel'"
        " and template = 'challenger'",
    )
    [(text, queries, message)] = turns
    assert text == "Search: river of Arvel\n"  # the prompt says what the line is
    assert list(queries) == ["river of Arvel"]
    assert message == "Found: [Arvel] Arvel has a founder, a river and a bridge.\nTask:"


def test_a_criterion_is_a_line_and_a_verdict_a_word(played) -> None:
    criteria = rows(played, "select distinct criterion, weight from rubrics order by criterion")
    assert [row for row in criteria if row[0]] == [
        ("Names the founder.", 1.0),
        ("Names the river.", 1.0),
    ]
    graded = rows(
        played,
        "select round(reward, 4) from rewards where phase = 'solver' order by reward",
    )
    # half of the format (a search, and an answer or none), 0.1 / 3 for one search, the share met
    assert graded == [(0.2833,), (0.5333,), (1.5333,), (1.5333,)]


def test_challenger_and_solver_are_trained(played) -> None:
    roles = rows(played, "select distinct role from updates order by role")
    assert roles == [("challenger",), ("solver",)]


def test_a_rubric_in_lines_ends_at_the_first_line_that_is_none() -> None:
    def criteria(reply: str) -> list[str]:
        weights = {"critical": 1.0, "important": 1.0, "bonus": 0.5}
        read = read_rubric(reply, min_criteria=2, max_criteria=3, weights=weights, in_lines=True)
        assert {row["weight"] for row in read} == {0.5}
        return [row["criterion"] for row in read]

    assert criteria(" Names Ada.\n-Gives 1815.\n- \n- Names Ada.\nTask: x\n- no") == [
        "Names Ada.",
        "Gives 1815.",
    ]
    with pytest.raises(Malformed, match="fewer criteria than allowed"):
        criteria(" Names Ada.\n\n")
    with pytest.raises(Malformed, match="no item of a list"):
        criteria("\n\n")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"task_types": ["writing"]}, 'ask for questions: task_types=["long_form_qa"]'),
        ({"information.num_tasks": 4}, "information.num_tasks=0"),
    ],
)
def test_what_lines_cannot_show_is_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        profile.load(Config, "smollm2", setting)
