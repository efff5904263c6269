"""The paper's numbers, its ablations as switches, and settings that contradict each other."""

from typing import Any

import pytest

from flows.plan.hardware import GPUS
from flows.plan.plan import make_plan
from flows.settings import profile
from flows.spell.config import Config

# table 6: the twelve models, by the names of their profiles
MODELS = {
    "qwen2.5-7b-base": "Qwen/Qwen2.5-7B",
    "qwen2.5-14b-base": "Qwen/Qwen2.5-14B",
    "qwen2.5-32b-base": "Qwen/Qwen2.5-32B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2.5-14b": "Qwen/Qwen2.5-14B-Instruct",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B-Instruct",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B-Instruct",
    "r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "r1-distill-qwen-14b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "qwen3-4b-thinking": "Qwen/Qwen3-4B-Thinking-2507",
    "qwen3-30b-a3b-thinking": "Qwen/Qwen3-30B-A3B-Thinking-2507",
}
LARGE = [*MODELS, "qwen2.5-7b-1gpu", "qwen2.5-7b-8gpu-lora", "qwen3-30b-a3b-lora"]
REASONING = ("qwen3-30b-a3b-thinking", "qwen3-4b-thinking")


def load_profile(name: str, overrides: dict[str, Any] | None = None) -> Config:
    return profile.load(Config, name, overrides)


def test_the_shipped_profiles():
    assert profile.names(profile.home(Config) / "profiles") == sorted(
        [
            "documents",
            "micro",
            "micro-hackable",
            "micro-known",
            "micro-rlvr",
            "small-1gpu",
            "smollm2",
            *LARGE,
        ]
    )


@pytest.mark.parametrize(
    ("name", "overrides", "warns"),
    [
        ("documents", {}, True),
        ("documents", {"given": "questions.jsonl"}, False),
        ("documents", {"models.start": ""}, False),
        ("smollm2", {}, False),
        ("qwen2.5-7b", {"models.start": "another-run"}, False),
    ],
)
def test_pilots_are_warned_of_a_model_that_has_learnt_from_its_own_questions_before(
    name, overrides, warns
):
    """A questioner that is trained, as in the paper, may ask better and better."""
    assert bool(load_profile(name, overrides).caution) == warns


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_paper_has_a_profile_that_eight_gpus_can_train(name):
    """Full weights; on 141 GB cards at least."""
    cfg = load_profile(name)
    assert cfg.models.base == MODELS[name] and cfg.update.lora is None
    plan = make_plan(cfg, GPUS["h200-141"], cfg.workload())
    assert plan.verdict != "no" and plan.num_gpus == 8


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_papers_numbers(name):
    cfg = load_profile(name)
    talk = cfg.dialogues
    assert (talk.temperature, talk.top_p, talk.input_tokens) == (0.7, 0.95, 16384)
    thinks = name in REASONING or name.startswith("r1-distill")
    assert (talk.reasoning, talk.response_tokens) == (thinks, 20480 if thinks else 4096)
    assert (cfg.group_size, cfg.questioner.num_documents, cfg.questioner.memory_pairs) == (8, 5, 3)
    assert cfg.questioner.sigma == pytest.approx(0.5 / 3)
    assert (cfg.sampling.groups, cfg.sampling.clusters_per_round, cfg.sampling.max_rounds) == (
        128,
        480,
        10,
    )
    assert cfg.clusters.per_type == 2150 and cfg.verifier.share == (0.51, 0.99)
    update = cfg.update
    assert (update.loss_type, update.beta, update.on_policy, update.optimizer_steps) == (
        "dapo",
        0.0,
        True,
        1,
    )
    assert update.learning_rate == (2e-6 if update.lora is None else 2e-5)
    assert (cfg.num_engines * cfg.engine.tensor_parallel, cfg.trainer_processes) == (
        (1, 1) if name.endswith("1gpu") else (8, 8)
    )


