"""Rerun, why, shards, verify and clean: what is rebuilt, and what is not."""

import errno
import threading
from typing import Any

import pytest

from tasks.generate import generate
from tasks.models.engine import EngineDied, Sampling
from tasks.prompt import Malformed
from tasks.read import of_reply
from tasks.rollouts.rollout import Dialogue, roll_out
from tasks.stage import Rows, stage
from tests.support.rows import publish, row, samples, updates
from tests.support.scripted import POLICY, ScriptedEngine
from warehouse import clean
from warehouse.draft import PART
from warehouse.freshness import Freshness, Playing
from warehouse.rerun import Enough, Inquiry, Rerun, Unmade, chosen
from warehouse.schemas import SAMPLES, TASKS
from warehouse.store import Place, Store, Table
from warehouse.table import Cleaned

made: list[str] = []


@stage(SAMPLES)
def first(*, ids: tuple[str, ...], address: str) -> Rows:
    """Yield one row per id."""
    made.append(address)
    yield from (row("samples", sample_id=i) for i in ids)


@stage(SAMPLES)
def count(source: Table, *, address: str) -> Rows:
    """Yield one row with the number of rows of `source`."""
    made.append(address)
    yield row("samples", sample_id=str(source.num_rows))


@stage(SAMPLES)
def last(sources: tuple[Table, ...], *, address: str) -> Rows:
    made.append(address)
    yield row("samples", sample_id="-".join(r["sample_id"] for t in sources for r in t.rows()))


def play(store: Store, ids: tuple[str, ...] = ("a", "b")) -> list[str]:
    """A flow of three stages in each of two iterations; returns what it made, even if it stopped
    early."""
    made.clear()
    try:
        for t in (1, 2):
            place = store.run("r").iteration(t)
            begun = first(place, ids=ids, label="first")
            last(place, (count(place, begun, label="count"),), label="last")
    except (Enough, Unmade):
        pass
    return [address.removeprefix("r/iter-00") for address in made]


def rerun(
    store: Store, name: str, rerun_id: str = "1", iteration: int | None = None, **how: Any
) -> list[str]:
    store.freshness = Rerun(rerun_id, chosen(store, "r", name, iteration), **how)
    return play(store)


ALL = [f"{t}/samples.{label}" for t in (1, 2) for label in ("first", "count", "last")]


def test_a_flow_played_again_makes_nothing(store):
    assert play(store) == ALL
    assert play(store) == []


def test_a_stage_is_made_again_and_not_what_came_out_the_same(store):
    play(store)
    assert rerun(store, "samples.first", iteration=2) == ["2/samples.first"]
    assert rerun(store, "samples.count", "2") == ["1/samples.count", "2/samples.count"]


def test_dependents_are_made_again_on_request_and_nothing_else(store):
    play(store)
    assert rerun(store, "samples.count", iteration=1, dependents=True) == [
        "1/samples.count",
        "1/samples.last",
    ]
    assert rerun(store, "samples.first", "2", dependents=True) == ALL


def test_only_stops_after_the_stage_and_leaves_stale_tables_alone(store):
    play(store)
    store.freshness = Rerun("1", chosen(store, "r", "samples.count", 1), only=True)
    assert play(store, ids=("c",)) == ["1/samples.count"]
    store.freshness = Freshness()
    assert play(store, ids=("c",)) == ALL


def test_only_samples_nothing_for_a_flow_that_no_longer_comes_to_the_stage(store):
    """Or the command for one reward would play the rest of an unfinished run."""
    made = publish(store.run("r").iteration(1), "samples", row("samples"))
    rule = Rerun("1", frozenset({made.address}), only=True)
    recipe = {
        "key": "k",
        "stage": "s",
        "code": {},
        "params": {},
        "inputs": {},
        "tools": ["fleet", "progress"],
    }
    with pytest.raises(
        ValueError, match="ends at r/new, which was never made; the flow did not come to r/"
    ):
        rule.why_make("r/new", None, recipe)
    assert rule.why_make("r/measured", None, {**recipe, "tools": ["num_workers"]}) == "never made"
    assert Rerun("1", rule.addresses).why_make("r/new", None, recipe) == "never made"


def test_a_retry_of_a_rerun_goes_on_with_what_is_left(store):
    play(store)
    store.freshness = Rerun("1", chosen(store, "r", "samples"))
    first(store.run("r").iteration(1), ids=("a", "b"), label="first")
    assert rerun(store, "samples", "1") == ALL[1:]
    assert rerun(store, "samples", "1") == []
    assert rerun(store, "samples", "2") == ALL


