"""The prompt sets "english" and "paper" of every method: each template renders, and each reader
reads a well-formed reply of the format that the set asks for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flows.benchmarks.item_prompts import benchmark_template
from flows.run import Role, templates
from flows.settings import profile
from flows.settings.prompts import PAPER, folder_of
from tasks.prompt import Template
from tests.support.rows import row, turn

METHODS = ("scope", "spell", "spice", "eapo", "mae", "rzero")
SETS = ("english", PAPER)
PAPER_PROFILES = {  # every profile of a model that the paper trains
    "scope": "qwen3-8b-6gpu",
    "spell": "qwen2.5-7b",
    "spice": "qwen3-8b-base-8gpu",
    "eapo": "qwen3-30b-a3b-instruct",
    "mae": "qwen2.5-3b-instruct-8gpu",
    "rzero": "qwen3-8b-base-8gpu",
}
OPTIONS = [{"letter": letter, "text": f"CHOICE {letter}"} for letter in "ABCD"]
VALUES: dict[str, Any] = {
    "context": "CONTEXT",
    "title": "TITLE",
    "document": "DOCUMENT",
    "documents": "DOCUMENTS",
    "text": "TEXT",
    "task": "TASK",
    "task_type": "planning",
    "question": "QUESTION",
    "options": OPTIONS,
    "pairs": [{"question": "EARLIER", "answer": "KNOWN"}],
    "answer": "ANSWER",
    "reference": "REFERENCE",
    "references": ["REFERENCE", "ALIAS"],
    "criterion": "CRITERION",
    "search_turns": 2,
    "search_example": "SEARCH",
    "max_searches": 4,
    "searches_left": 1,
    "results": "RESULTS",
    "sets": [["QUOTE"], ["OTHER"]],
    "steps": ["STEP"],
    "evidence": ["QUOTE"],
    "answer_type": "Integer",
    "answer_types": ["Integer", "String"],
    "formats": ["multiple_choice", "free_form"],
    "solution": "SOLUTION",
}
OTHER_VALUES: dict[tuple[str, str], dict[str, Any]] = {
    ("scope", "evidence"): {"documents": [{"title": "TITLE", "document": "DOCUMENT"}]},
    ("scope", "results"): {"documents": [{"title": "TITLE", "text": "TEXT"}]},
}


def home(method: str) -> Path:
    return profile.home(module(method, "config").Config)


def module(method: str, name: str) -> ModuleType:
    return importlib.import_module(f"flows.{method}.{name}")


def names(method: str) -> list[str]:
    return sorted(path.stem for path in (home(method) / "prompts" / "english").glob("*.jinja"))


def template_of(method: str, prompts: str, name: str) -> Template:
    cfg = profile.load(module(method, "config").Config, PAPER_PROFILES[method])
    return templates(cfg, prompts)(name)


@pytest.mark.parametrize("prompts", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_template_of_a_set_renders(method: str, prompts: str) -> None:
    for name in names(method):
        values = VALUES | OTHER_VALUES.get((method, name), {})
        text = template_of(method, prompts, name).render(**values)
        assert text.strip(), f"{method}/{prompts}/{name} is empty"


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_set_shows_what_the_english_set_shows(method: str) -> None:
    """A value that one prompt shows and the other hides would change who knows what."""
    marks = {value for value in VALUES.values() if isinstance(value, str) and value.isupper()}
    marks |= {"EARLIER", "KNOWN", "QUOTE", "STEP", "ALIAS", "CHOICE A", "SOLUTION"}

    def shown(prompts: str, name: str) -> set[str]:
        values = VALUES | OTHER_VALUES.get((method, name), {})
        text = template_of(method, prompts, name).render(**values)
        return {mark for mark in marks if mark in text}

    for name in names(method):
        assert shown(PAPER, name) == shown("english", name), name


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_set_holds_its_own_templates_alone_and_no_other_names(method: str) -> None:
    folder = home(method) / "prompts" / PAPER
    own = {path.stem for path in folder.glob("*.jinja")}
    assert own and own <= set(names(method))
    same = {
        name
        for name in own
        if (folder / f"{name}.jinja").read_text()
        == (folder.parent / "english" / f"{name}.jinja").read_text()
    }
    assert same == set(), "a template that is the same is taken from the set that is extended"
    others = set(names(method)) - own
    assert all(folder_of(folder, name).name == "english" for name in others)


@pytest.mark.parametrize("method", METHODS)
def test_the_profiles_of_the_papers_models_ask_as_the_paper_does(method: str) -> None:
    cfg = profile.load(module(method, "config").Config, PAPER_PROFILES[method])
    assert cfg.dialogues.prompts == PAPER


@pytest.mark.parametrize("name", ["mae/solve", "spell/responder_general_qa", "eapo/answer"])
def test_benchmarks_are_asked_by_the_set_of_training_and_else_by_the_papers(name: str) -> None:
    method, prompt = name.split("/")
    papers = (home(method) / "prompts" / PAPER / f"{prompt}.jinja").read_text()
    english = (home(method) / "prompts" / "english" / f"{prompt}.jinja").read_text()
    assert benchmark_template("english", name).text == papers
    assert benchmark_template("english", name, "english").text == english


# ---- readers ----

THOUGHT = "<think>Hm.</think>\n"
QUESTION = "Which ferry sailed first?"
CHOICE = (
    f'{{"question": "{QUESTION}", "options": {{"A": "Ada", "B": "Bea", "C": "Cleo", "D": "Dora"}},'
    ' "answer": "B"}'
)
ANALYSED = (  # what SPICE's paper asks for besides question and answer
    '{"identified_information": ["a", "b"], "quotes": ["x"], "hardening_process": "two steps",'
    f' "question": "{QUESTION}", "answer": "42", "answer_type": "Integer",'
    ' "step_by_step_solution": ["6 * 7"], "difficulty": "Hard", "difficulty_justification": "z"}'
)
CHOSEN = (
    '{"quotes": ["x"], "hardening_process": "h", "knowledge_and_reasoning_steps": "k", '
    + CHOICE[1:-1]
    + ', "self_test_solution": "s", "difficulty": "Hard"}'
)
RUBRIC = "".join(
    f'<rubric priority="{priority}">{verb} the year of the crossing.</rubric>\n'
    for priority, verb in (
        ("critical", "Identifies"),
        ("important", "Explains"),
        ("bonus", "Cites"),
    )
)
PARTS = (
    "<analysis> a </analysis><evidence> Ada sailed. </evidence>"
    "<reasoning> so </reasoning><answer> Ada </answer>"
)
COMPARED = '{"reason": "Set 1 has the year.", "scores": [2, 5], "best_choice": 1}'

# method, role, reply, its prompt's columns, the column that is read, its values
CASES: list[tuple[str, str, str, dict[str, Any], str, list[Any]]] = [
    (
        "scope",
        "challenger",
        f"{THOUGHT}<task>Plan a visit.</task>",
        {"search_turns": 1},
        "text",
        ["Plan a visit."],
    ),
    ("scope", "solver", f"{THOUGHT}<answer>By ferry.</answer>", {}, "answer", ["By ferry."]),
    ("scope", "gates", f"{THOUGHT}<score>1</score>", {}, "passed", [1]),
    ("scope", "grader", f"{THOUGHT}<score>0</score>", {}, "verdict", [0]),
    (
        "scope",
        "rubric_writer",
        f"{THOUGHT}<rubrics>\n{RUBRIC}</rubrics>",
        {},
        "priority",
        ["critical", "important", "bonus"],
    ),
    (
        "spell",
        "questioner",
        f'First, the dates. {{"question": "{QUESTION}", "answer": "the Ada"}}',
        {"task_type": "general_qa"},
        "reference",
        ["the Ada"],
    ),
    (
        "spell",
        "questioner",
        f'So 2 + 3. {{"question": "{QUESTION}", "answer": "5.25"}}',
        {"task_type": "finance_math"},
        "reference",
        ["5.25"],
    ),
    (
        "spell",
        "questioner",
        f"So B. {CHOICE}",
        {"task_type": "multiple_choice"},
        "reference",
        ["B"],
    ),
    ("spell", "responder", "The correct answer is the Ada.", {}, "answer", ["the Ada"]),
    ("spell", "responder", "Therefore, the answer is 5.25.", {}, "answer", ["5.25"]),
    ("spell", "responder", "The answer is (insert): no. The answer is (B).", {}, "answer", ["B"]),
    ("spell", "verifier", "Explanation: both. Decision: [[YES]]", {}, "vote", [1]),
    (
        "spice",
        "chooser",
        '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type":'
        ' "Integer", "reason": "counts"}',
        {},
        "task_type",
        ["Integer"],
    ),
    ("spice", "challenger", ANALYSED, {"task_type": "Integer"}, "reference", ["42"]),
    ("spice", "challenger", CHOSEN, {"task_type": "multiple_choice"}, "reference", ["B"]),
    ("spice", "reasoner", r"6 * 7 is \boxed{42}.", {}, "answer", ["42"]),
    ("eapo", "policy", PARTS, {}, "answer", ["Ada"]),
    ("eapo", "reward_model", COMPARED, {"rollout_ids": ["a", "b"]}, "mark", [0.25, 1.0]),
    ("eapo", "judge", "Both name her: [[CORRECT]]", {}, "vote", [1]),
    ("mae", "proposer", f"<question>\n{QUESTION}\n</question>", {}, "text", [QUESTION]),
    ("mae", "solver", "So it is <answer>the Ada</answer>", {}, "answer", ["the Ada"]),
    ("mae", "answer_judge", f"{THOUGHT}<score>10</score>", {}, "mark", [1.0]),
    ("mae", "question_judge", f"{THOUGHT}<score>1</score>", {}, "mark", [0.0]),
    (
        "rzero",
        "challenger",
        f"<question>\n{QUESTION}\n</question>\n\n\\boxed{{42}}",
        {},
        "text",
        [QUESTION],
    ),
    ("rzero", "solver", r"It is \boxed{42}.", {}, "answer", ["42"]),
]


def role_of(method: str, prompts: str, name: str) -> Role:
    config = module(method, "config").Config
    changed = {"dialogues.prompts": prompts, "models.base": "data/micro/base"}
    cfg = profile.load(config, PAPER_PROFILES[method], changed)
    roles = module(method, "flow" if method == "rzero" else "roles").Roles(cfg)
    return getattr(roles, name)


@pytest.mark.parametrize("method", PAPER_PROFILES)
def test_every_role_passes_on_the_arguments_of_the_chat_template(method: str) -> None:
    config = module(method, "config").Config
    arguments = {"enable_thinking": False}
    changed = {"models.base": "data/micro/base", "dialogues.template_arguments": arguments}
    cfg = profile.load(config, PAPER_PROFILES[method], changed)
    roles = module(method, "flow" if method == "rzero" else "roles").Roles(cfg)
    asked = [role for role in vars(roles).values() if isinstance(role, Role)]
    asked = [role for role in asked if role.name != "examiner"]  # another model
    assert asked
    assert [role.name for role in asked if role.dialogue.template_arguments != arguments] == []


def read(role: Role, reply: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    prompt: Any = row("prompts", messages=[{"role": "user", "content": ""}], **asked)
    rollout: Any = row("rollouts", reply=reply, turns=[turn(reply)], finish_reason="final")
    return role.reader.rows(role.into, rollout, prompt)


@pytest.mark.parametrize("prompts", SETS)
@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case[0]}-{case[1]}-{i}" for i, case in enumerate(CASES)]
)
def test_a_well_formed_reply_is_read(case: Any, prompts: str) -> None:
    method, name, reply, asked, column, values = case
    rows = list(read(role_of(method, prompts, name), reply, asked))
    assert [found.get("malformed") for found in rows] == [None] * len(values)
    assert [found[column] for found in rows] == values


@pytest.mark.parametrize(
    ("method", "name", "copied"),
    [
        (
            "rzero",
            "challenger",
            "<question>\n[the whole problem, on one or more lines]\n</question>",
        ),
        (
            "mae",
            "proposer",
            "<question>\n[the question that you have designed, in full]\n</question>",
        ),
        (
            "scope",
            "challenger",
            "<task>The task for the solver, without what a search should find</task>",
        ),
    ],
)
def test_a_placeholder_of_the_papers_set_is_no_question(
    method: str, name: str, copied: str
) -> None:
    (found,) = read(role_of(method, PAPER, name), copied, {"search_turns": 1})
    assert found["malformed"] == "a copy of the prompt's own words"
