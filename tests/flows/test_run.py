"""The interface that methods are written with: how players learn, and how they are found again."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.app.command.candidates import last_iteration
from flows.run import Player, Role, Run
from flows.runtime.machines import Machines
from flows.runtime.record import report_orphaned
from flows.runtime.templates import load
from flows.settings.profile import MethodSettings
from tasks.ask import repeatedly
from tasks.models.engine import Policy, Sampling
from tasks.models.yarn import Yarn
from tasks.monitors.monitor import Alarm
from tasks.prompt import Template
from tasks.read import reads
from tasks.training.grpo import GRPOSettings
from tests.support.rows import publish, row, turn
from tests.support.trainers import STATE, WEIGHTS, CountingTrainer
from warehouse.freshness import Playing
from warehouse.lake import Lake
from warehouse.rerun import Rerun
from warehouse.schemas import ANSWERS, TABLES
from warehouse.store import Place, Store, Table


class Bench:
    """A run whose trainer only counts. `slept` lists the engines that released their memory."""

    def __init__(self, store: Store, name: str = "r", device: str = "cpu") -> None:
        base = store.root / "base"
        base.mkdir(exist_ok=True)
        (base / WEIGHTS).write_text("0")
        self.trainer = CountingTrainer()
        self.slept = []
        engines, judges = (self._fleet(name, device, str(base)) for name in ("engines", "judges"))
        models = {"base": Policy(id="base", weights=str(base), content_hash="0")}
        about = {"models": {"base": str(base)}, "engine": {"max_model_len": 64, "dtype": "float32"}}
        cfg = MethodSettings.model_validate(about)
        self.run = Run(cfg, store.run(name), models, Machines(engines, judges, self.trainer))  # type: ignore[arg-type]

    def _fleet(self, name: str, device: str, model: str) -> Any:
        config = SimpleNamespace(model=model, device=device, yarn=None)
        return SimpleNamespace(config=config, sleep=lambda: self.slept.append(name))

    settings = GRPOSettings(temperature=0.125)

    def learn(
        self,
        at: Place,
        player: Player,
        *temperatures: float,
        advantage: float = 1.0,
        reward: Any = 1.0,
        **how: Any,
    ) -> Player:
        """Learn from one rollout of each temperature."""
        names = [f"t{i}" for i, _ in enumerate(temperatures)]
        tables = [sampled(at, name, t) for name, t in zip(names, temperatures, strict=True)]
        paid = (
            row("advantages", rollout_id=name, reward=reward, advantage=advantage) for name in names
        )
        advantages = publish(at, "advantages", *paid)
        return self.run.learn(at, player, advantages, tables, self.settings, **how)


def sampled(at: Place, rollout_id: str, temperature: float) -> Table:
    """A rollout of one token, in a table sampled at a temperature."""
    recipe = {"key": "k", "params": {"sampling": {"temperature": temperature}}, "counts": {}}
    with at.store.draft(TABLES["rollouts"]) as draft:
        draft.write([row("rollouts", rollout_id=rollout_id, turns=[turn("x")])])
        return at.store.publish(
            draft, at.address("rollouts", rollout_id), {**recipe, "started_at": 0.0}
        )


def reply(rollout_id: str, token: int) -> dict:
    """A rollout of one token."""
    said = turn("x", context_token_ids=[7], sampled_token_ids=[token], logprobs=[-0.5])
    return row("rollouts", rollout_id=rollout_id, prompt_id="p", turns=[said])


def number(path: str | Path, name: str) -> int:
    return int((Path(path) / name).read_text())


@pytest.fixture
def bench(store) -> Bench:
    return Bench(store)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_an_update_compares_log_probabilities_at_the_temperature_of_its_rollouts(
    bench, place, temperature
):
    """The temperature of its settings, 0.125, does not count."""
    bench.learn(place, bench.run.player("solver"), temperature, temperature)
    (job,) = bench.trainer.jobs
    assert job.settings.temperature == temperature


def test_rollouts_of_two_temperatures_are_refused_before_the_update(bench, place):
    with pytest.raises(
        ValueError, match=r"one update cannot train on rollouts of temperatures \[0\.7, 1\.0\]"
    ):
        bench.learn(place, bench.run.player("solver"), 1.0, 0.7)
    assert bench.trainer.jobs == [] and place.store.find(place.address("updates")) is None


def test_a_player_goes_on_from_its_last_weights_and_optimizer_state(bench, store):
    """The KL reference stays the base."""
    first, second = (store.run("r").iteration(1).phase("solver").step(b) for b in (1, 2))
    player = bench.run.player("solver")
    assert (player.policy.id, player.optimizer_state, player.num_updates) == ("base", None, 0)
    once = bench.learn(first, player, 1.0)
    twice = bench.learn(second, once, 1.0)
    assert [p.num_updates for p in (once, twice)] == [1, 2]
    assert [p.policy.id for p in (once, twice)] == [at.address("updates") for at in (first, second)]
    assert [number(p.policy.weights, WEIGHTS) for p in (once, twice)] == [1, 2]
    jobs = bench.trainer.jobs
    assert jobs[0].optimizer_state is None and number(jobs[1].optimizer_state, STATE) == 1
    assert {str(job.reference) for job in jobs} == {bench.run.models["base"].weights}
    assert store.get(second.address("updates")).rows()[-1]["role"] == "solver"


@pytest.mark.parametrize(("rows_per_step", "is_shuffled"), [(4, True), (None, False)])
def test_rows_are_shuffled_anew_for_every_update_of_several_steps(
    bench, store, rows_per_step, is_shuffled
):
    player = bench.run.player("solver")
    orders = []
    for step in (1, 2):
        at = store.run("r").iteration(1).phase("solver").step(step)
        player = bench.learn(at, player, *[1.0] * 8, rows_per_step=rows_per_step)
        rows = store.get(at.address("batches")).rows()
        orders.append([datum["rollout_id"] for datum in rows])
    in_order = [f"t{number}" for number in range(8)]
    assert sorted(orders[0]) == sorted(orders[1]) == in_order
    assert (orders[0] != orders[1]) == is_shuffled
    assert (in_order not in orders) == is_shuffled


def test_a_learning_rate_decays_over_the_updates_of_a_player(bench, store):
    bench.settings = GRPOSettings(learning_rate=0.5, decay_updates=2)
    player = bench.run.player("solver")
    for step in range(3):
        player = bench.learn(store.run("r").iteration(1).phase("solver").step(step), player, 1.0)
    assert [job.settings.learning_rate for job in bench.trainer.jobs] == [0.5, 0.25, 0.25]


def test_the_trainer_stretches_positions_as_the_players_engines_do(bench, store):
    yarn = Yarn(factor=2.0)
    steps = [store.run("r").iteration(1).phase("solver").step(step) for step in (1, 2)]
    player = bench.learn(steps[0], bench.run.player("solver"), 1.0)
    bench.run.machines.engines.config.yarn = yarn
    bench.learn(steps[1], player, 1.0)
    assert [job.yarn for job in bench.trainer.jobs] == [None, yarn]


def test_where_nothing_can_be_trained_on_the_player_stays_as_it_is(bench, place):
    player = bench.run.player("solver")
    assert bench.learn(place, player) is player
    assert bench.learn(place, player, 1.0, max_tokens=1) is player  # its datum has two
    assert bench.trainer.jobs == []


def test_rewards_of_no_rollout_are_refused(bench, place):
    """They would train nothing, and the run would end as if it had."""
    rollouts = [sampled(place, name, 1.0) for name in ("a", "b")]
    rewards = publish(
        place,
        "advantages",
        *(row("advantages", rollout_id=name, advantage=1.0) for name in ("a", "c", "d")),
    )
    player = bench.run.player("solver")
    with pytest.raises(
        ValueError, match="2 of 3 rewards belong to no sampled rollout, c among them"
    ):
        bench.run.learn(place, player, rewards, rollouts, bench.settings)
    twice = publish(
        place, "advantages", *(row("advantages", rollout_id=name, advantage=1.0) for name in "aba")
    )
    with pytest.raises(ValueError, match="/advantages has 2 rewards of the rollout a"):
        bench.run.learn(place, player, twice, rollouts, bench.settings)
    assert bench.trainer.jobs == []


def test_a_step_whose_advantages_are_all_zero_is_not_trained_on(bench, place, caplog):
    player = bench.run.player("solver")
    assert bench.learn(place, player, 1.0, 1.0, advantage=0.0) is player
    assert bench.trainer.jobs == [] and "no rollout has an advantage" in caplog.text


def test_a_step_in_which_nothing_could_be_rewarded_stops_the_run(bench, place):
    with pytest.raises(Alarm, match=r"unscorable is 1, the limit is 0\.5"):
        bench.learn(place, bench.run.player("solver"), *[1.0] * 16, advantage=0.0, reward=None)


def test_a_supervised_update_with_a_kl_term_is_refused(bench, place):
    rows = publish(place, "batches", row("batches", rollout_id="a", advantage=1.0))
    player = bench.run.player("solver")
    with pytest.raises(ValueError, match="has no KL term: set beta to 0"):
        bench.run.fit(place, player, rows, GRPOSettings(beta=0.1), batch_size=1)
    assert bench.trainer.jobs == []
    bench.run.fit(place, player, rows, GRPOSettings(beta=0.0), batch_size=1)
    [job] = bench.trainer.jobs
    assert job.settings == GRPOSettings(beta=0.0, objective="likelihood")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"micro_batch_size": 1}, "micro_batch_size must be even, not 1"),
        ({"micro_batch_size": 1, "shared_prompt_tokens": 64}, "micro_batch_size must be even"),
        ({"beta": 0.0}, "needs a beta above 0"),
    ],
)
def test_an_update_on_preferences_that_could_not_pair_its_rows_is_refused(bench, place, wrong, why):
    rollouts = publish(place, "rollouts", *(reply(name, i) for i, name in enumerate("ab")))
    pair = row("pairs", pair_id="p", chosen="a", rejected="b", kept=True, held_out=False)
    pairs = publish(place, "pairs", pair)
    player = bench.run.player("solver")
    settings = GRPOSettings(**{"beta": 0.1, "micro_batch_size": 2, **wrong})
    with pytest.raises(ValueError, match=why):
        bench.run.prefer(place, player, pairs, rollouts, settings, pairs_per_step=1)
    assert bench.trainer.jobs == []
    settings = GRPOSettings(beta=0.1, micro_batch_size=2)
    bench.run.prefer(place, player, pairs, rollouts, settings, pairs_per_step=1)
    [job] = bench.trainer.jobs
    assert job.settings.objective == "preference"


@pytest.mark.parametrize(("device", "slept"), [("cpu", []), ("cuda", ["engines", "judges"])])
def test_engines_on_a_gpu_give_their_memory_to_the_update(store, place, device, slept):
    bench = Bench(store, device=device)
    bench.learn(place, bench.run.player("solver"), 1.0)
    assert bench.slept == slept


def test_a_player_is_found_as_an_iteration_left_it(bench, store):
    players = {name: bench.run.player(name) for name in ("challenger", "solver")}
    left = {0: dict(players)}
    for t in (1, 2, 3):
        # the challenger does not train in the second
        for name in players if t != 2 else ("solver",):
            for b in (1, 2):
                players[name] = bench.learn(
                    bench.run.place.iteration(t).phase(name).step(b), players[name], 1.0
                )
        left[t] = dict(players)
    found = {t: {name: bench.run.player_after(name, t) for name in players} for t in left}
    assert found == left
    assert [found[t]["challenger"].num_updates for t in left] == [0, 2, 2, 4]
    assert [found[t]["solver"].num_updates for t in left] == [0, 2, 4, 6]


def test_updates_that_the_flow_no_longer_reaches_are_of_no_player(bench, store, caplog):
    """A flow that was edited, or has fewer steps now, leaves updates behind that may come last
    in order."""

    def play(*phases: str) -> Player:
        store.freshness = Playing()
        player = bench.run.player("solver")
        for phase in phases:
            place = bench.run.place.iteration(1).phase(phase).step(1)
            player = bench.learn(place, player, 1.0)
        report_orphaned(store, "r")
        return player

    lake = Lake(store)
    play("solver", "training")
    assert "left over" not in caplog.text
    assert lake.query("r", "select count(*) as n from updates").rows == [{"n": 2}]
    now = play("solver")
    assert (
        "r: 1 update(s) are left over" in caplog.text
        and "training/step-001/updates the last" in caplog.text
    )
    assert bench.run.player_after("solver", 1) == now and now.num_updates == 1
    # views and reports count the update that is the player's, as evaluations and exports do
    counted = "select count(*) as n from updates"
    assert lake.query("r", counted).rows == lake.query("", counted).rows == [{"n": 1}]
    assert Lake(store).query("r", counted).rows == [{"n": 1}]
    assert last_iteration(store, "r", "solver") == 1
    assert [table.address for table in store.updates("r")] == ["r/iter-001/solver/step-001/updates"]
    back = play("solver", "training")
    assert bench.run.player_after("solver", 1) == back and back.num_updates == 2


def test_an_update_that_the_flow_comes_to_again_counts_at_once(bench, store):
    """Not only when the flow has ended: until then, and if it is killed, it would be left over."""
    store.watchers.append(store.note_reached)
    places = [bench.run.place.iteration(1).phase("solver").step(number) for number in (1, 2)]

    def play(*its_places: Place) -> None:
        store.freshness = Playing()
        player = bench.run.player("solver")
        for place in its_places:
            player = bench.learn(place, player, 1.0)

    play(*places)
    play(places[0])
    report_orphaned(store, "r")
    assert len(list(store.updates("r"))) == 1
    play(*places)
    assert len(list(store.updates("r"))) == 2


def test_steps_without_any_advantage_are_passed_over_but_not_for_ever(bench, store):
    """Five in a row are passed over, the sixth raises an alarm; an update begins the count anew,
    and each player has its own."""
    learner, other = bench.run.player("solver"), bench.run.player("challenger")
    places = [store.run("r").iteration(1).phase("solver").step(number) for number in range(13)]

    def skip(number: int, player: Player) -> None:
        bench.learn(places[number], player, 1.0, advantage=0.0)

    for number in range(5):
        skip(number, learner)
    learner = bench.learn(places[5], learner, 1.0)
    for number in range(6, 11):
        skip(number, learner)
    skip(11, other)
    with pytest.raises(Alarm, match=r"untrained is 6, the limit is 5"):
        skip(12, learner)
    assert learner.num_updates == 1


def test_a_run_whose_players_have_names_of_their_own_says_which_is_evaluated(bench, store):
    """Or `evaluate` would take the base model for the run's last policy."""
    assert last_iteration(store, "r", "policy") == 0
    bench.learn(
        bench.run.place.iteration(2).phase("asking").step(1), bench.run.player("challenger"), 1.0
    )
    assert last_iteration(store, "r", "challenger") == 2
    assert last_iteration(store, "r", "solver") == 0  # not yet trained
    with pytest.raises(
        ValueError, match="run 'r' trains challenger and no 'policy': name the one to evaluate"
    ):
        last_iteration(store, "r", "policy")


