from typing import Any

import pytest

from flows.app.command.parameters import check_settings, find_deployment
from flows.plan.hardware import GPUS
from flows.plan.plan import make_plan
from flows.runtime.machines import Machines, open_models
from flows.settings import profile
from flows.spice.config import Config
from flows.spice.roles import Roles
from tests.support.scripted import model_folder

MODELS = {
    "qwen3-4b-base": "Qwen/Qwen3-4B-Base",
    "qwen3-8b-base": "Qwen/Qwen3-8B-Base",
    "octothinker-3b-hybrid-base": "OctoThinker/OctoThinker-3B-Hybrid-Base",
    "octothinker-8b-hybrid-base": "OctoThinker/OctoThinker-8B-Hybrid-Base",
}
LARGE = [f"{model}-{gpus}gpu" for model in MODELS for gpus in (1, 8)]
ON_EIGHT = [f"qwen3-{size}-base-8gpu-lora" for size in ("4b", "8b")]
NAMES = profile.names(profile.home(Config) / "profiles")


def load_profile(name: str, overrides: dict[str, Any] | None = None) -> Config:
    return profile.load(Config, name, overrides)


def message(overrides: dict, name: str = "micro") -> str:
    with pytest.raises(ValueError) as refused:
        load_profile(name, overrides)
    return str(refused.value)


