"""Given rows, what the rules about tasks and updates say, or that they are silent."""

from tests.tasks.findings.given import at, rows, score, sentence


def trained(store, iteration: int, num_kept: int, num_updates: int, is_finished: bool = True):
    """Of 100 candidates some are kept, and the role `solver` gets some updates."""
    rows(
        at(store, iteration, "pool"),
        "selections",
        *({"task_id": f"i{iteration}-{n}", "kept": n < num_kept} for n in range(100)),
    )
    for step in range(1, num_updates + 1):
        rows(at(store, iteration, step=step), "updates", {"role": "solver"})
    if is_finished:
        score(store.run("r").iteration(iteration), "held", "score", n=10, score=0.5)


def test_a_pool_and_updates_that_shrink_are_found(store):
    for iteration, num_kept, num_updates in ((1, 90, 8), (2, 40, 3), (3, 20, 1)):
        trained(store, iteration, num_kept, num_updates)
    assert sentence(store, "pool_shrinks") == (
        "Kept tasks fell 90 → 40 → 20 and updates of the solver 8 → 3 → 1, from the first"
        " iteration to iteration 3."
    )


def test_a_pool_too_small_for_any_update_is_found(store):
    trained(store, 1, 90, 8)
    trained(store, 2, 6, 0)
    assert sentence(store, "pool_shrinks") == (
        "Kept tasks fell 90 → 6 and updates of the solver 8 → 0, from the first iteration to"
        " iteration 2."
    )


def test_an_iteration_in_progress_has_not_shrunk(store):
    trained(store, 1, 90, 8)
    trained(store, 2, 20, 1, is_finished=False)
    score(store.run("r").iteration(2).phase("monitor"), "pool monitor", "kept", n=10, score=0.5)
    assert sentence(store, "pool_shrinks") is None


def test_fewer_kept_tasks_with_as_many_updates_are_no_finding(store):
    trained(store, 1, 90, 8)
    trained(store, 2, 40, 8)
    assert sentence(store, "pool_shrinks") is None


def test_a_fall_of_a_few_tasks_is_chance(store):
    trained(store, 1, 12, 4)
    trained(store, 2, 5, 1)
    assert sentence(store, "pool_shrinks") is None
