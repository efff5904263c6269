import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from flows.run import Run
from flows.runtime.record import differences, last_request, save_request
from flows.runtime.request import Request
from flows.scope.config import Config
from flows.scope.readers import PRIORITIES
from flows.scope.roles import Roles
from flows.scope.steps import Scope, warmed_up
from flows.settings import profile
from tasks.rollouts.search_syntax import stop_strings
from warehouse.table import Damaged

PROFILES = profile.home(Config) / "profiles"
NAMES = profile.names(PROFILES)
LARGE = [
    f"{model}-{gpus}gpu" for model in ("qwen2.5-7b", "qwen3-8b", "olmo-3-7b") for gpus in (1, 6)
]


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_loads(name):
    assert profile.load(Config, name).models.base


def test_the_shipped_profiles_are_micro_and_three_models_on_six_gpus_or_one():
    assert {"micro", "micro-hackable", *LARGE} <= set(NAMES)


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_numbers_of_table_9(name):
    cfg = profile.load(Config, name)
    assert (cfg.iterations, cfg.warmup_ratio, cfg.dialogues.context_tokens) == (3, 0.03, 16384)
    assert cfg.engine.max_model_len == 24576  # for evaluation, and enough for the longest verdict
    assert (cfg.challenger.steps, cfg.challenger.prompts_per_step, cfg.challenger.group_size) == (
        20,
        64,
        8,
    )
    assert (cfg.solver.steps, cfg.solver.prompts_per_step, cfg.solver.group_size) == (20, 256, 8)
    assert cfg.challenger.solver_rollouts == 8
    paid = cfg.solver.reward
    assert (paid.rubric_weight, paid.format_weight, paid.search_weight, paid.length_penalty) == (
        1.0,
        0.5,
        0.1,
        True,
    )
    assert (paid.length_soft, paid.length_hard, paid.length_floor) == (1024, 2048, 0.05)
    paid = cfg.challenger.reward
    assert (paid.format_weight, paid.difficulty_weight, paid.tau) == (0.5, 1.0, 0.5)
    talk = cfg.dialogues
    assert (talk.response_tokens, talk.documents_per_query, talk.result_tokens) == (8192, 3, 500)
    judge = cfg.judge
    assert (
        judge.rubric_tokens,
        judge.min_criteria,
        judge.grading_temperature,
        judge.grading_tokens,
    ) == (
        8192,
        3,
        0.6,
        16384,
    )
    assert cfg.embedding is not None and cfg.embedding.model == "intfloat/e5-base-v2"
    for update in (cfg.challenger.update, cfg.solver.update):
        assert (update.max_grad_norm, update.beta, update.optimizer_steps) == (1.0, 1e-3, 1)
        assert (update.loss_type, update.on_policy) == ("grpo", True)  # eq. 3, and rho = 1
        assert (update.lora is None, update.learning_rate) == (
            (True, 1e-6) if name.endswith("6gpu") else (False, 1e-5)
        )


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_what_the_released_code_adds(name):
    cfg = profile.load(Config, name)
    clips = [
        (u.epsilon_low, u.epsilon_high, u.dual_clip)
        for u in (cfg.challenger.update, cfg.solver.update)
    ]
    assert clips == [(0.2, 0.2, 3.0), (0.2, 0.28, 3.0)]
    assert cfg.challenger.search_turns == {1: 4, 2: 3, 3: 2}
    assert (
        cfg.pool.window == (0.2, 0.8)
        and cfg.pool.solver_rollouts == 4
        and cfg.pool.tasks_per_document == 1
    )
    assert (
        cfg.dialogues.challenger_turns,
        cfg.dialogues.solver_turns,
        cfg.dialogues.insist_times,
    ) == (10, 5, 5)
    assert (cfg.challenger.difficulty_temperature, cfg.challenger.difficulty_top_p) == (0.7, 0.9)
    assert set(cfg.task_types) == {"long_form_qa", "summarisation", "planning", "writing"}