def test_the_shipped_profiles_are_micro_smollm2_and_four_models_on_eight_gpus_or_one():
    assert set(NAMES) == {"micro", "micro-deep", "micro-hackable", "smollm2", *LARGE, *ON_EIGHT}


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_has_a_deployment(name, store, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    deployment = find_deployment("spice-iteration", name)
    # its own is made by `make demo-english`
    made = {"models.base": "data/micro/spice"} if name == "smollm2" else {}
    check_settings(
        deployment,
        {"profile": name, "overrides": {"corpus": None, "corpora": {"micro": 1.0}, **made}},
    )
    assert deployment["work_pool"]["name"] == (
        "cpu" if name.startswith(("micro", "smollm2")) else "gpu"
    )
    assert deployment["parameters"] == {"profile": name}


def test_a_large_profile_without_its_corpora_names_the_first_one_that_is_missing(
    store, monkeypatch
):
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    with pytest.raises(ValueError, match="there is no corpus 'data/corpus/mathematics': give"):
        check_settings(
            find_deployment("spice-iteration", LARGE[0]), {"profile": LARGE[0], "overrides": {}}
        )


@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_the_paper_has_a_profile_that_eight_gpus_can_train(model):
    cfg = load_profile(f"{model}-8gpu")
    assert cfg.models.base == MODELS[model] and cfg.update.lora is None
    plan = make_plan(cfg, GPUS["h200-141"], cfg.workload())  # the paper's cards
    assert plan.verdict == "yes" and plan.num_gpus == 8


def test_octothinker_is_asked_as_a_conversation_behind_an_opening():
    """Figure 8: an opening, the question, and where the answer goes; no demand for steps."""
    cfg = load_profile("octothinker-8b-hybrid-base-8gpu")
    reasoner = Roles(cfg).reasoner
    assert reasoner.system == cfg.dialogues.system and cfg.dialogues.stop == ("\nUser:",)
    assert reasoner.dialogue.chat_template == "conversation"
    text = reasoner.templates[0].render(task="How many?", options=[])
    assert text == "How many?\n\nPut your final answer inside \\boxed{}."


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_papers_numbers(name):
    cfg = load_profile(name)
    assert cfg.iterations * cfg.steps == 640
    assert (cfg.documents_per_step, cfg.challenger.attempts, cfg.challenger.group_size) == (
        128,
        1024,
        8,
    )
    assert (cfg.reasoner.answers, cfg.challenger.invalid_reward, cfg.challenger.reward) == (
        8,
        -0.1,
        "variance",
    )
    assert (cfg.dialogues.temperature, cfg.dialogues.document_tokens) == (1.0, 5992)
    assert cfg.challenger.answer_types == ("Integer", "Expression", "String")
    assert list(cfg.shares.values()) == [0.5, 0.5]
    u = cfg.update
    assert (u.loss_type, u.beta, u.optimizer_steps, u.max_completion_tokens) == (
        "dr_grpo",
        0.0,
        1,
        8192,
    )
    assert (u.lora is None, u.learning_rate) == (
        (True, 1e-6) if name.endswith("8gpu") else (False, 1e-5)
    )
    # the paper's steps 200 and 640, and some between
    assert [40 * t for t in (cfg.probes.opponent, *cfg.probes.checkpoints)] == [
        200,
        200,
        320,
        440,
        560,
        640,
    ]
    assert (cfg.probes.num_documents, cfg.probes.attempts) == (128, 128)


def test_a_prompt_with_a_whole_segment_and_a_whole_reply_fit_into_the_context():
    for name in LARGE:
        cfg = load_profile(name)
        assert (
            cfg.dialogues.document_tokens + cfg.dialogues.response_tokens + 1024
            <= cfg.engine.max_model_len
        )


ABLATIONS = [
    {"challenger.reward": "absolute_zero"},
    {"challenger.reward": "threshold"},
    {"challenger.reward": "r_zero"},
    {"challenger.fixed": True},
    {"challenger.fixed": True, "models.challenger": "data/micro/base"},
    {"challenger.grounded": False},
    {"challenger.formats": ["multiple_choice"]},
    {"challenger.formats": ["free_form"]},
    {"corpus": "micro-mathematics"},
    {"corpora": {"micro-mathematics": 0.5, "micro-general": 0.5}},
]


@pytest.mark.parametrize("changed", ABLATIONS, ids=str)
def test_every_ablation_is_a_switch(changed):
    assert load_profile("micro", changed) != load_profile("micro")


def test_one_corpus_takes_the_place_of_a_profiles_mix():
    assert load_profile(LARGE[0], {"corpus": "texts"}).shares == {"texts": 1.0}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"challenger.reward": "entropy"},
            "challenger.reward: Input should be 'variance', 'absolute_zero'",
        ),
        ({"challenger.formats": []}, "formats and answer_types leave nothing to ask"),
        ({"challenger.answer_types": []}, "formats and answer_types leave nothing to ask"),
        (
            {"challenger.answer_types": ["Date"]},
            "challenger.answer_types.0: Input should be 'Integer'",
        ),
        ({"challenger.attempts": 5}, "attempts 5 must not be below group_size 6"),
        ({"models.challenger": "data/micro/base"}, "set challenger.fixed=true"),
        ({"corpora": {}}, "corpora: needs shares"),
        ({"corpora": {"micro": -1}}, "corpora: needs shares"),
        ({"world_seed": 7}, "world_seed and evaluation.seed are both 7"),
        ({"corpus": "micro-general", "world_seed": 7}, "world_seed and evaluation.seed are both 7"),
        ({"update.max_completion_tokens": 97}, "must be dialogues.response_tokens, 96"),
        ({"probes.checkpoints": [4]}, "probes name iterations [0, 4], the run has 0 to 3"),
        ({"probes.opponent": 4}, "probes name iterations [0, 1, 2, 3, 4], the run has 0 to 3"),
        ({"dialogues.temperature": 0}, "dialogues.temperature: Input should be greater than 0"),
    ],
)
def test_a_value_out_of_range_says_where_and_what_is_allowed(changed, says):
    assert says in message(changed)


def test_a_strong_challenger_with_an_engine_of_its_own_may_have_other_words(tmp_path):
    strong = str(model_folder(tmp_path / "strong"))
    base = {"models.base": "data/micro/base", "challenger.fixed": True}
    shared = load_profile("micro", {**base, "models.challenger": strong})
    with pytest.raises(ValueError, match="Give it an engine of its own"):
        open_models(shared)
    engine = {"model": strong, "max_model_len": 256}
    apart = load_profile("micro", {**base, "models.challenger": strong, "judge_engine": engine})
    assert open_models(apart)["challenger"].weights == strong
    machines = Machines.of(apart, tmp_path)
    assert machines.judges is not machines.engines and machines.judges.config.model == strong
    machines.close()