@pytest.mark.parametrize(
    "switch",
    [
        {"questioner.format_penalty": False},
        {"questioner.grounding_filter": False},
        {"questioner.trained": False},
        {"questioner.memory_pairs": 0},
        {"questioner.sigma": 0.5 / 6},
        {"questioner.reward": "absolute_zero"},
        {"questioner.reward": "r_zero"},
        {"questioner.advantage_per_type": True},
        {"verifier.enabled": False},
        {"verifier.trained": False},
        {"verifier.majority_vote": False},
        {"verifier.consistency": False},
        {"group_size": 16},
        {"models.judge": "data/micro/spell"},
        {"task_types": ["finance_math"]},
        {"corpus": "my-corpus"},
    ],
)
def test_every_ablation_is_a_switch(switch):
    assert load_profile("micro", switch) != load_profile("micro")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"world_seed": 7}, "the benchmark would be trained on"),
        ({"dialogues.response_tokens": 4096}, "do not fit into engine.max_model_len 576"),
        ({"evaluation.input_tokens": [448, 100000]}, "do not fit into engine.max_model_len 576"),
        ({"verifier.share": [0.9, 0.5]}, "verifier.share: must be 0 <= low <= high <= 1"),
        ({"questioner.reward": "novelty"}, "gaussian"),
        ({"update.optimizer_steps": 2}, "on_policy holds for the first optimizer step only"),
        ({"task_types": []}, "task_types"),
        (
            {"asking.temperature": 1.2, "dialogues.temperature": 1.0},
            "one update cannot train on both",
        ),
        (
            {"evaluation.benchmark": "a/test.jsonl", "evaluation.also": ["b/test.csv"]},
            "two files of evaluation.benchmark and evaluation.also are called 'test'",
        ),
        ({"questioner.documents": 5}, "there is no such setting; settings here are"),
        (
            {"evaluation.baselines": [{"prompts": "lines-3-shot", "typo": 1}]},
            "evaluation.baselines.0.typo: there is no such setting; settings here are ",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_way_out(settings, says):
    with pytest.raises(ValueError, match=says):
        load_profile("micro", settings)


def test_prompts_of_its_own_are_asked_as_the_method_does():
    """Those of another model, which reads and writes in another way."""
    asking = load_profile("smollm2", {"asking.prompts": "passage", "models.questioner": "x"}).asking
    assert asking is not None
    assert (asking.chat_template, asking.stop, asking.response_tokens) == ("model", (), 4096)


def planned(name: str, **settings: Any) -> dict[str, float]:
    """How many conversations of each role an iteration's step samples."""
    (step,) = load_profile(name, settings).workload().steps
    return {each.role.name: each.number for each in step.conversations}


def test_a_plan_has_an_answer_to_every_question_of_a_file():
    clusters = 1.0 * 80  # one round
    asked = planned("documents", **{"given": "questions.jsonl", "sampling.clusters_per_round": 80})
    assert asked == {"responder": pytest.approx(clusters * 8)}


def test_a_plan_has_an_external_judges_verdicts_and_says_who_asks():
    """1.3 rounds of 480 clusters; 0.7 of the questions are answered 8 times, 0.9 readably."""
    num_answers = 1.3 * 480 * 0.7 * 8
    others = {"models.judge": "x", "models.questioner": "y", "questioner.trained": False}
    asked = planned("qwen2.5-7b", **others)
    assert asked["responder"] == pytest.approx(num_answers)
    assert asked["judge"] == pytest.approx(0.9 * num_answers)
    (step,) = load_profile("qwen2.5-7b", others).workload().steps
    models = {each.role.name: each.role.model for each in step.conversations}
    assert (models["questioner"], models["responder"], models["judge"]) == (
        "base",
        "policy",
        "base",
    )


def test_a_corpus_by_its_name_leaves_the_other_settings_of_corpora_as_they_are():
    cfg = load_profile("micro", {"clusters.finance_corpus": "reports", "corpus": "wiki"})
    assert (cfg.corpus, cfg.clusters.finance_corpus, cfg.clusters.per_type) == (
        "wiki",
        "reports",
        48,
    )
    assert cfg.learns_from == ("wiki", "reports")


def test_settings_that_asking_does_not_name_are_those_of_the_other_roles():
    asked = load_profile("smollm2", {"asking.temperature": 1.0}).asking
    others = load_profile("smollm2").dialogues
    assert asked == others.model_copy(update={"temperature": 1.0})


def test_held_out_questions_are_of_the_types_that_every_prompt_asks():
    assert load_profile("documents").held_out_types == ("general_qa",)
    assert len(load_profile("qwen2.5-7b").held_out_types) == 3
    baselines = [{"prompts": "instruct"}]
    narrow = {"evaluation.baselines": baselines, "task_types": ["multiple_choice"]}
    assert load_profile("qwen2.5-7b", narrow).held_out_types == ("multiple_choice",)


def test_further_files_are_held_out_even_without_a_first():
    sets = {"evaluation.also": ["a/x.jsonl"], "evaluation.benchmark": "none"}
    assert load_profile("smollm2", sets).evaluation.held_out_sets == ("a/x.jsonl",)