@pytest.mark.parametrize(
    ("model", "syntax", "reasoning", "gate_tokens"),
    [
        ("qwen2.5-7b", "tags", False, 256),
        ("qwen3-8b", "qwen", True, 1024),
        ("olmo-3-7b", "olmo", False, 256),
    ],
)
def test_each_model_family_searches_in_its_own_syntax(model, syntax, reasoning, gate_tokens):
    for gpus in (1, 6):
        cfg = profile.load(Config, f"{model}-{gpus}gpu")
        assert (cfg.dialogues.search_syntax, cfg.dialogues.reasoning, cfg.judge.gate_tokens) == (
            syntax,
            reasoning,
            gate_tokens,
        )
        assert cfg.dialogues.prompts == "paper"


def test_several_steps_on_one_generation_are_off_policy_unless_told():
    steps = {"solver.update.optimizer_steps": 4}
    assert profile.load(Config, "qwen3-8b-6gpu", steps).solver.update.on_policy is False
    assert "on_policy holds for the first optimizer step" in message(
        {**steps, "solver.update.on_policy": True}, "qwen3-8b-6gpu"
    )


@pytest.mark.parametrize(
    ("ratio", "iterations", "rates"),
    # int(0.03 * 20) = 0, int(0.1 * 20) = 2
    [(0.03, 3, [1, 1, 1]), (0.03, 6, [1, 1, 1]), (0.1, 6, [0.5, 1, 1])],
)
def test_the_learning_rate_warms_up_over_whole_steps_whatever_the_number_of_iterations(
    ratio, iterations, rates
):
    cfg = profile.load(Config, "qwen3-8b-6gpu", {"warmup_ratio": ratio, "iterations": iterations})
    assert [warmed_up(n, int(cfg.warmup_ratio * cfg.solver.steps)) for n in range(3)] == rates


def test_conversations_follow_the_configuration():
    roles = Roles(profile.load(Config, "qwen3-8b-6gpu"))
    assert roles.challenger.sampling.stop == (*stop_strings("qwen"), "</task>")
    assert roles.solver.sampling.stop == (*stop_strings("qwen"), "</answer>")
    assert (roles.challenger.dialogue.max_turns, roles.solver.dialogue.max_turns) == (10, 5)
    outside = (roles.estimator, roles.screener, roles.evaluated)
    insists = [role.dialogue.insist_times for role in (roles.challenger, roles.solver, *outside)]
    assert insists == [0, 0, 5, 5, 5]  # training rollouts are never told to answer at once
    assert {
        role.dialogue.context_tokens for role in (roles.challenger, roles.solver, *outside)
    } == {16384}
    assert (roles.estimator.sampling.temperature, roles.estimator.sampling.top_p) == (0.7, 0.9)
    judged = (roles.gates, roles.rubric_writer, roles.grader)
    assert [(r.sampling.temperature, r.sampling.max_tokens) for r in judged] == [
        (0.6, 1024),
        (0.6, 8192),
        (0.6, 16384),
    ]
    assert [role.on_judge_engine for role in (*judged, roles.challenger, *outside)] == [
        True
    ] * 3 + [False] * 4


