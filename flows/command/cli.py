"""The command `selfplay`. Heavy modules are imported where they are used, so that `selfplay --help` is fast."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import click

from flows.command.corpus import corpus
from flows.command.demo import MICRO, demo
from flows.command.evaluate import evaluate
from flows.command.export import export
from flows.command.fork import fork
from flows.command.launch import is_flow, make_parameters, read_setting
from flows.command.new import new
from flows.command.plan import plan
from flows.command.seeds import seeds
from flows.command.services import down, services, stop, up
from flows.command.sql import sql
from flows.command.start import inquire, run_flow
from flows.command.tables import print_reports, print_table
from flows.command.view import view
from flows.command.whatif import whatif
from flows.service.site import Site, existing_store, has_store, store_root
from flows.service.waiting import waiting
from warehouse.address import no_run

DAMAGED = "\n`selfplay verify RUN` lists the damaged files of a run; repeat `selfplay run` to rebuild them"
GARBAGE = 100_000  # new objects per collection: imports keep most, and collecting took a seventh of their time


class Group(click.Group):
    """Commands whose expected failures (a user's ValueError, a service's RuntimeError, a file that cannot be read or
    written) end in one clear line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):  # click's own RuntimeErrors: --help, and Ctrl-C at a question
            raise
        except _expected_failures() as problem:
            hint = DAMAGED if ".parquet'" in str(problem) else ""
            raise click.ClickException(f"{problem}{hint}") from problem
        except OSError as problem:
            if problem.filename is None:
                raise
            raise click.ClickException(f"{problem.filename}: {problem.strerror}") from problem


def _expected_failures() -> tuple[type[Exception], ...]:
    """Expected errors of the libraries that are loaded; others cannot have raised any."""
    duckdb, httpx = sys.modules.get("duckdb"), sys.modules.get("httpx")
    return (ValueError, RuntimeError, *([duckdb.Error] if duckdb else []), *([httpx.HTTPError] if httpx else []))


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """LLM self-play from published papers: runs, their tables, and the Prefect services behind them."""
    gc.set_threshold(GARBAGE)


@main.command()
@click.argument("flow")
@click.option("--profile", default=MICRO, show_default=True, help="Profile of FLOW.")
@click.option("--run", "name", help="Name of the run; an existing run is resumed.  [default: METHOD-PROFILE]")
@click.option("--corpus", help="A file or folder of text, hf:owner/name?revision=..., or a prepared corpus.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting, e.g. solver.steps=4.")
@click.option("--here", is_flag=True, help="Run in this process, not in a worker; the server records it.")
@click.option("--only", metavar="STAGE", help="Rerun STAGE, then stop.")
@click.option("--from", "since", metavar="STAGE", help="Rerun STAGE and everything that depends on it.")
@click.option("--force", is_flag=True, help="Continue although the configuration changed since the run began.")
def run(
    flow: str,
    profile: str,
    name: str | None,
    corpus: str | None,
    settings: tuple[str, ...],
    here: bool,
    only: str | None,
    since: str | None,
    force: bool,
) -> None:
    """Run FLOW, for instance scope-iteration, and follow it until it ends.

    To resume an interrupted run, repeat the command. Ctrl-C only detaches: repeat the command to reattach.
    """
    from flows.request import default_run

    if only and since:
        raise ValueError("--only and --from exclude each other")
    name = default_run(flow, profile) if name is None else name
    parameters = make_parameters(profile, name, corpus, dict(map(read_setting, settings)))
    if force:
        parameters["force"] = True
    if only or since:
        parameters["rerun"] = {"stage": only or since, "only": bool(only), "dependents": bool(since)}
    sys.exit(0 if run_flow(Site.here(), flow, parameters, here) else 1)


@main.command()
@click.argument("name", metavar="RUN")
@click.argument("stage")
@click.option("--iteration", type=int, help="Only in this iteration.")
@click.option("--step", type=int, help="Only in this step.")
@click.option("--only", is_flag=True, help="Rerun nothing else, then stop.")
@click.option("--dependents", is_flag=True, help="Also rerun what depends on it, even if its result is unchanged.")
@click.option("--force", is_flag=True, help="Continue although the profile changed since the run began.")
@click.option("--here", is_flag=True, help="Run in this process, not in a worker; the server records it.")
def rerun(name: str, stage: str, force: bool, here: bool, **how: Any) -> None:
    """Rerun STAGE of RUN, then everything that depends on what changed, and continue.

    STAGE is a name that `selfplay status RUN` shows: rollouts.grade; rollouts for all labels; solver/updates for one
    phase; or a pattern.
    """
    from flows.record import last_request
    from warehouse.rerun import chosen

    if how["only"] and how["dependents"]:
        raise ValueError("--only and --dependents exclude each other")
    store = existing_store()
    asked = last_request(store, name)
    chosen(store, name, stage, how["iteration"], how["step"])
    again = {"rerun": {"stage": stage, **how}, "force": force}
    parameters = {**asked.model_dump(mode="json", exclude={"flow"}), **again}
    sys.exit(0 if run_flow(Site.here(), asked.flow, parameters, here) else 1)


