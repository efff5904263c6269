"""MAE's configuration compared with the paper's numbers, and its rewards worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flows.mae.config import Config
from flows.mae.rewards import judge_rewards, proposer_rewards, solver_rewards
from flows.mae.roles import Roles, in_line, read_yes, tagged
from flows.run import Role
from flows.settings import profile
from tasks.read import UNANSWERED
from tasks.readers.marks import mark_out_of_ten
from tests.support.rows import row, turn
from warehouse.schemas import ANSWERS, MARKS

LARGE = [
    name
    for name in profile.names(profile.home(Config) / "profiles")
    if not name.startswith(("micro", "smollm2")) and "sft" not in name
]
PAPER: dict[str, Any] = {"pays_format": True, "unread": None, "difficulty_from": 0.0}


def load(name: str, **changed: Any) -> Config:
    return profile.load(
        Config, name, {key.replace("__", "."): value for key, value in changed.items()}
    )


# ---- configuration ----


def test_every_model_of_the_paper_has_a_profile_for_eight_gpus_and_for_one():
    assert [f"qwen2.5-3b-instruct-{gpus}" for gpus in ("1gpu", "8gpu", "8gpu-lora")] == LARGE


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_papers_numbers(name):
    """Table 3, and the released code's mini-batch of 64: three roles of 128 make six steps."""
    cfg = load(name)
    assert (cfg.batch_size, cfg.iterations * cfg.steps, cfg.proposer.answers) == (128, 300, 5)
    assert (cfg.dialogues.temperature, cfg.dialogues.top_p, cfg.dialogues.response_tokens) == (
        1.0,
        1.0,
        8192,
    )
    assert (cfg.questions.count, cfg.questions.referenced, cfg.proposer.lowest_quality) == (
        16,
        0.5,
        0.7,
    )
    update = cfg.update
    assert (update.beta, update.epsilon_low, update.epsilon_high, update.max_grad_norm) == (
        0.0,
        0.2,
        0.28,
        1.0,
    )
    assert (update.loss_type, cfg.mini_batch) == ("dapo", 64)
    assert (update.lora is None, update.learning_rate) == (
        (True, 1e-6) if name.endswith("8gpu") else (False, 1e-5)
    )


@pytest.mark.parametrize(
    "switch",
    [
        {"questions__referenced": 0.0},
        {"questions__referenced": 1.0},
        {"trained": ["solver", "judge"]},
        {"proposer__lowest_quality": 0},
        {"pays_format": False},
        {"judge__judgments": 5, "judge__unread": 0.5, "proposer__difficulty_from": 0.7},
    ],
    ids=str,
)
def test_every_ablation_is_a_switch(switch):
    assert load("micro", **switch) != load("micro")


def test_questions_cannot_be_shown_where_there_are_none():
    with pytest.raises(ValueError, match=r"questions\.count has to be at least 1"):
        load("micro", questions__count=0)


# ---- the Proposer ----


def mark(task: str, value: float | None, answer: str | None = None, **other: Any) -> dict[str, Any]:
    return row("marks", task_id=task, rollout_id=answer, mark=value, prompt_id="m", **other)


def proposed(
    quality: list[float | None], solved: list[float | None], **given: Any
) -> dict[str, Any]:
    task: Any = row("tasks", task_id="q", prompt_id="p", text="Why?", format={"total": 1.0})
    marks: Any = (
        [mark("q", value) for value in quality],
        [mark("q", value, f"a{i}") for i, value in enumerate(solved)],
    )
    tried: Any = [
        row("answers", task_id="q", rollout_id=f"a{i}", answer="7") for i in range(len(solved))
    ]
    (paid,) = proposer_rewards([task], marks[0], tried, marks[1], **{**PAPER, **given})
    return dict(paid)