def leaves(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def test_profiles_hold_only_departures():
    """Every value of a profile that extends another differs from the other's."""
    for path in PROFILES.glob("[!_]*.toml"):
        values = tomllib.loads(path.read_text())
        parent = values.pop("extends", None)
        if parent is None:
            continue
        inherited = dict(leaves(profile.load(Config, parent).model_dump(mode="json")))
        repeated = [name for name, value in leaves(values) if inherited.get(name) == value]
        assert not repeated, path


def message(overrides: dict, name: str = "micro") -> str:
    with pytest.raises(ValueError) as refused:
        profile.load(Config, name, overrides)
    assert not isinstance(refused.value, ValidationError)
    return str(refused.value)


def test_an_unknown_profile_is_answered_with_the_known_ones():
    said = message({}, "mikro")
    assert (
        "no profile 'mikro'" in said
        and "micro, micro-grpo-data, micro-hackable, olmo-3-7b-1gpu" in said
    )
    assert "_table" not in said


@pytest.mark.parametrize(
    ("setting", "choices"),
    [
        ("seeds", "challenger, check_updates, corpus, corpus_documents"),
        ("pol.window", "pool, preflight, reference_by, resident_trainer, seed, solver"),
        ("pool.windw", "candidates_per_batch, given, max_batches"),
        (
            "solver.reward.length_sof",
            "format_weight, length_floor, length_hard, length_penalty, length_soft",
        ),
        ("solver.update.lora.rnk", "alpha, rank"),
        ("embedding.modle", "batch_size, device"),
        ("engine.max_len", "max_model_len"),
        ("models.grder", "base, examiner, grader, rubric_writer"),
    ],
)
def test_a_misspelt_setting_is_named_and_the_settings_there_are_listed(setting, choices):
    said = message({setting: 1})
    assert "there is no such setting; settings here are" in said and choices in said
    assert f"{setting}: there is no" in said or setting.startswith("pol.")


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("seed", -1, "seed: Input should be greater than or equal to 0"),
        ("iterations", 0, "iterations: Input should be greater than or equal to 1"),
        ("challenger.reward.tau", 1, "challenger.reward.tau: Input should be less than 1"),
        ("challenger.group_size", "many", "challenger.group_size: Input should be a valid integer"),
        ("pool.window", [0.8, 0.2], "pool.window: must be 0 <= low <= high <= 1"),
        ("pool.short_pool", "pad", "pool.short_pool: Input should be 'error' or 'fewer_steps'"),
        ("solver.reward.length_hard", 20, "length_soft 20 must be below length_hard 20"),
        ("dialogues.search_syntax", "xml", "Input should be 'tags', 'qwen' or 'olmo'"),
        ("task_types", [], "task_types: Tuple should have at least 1 item"),
        ("task_types", ["poetry"], "task_types.0: Input should be 'long_form_qa'"),
        (
            "challenger.search_turns",
            {"0": 1},
            "challenger.search_turns.0.[key]: Input should be greater than 0",
        ),
        (
            "challenger.search_turns",
            {"1": 0},
            "challenger.search_turns: needs shares, at least one above 0",
        ),
        (
            "challenger.search_turns",
            {},
            "challenger.search_turns: needs shares, at least one above 0",
        ),
        ("challenger.search_turns", {"5": 1}, "do not fit into dialogues.challenger_turns 5"),
        ("judge.min_criteria", 11, "min_criteria 11 must not be above max_criteria 10"),
        (
            "judge.priority_weights",
            {"critical": 1},
            "a weight above 0 for each of " + ", ".join(PRIORITIES),
        ),
        ("evaluation", {"replay": [[1, 3]]}, "replay answers evaluation.benchmark and"),
        (
            "evaluation",
            {"replay": [[1, 9]], "benchmark": "micro"},
            "evaluation.replay names iterations [1, 9]: this run evaluates 0 to 3",
        ),
        (
            "branch",
            {"run": "x", "iteration": 3},
            "begins with iteration 4: iterations=3 leaves nothing to do",
        ),
        ("world_seed", 7, "world_seed and evaluation.seed are both 7"),
        ("seed.x", 1, "seed: Input should be a valid integer"),
        ("num_engines.x", 1, "num_engines is a single setting"),
    ],
)
def test_a_value_out_of_range_says_where_and_what_is_allowed(setting, value, says):
    assert says in message({setting: value})


def test_overrides_reach_any_depth_and_leave_their_neighbours():
    cfg = profile.load(Config, "micro", {"solver.update.beta": 0.3, "seed": 5})
    plain = profile.load(Config, "micro")
    assert (cfg.solver.update.beta, cfg.seed) == (0.3, 5)
    changed = differences(plain.model_dump(mode="json"), cfg.model_dump(mode="json"))
    assert changed == ["seed 0, now 5", "solver.update.beta 0.0, now 0.3"]


