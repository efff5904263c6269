"""What `import_prefect` changes in Prefect."""

from flows.service.prefect_import import import_prefect


def test_a_task_takes_no_slots_of_limits_on_its_tags():
    """Taking slots would ask the server, and none is running."""
    import_prefect()
    from prefect import task_engine

    with task_engine._concurrency(names=["tag:solver"], occupy=1, lease_duration=60, suppress_warnings=True):
        taken = "solver"
    assert taken
