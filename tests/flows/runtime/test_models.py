"""The models that a run starts from, by name."""

from __future__ import annotations

from flows.runtime.machines import register, told_apart
from tasks.models.engine import Policy
from warehouse.store import Store


def test_two_models_in_folders_of_one_name_are_two_policies(store: Store) -> None:
    """Trainers call their folders alike."""
    models = {
        "base": Policy(id="checkpoint-500", weights="/a/checkpoint-500", content_hash="a" * 32),
        "grader": Policy(id="checkpoint-500", weights="/b/checkpoint-500", content_hash="b" * 32),
        "judge": Policy(id="checkpoint-500", weights="/b/checkpoint-500", content_hash="b" * 32),
    }
    rows = register(store.run("r"), policies=told_apart(models)).rows()
    shown = [(row["policy"], row["role"], row["policy_hash"][0], row["weights"]) for row in rows]
    assert shown == [
        ("checkpoint-500", "base", "a", "/a/checkpoint-500"),
        ("checkpoint-500-bbbbbb", "grader+judge", "b", "/b/checkpoint-500"),
    ]