def test_a_stage_that_is_not_there_is_refused_with_those_that_are(store):
    play(store)
    with pytest.raises(
        ValueError,
        match=r"run 'r' has no stage 'judgments'; there are samples.count, samples.first",
    ):
        chosen(store, "r", "judgments")
    with pytest.raises(
        ValueError, match=r"run 'r' has nothing in iteration 7; its iterations are 1, 2$"
    ):
        chosen(store, "r", "samples", iteration=7)
    with pytest.raises(ValueError, match="nothing in iteration 0"):
        chosen(store, "r", "samples", iteration=0)
    with pytest.raises(ValueError, match="there is no run 's'"):
        chosen(store, "s", "samples")


def test_an_inquiry_says_why_and_makes_nothing(store):
    play(store)
    store.freshness = inquiry = Inquiry()
    assert play(store, ids=("c", "b")) == []
    reasons = dict(inquiry.reasons)
    assert reasons["r/iter-001/samples.first"] == "made with ids[0] a, now c"
    assert reasons["r/iter-001/samples.count"] is None
    (store.folder("r/iter-001/samples.count") / "recipe.json").unlink()
    store.freshness = inquiry = Inquiry()
    assert play(store) == []
    assert inquiry.reasons[-1] == ("r/iter-001/samples.count", "never made")


def test_an_inquiry_waits_for_no_stage_that_another_process_is_at(store):
    """Or a run that is being played would look as if it had stopped by itself, and
    `flows.app.claims` would count it."""
    store.freshness = inquiry = Inquiry()
    with store.lock("r/iter-001/samples.first"):
        assert play(store) == []
    assert inquiry.reasons == [("r/iter-001/samples.first", "never made")]


@pytest.mark.parametrize(
    "rule", [Inquiry(), Playing(), Rerun("1", frozenset({"r/iter-001/samples.first"}))]
)
def test_a_flow_that_makes_two_tables_at_one_address_is_refused(store, rule):
    """Each would replace the other whenever the run is asked for again."""
    play(store)
    store.freshness = rule
    play(store)
    assert play(store) == []  # the same table once more is no other table
    with pytest.raises(
        ValueError,
        match=r"the flow makes two tables at r/iter-001/samples\.first: give one of them",
    ):
        play(store, ids=("c", "b"))
    assert made == []
    assert [row["sample_id"] for row in store.get("r/iter-001/samples.first").rows()] == ["a", "b"]


def test_a_damaged_table_is_named_by_file_and_made_again(store):
    play(store)
    part = store.folder("r/iter-001/samples.count") / PART
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(data)
    (problem,) = store.get("r/iter-001/samples.count").problems()
    assert (
        problem == f"r/iter-001/samples.count/{PART} is not what was published: its bytes changed"
    )
    assert play(store) == ["1/samples.count"]


class Fleet:
    """A scripted engine in place of engines in processes; it dies at the n-th rollout."""

    def __init__(self, dies_after: int | None = None):
        self.dies_after = dies_after
        self.sampled = []

    def roll_out(self, prompts, policy, sampling, dialogue, index, group_size, seed, skip, attempt):
        engine = ScriptedEngine(lambda key, prompt: "a b")
        rows = roll_out(
            engine, prompts, policy, sampling, dialogue, None, group_size, seed, skip=skip
        )
        for number, found in enumerate(rows):
            if number == self.dies_after:
                raise EngineDied("killed")
            self.sampled.append((found["prompt_id"], found["sample"]))
            yield found


def sample(place: Place, fleet: Fleet, max_tokens: int = 5) -> Table:
    prompts = [
        row("prompts", prompt_id=str(i), role="solver", messages=[{"role": "user", "content": "a"}])
        for i in range(5)
    ]
    table = publish(place, "prompts", *prompts)
    settings = {
        "policy": POLICY,
        "sampling": Sampling(max_tokens=max_tokens),
        "dialogue": Dialogue(),
    }
    return generate(place, table, **settings, fleet=fleet, group_size=2)


class Moody:
    """Gives the prompt with this id the reply "bad", the others "good". In a second attempt it dies
    after the first rollout, if it `dies`."""

    def __init__(self, bad: str, dies: bool):
        self.bad, self.dies = bad, dies

    def roll_out(self, prompts, group_size, skip, attempt, **_):
        for prompt in prompts:
            for number in range(group_size):
                if (prompt["prompt_id"], number) in skip:
                    continue
                reply = "bad" if prompt["prompt_id"] == self.bad else "good"
                yield row(
                    "rollouts",
                    rollout_id=f"{prompt['prompt_id']}-{number}-{attempt}",
                    prompt_id=prompt["prompt_id"],
                    sample=number,
                    finish_reason="final",
                    reply=reply,
                )
                if attempt and self.dies:
                    raise EngineDied("killed")


def good(reply: str) -> None:
    if reply != "good":
        raise Malformed("not good")