def test_stages_to_rerun_that_the_flow_did_not_reach_are_named(store, caplog):
    scores = [publish(store.run("r").phase(phase), "rewards") for phase in ("solver", "training")]
    names = [table.address for table in scores]
    store.freshness = Rerun("1", frozenset(names), only=True)
    with pytest.raises(
        ValueError, match="no longer reaches them: r/solver/rewards, r/training/rewards"
    ):
        report_orphaned(store, "r")
    store.freshness.passed(scores[0], {}, lambda *_: scores[0], {})
    report_orphaned(store, "r")
    assert "no longer reaches them: r/training/rewards" in caplog.text


def test_a_player_of_another_run_is_found_by_the_name_of_that_run_alone(bench, store):
    """The name of run `r2` begins like that of run `r`."""
    other = Bench(store, "r2")
    bench.learn(
        bench.run.place.iteration(1).phase("solver").step(1), bench.run.player("solver"), 1.0
    )
    theirs = other.run.player("solver")
    for b in (1, 2):
        theirs = other.learn(other.run.place.iteration(1).phase("solver").step(b), theirs, 1.0)
    assert bench.run.player_after("solver", 1, "r2") == theirs
    assert bench.run.player_after("solver", 1).num_updates == 1
    with pytest.raises(ValueError, match="there is no run 'nowhere' to take the solver from"):
        bench.run.player_after("solver", 1, "nowhere")


