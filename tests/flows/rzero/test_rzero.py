"""R-Zero's numbers, its rewards and its filter, worked by hand from arXiv 2508.05004."""

from __future__ import annotations

from typing import Any

import pytest

from flows.app.command.parameters import check_settings, find_deployment
from flows.rzero import rewards
from flows.rzero.config import Config, planned, rows_per_step
from flows.rzero.flow import INFORMATIVE, batch_of_epoch
from flows.settings import profile
from tasks.keep import keep
from tests.support.rows import publish, row

LARGE = [f"qwen3-{size}-base-{gpus}gpu" for size in ("4b", "8b") for gpus in (1, 8)]
ON_EIGHT = [f"qwen3-{size}-base-8gpu-lora" for size in ("4b", "8b")]
NAMES = profile.names(profile.home(Config) / "profiles")
ON_CPUS = ("micro", "micro-long", "smollm2")


def load(name: str, **overrides: Any) -> Config:
    return profile.load(
        Config, name, {key.replace("__", "."): value for key, value in overrides.items()}
    )


# ---- optimizer steps ----


def test_a_step_of_the_released_code_is_many_optimizer_steps_and_the_papers_batch_is_one():
    """16 prompts with 4 questions each are 64 rows; 128 with 5 answers are 640."""
    large = load("qwen3-4b-base-8gpu")
    assert (rows_per_step(large.challenger), rows_per_step(large.solver)) == (64, 640)
    assert rows_per_step(load("micro").solver) is None
    assert rows_per_step(large.solver.model_copy(update={"prompts_per_step": 128})) is None


def test_kept_questions_are_used_again_in_another_order_until_all_steps_are_done():
    """Five kept questions in batches of two: an epoch has two batches, and leaves one question
    out, which another epoch's order takes in."""
    selections: Any = [row("selections", task_id=name, kept=name != "x") for name in "axbcde"]
    tasks: Any = [row("tasks", task_id=name, text=f"{name}?") for name in "abcdex"]

    def epoch(number: int) -> list[str]:
        return [
            row["task_id"]
            for batch in range(2)
            for row in batch_of_epoch(selections, tasks, epoch=number, batch=batch, size=2, seed=0)
        ]

    assert epoch(0) == ["a", "b", "c", "d"]
    assert all(len(set(epoch(number))) == 4 for number in range(1, 9))
    assert {name for number in range(9) for name in epoch(number)} == set("abcde")


# ---- the configuration ----


def test_the_shipped_profiles_are_two_worlds_smollm2_and_two_models_on_eight_gpus_or_one():
    assert set(NAMES) == {*ON_CPUS, *LARGE, *ON_EIGHT}


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_has_a_deployment_and_needs_no_corpus(name):
    deployment = find_deployment("rzero-iteration", name)
    # its own is made by `make demo-english`
    made = {"models.base": "data/micro/spice"} if name == "smollm2" else {}
    cfg = check_settings(deployment, {"profile": name, "overrides": made})
    assert deployment["work_pool"]["name"] == ("cpu" if name in ON_CPUS else "gpu")
    assert cfg.learns_from == () and cfg.judge_engine is None


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_papers_numbers(name):
    cfg = load(name)
    challenger = cfg.challenger
    solver = cfg.solver
    assert cfg.iterations == 3
    assert (challenger.steps, challenger.prompts_per_step, challenger.group_size) == (5, 512, 4)
    # the batch of 128 questions of the paper's appendix is the Solver's; the released code's is 16
    assert (challenger.mini_batch, solver.mini_batch) == (16, 128)
    assert (planned(challenger).optimizer_steps, planned(solver).optimizer_steps) == (32, 4)
    assert (challenger.repetition_weight, challenger.bleu_distance) == (1.0, 0.5)
    assert (solver.candidates, solver.answers, solver.delta) == (8000, 10, 0.25)
    assert (solver.steps, solver.prompts_per_step, solver.group_size) == (15, 512, 5)
    assert (cfg.dialogues.temperature, cfg.dialogues.top_p) == (1.0, 0.99)
    for update in (challenger.update, solver.update):
        assert (update.loss_type, update.beta, update.weight_decay) == ("grpo", 1e-2, 1e-2)
        assert (update.lora is None, update.learning_rate) == (
            (True, 1e-6) if name.endswith("8gpu") else (False, 1e-5)
        )
    num_gpus = 8 if name.endswith("8gpu") else 1
    assert (cfg.num_engines * cfg.engine.tensor_parallel, cfg.trainer_processes) == (
        num_gpus,
        num_gpus,
    )
    assert cfg.engine.model == cfg.models.base == f"Qwen/Qwen3-{name[6].upper()}B-Base"