def test_a_second_attempt_that_was_killed_leaves_no_rows_of_prompts_that_are_now_readable(place):
    """The first attempt's last rows were not stored yet; sampled again, they are others."""
    asked = [row("prompts", prompt_id=name, messages=[]) for name in ("p", "q")]
    table = publish(place, "prompts", *asked)

    def play(fleet: Any) -> Table:
        settings = {"sampling": Sampling(max_tokens=5), "dialogue": Dialogue(), "group_size": 2}
        return generate(
            place, table, policy=POLICY, fleet=fleet, ask_again=of_reply(good), **settings
        )

    with pytest.raises(EngineDied):
        play(Moody(bad="q", dies=True))
    rows = play(Moody(bad="p", dies=False)).rows()
    first = ["p-0-0", "p-1-0", "q-0-0", "q-1-0"]
    assert [r["rollout_id"] for r in rows] == [*first, "p-0-1", "p-1-1"]


@pytest.mark.parametrize("shard_s", [0.0, 1000.0])
def test_a_killed_generation_samples_only_what_was_missing(place, store, monkeypatch, shard_s):
    monkeypatch.setattr("tasks.generate.SHARD_S", shard_s)
    untouched = sample(store.run("whole"), Fleet())
    dying = Fleet(dies_after=6)
    resumed = Fleet()
    with pytest.raises(EngineDied):
        sample(place, dying)
    table = sample(place, resumed)
    assert len(dying.sampled) == 6 and len(resumed.sampled) == 4
    assert set(dying.sampled).isdisjoint(resumed.sampled)
    assert [r["prompt_id"] for r in table.rows()] == [r["prompt_id"] for r in untouched.rows()]
    assert [r["turns"] for r in table.rows()] == [r["turns"] for r in untouched.rows()]
    assert not list((store.root / "unfinished").iterdir())


def test_a_shard_that_was_cut_is_sampled_again(place, store, monkeypatch):
    monkeypatch.setattr("tasks.generate.SHARD_S", 0.0)
    with pytest.raises(EngineDied):
        sample(place, Fleet(dies_after=6))
    shard = sorted((store.root / "unfinished").rglob("*.parquet"))[0]
    shard.write_bytes(shard.read_bytes()[:-5])
    table = sample(place, resumed := Fleet())
    assert table.num_rows == 10 and len(resumed.sampled) > 4


def test_shards_of_another_recipe_are_not_used(place):
    with pytest.raises(EngineDied):
        sample(place, Fleet(dies_after=6))
    sample(place, other := Fleet(), max_tokens=6)
    assert len(other.sampled) == 10


def test_a_disk_that_fails_to_read_a_shard_costs_no_row(store, monkeypatch):
    shards = store.shards(SAMPLES, "r/samples", "k")
    shards.write("attempt-0", samples("a", "b"))
    (file,) = shards.folder.iterdir()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr("warehouse.draft.pq.read_table", fail)
        with pytest.raises(OSError, match=rf"Stale file handle: '{file}'"):
            shards.rows("attempt-0")
    assert shards.rows("attempt-0") == samples("a", "b")


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_a_damaged_shard_is_removed_and_named(store, caplog, damage):
    shards = store.shards(SAMPLES, "r/samples", "k")
    shards.write("attempt-0", samples("a", "b"))
    (file,) = shards.folder.iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-20] if damage == "cut off" else data[:4] + b"?" * 40 + data[44:])
    shards.write("attempt-0", samples("c"))
    assert shards.rows("attempt-0") == samples("c")
    assert not file.exists() and f"{file} is damaged" in caplog.text


def test_clean_leaves_the_last_iteration_each_iterations_last_weights_and_every_roles_last_update(
    store,
):
    for t in (1, 2, 3):
        for step in (1, 2):
            updates(store.run("r").iteration(t).phase("solver").step(step))
    updates(store.run("r").iteration(1).phase("challenger").step(1), role="challenger")
    publish(store.run("r").iteration(1).phase("solver").step(1), "rollouts", row("rollouts"))
    found = {(r.table.address.removeprefix("r/"), r.kind) for r in clean.removable(store, "r")}
    assert found == {
        ("iter-001/solver/step-001/updates", clean.OPTIMIZER),
        ("iter-001/solver/step-001/updates", clean.WEIGHTS),
        ("iter-001/solver/step-002/updates", clean.OPTIMIZER),
        ("iter-002/solver/step-001/updates", clean.OPTIMIZER),
        ("iter-002/solver/step-001/updates", clean.WEIGHTS),
        ("iter-002/solver/step-002/updates", clean.OPTIMIZER),
    }
    assert {r.table.address.split("/")[1] for r in clean.removable(store, "r", keep=[2])} == {
        "iter-001"
    }
    with pytest.raises(ValueError, match="run 'r' has no iteration 99; there are 1, 2, 3"):
        clean.removable(store, "r", keep=[2, 99])
    with_rollouts = clean.removable(store, "r", rollouts=True)
    assert [r.kind for r in with_rollouts].count(clean.ROLLOUTS) == 1
    assert clean.remove(store, with_rollouts) == sum(r.num_bytes for r in with_rollouts) > 6000
    assert clean.removable(store, "r", rollouts=True) == []


