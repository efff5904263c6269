"""The pages, one subject per file: which statements (in `../sql`) they run, and how they show the
rows."""

from flows.app.viewer.pages import (
    candidates,
    documents,
    judge,
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
        judge,
        updates,
        labels,
        search,
        sql,
        whole,
    )
)
