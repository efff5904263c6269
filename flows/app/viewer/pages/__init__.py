"""The pages, one subject per file: the statements (in `../sql`), and how their rows are shown."""

from flows.app.viewer.pages import (
    candidates,
    documents,
    labels,
    rollout,
    rollouts,
    run,
    runs,
    search,
    sql,
    task,
    updates,
    whole,
)

ROUTERS = tuple(
    page.router
    for page in (
        runs,
        run,
        candidates,
        task,
        rollout,
        rollouts,
        documents,
        updates,
        labels,
        search,
        sql,
        whole,
    )
)
