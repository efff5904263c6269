"""`selfplay corpus`: prepare documents and inspect the result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from flows.app.command.parameters import make_parameters, read_settings
from flows.app.command.recipes import fetch, recipes
from flows.app.command.start import run_flow
from flows.app.command.tables import print_table
from flows.app.service.site import Site
from flows.app.service.waiting import waiting
from flows.runtime.store_root import existing_store, store_root

if TYPE_CHECKING:
    from warehouse.table import Table

FLOW = "prepare-corpus"
PROFILE = "text"
CLUSTERS = """
    select
        cluster, num_documents, round(similarity, 3) as similarity, title,
        array_to_string(keywords, ', ') as keywords
    from clusters where run = $run order by num_documents desc, cluster limit $limit
"""


@click.group()
def corpus() -> None:
    """Prepare documents to learn from, and inspect the result.

    Prepared documents are clean, deduplicated, decontaminated, clustered and indexed.
    """


corpus.add_command(recipes)
corpus.add_command(fetch)


@corpus.command()
@click.argument("path")
@click.option(
    "--run", "name", required=True, help="Name of the corpus; an existing one is resumed."
)
@click.option(
    "--profile", default=PROFILE, show_default=True, help="A file in flows/corpus/profiles."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. clusters.size=30.",
)
@click.option(
    "--here",
    "in_process",
    is_flag=True,
    help="Run in this process instead of a worker; Prefect still records the run.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Continue even if the configuration changed since the corpus was begun.",
)
def prepare(
    path: str, name: str, profile: str, settings: tuple[str, ...], in_process: bool, force: bool
) -> None:
    """Prepare the documents at PATH.

    PATH is a file or folder, or hf:owner/name?split=train&revision=COMMIT.
    """
    parameters = make_parameters(profile, name, path, read_settings(settings))
    if force:
        parameters["force"] = True
    if not run_flow(Site.here(), FLOW, parameters, in_process):
        sys.exit(1)
    show_corpus(name)


@corpus.command()
@click.argument("name", metavar="RUN")
def show(name: str) -> None:
    """Show what became of the documents of RUN, and what each step did and cost."""
    show_corpus(name, "steps", "measurements")


@corpus.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1), help="Show the N largest."
)
def clusters(name: str, limit: int) -> None:
    """List the clusters of RUN: size, title, keywords."""
    from warehouse.query import query

    find_own(name)
    rows = query(store_root(), CLUSTERS, {"run": name, "limit": limit})
    if rows:
        print_table(rows, "clusters")
    else:
        click.echo(
            f"{name} has no table of clusters: each document, or set of documents, is a cluster of"
            " its own"
        )


@corpus.command()
@click.argument("name", metavar="RUN")
@click.argument("query")
@click.option(
    "-k", default=3, show_default=True, type=click.IntRange(1), help="Number of documents to find."
)
def search(name: str, query: str, k: int) -> None:
    """Search RUN as a rollout does."""
    with waiting("the libraries of search to load"):
        from corpus_prep.search.index import load_index
        from tasks.generate import index_folder

    folder = index_folder(find_own(name))
    assert folder is not None
    with waiting(f"the index of {name} to load"):
        index = load_index(folder)
    [hits] = index.search([query], k)
    rows = [
        {
            "document": hit.document_id,
            "score": round(hit.score, 3),
            "title": hit.title,
            "text": " ".join(hit.text.split())[:300],
        }
        for hit in hits
    ]
    print_table(rows, query)


def find_own(name: str) -> Table:
    """The documents of a prepared corpus. Raises ValueError if there is no such corpus."""
    from flows.blocks.corpora import prepared_by

    documents = prepared_by(existing_store(), name)
    if documents is None:
        raise ValueError(
            f"there is no prepared corpus {name!r}: `selfplay status` lists the runs, and "
            f"`selfplay corpus prepare PATH --run {name}` makes it or completes it"
        )
    return documents


def show_corpus(name: str, *more: str) -> None:
    """Print why documents of a prepared corpus were dropped, then the parts of its report
    (`tasks.reports.corpus`) named in `more`. Raises ValueError if there is no such corpus."""
    from tasks.reports.corpus import ask, readable

    prepared = find_own(name)
    print_table(ask(prepared, "reasons"), f"{prepared.num_rows} documents stay in {name}; dropped")
    for part in more:
        print_table(list(map(readable, ask(prepared, part))), part)
