"""`selfplay findings`: what to know first about a run, and the rows behind each finding."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from flows.app.command.tables import print_table, visible
from flows.runtime.store_root import existing_store
from warehouse.address import check_run_name, no_run

if TYPE_CHECKING:
    from tasks.findings.find import Finding
    from warehouse.store import Store

MOST = 7  # maximum number of findings that other commands show
MARKS = {"serious": "!!", "warning": "! ", "note": "- "}


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--rows", "with_rows", is_flag=True, help="Also show the first rows of each.")
@click.option("--sql", "with_sql", is_flag=True, help="Show the SQL that selects all its rows.")
@click.option("--json", "as_json", is_flag=True, help="Print everything about each as JSON.")
def findings(name: str, with_rows: bool, with_sql: bool, as_json: bool) -> None:
    """Show the main problems of RUN, found by rules, each with its number.

    A run without a problem has no findings. A rule is an SQL file; put your own into the
    folder `findings` of the workspace.
    """
    store = existing_store()
    check_run(store, name)
    of_run = findings_of(store, name)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in of_run], default=str))
        return
    if not of_run:
        click.echo("no findings: no rule detected a problem in this run")
    for finding in of_run:
        print_finding(finding)
        click.echo(f"   rule {finding.rule}; compared with: {finding.comparison}")
        if with_sql:
            click.echo(visible(finding.sql))
        if with_rows:
            print_table(list(finding.rows))


def print_findings(store: Store, name: str) -> None:
    """Print the findings of a run briefly, most severe first; nothing if it has none."""
    of_run = findings_of(store, name)
    if not of_run:
        return
    for finding in of_run[:MOST]:
        print_finding(finding)
    more = f"{len(of_run) - MOST} more findings, and " if len(of_run) > MOST else ""
    click.echo(f"   ({more}the rows of each: selfplay findings {name} --rows)")


def print_finding(finding: Finding) -> None:
    """Print the sentence of a finding, with a mark for its severity."""
    from flows.app.command.screen import print_wrapped

    print_wrapped(f"{MARKS[finding.severity]} ", visible(finding.sentence))


def check_run(store: Store, name: str) -> None:
    """Raise ValueError for a run that the store does not have, or a name that no run can have."""
    if not store.folder(check_run_name(name)).exists():
        raise no_run(name)


def findings_of(store: Store, name: str) -> list[Finding]:
    """The findings of a run, most severe first."""
    from flows.app.findings import findings as find

    return find(store, name)
