"""What a server over a store knows: the currently published tables, and which of them are
related to a row."""

from __future__ import annotations

import time

from flows.app.viewer.alarms import alarms
from flows.app.viewer.graph import graphs
from tests.support.rows import publish, row
from warehouse.lake import Lake
from warehouse.schemas import TABLES
from warehouse.store import Place, Store
from warehouse.table import Table


def made(
    place: Place, kind: str, *inputs: Table, policy: str | None = None, label: str | None = None
) -> Table:
    """A table without rows, with a recipe as a stage writes it."""
    recipe = {
        "key": "k",
        "stage": f"tests.{kind}",
        "started_at": time.time(),
        "seconds": 2.0,
        "counts": {},
        "inputs": {
            t.at.name: {"address": t.address, "content_hash": t.content_hash} for t in inputs
        },
        "params": {"policy": {"id": policy, "content_hash": "weights"}} if policy else {},
    }
    with place.store.draft(TABLES[kind]) as draft:
        draft.write([])
        return place.store.publish(draft, place.address(kind, label), recipe)


def steps(store: Store) -> dict[str, Table]:
    """Two steps: the first updates the policy that samples in the second, which has its own
    tasks."""
    found: dict[str, Table] = {}
    policy = None
    for s in (1, 2):
        place = store.run("r").iteration(1).phase("training").step(s)
        tasks = made(place, "tasks")
        prompts = made(place, "prompts", tasks)
        rollouts = made(place, "rollouts", prompts, policy=policy)
        updates = made(place, "updates", made(place, "batches", rollouts))
        policy = updates.address
        found |= {
            f"{kind}{s}": t
            for kind, t in [("tasks", tasks), ("prompts", prompts), ("rollouts", rollouts)]
        }
        found |= {f"updates{s}": updates}
    return found


def test_related_are_the_tables_above_and_below_but_not_through_a_policy(store):
    of = steps(store)
    found = {t.address for t in Lake(store).catalogue.related("r", of["prompts1"].address)}
    at = "r/iter-001/training/step-001"
    assert found == {
        f"{at}/{kind}" for kind in ("tasks", "prompts", "rollouts", "batches", "updates")
    }


def test_a_table_whose_recipe_does_not_say_what_went_in_may_be_related(store):
    of = steps(store)
    publish(store.run("r"), "documents", row("documents", document_id="d"))
    assert "r/documents" in {
        t.address for t in Lake(store).catalogue.related("r", of["prompts1"].address)
    }


def test_rows_are_those_of_what_is_published_now(store):
    lake = Lake(store)
    place = store.run("r").iteration(1)
    publish(place, "answers", row("answers", rollout_id="a", answer="old"), label="x")
    ask = "select iteration, label, answer from answers"
    assert lake.query("r", ask).rows == [{"iteration": 1, "label": "x", "answer": "old"}]
    publish(place, "answers", row("answers", rollout_id="a", answer="new"), label="x")
    publish(store.run("other"), "answers", row("answers", rollout_id="a", answer="of another run"))
    lake.catalogue.forget()
    assert lake.query("r", ask).rows == [{"iteration": 1, "label": "x", "answer": "new"}]
    assert len(lake.query("", ask).rows) == 2
    near = tuple(lake.tables("other"))
    assert [r["answer"] for r in lake.query("r", ask, near=near).rows] == ["of another run"]


def test_a_graph_has_a_box_a_name_in_layers_and_says_what_is_stale(store):
    of = steps(store)
    publish(
        store.run("r").iteration(1).phase("training").step(1),
        "tasks",
        row("tasks", task_id="another"),
    )
    tables = Lake(store).tables("r")
    current = {t.address: t.content_hash for t in tables}
    (graph,) = graphs(tables, current, [of["rollouts2"].address])
    boxes = {n.name: (n.layer, n.num_tables, n.stale, n.at_work) for n in graph.nodes}
    assert boxes == {
        "tasks": (0, 2, 0, False),
        "prompts": (1, 2, 1, False),  # of the first step: its tasks are others now
        "rollouts": (2, 2, 0, True),
        "batches": (3, 2, 0, False),
        "updates": (4, 2, 0, False),
    }
    assert [(a.name, b.name) for a, b in graph.edges] == [
        ("tasks", "prompts"),
        ("prompts", "rollouts"),
        ("rollouts", "batches"),
        ("batches", "updates"),
    ]


def test_an_alarm_is_a_monitored_metric_beyond_its_limit(store):
    store.keep(
        "r", "config.json", {"monitor": {"max_error": 0.05, "min_kept": 0.5, "max_other": None}}
    )
    measured = {"iteration": 2, "largest": 0.2, "smallest": -0.2}
    evaluations = [
        {**measured, "metric": m, "benchmark": "judge monitor"} for m in ("error", "kept", "other")
    ]
    evaluations.append({**measured, "metric": "error", "benchmark": "world"})
    assert alarms(store, "r", evaluations) == [
        {"iteration": 2, "metric": "error", "value": 0.2, "limit": 0.05},
        {"iteration": 2, "metric": "kept", "value": -0.2, "limit": 0.5},
    ]