@main.command()
@click.argument("name", metavar="RUN")
@click.argument("stage", required=False)
@click.option("--iteration", type=int, help="Only in this iteration.")
@click.option("--step", type=int, help="Only in this step.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Assume this setting, to see what a change would rebuild.",
)
def why(name: str, stage: str | None, iteration: int | None, step: int | None, settings: tuple[str, ...]) -> None:
    """Dry run: list the stages of RUN, or STAGE alone, that would be rebuilt, and why.

    Stages are judged by their current inputs: one that only a rebuilt input would make stale is not listed.
    """
    from flows.record import last_request
    from warehouse.rerun import chosen

    if is_flow(name):
        raise ValueError(
            f"{name} is a flow, and `why` takes a run: before its first run every stage has to be built. "
            f"`selfplay plan {name} --profile PROFILE` estimates what that takes on GPUs"
        )
    store = existing_store()
    asked = last_request(store, name)
    wanted = chosen(store, name, stage or "*", iteration, step)
    whole = (stage, iteration, step) == (None, None, None)  # with what was never made
    inquiry = inquire(asked, dict(map(read_setting, settings)))
    found = [(address, why) for address, why in dict(inquiry.found).items() if whole or address in wanted]
    stale = [{"address": address, "stale because": reason} for address, reason in found if reason]
    if stage or stale:
        rows = [{"address": address, "stale because": reason or "it is fresh"} for address, reason in found]
        print_table(rows if stage else stale, f"{len(stale)} of {len(found)} stages would be rebuilt")
    else:
        click.echo(f"all {len(found)} stages are fresh")
    if inquiry.stopped:
        click.echo(f"then the flow stops by itself: {inquiry.stopped}")


@main.command()
@click.argument("name", metavar="RUN")
def verify(name: str) -> None:
    """Compare every published file of RUN with its recorded hash."""
    store = existing_store()
    tables = list(store.tables(name))
    if not tables:
        raise no_run(name)
    files = [entry for table in tables for entry in table.contents.values()]
    num_cleaned = sum("cleaned" in entry for entry in files)
    num_bytes = sum(entry["bytes"] for entry in files if "cleaned" not in entry)
    problems: list[str] = []
    with click.progressbar(tables, label=f"{len(tables)} tables, {num_bytes / 1e6:.1f} MB") as bar:
        for table in bar:
            problems += table.problems(thorough=True)
            problems += [f"{table.address}/{name} is not written yet" for name in table.awaits]
    problems += [f"{address}/recipe.json is lost or truncated" for address in store.without_recipe(name)]
    for problem in problems:
        click.echo(problem)
    if problems:
        raise ValueError(
            f"{len(problems)} file(s) are not what was published; repeat `selfplay run` to rebuild their tables"
        )
    but = f", except {num_cleaned} file(s) that were cleaned away" if num_cleaned else ""
    click.echo(f"{name}: every published file is intact, byte for byte{but}")


@main.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--keep-last", default=1, show_default=True, type=click.IntRange(0), help="Keep the last N iterations whole."
)
@click.option("--keep", multiple=True, type=int, metavar="ITERATION", help="Keep this iteration whole, too.")
@click.option("--rollouts", is_flag=True, help="Also remove the rollouts of the other iterations.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def clean(name: str, keep_last: int, keep: tuple[int, ...], rollouts: bool, yes: bool) -> None:
    """Remove optimizer states and weights of RUN that no later stage needs. Lists them and asks first."""
    from warehouse import clean as cleaning

    store = existing_store()
    removals = cleaning.removable(store, name, keep_last, keep, rollouts)
    if not removals:
        click.echo("nothing to remove")
        return
    print_table(cleaning.summary(removals), f"to be removed from {name}")
    if yes or click.confirm("remove?"):
        click.echo(f"freed {cleaning.remove(store, removals) / 1e6:.1f} MB")


@main.command()
@click.argument("name", metavar="[RUN]", required=False)
def status(name: str | None) -> None:
    """List the runs, or the stages of RUN with rows, tokens, seconds, GPU-seconds and memory; and what is running."""
    from warehouse import status as made
    from warehouse.fork import FORK

    if name is None and not (has_store() or os.environ.get("SELFPLAY_STORE")):
        click.echo(f"runs in {store_root()}: none yet; `make demo` makes some, or `selfplay run`")
        return
    store = existing_store()
    stages = made.stages(store, name) if name is not None else []
    if name is not None and not (stages or store.folder(name).exists()):
        raise no_run(name)
    print_table(made.runs(store) if name is None else stages, f"runs in {store.root}" if name is None else "stages")
    if name and (origin := store.kept(name, FORK)):
        click.echo(f"forked from {origin['run']} after iteration {origin['iteration']}")
    print_table(made.working(store, name), "running now")


@main.command()
@click.argument("name", metavar="RUN")
def report(name: str) -> None:
    """Print the paths of the reports of RUN, one for each iteration."""
    print_reports(name)


@main.command()
@click.argument("names", metavar="RUN RUN...", nargs=-1, required=True)
def compare(names: tuple[str, ...]) -> None:
    """Compare runs: the settings that differ, held-out scores and their cost, and a page with figures."""
    from flows.command.compare import differing_settings, incomparable, scores, spent
    from tasks.reports.runs import report_runs

    names, store = tuple(dict.fromkeys(names)), existing_store()
    tables = {"settings that differ": differing_settings(store, names), "held-out scores": scores(store, names)}
    tables["what it cost"] = spent(store, names)
    for title, rows in tables.items():
        print_table(rows, title)
    apart = incomparable(store, names)
    for benchmark, why in apart.items():
        click.echo(f"not compared: {benchmark}: {why}")
    with waiting("the page's figures"):
        page = report_runs(store, f"compare-{'-'.join(names)}", {name: [name] for name in names}, tables, tuple(apart))
    click.echo(f"page: {page}")


for command in (corpus, demo, evaluate, export, fork, new, plan, seeds, sql, view, whatif, up, stop, down, services):
    main.add_command(command)

if __name__ == "__main__":
    main()
