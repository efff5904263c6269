"""The command `selfplay`. Heavy modules are imported where they are used: `selfplay --help` is quick."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.site import SOURCE, Site

if TYPE_CHECKING:
    from warehouse.store import Store

DEMO_FLOW, DEMO_PROFILE = "scope-iteration", "micro"
SCORES = """
    select iteration, benchmark, metric, n, round(score, 3) as score, round(standard_error, 3) as standard_error
    from evaluations where run = $run order by benchmark, metric, iteration
"""
PIPE_WIDTH = 2000


class Group(click.Group):
    """Commands whose expected failures (a user's ValueError, a service's RuntimeError) end in one clear line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, RuntimeError) as problem:
            raise click.ClickException(str(problem)) from problem


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """LLM self-play from published papers: runs, their tables, and the Prefect services behind them."""


@main.command()
@click.argument("flow")
@click.option("--profile", default=DEMO_PROFILE, show_default=True, help="A deployment of the flow in prefect.yaml.")
@click.option("--run", "name", help="Name of the run; one that exists is continued.  [default: the profile's name]")
@click.option("--corpus", type=click.Path(path_type=Path), help="A folder of text, a .jsonl or a .parquet file.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting, e.g. solver.steps=4.")
@click.option("--here", is_flag=True, help="In this process, without a worker.")
def run(flow: str, profile: str, name: str | None, corpus: Path | None, settings: tuple[str, ...], here: bool) -> None:
    """Run FLOW, such as scope-iteration, and follow it to its end."""
    sys.exit(0 if run_flow(Site.here(), flow, profile, name, corpus, settings, here) else 1)


@main.command()
def demo() -> None:
    """Self-play on the built-in micro-world: three iterations, then the scores and the report."""
    if not run_flow(Site.here(), DEMO_FLOW, DEMO_PROFILE):
        sys.exit(1)
    from warehouse.query import query

    print_table(query(store().root, SCORES, {"run": DEMO_PROFILE}), "held-out scores")
    print_reports(DEMO_PROFILE)


@main.command()
@click.argument("statement")
def sql(statement: str) -> None:
    """Ask all tables of all runs, e.g. "select run, count(*) from rollouts group by run"."""
    import duckdb

    from warehouse.query import query

    try:
        print_table(query(store().root, statement))
    except duckdb.Error as problem:
        raise ValueError(str(problem)) from problem


@main.command()
@click.argument("name", metavar="[RUN]", required=False)
def status(name: str | None) -> None:
    """Runs; or the stages of RUN with rows and seconds; and what is being made now."""
    from warehouse import status as made

    print_table(made.stages(store(), name) if name else made.runs(store()), "stages" if name else "runs")
    print_table(made.working(store(), name), "working now")


@main.command()
@click.argument("name", metavar="RUN")
def report(name: str) -> None:
    """Where the reports of RUN are, one an iteration."""
    print_reports(name)


@main.command()
@click.option("--port", type=click.IntRange(1024, 65535), help="Of the server on 127.0.0.1; kept for later.")
@click.option("--gpu", is_flag=True, help="Start the gpu pool's worker although no GPU was found.")
def up(port: int | None, gpu: bool) -> None:
    """Start server, workers and deployments, whatever of it is not running."""
    from flows import services

    site = Site(home=Site.here().home, port_choice=port) if port else Site.here()
    services.up(site, pools=tuple(services.POOLS) if gpu else None, say=click.echo)
    click.echo(f"ready: http://127.0.0.1:{site.port} (user and password: PREFECT_API_AUTH_STRING in {site.env_file})")


@main.command()
def down() -> None:
    """End server, workers and running flows; their runs can be continued."""
    from flows import services

    services.down(Site.here(), say=click.echo)


@main.command(name="services")
def services_command() -> None:
    """What is running, with process ids and log files."""
    from flows import services

    print_table(services.status(Site.here()))


