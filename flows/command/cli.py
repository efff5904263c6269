"""The command `selfplay`. Heavy modules are imported where they are used: `selfplay --help` is quick."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from flows.command.corpus import corpus
from flows.command.demo import MICRO, demo
from flows.command.evaluate import evaluate
from flows.command.launch import (
    find_method,
    make_parameters,
    read_setting,
    run_flow,
)
from flows.command.plan import plan
from flows.command.sql import sql
from flows.command.tables import print_reports, print_table
from flows.command.view import view
from flows.service.site import SOURCE, Site, open_store

DAMAGED = "\n`selfplay verify RUN` names the damaged files of a run; running it once more makes them again"


class Group(click.Group):
    """Commands whose expected failures (a user's ValueError, a service's RuntimeError) end in one clear line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):  # click's own RuntimeErrors: --help, and Ctrl-C at a question
            raise
        except _expected_failures() as problem:
            hint = DAMAGED if ".parquet'" in str(problem) else ""
            raise click.ClickException(f"{problem}{hint}") from problem


def _expected_failures() -> tuple[type[Exception], ...]:
    """A library's own only where it is loaded by now: else it cannot have failed."""
    duckdb, httpx = sys.modules.get("duckdb"), sys.modules.get("httpx")
    return (ValueError, RuntimeError, *([duckdb.Error] if duckdb else []), *([httpx.HTTPError] if httpx else []))


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """LLM self-play from published papers: runs, their tables, and the Prefect services behind them."""


@main.command()
@click.argument("flow")
@click.option("--profile", default=MICRO, show_default=True, help="A deployment of the flow in prefect.yaml.")
@click.option("--run", "name", help="Name of the run; one that exists is continued.  [default: METHOD-PROFILE]")
@click.option("--corpus", help="A file or folder of text, hf:owner/name?revision=..., or a prepared corpus.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting, e.g. solver.steps=4.")
@click.option("--here", is_flag=True, help="In this process, without a worker.")
@click.option("--only", metavar="STAGE", help="Make STAGE again and stop there.")
@click.option("--from", "since", metavar="STAGE", help="Make STAGE and all that depends on it again.")
@click.option("--force", is_flag=True, help="Go on although the run began with another configuration.")
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
    """Run FLOW, such as scope-iteration, and follow it to its end. A run that exists goes on where it stopped."""
    from flows.request import default_run

    if only and since:
        raise ValueError("--only and --from exclude each other")
    name = default_run(flow, profile) if name is None else name
    parameters = make_parameters(profile, name, corpus, dict(map(read_setting, settings)))
    if force:
        parameters["force"] = True
    if only or since:
        parameters["redo"] = {"stage": only or since, "only": bool(only), "dependents": bool(since)}
    sys.exit(0 if run_flow(Site.here(), flow, parameters, here) else 1)


@main.command()
@click.argument("name", metavar="RUN")
@click.argument("stage")
@click.option("--iteration", type=int, help="Of this iteration only.")
@click.option("--step", type=int, help="Of this step only.")
@click.option("--only", is_flag=True, help="Leave everything else as it is and stop there.")
@click.option("--dependents", is_flag=True, help="Make again what was made from it, even if it comes out the same.")
@click.option("--force", is_flag=True, help="Go on although the profile changed since the run began.")
@click.option("--here", is_flag=True, help="In this process, without a worker.")
def rerun(name: str, stage: str, force: bool, here: bool, **how: Any) -> None:
    """Make STAGE of RUN again, then what depends on it, and go on.

    STAGE is a name that `selfplay status RUN` shows: rollouts.grade, or rollouts for all labels, solver/updates for one
    phase, or a pattern.
    """
    from flows.record import last_request
    from warehouse.rerun import chosen

    store = open_store()
    asked = last_request(store, name)
    chosen(store, name, stage, how["iteration"], how["step"])
    redo = {"redo": {"stage": stage, **how}, "force": force}
    parameters = {**asked.model_dump(mode="json", exclude={"flow"}), **redo}
    sys.exit(0 if run_flow(Site.here(), asked.flow, parameters, here) else 1)


@main.command()
@click.argument("name", metavar="RUN")
@click.argument("stage", required=False)
@click.option("--iteration", type=int, help="Of this iteration only.")
@click.option("--step", type=int, help="Of this step only.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As if this setting were changed.")
def why(name: str, stage: str | None, iteration: int | None, step: int | None, settings: tuple[str, ...]) -> None:
    """What a run would do now with each stage of RUN, or with STAGE, and why; nothing is made.

    A stage is judged with its inputs as they are: what depends on one that would be made again is not counted.
    """
    from flows.record import last_request
    from warehouse.rerun import chosen

    store = open_store()
    asked = last_request(store, name)
    wanted = chosen(store, name, stage or "*", iteration, step)
    whole = (stage, iteration, step) == (None, None, None)  # with what was never made
    with contextlib.chdir(SOURCE):
        inquired = find_method(asked.flow).inquire(asked, dict(map(read_setting, settings)))
    found = [(address, why) for address, why in inquired if whole or address in wanted]
    stale = [{"address": address, "to be made again": reason} for address, reason in found if reason]
    if stage or stale:
        rows = [{"address": address, "to be made again": reason or "no: fresh"} for address, reason in found]
        print_table(rows if stage else stale, f"{len(stale)} of {len(found)} stages would be made again")
    else:
        click.echo(f"all {len(found)} stages are fresh")


