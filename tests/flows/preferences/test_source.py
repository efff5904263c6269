"""Which replies of a run are compared, and what is refused."""

from __future__ import annotations

import pytest

from flows.blocks.compared_replies import Source
from flows.preferences.config import Config
from flows.preferences.flow import check_pairs, preference_update
from flows.runtime.request import Request
from flows.settings.profile import home, names
from tasks.models.engine import Policy
from tests.support.rows import publish, row

BASE = Policy(id="base", weights="models/base", content_hash="of-base")
OTHER = Policy(id="other", weights="models/other", content_hash="of-other")


@pytest.fixture
def source(store):
    """A run in which `solver` answered and `judge` voted in two rounds, from one base model."""
    run = store.run("mine")
    publish(
        run,
        "policies",
        row("policies", policy="base", role="base", policy_hash="of-base", weights="models/base"),
    )
    step = run.iteration(1).phase("training").step(1)

    def replies(label: str, *ids: str, sampler: str = "of-base") -> None:
        publish(step, "prompts", row("prompts", prompt_id=f"{label}-p"), label=label)
        rows = [
            row("rollouts", rollout_id=i, prompt_id=f"{label}-p", policy_hash=sampler) for i in ids
        ]
        publish(step, "rollouts", *rows, label=label)

    replies("solver", "s1", "s2", sampler="of-an-update")
    replies("judge-1", "j1", "j2")
    replies("judge-2", "j3")
    return run


def give(run, *subjects: str, kind: str = "verdict") -> None:
    rows = [
        row("annotations", kind=kind, subject=subject, labeller="ann", opinion="good")
        for subject in subjects
    ]
    publish(run, "annotations", *rows, label="ann")


def test_the_labelled_role_is_found_with_the_tables_of_all_its_rounds(store, source):
    give(source, "j1", "j3")
    found = Source.open(store, "mine", "labels", None)
    assert found.role == "judge"
    assert [table.at.label for table in found.rollouts] == ["judge-1", "judge-2"]
    assert [table.at.label for table in found.prompts] == ["judge-1", "judge-2"]


def test_labels_of_two_roles_need_a_name(store, source):
    give(source, "j1", "s1")
    with pytest.raises(ValueError, match="judge, solver have opinions in the run mine: name one"):
        Source.open(store, "mine", "labels", None)
    assert Source.open(store, "mine", "labels", "solver").role == "solver"


@pytest.mark.parametrize(
    ("run", "on", "role", "message"),
    [
        (None, "labels", None, "source=RUN"),
        ("other", "labels", None, "there is no run 'other'"),
        ("mine", "rewards", None, "the run mine has no rewards"),
        ("mine", "labels", None, "the run mine has no labels; people label in `selfplay view`"),
    ],
)
def test_a_run_without_opinions_is_refused(store, source, run, on, role, message):
    with pytest.raises(ValueError, match=message):
        Source.open(store, run, on, role)


def test_a_role_without_replies_is_refused_with_those_that_there_are(store, source):
    give(source, "j1")
    with pytest.raises(ValueError, match="no replies of 'writer', only of judge, solver"):
        Source.open(store, "mine", "labels", "writer")


def test_labels_of_nothing_that_was_sampled_are_refused(store, source):
    give(source, "gone")
    with pytest.raises(ValueError, match="no reply of the run mine is labelled"):
        Source.open(store, "mine", "labels", None)


@pytest.mark.parametrize(
    ("on", "role", "why"),
    [
        ("labels", None, "no reply of the run mine is labelled"),
        ("rewards", None, "the run mine has no rewards"),
        ("labels", "policy", "no replies of 'policy', only of judge, solver"),
    ],
)
def test_replies_of_evaluations_are_no_training_data(store, source, on, role, why):
    evaluation = source.iteration(1).phase("evaluation")
    publish(evaluation, "prompts", row("prompts", prompt_id="held-out"), label="policy")
    replies = [row("rollouts", rollout_id=name, prompt_id="held-out") for name in ("e1", "e2")]
    publish(evaluation, "rollouts", *replies, label="policy")
    publish(evaluation, "rewards", *(row("rewards", rollout_id=name) for name in ("e1", "e2")))
    give(source, "e1", "e2")
    with pytest.raises(ValueError, match=why):
        Source.open(store, "mine", on, role)


def test_labels_beside_those_of_evaluations_are_taken(store, source):
    """Also if one role answered in both: only its replies in training are compared."""
    evaluation = source.iteration(1).phase("evaluation")
    publish(evaluation, "prompts", row("prompts", prompt_id="held-out"), label="judge-1")
    publish(
        evaluation,
        "rollouts",
        row("rollouts", rollout_id="e1", prompt_id="held-out"),
        label="judge-1",
    )
    give(source, "j1", "e1")
    found = Source.open(store, "mine", "labels", None)
    assert [table.at.phase for table in (*found.rollouts, *found.prompts)] == ["training"] * 4


@pytest.mark.parametrize("role", ["judge", "solver"])
def test_replies_of_another_model_are_refused(store, source, role):
    """Those of an updated policy are of the base that it was trained from."""
    give(source, "j1", "s1")
    found = Source.open(store, "mine", "labels", role)
    found.check_model(BASE, start=BASE)
    with pytest.raises(ValueError, match=r"another model than models\.base"):
        found.check_model(OTHER, start=OTHER)


def test_a_run_without_a_pair_to_train_on_says_why(store, source):
    give(source, "j1")
    found = Source.open(store, "mine", "labels", None)
    equal = row("pairs", pair_id="a", reason="all opinions are equal")
    held_out = row("pairs", pair_id="b", kept=True, held_out=True, chosen="c", rejected="d")
    compared = publish(store.run("tuned"), "pairs", equal, held_out)
    with pytest.raises(
        ValueError, match="1 because all opinions are equal, 1 because it is held out"
    ):
        check_pairs(compared, found)


@pytest.mark.parametrize("profile", names(home(preference_update.config) / "profiles"))
def test_profiles_name_no_run(profile):
    request = Request(flow=preference_update.name, profile=profile, run="r")
    cfg = preference_update.load(request, loads=False)
    assert isinstance(cfg, Config)
    assert cfg.source is None and cfg.update.objective == "preference"