def run_flow(
    site: Site,
    flow: str,
    profile: str,
    name: str | None = None,
    corpus: Path | None = None,
    settings: tuple[str, ...] = (),
    here: bool = False,
) -> bool:
    """Check everything that can be known now, then run; True when the flow completed."""
    from flows import services
    from flows.watch import watch

    deployment = find_deployment(services.declared(site), flow, profile)
    parameters = make_parameters(profile, name or profile, corpus, settings)
    check_settings(deployment, parameters)
    pool = deployment["work_pool"]["name"]
    if not here and pool not in services.default_pools() and site.process(f"worker-{pool}").find() is None:
        raise ValueError(f"profile {profile} needs a GPU and none was found; `selfplay up --gpu` ignores that")
    api = services.up(site, say=click.echo)
    if here:
        return run_here(site, deployment, parameters)
    flow_run = api.submit(f"{flow}/{profile}", parameters)
    page = f"http://127.0.0.1:{site.port}/runs/flow-run/{flow_run['id']}"
    click.echo(f"run {parameters['run']!r} as flow run {flow_run['name']}: {page}")
    try:
        return watch(site, api, flow_run, click.echo) == "COMPLETED"
    except KeyboardInterrupt:
        click.echo(f"\nit goes on without you: `selfplay status {parameters['run']}`, or end it with `selfplay down`")
        sys.exit(130)


def make_parameters(profile: str, name: str, corpus: Path | None, settings: tuple[str, ...]) -> dict[str, Any]:
    """The flow's parameters; paths are made absolute, for a worker stands elsewhere."""
    parameters: dict[str, Any] = {"profile": profile, "run": name, "overrides": dict(map(read_setting, settings))}
    if corpus is not None:
        if not corpus.exists():
            raise ValueError(f"--corpus {corpus}: there is no such file or folder")
        parameters["corpus"] = str(corpus.resolve())
    return parameters


def run_here(site: Site, deployment: dict[str, Any], parameters: dict[str, Any]) -> bool:
    """The flow in this process, recorded by the server; its exception goes through."""
    site.activate()
    module, function = deployment["entrypoint"].split(".py:")
    getattr(importlib.import_module(module.replace("/", ".")), function)(**parameters)
    return True


def find_deployment(declared: list[dict[str, Any]], flow: str, profile: str) -> dict[str, Any]:
    """The entry of prefect.yaml; a flow is named by its function, with dashes."""
    by_flow: dict[str, dict[str, dict[str, Any]]] = {}
    for deployment in declared:
        function = deployment["entrypoint"].rsplit(":", 1)[1].replace("_", "-")
        by_flow.setdefault(function, {})[deployment["name"]] = deployment
    if flow not in by_flow:
        raise ValueError(f"no flow {flow!r}; there is {', '.join(sorted(by_flow))}")
    if profile not in by_flow[flow]:
        raise ValueError(f"{flow} has no profile {profile!r}; there are {', '.join(by_flow[flow])}")
    return by_flow[flow][profile]


def read_setting(text: str) -> tuple[str, Any]:
    """`solver.steps=4` as ("solver.steps", 4): a TOML value, or else a string.

    >>> read_setting("solver.steps=4"), read_setting("corpus=a/b"), read_setting("pool.window=[0.1, 0.9]")
    (('solver.steps', 4), ('corpus', 'a/b'), ('pool.window', [0.1, 0.9]))
    """
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text}: write KEY=VALUE, for instance solver.steps=4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def check_settings(deployment: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Raise the ValueError of the flow's own configuration now, not in a worker's log."""
    package = deployment["entrypoint"].rsplit("/", 1)[0].replace("/", ".")
    importlib.import_module(f"{package}.config").load_profile(parameters["profile"], parameters["overrides"])


def store() -> Store:
    """The tables of all runs: data/store, unless SELFPLAY_STORE names another folder."""
    from warehouse.store import Store

    return Store(os.environ.get("SELFPLAY_STORE") or SOURCE / "data" / "store")


def print_reports(name: str) -> None:
    tables = sorted((store().root / "reports" / name).glob("iter-*.html"))
    if not tables:
        raise ValueError(f"run {name!r} has no report yet; `selfplay status` lists the runs")
    for path in tables:
        click.echo(f"report: {path}")


def print_table(rows: list[dict[str, Any]], title: str | None = None) -> None:
    """Rows for people: on a terminal fitted to it, in a pipe with nothing cut off."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        click.echo(f"{title}: none" if title else "no rows")
        return
    table = Table(*rows[0], title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    console.print(table)


if __name__ == "__main__":
    main()
