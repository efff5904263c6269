"""The card of an exported environment: what its tasks are, how they were selected, and what is
known about them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2
import yaml

from flows.environments.certificate import Share
from flows.environments.environment import Environment
from flows.environments.write import SPLITS, Format, package_of
from warehouse.lake import Lake
from warehouse.provenance import NO_DRY_RUN, DryRun, by_reason, made_with, stale
from warehouse.publish import QUERIES, cell
from warehouse.store import Store

# covers all documents of the run; a source is often a line of a file
LICENCES = """
    select licence, count(*) as n, min(source) as first
    from documents where run = $run and dropped_reason is null
    group by all order by n desc
"""
CARD = Path(__file__).parent / "files" / "card.md.jinja"


def card_of(
    environment: Environment,
    kind: Format,
    store: Store,
    checked: DryRun = NO_DRY_RUN,
    certificate: Sequence[Share] = (),
) -> str:
    """The text of the card, a README.md with a YAML header: gates, first reasons why candidates
    were dropped, lineage, audit and licences.

    `kind`: the format of the files that it describes. `checked`: which of the run's tables a dry
    run would rebuild. `certificate`: the shares of valid tasks, by auditor.
    """
    run = environment.run
    lake = Lake(store)
    tables = list(store.tables(run))
    rows = {
        name: lake.query(run, sql, {"run": run}).rows
        for name, sql in {**QUERIES, "licences": LICENCES}.items()
    }
    stated = {row["licence"] for row in rows["licences"]}
    header = {
        "pretty_name": f"Tasks of selfplay run {run}",
        "license": "other" if stated else "unknown",
        "tags": ["selfplay", "synthetic", "reinforcement-learning"],
    }
    template = jinja2.Template(
        CARD.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True
    )
    return template.render(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        run=run,
        kind=kind,
        package=package_of(run),
        asked=store.kept(run, "request.json") or {},
        made=time.strftime("%Y-%m-%d"),
        counts=Counter(row["split"] for row in environment.tasks),
        splits=SPLITS,
        num_documents=len({row["document_id"] for row in environment.tasks} - {None}),
        scorer=environment.scorer,
        searches=environment.searches,
        votes=environment.votes,
        search=environment.search,
        left_out=environment.left_out,
        certificate=certificate,
        made_with=made_with(tables),
        stale=by_reason(stale(store, tables, checked.stale)),
        unchecked=checked.problem,
        cell=cell,
        **rows,
    )