def test_clean_keeps_what_a_run_that_was_shortened_continues_from(store):
    """It had three iterations of three steps, and was continued with two of two."""
    place = store.run("r")
    for t in (1, 2, 3):
        for number in (1, 2, 3):
            step = place.iteration(t).phase("solver").step(number)
            publish(step, "rollouts", row("rollouts"))
            updates(step)
    third = [f"r/iter-003/solver/step-{number:03d}/updates" for number in (1, 2, 3)]
    store.note_orphaned(
        "r", ["r/iter-001/solver/step-003/updates", "r/iter-002/solver/step-003/updates", *third]
    )
    found = {(r.table.address.removeprefix("r/"), r.kind) for r in clean.removable(store, "r")}
    assert found == {
        ("iter-001/solver/step-001/updates", clean.OPTIMIZER),
        ("iter-001/solver/step-001/updates", clean.WEIGHTS),
        ("iter-001/solver/step-002/updates", clean.OPTIMIZER),
        ("iter-001/solver/step-003/updates", clean.OPTIMIZER),
        ("iter-001/solver/step-003/updates", clean.WEIGHTS),
        *((address.removeprefix("r/"), clean.OPTIMIZER) for address in third),
        *((address.removeprefix("r/"), clean.WEIGHTS) for address in third),
    }
    removed = {r.table.address for r in clean.removable(store, "r", keep_last=0)}
    assert "r/iter-002/solver/step-003/updates" in removed
    assert "r/iter-002/solver/step-002/updates" not in removed


def test_a_cleaned_table_stands_and_says_so_when_its_rows_are_wanted(store):
    play(store)
    table = store.get("r/iter-001/samples.first")
    clean.remove(store, [clean.Removal(table, clean.ROLLOUTS, (PART,))])
    assert play(store) == []
    assert list(store.get(table.address).problems(thorough=True)) == []
    with pytest.raises(Cleaned, match=r"rows of r/iter-001/samples.first were cleaned away"):
        store.get(table.address).rows()


def test_a_run_that_is_being_worked_on_is_not_cleaned(store):
    play(store)
    with store.lock("r/iter-001/samples.first"), pytest.raises(ValueError, match="is in use"):
        clean.removable(store, "r")
    with store.playing("r"), store.playing("r"):  # two flows, between two stages of theirs
        with pytest.raises(ValueError, match="is in use"):
            clean.removable(store, "r")
        assert list(store.working()) == []
    assert clean.removable(store, "r") == []
    with pytest.raises(ValueError, match="there is no run 's'"):
        clean.removable(store, "s")


def test_clean_leaves_what_was_rebuilt_while_it_asked(store):
    """Its files have the same names, and the flow that rebuilt it goes on from them."""
    places = [store.run("r").iteration(1).phase("solver").step(number) for number in (1, 2, 3)]
    for place in places:
        updates(place)
    listed = clean.removable(store, "r", keep_last=0)
    rebuilt = updates(places[0])
    publish(places[0], "rollouts", row("rollouts"))
    with store.playing("r"), pytest.raises(ValueError, match="run 'r' is in use"):
        clean.remove(store, listed)
    with store.lock(rebuilt.address), pytest.raises(RuntimeError, match="is being built"):
        clean.remove(store, listed)
    assert list(rebuilt.folder.rglob("*.safetensors"))
    assert clean.remove(store, listed) == 2000  # of the second alone
    assert store.get(rebuilt.address).recipe == rebuilt.recipe
    assert not list(store.get(rebuilt.address).problems(thorough=True))
    assert clean.remove(store, listed) == 0


def test_a_flow_waits_until_its_run_is_cleaned(store):
    begun = threading.Event()

    def begin() -> None:
        with store.playing("r"):
            begun.set()

    flow = threading.Thread(target=begin)
    with store.unplayed("r"):
        flow.start()
        assert not begun.wait(0.1)
    assert begun.wait(60)
    flow.join()


def test_drafts_of_the_dead_are_swept_and_those_of_the_living_are_not(store, monkeypatch):
    monkeypatch.setattr("warehouse.store.OLD_DRAFT_S", -1.0)
    dead = store.root / "tmp" / "dead"
    dead.mkdir()
    with store.draft(TASKS) as draft:
        store.sweep()
        assert draft.folder.exists() and not dead.exists()
