"""Addresses as values: formatted, parsed, sorted, and parsed by the views."""

import random
from itertools import product

import pytest

from tests.support.rows import publish, row
from warehouse.address import Address
from warehouse.query import query
from warehouse.store import Place, Store

RUNS = ("r", "iter-001", "qwen3-8b.seed=1", "updates")
PHASES = (None, "solver", "probe_questions", "step-7", "iter-01", "a.b (c)", "updates")
NUMBERS = (None, 0, 7, 999, 1000, 12345)
TABLES = ("rollouts", "updates")
LABELS = (None, "grade", "sets-of-wiki.v2", "round-3", "step-007")
EVERY = [Address(*parts) for parts in product(RUNS, NUMBERS, PHASES, NUMBERS, TABLES, LABELS)]


def test_what_is_written_is_read_as_the_same_address():
    assert [a for a in EVERY if Address.parse(str(a)) != a] == []
    assert len(set(map(str, EVERY))) == len(EVERY) == 4 * 6 * 7 * 6 * 2 * 5


def test_what_is_read_is_written_as_it_was():
    rng = random.Random(0)
    folders = [
        "r",
        "iter-001",
        "iter-1",
        "iter-0001",
        "step-002",
        "step-1000",
        "step-01000",
        "solver",
        "x.y",
        "-",
        "é",
    ]
    read = 0
    for _ in range(20_000):
        text = "/".join(
            [
                *rng.choices(folders, k=rng.randint(1, 5)),
                rng.choice(["tasks", "tasks.a", "tasks.a.b"]),
            ]
        )
        try:
            address = Address.parse(text)
        except ValueError:
            continue
        read += 1
        assert str(address) == text
    assert read > 5_000


NOT_ADDRESSES = [
    "r",
    "r/",
    "/tasks",
    "r//tasks",
    "r/a/b/tasks",
    "r/step-001/iter-001/tasks",
    "r/tasks.",
]
REFUSED = [
    {"phase": "step-001"},
    {"phase": "a/b"},
    {"phase": ""},
    {"table": "a.b"},
    {"table": "a", "label": "b/c"},
    {"table": "a", "label": ""},
    {"label": "a"},
]


@pytest.mark.parametrize("text", NOT_ADDRESSES)
def test_what_no_stage_writes_is_no_address(text):
    with pytest.raises(ValueError, match="is not the address of a table"):
        Address.parse(text)


@pytest.mark.parametrize("names", REFUSED)
def test_names_that_would_be_read_as_others_are_refused(names):
    with pytest.raises(ValueError, match="address"):
        Address("r", **names)


def test_a_place_says_where_it_is(store: Store):
    place = store.run("r").iteration(3).phase("solver").step(7)
    assert place.at == Address("r", 3, "solver", 7)
    assert (place.path, store.run("r").path) == ("r/iter-003/solver/step-007", "r")
    assert place.phase("pool").path == "r/iter-003/pool"


def test_step_999_comes_before_step_1000_as_in_the_store(store: Store):
    steps = [f"r/iter-001/solver/step-{n}/tasks" for n in ("999", "1000")]
    assert sorted(map(Address.parse, reversed(steps))) == [*map(Address.parse, steps)]
    for run, iteration, phase, step in product(("r-2", "r-10"), (1, 1000), ("a", "b"), (999, 1000)):
        publish(store.run(run).iteration(iteration).phase(phase).step(step), "samples")
        publish(store.run(run), "samples", label="first")
    listed = [table.at for table in store.tables()]
    assert listed == sorted(listed)
    assert [at.run for at in listed] == ["r-2"] * 9 + ["r-10"] * 9


def test_the_views_read_an_address_as_parse_does(store: Store):
    places: list[Place] = [
        store.run("a.b"),
        store.run("r").iteration(0),
        store.run("r").iteration(1000).step(4),
    ]
    places += [
        store.run("r").iteration(3).phase("probe_questions"),
        store.run("r").iteration(3).phase("a").step(1000),
    ]
    labelled = product(places, (None, "round-3", "x.y"))
    tables = [publish(place, "samples", row("samples"), label=label) for place, label in labelled]
    seen = {
        tuple(r.values())
        for r in query(store.root, "select run, iteration, phase, step, label from samples")
    }
    assert seen == {(t.at.run, t.at.iteration, t.at.phase, t.at.step, t.at.label) for t in tables}
    assert len(seen) == 15