@pytest.mark.parametrize(
    ("quality", "solved", "given", "total"),
    [
        ([1.0], [1.0, 1.0, 1.0, 1.0, 0.0], {}, (1 + 0.2 + 1) / 3),
        ([7 / 9], [0.0] * 5, {}, (7 / 9 + 1 + 1) / 3),
        # a hard question that nobody should answer is paid for, in the paper
        ([0.0], [0.0] * 5, {}, 2 / 3),
        ([0.0], [0.0] * 5, {"difficulty_from": 0.7}, 1 / 3),  # not in the released code
        # quality exactly at the gate
        ([7 / 9], [0.0] * 5, {"difficulty_from": 7 / 9}, (7 / 9 + 1 + 1) / 3),
        # malformed replies are in no mean
        ([1.0, 0.5, None], [0.25, None], {}, (0.75 + 0.75 + 1) / 3),
        ([1.0], [0.5], {"pays_format": False}, (1 + 0.5) / 2),
        ([None], [0.5], {"unread": 0.5}, (0.5 + 0.5 + 1) / 3),
    ],
)
def test_a_question_is_paid_for_quality_difficulty_and_format_alike(quality, solved, given, total):
    assert proposed(quality, solved, **given)["reward"] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(
    ("quality", "solved"), [([None, None], [1.0]), ([1.0], [None]), ([], [1.0]), ([1.0], [])]
)
def test_without_a_readable_mark_there_is_no_reward(quality, solved):
    paid = proposed(quality, solved)
    assert (paid["reward"], paid["unscorable"]) == (None, "no readable mark")


def test_the_quality_of_a_question_is_kept_though_its_answers_have_no_mark():
    """Whether a question enters the pool depends on its quality alone."""
    assert proposed([0.5], [None])["components"] == {"format": 1.0, "quality": 0.5}
    assert proposed([None], [1.0])["components"] == {"format": 1.0}


def test_an_unreadable_answer_is_a_failure_and_one_that_was_never_sampled_does_not_count():
    """One of three attempts is right, one gives no answer, and one is an engine failure:
    difficulty 1/2."""
    task: Any = row("tasks", task_id="q", prompt_id="p", text="Why?", format={"total": 1.0})
    replies: list[tuple[str, Any, Any]] = [
        ("a", "7", None),
        ("b", None, "no answer element"),
        ("c", None, "engine error"),
    ]
    tried: Any = [
        row("answers", task_id="q", rollout_id=i, answer=said, malformed=why)
        for i, said, why in replies
    ]
    marks: Any = [mark("q", 1.0)], [mark("q", 1.0, "a")]
    (paid,) = proposer_rewards([task], marks[0], tried, marks[1], **PAPER)
    assert paid["components"] == {"quality": 1.0, "difficulty": 0.5, "format": 1.0}


def test_an_answer_that_is_tried_for_difficulty_is_judged_without_its_tags():
    """As in the released code: the Proposer is not paid for a lapse of the Solver's format. Of the
    Solver itself such a reply is malformed."""
    cfg = load("qwen2.5-3b-instruct-1gpu", models__base="data/micro/base")
    roles = Roles(cfg)
    prompt: Any = row("prompts", task_id="q")

    def read(role: Role, reply: str) -> Any:
        rollout: Any = row("rollouts", reply=reply, turns=[turn(reply)], finish_reason="final")
        (found,) = role.reader.rows(ANSWERS, rollout, prompt)
        return found.get("answer"), found["malformed"]

    assert read(roles.trial, "<think>Hm.</think> It is 7.") == ("It is 7.", None)
    assert read(roles.trial, "So <answer>7</answer>, I think") == ("7", None)
    assert read(roles.trial, "<think>Hm.</think>") == (None, "no answer element")
    assert read(roles.solver, "It is 7.") == (None, "no answer element")


def test_a_reply_without_a_question_is_worth_nothing_and_one_never_sampled_is_left_out():
    tasks: Any = [
        row(
            "tasks",
            task_id="q",
            prompt_id="p",
            malformed="no question element",
            format={"total": 0.0},
        ),
        row("tasks", task_id="r", prompt_id="p", malformed="engine error"),
    ]
    assert [
        (p["reward"], p["unscorable"]) for p in proposer_rewards(tasks, [], [], [], **PAPER)
    ] == [
        (0.0, None),
        (None, "engine error"),
    ]


# ---- Solver and Judge ----


@pytest.mark.parametrize(
    ("answer", "form", "marks", "total", "why"),
    [
        ("7", 1.0, [1.0], 1.0, None),
        ("7", 0.5, [1 / 9], (1 / 9 + 0.5) / 2, None),
        ("7", 1.0, [1.0, 0.0], 0.75, None),
        (None, 0.0, [], 0.0, None),
        ("7", 1.0, [None], None, "no readable mark"),
    ],
)
def test_an_answer_is_paid_for_its_mark_and_its_format_alike(answer, form, marks, total, why):
    malformed = None if answer else "no answer element"
    said: Any = row(
        "answers", rollout_id="a", answer=answer, malformed=malformed, format={"total": form}
    )
    given: Any = [mark("q", value, "a") for value in marks]
    (paid,) = solver_rewards([said], given, pays_format=True, unread=None)
    assert (paid["reward"], paid["unscorable"]) == (
        pytest.approx(total) if total is not None else None,
        why,
    )