def test_a_profile_that_extends_another_changes_only_what_it_names():
    micro, hackable = (
        profile.load(Config, n).model_dump(mode="json") for n in ("micro", "micro-hackable")
    )
    changed = {line.split()[0] for line in differences(micro, hackable)}
    assert changed == {"models.grader", "monitor.max_judge_minus_oracle"}


def test_a_configuration_cannot_be_changed():
    cfg = profile.load(Config, "micro")
    with pytest.raises(ValidationError, match="frozen"):
        cfg.seed = 1  # type: ignore[misc]


def test_a_run_keeps_its_configuration_and_refuses_another_unless_told(store):
    cfg = profile.load(Config, "micro")
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, cfg)
    save_request(store, asked, cfg)
    other = profile.load(Config, "micro", {"solver.group_size": 4})
    with pytest.raises(
        ValueError,
        match=r"run 'r' was made with solver.group_size 8, now 4\. Give this run a new name",
    ):
        save_request(store, asked, other)
    folder = store.root / "runs" / "r"
    assert Config.model_validate_json((folder / "config.json").read_text()) == cfg
    save_request(store, asked, other, force=True)
    assert Config.model_validate_json((folder / "config.json").read_text()) == other
    (before,) = folder.glob("config-until-*.json")
    assert Config.model_validate_json(before.read_text()) == cfg


def test_a_run_goes_on_after_an_upgrade_that_added_a_setting(store):
    cfg = profile.load(Config, "micro")
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, cfg)
    older = cfg.model_dump(mode="json")
    del older["structured"]
    store.keep("r", "config.json", older)
    save_request(store, asked, cfg)
    assert store.kept("r", "config.json")["structured"] == []


def test_a_run_whose_request_is_lost_is_not_called_unknown(store):
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, profile.load(Config, "micro"))
    (store.folder("r") / "request.json").unlink()
    with pytest.raises(Damaged, match=r"r/request.json is lost: repeat the original"):
        last_request(store, "r")
    with pytest.raises(ValueError, match="no run 'other'"):
        last_request(store, "other")


def test_a_run_goes_on_after_an_upgrade_that_added_a_setting_and_removed_a_limit(store):
    cfg = profile.load(Config, "micro")
    asked = Request(flow="f", profile="micro", run="r")
    older = cfg.model_dump(mode="json")
    del older["structured"]
    older["monitor"]["max_bygone"] = 0.5
    store.keep("r", "config.json", older)
    save_request(store, asked, cfg)
    assert store.kept("r", "config.json") == cfg.model_dump(mode="json")


@pytest.mark.parametrize("changed", [{"trainer_place": "ray"}, {"engine.max_model_len": 2048}])
def test_the_place_of_the_trainer_and_the_context_of_engines_may_change(store, changed):
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, profile.load(Config, "micro"))
    other = profile.load(Config, "micro", changed)
    save_request(store, asked, other)
    assert store.kept("r", "config.json") == other.model_dump(mode="json")


API = {
    "models.grader": "api:big-judge",
    "api.url": "https://judges.example/v1",
    "api.price_in": 1,
    "api.max_cost": 5,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"api.max_cost": 20},
        {"api.price_out": 3},
        {"api.timeout_s": 9, "api.retries": 1, "api.max_failed_share": 0.5},
        {"api.max_concurrency": 2, "api.api_key_env": "ANOTHER"},
    ],
)
def test_how_an_api_is_asked_may_change(store, changed):
    """A run that has reached its cap is told to raise it."""
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, profile.load(Config, "micro", API))
    other = profile.load(Config, "micro", API | changed)
    save_request(store, asked, other)
    assert store.kept("r", "config.json") == other.model_dump(mode="json")


