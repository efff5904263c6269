"""Whose prompts are answered again, who may teach, and what is refused."""

from __future__ import annotations

import pytest

from flows.app.command.parameters import check_models
from flows.blocks.replayed_role import ReplayedRole
from flows.distillation.config import Config
from flows.distillation.flow import distillation_update
from flows.runtime.engine_scores import teaching_fleet
from flows.runtime.machines import Machines
from flows.runtime.request import Request
from flows.runtime.start import open_teacher
from flows.settings import profile as profiles
from flows.settings.profile import home
from tasks.distillation import distance_to_teacher, earlier_prompts
from tasks.models.engine import Policy
from tests.support.rows import publish, row


def prompt(number: int, text: str, task_id: str | None = None) -> dict:
    messages = [{"role": "user", "content": text}]
    return row("prompts", prompt_id=f"p{number}", task_id=task_id, messages=messages)


def again(rows: list[dict], **changed) -> list[str]:
    settings = {"held_out": 0.0, "is_measured": False, "most": None, "seed": 0, "draw": 0}
    chosen = earlier_prompts(rows, **{**settings, **changed})
    return [found["messages"][0]["content"] for found in chosen]


def test_a_conversation_is_answered_once_though_it_was_asked_twice():
    rows = [prompt(0, "Why?"), prompt(1, "How?"), prompt(2, "Why?")]
    assert sorted(again(rows)) == ["How?", "Why?"]


def test_held_out_prompts_are_never_trained_on():
    rows = [prompt(number, f"Question {number // 2}, version {number % 2}", f"t{number // 2}")
            for number in range(200)]  # fmt: skip
    measured = again(rows, held_out=0.3, is_measured=True)
    for draw in (1, 2):
        trained = again(rows, held_out=0.3, draw=draw)
        assert sorted(trained + measured) == sorted(again(rows))
    assert 30 < len(measured) < 90
    tasks = {text.split(",")[0] for text in measured}
    assert not tasks & {text.split(",")[0] for text in trained}  # both versions on one side


def test_every_iteration_draws_anew():
    rows = [prompt(number, str(number)) for number in range(50)]
    first = again(rows, most=10, draw=1)
    assert len(first) == 10
    assert first == again(rows, most=10, draw=1)
    assert set(first) != set(again(rows, most=10, draw=2))


def test_the_distance_counts_sampled_tokens_alone():
    """Gaps of 0.5 and 1.5 nats; the token between them was not sampled."""
    batch = [
        row("batches", rollout_id="a", loss_mask=[1, 0, 1], logprobs=[-0.5, 0.0, -0.5]),
    ]
    scored = [row("reference_logprobs", rollout_id="a", logprobs=[-1.0, -9.0, -2.0])]
    assert list(distance_to_teacher(batch, scored)) == [("reverse_kl", pytest.approx(1.0))]


def ask(run, label: str, phase: str = "training"):
    place = run.iteration(1).phase(phase)
    publish(place, "prompts", prompt(0, "Why?"), label=label)
    publish(place, "rollouts", row("rollouts", rollout_id=f"{label}-{phase}"), label=label)


def test_a_run_or_role_that_is_not_there_is_refused(store):
    run = store.run("mine")
    ask(run, "solver-1")
    ask(run, "judge")
    ask(run, "solver", phase="evaluation")
    for name, role, message in (
        (None, None, "source=RUN"),
        ("other", None, "there is no run 'other'"),
        ("mine", None, "has prompts of judge, solver: name one"),
        ("mine", "writer", "no prompts of 'writer', only of judge, solver"),
    ):
        with pytest.raises(ValueError, match=message):
            ReplayedRole.open(store, name, role)


def test_prompts_of_evaluations_are_left_out(store):
    ask(store.run("mine"), "held-out", phase="evaluation")
    with pytest.raises(ValueError, match="has prompts of none"):
        ReplayedRole.open(store, "mine", None)


@pytest.fixture
def cfg() -> Config:
    return profiles.load(Config, "micro", {"source": "mine", "teacher": "data/micro/spice"})


BASE = Policy(id="spell", weights="data/micro/spell", content_hash="of-spell")


def test_a_teacher_with_other_tokens_is_refused(cfg, tmp_path):
    """The built-in models of two methods have vocabularies of their own."""
    machines = Machines.of(cfg, tmp_path)
    teacher = Policy(id="spice", weights="data/micro/spice", content_hash="of-spice")
    with pytest.raises(ValueError, match="has other tokens than the student"):
        teaching_fleet(machines, teacher, BASE)
    assert teaching_fleet(machines, BASE, BASE) is machines.engines


def test_a_teacher_that_does_not_exist_is_refused_before_the_run(cfg, store, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    check_models(cfg.model_copy(update={"teacher": None}))
    with pytest.raises(ValueError, match="nope"):
        check_models(cfg.model_copy(update={"teacher": "nope"}))


def test_a_teacher_that_no_engine_can_load_is_refused_with_a_way_out(cfg, store):
    with pytest.raises(ValueError, match="judge_engine"):
        open_teacher("data/micro/spice", BASE, cfg, store)


def test_a_run_that_trained_nothing_cannot_teach(cfg, store):
    ask(store.run("mine"), "solver")
    with pytest.raises(ValueError, match="teacher is 'mine', but that run has updated no policy"):
        open_teacher("mine", BASE, cfg, store)


@pytest.mark.parametrize("profile", profiles.names(home(Config) / "profiles"))
def test_profiles_name_no_run(profile):
    request = Request(flow=distillation_update.name, profile=profile, run="r")
    cfg = distillation_update.load(request, loads=False)
    assert isinstance(cfg, Config)
    assert cfg.source is None and cfg.update.objective == "distillation"