def test_the_judge_is_paid_for_format_alone():
    marks: Any = [
        mark("q", 1.0, judge_rollout_id="one", format={"total": 1.0}),
        mark("q", 0.0, judge_rollout_id="two", format={"total": 0.5}),
        mark(
            "q", None, judge_rollout_id="none", format={"total": 0.0}, malformed="no score element"
        ),
        mark("q", None, judge_rollout_id="failed", malformed="engine error"),
    ]
    paid = {p["rollout_id"]: p["reward"] for p in judge_rewards(marks, pays_format=True)}
    assert paid == {"one": 1.0, "two": 0.5, "none": 0.0, "failed": None}
    assert {p["reward"] for p in judge_rewards(marks, pays_format=False)} == {0.0, None}


@pytest.mark.parametrize(
    ("reply", "form", "value"),
    [
        ("<score>10</score>", 1.0, 1.0),
        ("<score>1</score> <score>10</score>", 0.5, 1.0),
        ("<score>1</score> <score>ten</score>", 0.0, None),  # the last one decides
        ("<score>ten</score> <score>10</score>", 1.0, 1.0),  # one valid pair of tags
        ("<score>ten</score>", 0.0, None),
        ("<score></score>", 0.0, None),
        ("<score>8-9</score>", 0.0, None),
        ("ten", 0.0, None),
    ],
)
def test_one_pair_of_tags_is_worth_all_several_half_and_none_nothing(reply, form, value):
    rollout: Any = row(
        "rollouts", rollout_id="r", reply=reply, finish_reason="final", turns=[turn(reply)]
    )
    (read,) = tagged("score", "mark", mark_out_of_ten).rows(
        MARKS, rollout, row("prompts", prompt_id="p", task_id="q")
    )  # pyright: ignore[reportArgumentType]
    assert (read["format"], read.get("mark")) == ({"total": form}, value)


@pytest.mark.parametrize(
    ("reply", "form", "value"), [("yes", 1.0, 1.0), ("no", 1.0, 0.0), ("perhaps", 0.0, None)]
)
def test_a_mark_in_a_line_has_the_whole_format_reward_if_it_can_be_read(reply, form, value):
    rollout: Any = row(
        "rollouts", rollout_id="r", reply=reply, finish_reason="final", turns=[turn(reply)]
    )
    prompt: Any = row("prompts", prompt_id="p", task_id="q")
    (read,) = in_line("mark", read_yes).rows(MARKS, rollout, prompt)
    assert (read["format"], read.get("mark")) == ({"total": form}, value)


def test_a_line_that_was_never_sampled_has_no_format():
    rollout: Any = row("rollouts", rollout_id="r", reply=None, finish_reason="error", turns=None)
    prompt: Any = row("prompts", prompt_id="p", task_id="q")
    (read,) = in_line("mark", read_yes).rows(MARKS, rollout, prompt)
    assert (read["format"], read.get("mark")) == ({"total": 0.0}, None)


def test_every_role_is_asked_as_the_settings_say():
    roles = Roles(load("smollm2"))
    asked = (roles.proposer, roles.solver, roles.trial, roles.question_judge, roles.answer_judge)
    assert {role.dialogue.chat_template for role in asked} == {"none"}


def test_a_trial_that_was_cut_off_is_judged_as_it_stands_and_an_answer_to_learn_from_is_not():
    roles = Roles(load("micro", dialogues__prompts="english"))
    said = "The legs are 8 times 3, and <answer>24</answer>, or else"
    cut: Any = row(
        "rollouts", rollout_id="r", reply=said, finish_reason="length", turns=[turn(said)]
    )
    prompt: Any = row("prompts", prompt_id="p", task_id="q")
    (trial,) = roles.trial.read.rows(ANSWERS, cut, prompt)
    (answer,) = roles.solver.read.rows(ANSWERS, cut, prompt)
    assert (trial["answer"], trial.get("malformed")) == ("24", None)
    assert (answer.get("answer"), answer["malformed"]) == (None, UNANSWERED["length"])