@pytest.mark.parametrize(
    "changed",
    [
        {"api.url": "https://others.example/v1"},
        {"api.extra": {"reasoning_effort": "low"}},
        {"api.omit": ["seed"]},
        {"api.provider": "judges"},
    ],
)
def test_what_decides_the_replies_of_an_api_may_not_change(store, changed):
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, profile.load(Config, "micro", API))
    with pytest.raises(ValueError, match=f"was made with {next(iter(changed))}"):
        save_request(store, asked, profile.load(Config, "micro", API | changed))


def test_the_url_of_a_named_provider_may_change(store):
    asked = Request(flow="f", profile="micro", run="r")
    named = API | {"api.provider": "judges"}
    save_request(store, asked, profile.load(Config, "micro", named))
    moved = named | {"api.url": "https://others.example/v1"}
    save_request(store, asked, profile.load(Config, "micro", moved))


def test_a_run_that_an_alarm_stopped_continues_with_another_limit(store):
    asked = Request(flow="f", profile="micro", run="r")
    save_request(store, asked, profile.load(Config, "micro"))
    raised = profile.load(Config, "micro", {"monitor.max_reply_ratio": 6.0})
    save_request(store, asked, raised)
    assert (
        Config.model_validate_json((store.root / "runs" / "r" / "config.json").read_text())
        == raised
    )


def test_a_run_belongs_to_one_flow(store):
    cfg = profile.load(Config, "micro")
    save_request(store, Request(flow="one", profile="micro", run="r"), cfg)
    with pytest.raises(
        ValueError, match="run 'r' is one of one; give this run of other another name"
    ):
        save_request(store, Request(flow="other", profile="micro", run="r"), cfg, force=True)


def test_a_prompt_set_is_a_folder_of_the_method(monkeypatch, tmp_path):
    assert (
        f"dialogues.prompts is 'german', but {PROFILES.parent / 'prompts'} has only english, lines"
        in (message({"dialogues.prompts": "german"}))
    )
    assert "dialogues.prompts" in message({"dialogues.prompts": "../english"})
    monkeypatch.setattr(profile, "home", lambda model: tmp_path)
    (tmp_path / "prompts" / "german").mkdir(parents=True)
    values = profile.read(PROFILES, "micro")
    assert Config(**{**values, "dialogues": {"prompts": "german"}}).dialogues.prompts == "german"


def test_gates_and_rubrics_of_a_model_that_thinks_are_not_greedy():
    """A model that thinks repeats itself when greedy; others are screened at the paper's 0."""
    for name, temperature in (("qwen3-8b-6gpu", 0.6), ("qwen2.5-7b-6gpu", 0.0)):
        roles = Roles(profile.load(Config, name))
        for role in (roles.gates, roles.rubric_writer):
            assert role.sampling.temperature == temperature
    roles = Roles(profile.load(Config, "qwen3-8b-6gpu", {"judge.screening_temperature": 0.0}))
    assert roles.gates.sampling.temperature == 0


@pytest.mark.parametrize(("frozen_after", "trained"), [(None, True), (1, True), (0, False)])
def test_a_challenger_that_is_never_trained_is_not_planned(frozen_after, trained):
    cfg = profile.load(Config, "qwen3-8b-6gpu", {"challenger.frozen_after": frozen_after})
    updates = [step.update.settings for step in cfg.workload().steps if step.update is not None]
    assert (cfg.challenger.update in updates) is trained


def test_verdicts_err_on_purpose_only_where_the_truth_is_known(place):
    errors = {"errors.shape": "length", "errors.share": 0.4}
    in_world = Scope.prepare(Run(profile.load(Config, "micro", errors), place))
    assert in_world.oracle is not None
    real = profile.load(Config, "micro", {**errors, "corpus": "a/folder"})
    with pytest.raises(ValueError, match="needs a built-in world that knows the truth"):
        Scope.prepare(Run(real, place))


def test_verdicts_on_criteria_have_no_most_frequent_mistake():
    with pytest.raises(ValueError, match='choose "independent", "task" or "length"'):
        profile.load(Config, "micro", {"errors.shape": "mistake", "errors.share": 0.4})