@pytest.mark.parametrize(
    "switch",
    [{"challenger__repetition_weight": 0}, {"solver__delta": 0.5}, {"challenger__steps": 0}],
    ids=str,
)
def test_every_ablation_is_a_switch(switch):
    assert load("micro", **switch) != load("micro")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"solver__delta": 0.6}, "solver.delta: Input should be less than or equal to 0.5"),
        (
            {"challenger__bleu_distance": 2},
            "challenger.bleu_distance: Input should be less than or equal to 1",
        ),
        ({"corpus": "micro"}, "corpus: there is no such setting"),
    ],
    ids=str,
)
def test_a_value_out_of_range_says_where_and_what_is_allowed(setting, says):
    with pytest.raises(ValueError) as refused:
        load("micro", **setting)
    assert says in str(refused.value)


# ---- rewards ----


# 1 - 2 |share - 1/2| when 1 to 4 of 4 answers agree: the majority of four is never below 1
@pytest.mark.parametrize(("share", "paid"), [(0.25, 0.5), (0.5, 1.0), (0.75, 0.5), (1.0, 0.0)])
def test_a_question_is_worth_most_where_half_of_the_answers_agree(share, paid):
    assert rewards.uncertainty(share) == paid
    assert rewards.challenger_reward(share, alike=0.0) == paid


@pytest.mark.parametrize(
    ("share", "alike", "weight", "paid"),
    [
        (0.5, 0.25, 1.0, 0.75),
        (0.75, 0.125, 1.0, 0.375),
        (0.75, 0.125, 2.0, 0.25),
        (0.75, 0.125, 0.0, 0.5),  # the ablation
        (0.75, 0.625, 1.0, 0.0),  # never below 0
        (1.0, 0.25, 1.0, 0.0),
        (None, 0.0, 1.0, 0.0),  # no question, or no readable answer to it
    ],
)
def test_likeness_is_taken_off_and_the_reward_is_at_least_zero(share, alike, weight, paid):
    assert rewards.challenger_reward(share, alike, weight) == paid


def test_what_is_paid_names_its_parts_and_what_was_not_sampled_is_unscorable():
    given = {"fair": None, "silent": None, "broken": "no question", "failed": "engine error"}
    tasks: Any = [
        row("tasks", task_id=name, prompt_id="p", malformed=why) for name, why in given.items()
    ]
    labels: Any = [
        row("labels", task_id="fair", share=0.75),
        *(row("labels", task_id=name, share=None) for name in ("silent", "broken", "failed")),
    ]
    novelties: Any = [
        row("novelties", task_id="fair", share=0.25),
        row("novelties", task_id="silent", share=0.25),
        *(row("novelties", task_id=name, share=None) for name in ("broken", "failed")),
    ]
    found = {
        r["task_id"]: r for r in rewards.challenger_rewards(tasks, labels, novelties, weight=1.0)
    }
    assert {name: r["reward"] for name, r in found.items()} == {
        "fair": 0.25,
        "silent": 0.0,
        "broken": 0.0,
        "failed": None,
    }
    assert found["fair"]["components"] == {"alike": 0.25, "share": 0.75, "uncertainty": 0.5}
    assert found["silent"]["components"] == {"alike": 0.25}
    assert found["failed"]["unscorable"] == "engine error"
    assert (found["fair"]["score"], found["silent"]["score"], found["failed"]["score"]) == (
        0.75,
        None,
        None,
    )
    assert {r["group_id"] for r in found.values()} == {"p"}


# ---- the filter ----