@main.command()
@click.argument("name", metavar="RUN")
def verify(name: str) -> None:
    """Read every published byte of RUN and compare it with its hash."""
    store = open_store()
    tables = list(store.tables(name))
    if not tables:
        raise ValueError(f"there is no run {name!r}; `selfplay status` lists the runs")
    files = [entry for table in tables for entry in table.contents.values()]
    num_cleaned = sum("cleaned" in entry for entry in files)
    num_bytes = sum(entry["bytes"] for entry in files if "cleaned" not in entry)
    problems: list[str] = []
    with click.progressbar(tables, label=f"{len(tables)} tables, {num_bytes / 1e6:.1f} MB") as bar:
        for table in bar:
            problems += table.problems(thorough=True)
    problems += [f"{address}/recipe.json is lost or cut off" for address in store.without_recipe(name)]
    for problem in problems:
        click.echo(problem)
    if problems:
        raise ValueError(f"{len(problems)} file(s) are not what was published; run again to make these tables again")
    but = f", but for {num_cleaned} file(s) that were cleaned away" if num_cleaned else ""
    click.echo(f"{name}: all that was published is there, byte for byte{but}")


@main.command()
@click.argument("name", metavar="RUN")
@click.option("--keep-last", default=1, show_default=True, type=click.IntRange(0), help="Iterations to leave whole.")
@click.option("--keep", multiple=True, type=int, metavar="ITERATION", help="Another iteration to leave whole.")
@click.option("--rollouts", is_flag=True, help="Rows of rollouts of the other iterations as well.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(name: str, keep_last: int, keep: tuple[int, ...], rollouts: bool, yes: bool) -> None:
    """Remove optimizer states and weights of RUN that no later stage needs; shows first what it would free."""
    from warehouse import clean as cleaning

    store = open_store()
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
    """Runs; or the stages of RUN with rows and seconds; and what is being made now."""
    from warehouse import status as made

    store = open_store()
    stages = made.stages(store, name) if name is not None else []
    if name is not None and not (stages or store.folder(name).exists()):
        raise ValueError(f"there is no run {name!r}; `selfplay status` lists the runs")
    print_table(made.runs(store) if name is None else stages, "runs" if name is None else "stages")
    print_table(made.working(store, name), "working now")


@main.command()
@click.argument("name", metavar="RUN")
def report(name: str) -> None:
    """Where the reports of RUN are, one an iteration."""
    print_reports(name)


@main.command()
@click.argument("names", metavar="RUN RUN...", nargs=-1, required=True)
def compare(names: tuple[str, ...]) -> None:
    """Runs side by side: the settings in which they differ, their held-out scores, and a page with figures."""
    from flows.command.compare import differing_settings, incomparable, scores
    from tasks.reports.runs import report_runs

    store = open_store()
    tables = {"settings that differ": differing_settings(store, names), "held-out scores": scores(store, names)}
    for title, rows in tables.items():
        print_table(rows, title)
    apart = incomparable(store, names)
    for benchmark, why in apart.items():
        click.echo(f"not compared: {benchmark}: {why}")
    page = report_runs(store, f"compare-{'-'.join(names)}", {name: [name] for name in names}, tables, tuple(apart))
    click.echo(f"page: {page}")


@main.command()
@click.option("--port", type=click.IntRange(1024, 65535), help="Of the server on 127.0.0.1; kept for later.")
@click.option("--gpu", is_flag=True, help="Start the gpu pool's worker although no GPU was found.")
def up(port: int | None, gpu: bool) -> None:
    """Start server, workers and deployments, whatever of it is not running."""
    from flows.service import services

    site = Site(home=Site.here().home, port_choice=port) if port else Site.here()
    services.up(site, pools=tuple(services.POOLS) if gpu else None, say=click.echo)
    click.echo(f"ready: http://127.0.0.1:{site.port} (user and password: PREFECT_API_AUTH_STRING in {site.env_file})")


@main.command()
@click.argument("name", metavar="RUN")
def stop(name: str) -> None:
    """End the flow run that makes RUN, or waits to; what is published stays, and the run can be continued."""
    from flows.service import at_work

    at_work.stop(Site.here(), name, say=click.echo)


@main.command()
def down() -> None:
    """End server, workers and running flows; their runs can be continued."""
    from flows.service import services

    services.down(Site.here(), say=click.echo)


@main.command(name="services")
def services_command() -> None:
    """What is running, with process ids and log files."""
    from flows.service import services

    print_table(services.status(Site.here()))


main.add_command(corpus)
main.add_command(demo)
main.add_command(evaluate)
main.add_command(plan)
main.add_command(sql)
main.add_command(view)

if __name__ == "__main__":
    main()
