"""The command `selfplay`.

Heavy modules are imported where they are used, to keep `selfplay --help` fast.
"""

from __future__ import annotations

import gc
import sys
import textwrap
from typing import Any

import click

from flows.app.command.ask import ask
from flows.app.command.corpus import corpus
from flows.app.command.demo import MICRO, demo
from flows.app.command.diff import diff
from flows.app.command.distil import distil
from flows.app.command.documents import with_prepared_documents
from flows.app.command.end import print_end
from flows.app.command.evaluate import evaluate
from flows.app.command.export import export
from flows.app.command.findings import findings
from flows.app.command.fork import fork
from flows.app.command.import_command import import_tasks
from flows.app.command.judge import judge
from flows.app.command.launch import launch
from flows.app.command.make_tasks import tasks
from flows.app.command.mirror import pull, push
from flows.app.command.new import new
from flows.app.command.parameters import (
    find_flow,
    is_flow,
    make_parameters,
    read_settings,
)
from flows.app.command.pilot import pilot
from flows.app.command.plan import plan
from flows.app.command.screen import Failure, print_prose
from flows.app.command.seeds import seeds
from flows.app.command.serve import serve
from flows.app.command.services import down, services, stop, up
from flows.app.command.settings import settings as settings_command
from flows.app.command.sql import sql
from flows.app.command.start import inquire, run_flow
from flows.app.command.status import status
from flows.app.command.study import study
from flows.app.command.tables import print_reports, print_table, visible
from flows.app.command.tune import tune
from flows.app.command.view import view
from flows.app.command.whatif import whatif
from flows.app.service.site import Site
from flows.app.service.waiting import waiting
from flows.runtime.store_root import existing_store
from warehouse.address import no_run

DAMAGED = (
    "\n`selfplay verify RUN` lists the damaged files of a run; repeat `selfplay run` to rebuild"
    " them"
)
# new objects between collections: imports keep most objects, and collecting took a seventh of the
# time of importing
GARBAGE = 100_000


SECTIONS = {
    "Run": (
        "demo",
        "run",
        "tune",
        "distil",
        "rerun",
        "why",
        "stop",
        "fork",
        "pilot",
        "plan",
        "settings",
        "launch",
        "study",
        "new",
    ),
    "Look": ("status", "findings", "judge", "report", "view", "sql"),
    "Compare": ("compare", "diff", "evaluate", "whatif"),
    "Prepare data": ("corpus", "ask", "tasks", "import", "seeds"),
    "Use and keep": ("export", "serve", "push", "pull", "verify", "clean"),
    "Services": ("up", "down", "services"),
}