def kept(place, *given: tuple[dict, dict | None], delta: float = 0.25, seed: int = 0) -> list[dict]:
    """Selections of questions, each given as the columns of a task and of its label."""
    tasks = [row("tasks", task_id=f"t{i}", **task) for i, (task, _) in enumerate(given)]
    labels = [
        row("labels", task_id=f"t{i}", **label)
        for i, (_, label) in enumerate(given)
        if label is not None
    ]
    tables = {"tasks": publish(place, "tasks", *tasks), "labels": publish(place, "labels", *labels)}
    return keep(place, INFORMATIVE, **tables, delta=delta, seed=seed).rows()


def majority(agreeing: int, of: int = 8) -> dict:
    counts = {"num_agreeing": agreeing, "num_readable": of, "num_answers": of}
    return {"answer": "7", "share": agreeing / of, **counts}


@pytest.mark.parametrize(
    ("task", "label", "reason"),
    [
        ({}, majority(4), None),
        ({}, majority(6), None),  # 0.75, the upper bound
        ({}, majority(2), None),  # 0.25, the lower
        ({}, {**majority(4), "tied": True}, None),
        ({}, majority(7), "too easy"),
        ({}, majority(8), "too easy"),
        ({}, majority(1), "too hard"),
        ({}, {"reason": "no readable answer"}, "no readable answer"),
        ({}, {}, "not answered"),
        ({}, None, "not answered"),
        ({"malformed": "no JSON object"}, {"reason": "no answers"}, "malformed: no JSON object"),
        ({"malformed": "engine error"}, {"reason": "no answers"}, "malformed: engine error"),
    ],
)
def test_a_question_is_kept_between_the_bounds_or_says_why_not(place, task, label, reason):
    (found,) = kept(place, (task, label))
    assert (found["kept"], found["reason"]) == (reason is None, reason)


@pytest.mark.parametrize(
    ("agreeing", "reason"), [(6, None), (14, None), (5, "too hard"), (15, "too easy")]
)
def test_bounds_that_no_binary_fraction_hits_are_inside(place, agreeing, reason):
    """With 20 answers and delta 0.2 they are 0.3 and 0.7."""
    assert kept(place, ({}, majority(agreeing, 20)), delta=0.2)[0]["reason"] == reason


def test_without_the_filter_every_labelled_question_is_kept(place):
    found = kept(
        place, ({}, majority(8)), ({}, majority(1)), ({}, {"reason": "no answers"}), delta=0.5
    )
    assert {r["task_id"]: r["reason"] for r in found} == {
        "t0": None,
        "t1": None,
        "t2": "no answers",
    }


def test_a_selection_counts_agreeing_among_readable_among_sampled_answers(place):
    label = {"answer": "7", "share": 0.75, "num_agreeing": 3, "num_readable": 4, "num_answers": 5}
    (found,) = kept(place, ({}, label))
    counts = found["num_correct"], found["num_judged"], found["num_rollouts"]
    assert (*counts, found["mean_score"]) == (3, 4, 5, 0.75)
    (unasked,) = kept(place.step(9), ({}, None))
    assert (unasked["num_correct"], unasked["num_rollouts"]) == (None, 0)


def test_kept_questions_come_first_in_an_order_drawn_by_the_seed(place):
    given = [({}, majority(4)), ({}, majority(8))] * 8

    def order(step: int, seed: int) -> list[str]:
        found = kept(place.step(step), *given, seed=seed)
        assert [r["kept"] for r in found] == [True] * 8 + [False] * 8
        return [r["task_id"] for r in found]

    assert order(1, 0) == order(2, 0) != order(3, 1)


def test_the_bounds_of_informative_questions_are_inside(place):
    """The tolerance is 1e-9: in double precision these bounds, with it, are 3/8 and 5/8."""
    delta = 0.12499999899999999
    assert (0.5 - delta - 1e-9, 0.5 + delta + 1e-9) == (0.375, 0.625)
    for agreeing in (3, 5):
        assert (
            kept(place.step(agreeing), ({}, majority(agreeing, 8)), delta=delta)[0]["reason"]
            is None
        )