def asked(bench: Bench, place: Place, template: Template) -> None:
    role = Role(
        "solver",
        (template,),
        partial(repeatedly, count=2),
        Sampling(max_tokens=1),
        ANSWERS,
        reads("answer", str),
    )
    bench.run.sample(place, role, bench.run.player("solver").policy)


def test_an_error_in_a_template_names_its_file(bench, place, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"the prompt of solver \(solve\.jinja\): 'topic' is undefined; yield it from the"
        r" role's `variables`, or set it in `values`$",
    ):
        asked(bench, place, Template("solve", "solve : {{ topic }}"))
    (tmp_path / "solve.jinja").write_text("solve\n{{ task ")
    with pytest.raises(ValueError, match=r"solve\.jinja, line 2: unexpected end of template"):
        load(tmp_path, "solve")


def test_a_model_that_the_configuration_does_not_name_is_the_base(bench):
    assert bench.run.model("grader") == bench.run.models["base"]


def test_a_run_without_machines_trains_no_model(store):
    run: Run[Any] = Run(MethodSettings.model_construct(), store.run("r"))
    with pytest.raises(AssertionError, match="this run trains no model"):
        _ = run.machines


def test_a_report_shows_the_drift_of_its_iteration_and_stays_when_the_run_is_asked_for_again(
    bench, caplog
):
    """The course of iteration 1 is measured before iteration 2 begins, and the report written
    after that. Asked again, only the last report is looked at."""
    run = Run(
        bench.run.cfg.model_copy(update={"iterations": 2}),
        bench.run.place,
        bench.run.models,
        bench.run.machines,
    )
    score = partial(
        row, "evaluations", benchmark="exam", metric="score", score=0.5, standard_error=0.1, n=4
    )
    publish(run.place.iteration(0).phase("evaluation"), "evaluations", score())
    for _, at in run.iterations():
        publish(at.phase("evaluation"), "evaluations", score())
    caplog.clear()
    with caplog.at_level(logging.INFO, "selfplay"):
        assert [t for t, _ in run.iterations()] == [1, 2]
    assert [m.rpartition("/")[2] for m in caplog.messages if "html" in m] == [
        "iter-002.html: fresh"
    ]
    assert (run.place.store.root / "reports/r/iter-001.md").read_text().count("course monitor") == 1
