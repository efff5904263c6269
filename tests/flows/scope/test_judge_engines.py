"""Judges of several sizes in one run, as in figure 4 of SCOPE's paper: which engine serves which
judge."""

import pytest

from flows.runtime.machines import Machines, open_models
from flows.scope.config import Config
from flows.settings.profile import load
from tests.support.scripted import model_folder


@pytest.fixture(scope="module")
def sizes(tmp_path_factory) -> dict[str, str]:
    """Models of one family, by width."""
    root = tmp_path_factory.mktemp("sizes")
    return {
        name: str(model_folder(root / name, hidden=hidden))
        for name, hidden in (("m", 64), ("s", 32), ("l", 128))
    }


def config(
    sizes: dict[str, str], writer: str | None, grader: str | None, judge: str | None = None, **more
) -> Config:
    models = {
        "base": sizes["m"],
        "rubric_writer": writer and sizes[writer],
        "grader": grader and sizes[grader],
    }
    own = {"model": sizes[judge], "max_model_len": 64} if judge else None
    return load(
        Config, "micro", {"models": models, "engine.model": sizes["m"], "judge_engine": own, **more}
    )


@pytest.mark.parametrize(
    ("writer", "grader", "judge", "served"),
    [
        # figure 4: a small writer, and the base grades
        ("s", None, "s", {"base": "m", "rubric_writer": "s"}),
        (None, "l", "l", {"base": "m", "grader": "l"}),
        ("s", "l", "l", {"base": "m", "rubric_writer": "s", "grader": "l"}),
        ("l", "l", "l", {"base": "m", "rubric_writer": "l", "grader": "l"}),
        (None, None, "m", {"base": "m"}),
        ("m", None, None, {"base": "m", "rubric_writer": "m"}),
    ],
)
def test_every_judge_is_served_by_an_engine_of_its_shape(
    tmp_path, sizes, writer, grader, judge, served
):
    cfg = config(sizes, writer, grader, judge)
    models = open_models(cfg)
    machines = Machines.of(cfg, tmp_path)
    assert {
        n: machines.serving(policy, on_judge_engine=True).config.model
        for n, policy in models.items()
    } == {name: sizes[size] for name, size in served.items()}
    assert machines.serving(models["base"], on_judge_engine=False) is machines.engines
    machines.close()


def test_a_trained_judge_is_scored_by_the_engine_that_can_load_it(tmp_path, sizes):
    cfg = config(sizes, None, "l", "l")
    models = open_models(cfg)
    machines = Machines.of(cfg, tmp_path)
    assert machines.serving_player(models["base"]) is machines.engines
    assert machines.serving_player(models["grader"]) is machines.judges
    machines.close()


def test_a_judge_of_another_shape_is_refused_before_anything_is_loaded_where_it_has_no_engine(
    sizes,
):
    with pytest.raises(ValueError, match=r"shape of .* differs from .*\(judge_engine\)"):
        open_models(config(sizes, "s", None))
