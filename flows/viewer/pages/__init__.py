"""The pages, one subject a file: what is asked of the store (in `../sql`), and what of it is shown."""

from flows.viewer.pages import (
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
    for page in (runs, run, candidates, task, rollout, rollouts, documents, updates, labels, search, sql, whole)
)