class Group(click.Group):
    """Commands whose expected failures end in one clear line, and whose help has sections.

    Expected failures are a user's mistake (ValueError), a service's RuntimeError, and a file that
    cannot be read or written.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every command by section, with the whole first sentence of its help."""
        named = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in named)
        for title, names in {**SECTIONS, "Other": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, _first_sentence(command)) for name, command in commands if command]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the flows."""
        from flows.app.service.deployments import flow_names

        with formatter.section("Flows"):
            text = ", ".join(flow_names(Site.here()))
            for line in textwrap.wrap(text, formatter.width - 2, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
            formatter.write("  `selfplay settings FLOW` lists the settings of one.\n")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            # click's own RuntimeErrors: --help, and Ctrl-C at a prompt
            raise
        except _expected_failures() as problem:
            message = str(problem)
            if ".parquet'" in message:
                message += DAMAGED
            raise Failure(message) from problem
        except OSError as problem:
            if problem.filename is None:
                raise
            raise Failure(f"{problem.filename}: {problem.strerror}") from problem


def _first_sentence(command: click.Command) -> str:
    paragraph = (command.help or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).removesuffix(".")


def _expected_failures() -> tuple[type[Exception], ...]:
    """The expected errors of loaded libraries; libraries not loaded cannot have raised any."""
    failures: list[type[Exception]] = [ValueError, RuntimeError]
    if duckdb := sys.modules.get("duckdb"):
        failures.append(duckdb.Error)
    if httpx := sys.modules.get("httpx"):
        failures.append(httpx.HTTPError)
    return tuple(failures)


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="selfplay-flows", prog_name="selfplay")
def main() -> None:
    """Train language models by self-play, with methods from published papers."""
    gc.set_threshold(GARBAGE)


@main.command()
@click.argument("flow")
@click.option("--profile", default=MICRO, show_default=True, help="Profile of FLOW.")
@click.option(
    "--run",
    "name",
    help="Name of the run; an existing run is resumed.  [default: METHOD-PROFILE-CORPUS]",
)
@click.option(
    "--corpus",
    help=(
        "A file or folder of text, or hf:owner/name?revision=..., which is prepared first if the"
        " method needs that; or a prepared corpus."
    ),
)
@click.option(
    "--start",
    metavar="RUN|ADAPTER",
    help="Start from the last policy of another run, or from a LoRA adapter; sets models.start.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. solver.steps=4; `selfplay settings FLOW` lists them.",
)
@click.option(
    "--here",
    "in_process",
    is_flag=True,
    help="Run in this process instead of a worker; Prefect still records the run.",
)
@click.option("--only", metavar="STAGE", help="Rerun STAGE and nothing else, then stop.")
@click.option(
    "--from",
    "since",
    metavar="STAGE",
    help="Rerun STAGE and everything that depends on it, even if its result is unchanged.",
)
@click.option(
    "--force", is_flag=True, help="Continue even if the configuration changed since the run began."
)
def run(
    flow: str,
    profile: str,
    name: str | None,
    corpus: str | None,
    start: str | None,
    settings: tuple[str, ...],
    in_process: bool,
    only: str | None,
    since: str | None,
    force: bool,
) -> None:
    """Run FLOW, for instance scope-iteration, and follow it until it ends.

    `selfplay --help` lists the flows. FLOW may also be a path to the folder of your own method,
    such as ./my_method.

    To resume an interrupted run, repeat the command. Ctrl-C only detaches: repeat the command to
    reattach.
    """
    from flows.runtime.request import default_run

    if only and since:
        raise ValueError("--only and --from exclude each other")
    flow = find_flow(flow)
    if name is None:
        name = default_run(flow, profile, corpus)
    parameters = make_parameters(profile, name, corpus, read_settings(settings), start)
    if force:
        parameters["force"] = True
    if stage := only or since:
        parameters["rerun"] = {"stage": stage, "only": bool(only), "dependents": bool(since)}
    parameters = with_prepared_documents(Site.here(), flow, parameters, in_process)
    _run_and_exit(flow, parameters, in_process)


@main.command()
@click.argument("name", metavar="RUN")
@click.argument("stage")
@click.option("--iteration", type=int, help="Only in this iteration.")
@click.option("--step", type=int, help="Only in this step.")
@click.option("--only", is_flag=True, help="Rerun nothing else, then stop.")
@click.option(
    "--dependents",
    is_flag=True,
    help="Also rerun what depends on it, even if its result is unchanged.",
)
@click.option(
    "--force", is_flag=True, help="Continue even if the profile changed since the run began."
)
@click.option(
    "--here",
    "in_process",
    is_flag=True,
    help="Run in this process instead of a worker; Prefect still records the run.",
)
def rerun(
    name: str,
    stage: str,
    iteration: int | None,
    step: int | None,
    only: bool,
    dependents: bool,
    force: bool,
    in_process: bool,
) -> None:
    """Rerun STAGE of RUN, then everything that depends on what changed, and continue.

    STAGE is a name that `selfplay status RUN --all` shows: rollouts.grade; rollouts for all labels;
    solver/updates for one phase; or a pattern.
    """
    from flows.runtime.record import last_request
    from warehouse.rerun import chosen

    if only and dependents:
        raise ValueError("--only and --dependents exclude each other")
    store = existing_store()
    request = last_request(store, name)
    chosen(store, name, stage, iteration, step)
    parameters = request.model_dump(mode="json", exclude={"flow", "folder"})
    parameters["force"] = force
    parameters["rerun"] = {
        "stage": stage,
        "iteration": iteration,
        "step": step,
        "only": only,
        "dependents": dependents,
    }
    _run_and_exit(find_flow(request.folder or request.flow), parameters, in_process)


def _run_and_exit(flow: str, parameters: dict[str, Any], in_process: bool) -> None:
    is_completed = run_flow(Site.here(), flow, parameters, in_process)
    print_end(parameters["run"], is_completed)
    sys.exit(0 if is_completed else 1)


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
def why(
    name: str, stage: str | None, iteration: int | None, step: int | None, settings: tuple[str, ...]
) -> None:
    """Dry run: list the stages of RUN that would be rebuilt, why, and at what cost.

    STAGE limits the list to one stage. A stage is checked against its inputs as they are now. The
    cost (steps, tokens, hours) is what these tables, and all that are made from them, took when
    they were made. It is lower if a rebuilt table turns out to have the same rows.
    """
    from flows.runtime.record import last_request
    from warehouse.provenance import cost_of
    from warehouse.rerun import chosen

    if is_flow(name):
        raise ValueError(
            f"{name} is a flow, and `why` takes a run: before its first run every stage has to be"
            f" built. `selfplay plan {name} --profile PROFILE` estimates what that takes on GPUs"
        )
    store = existing_store()
    request = last_request(store, name)
    wanted = chosen(store, name, stage or "*", iteration, step)
    inquiry = inquire(request, read_settings(settings))
    reasons = dict(inquiry.reasons)
    if (stage, iteration, step) != (None, None, None):
        reasons = {address: reason for address, reason in reasons.items() if address in wanted}
    # unless a stage, iteration or step is chosen, these include stages that were never made
    stale = {address: reason for address, reason in reasons.items() if reason}
    if stage or stale:
        rows = [
            {"address": address, "stale because": reason or "it is fresh"}
            for address, reason in (reasons if stage else stale).items()
        ]
        print_table(rows, f"{len(stale)} of {len(reasons)} stages would be rebuilt")
    else:
        click.echo(f"all {len(reasons)} stages are fresh")
    if stale:
        print_table(
            cost_of(list(store.tables(name)), stale),
            "cost of rebuilding these stages and all that depend on them, as they took last time",
        )
    if inquiry.unmade:
        print_prose(
            f"after that come stages that were never built, beginning with {inquiry.unmade}: their"
            " cost is not known"
        )
    if inquiry.stopped:
        print_prose(f"the flow would then stop: {inquiry.stopped}")


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
    problems += [
        f"{address}/recipe.json is lost, truncated or changed"
        for address in store.without_recipe(name)
    ]
    for problem in problems:
        click.echo(problem)
    if problems:
        raise ValueError(
            f"{len(problems)} file(s) are not what was published; repeat `selfplay run` to rebuild"
            " their tables"
        )
    verdict = "every published file is intact, byte for byte"
    if num_cleaned:
        verdict += f", except {num_cleaned} file(s) that were cleaned away"
    click.echo(f"{name}: {verdict}")


@main.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--keep-last",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Keep everything from the last N iterations.",
)
@click.option(
    "--keep",
    multiple=True,
    type=int,
    metavar="ITERATION",
    help="Also keep everything from this iteration.",
)
@click.option("--rollouts", is_flag=True, help="Also remove the rollouts of the other iterations.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def clean(name: str, keep_last: int, keep: tuple[int, ...], rollouts: bool, yes: bool) -> None:
    """Remove optimizer states and weights of RUN that no later stage needs.

    Lists them and asks first.
    """
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
@click.argument("name", metavar="RUN")
def report(name: str) -> None:
    """Print the paths of RUN's reports, one per iteration, and why RUN stopped, if it did.

    Reports whose tables have changed are drawn again.
    """
    from flows.runtime.store_root import OWN_RULES
    from tasks.report import redraw, report_of_stopped
    from warehouse.stopped import stopped

    store = existing_store()
    if cause := stopped(store, name):
        click.echo(visible(str(cause)))
        with waiting("the report of where it stopped"):
            report_of_stopped(store, name, (OWN_RULES,))
    with waiting("reports to be drawn"):
        redraw(store, name, (OWN_RULES,))
    print_reports(name)


@main.command()
@click.argument("names", metavar="RUN RUN...", nargs=-1, required=True)
def compare(names: tuple[str, ...]) -> None:
    """Compare runs: settings, prompts and code, held-out scores and their cost. Writes a page
    with figures.

    Shows the settings of each run's last command, then those that its tables were made with
    according to their recipes, and which tables are stale.
    """
    from flows.app.command.checked import check
    from flows.app.command.compare import (
        differing_settings,
        incomparable,
        made_differently,
        scores,
        spent,
        stale_tables,
    )
    from tasks.reports.runs import report_runs

    names = tuple(dict.fromkeys(names))
    store = existing_store()
    tables = {
        "settings of the last command that differ": differing_settings(store, names),
        "tables made differently": made_differently(store, names),
        "stale tables": stale_tables(store, {name: check(store, name) for name in names}),
        "held-out scores": scores(store, names),
        "what it cost": spent(store, names),
    }
    for title, rows in tables.items():
        print_table(rows, title)
    apart = incomparable(store, names)
    for benchmark, why in apart.items():
        print_prose(f"not compared: {benchmark}: {why}")
    with waiting("the page's figures"):
        page = report_runs(
            store,
            f"compare-{'-'.join(names)}",
            {name: {"": name} for name in names},
            tables,
            tuple(apart),
        )
    click.echo(f"page: {page}")


for command in (
    ask,
    corpus,
    demo,
    diff,
    evaluate,
    export,
    findings,
    fork,
    import_tasks,
    judge,
    launch,
    new,
    pilot,
    plan,
    pull,
    push,
    seeds,
    serve,
    settings_command,
    sql,
    study,
    tasks,
    status,
    tune,
    distil,
    view,
    whatif,
    up,
    stop,
    down,
    services,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
