"""`selfplay serve`: ask a run's policy through vLLM's OpenAI-compatible server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.parameters import read_settings
from flows.runtime.store_root import WORKSPACE, existing_store, in_workspace, open_store

if TYPE_CHECKING:
    from warehouse.store import Store
    from warehouse.usage import Usage

END_S = 20  # time for a server to end by itself
SHOWN = 600  # maximum length of an example request


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--player", help="Player of the run to serve.  [default: the evaluated one]")
@click.option("--iteration", type=int, help="Iteration of the policy.  [default: the last]")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Port of the server.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: for other machines.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. engine.max_model_len=2048.",
)
def serve(
    run: str,
    player: str | None,
    iteration: int | None,
    port: int,
    host: str,
    settings: tuple[str, ...],
) -> None:
    """Serve the policy that RUN trained, under RUN's name, until Ctrl-C.

    Uses the settings of the run's engine. On CPUs, an adapter is merged into its base once.
    """
    store = existing_store()
    with in_workspace():
        served, usage = _found(store, run, player, iteration, read_settings(settings))
    served |= {"name": run, "host": host, "port": port}
    _show(served, usage)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tasks.engines.serve", json.dumps(served)]
    # start a new session: Ctrl-C then reaches only this process, which ends the server's processes
    server = subprocess.Popen(command, cwd=WORKSPACE, env=environment, start_new_session=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(server.wait())
    except KeyboardInterrupt:
        click.echo("ending the server")
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its engine; kill processes that do not end in time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _found(
    store: Store, run: str, player: str | None, iteration: int | None, settings: dict[str, Any]
) -> tuple[dict[str, Any], Usage | None]:
    """The policy to serve, and how it was asked in training.

    Raises ValueError for a run without such a policy.
    """
    from flows.app.command.candidates import find_candidate, is_run
    from flows.method import opened
    from warehouse.address import no_run
    from warehouse.clean import check_kept
    from warehouse.usage import usage_of

    if not is_run(store, run):
        raise no_run(run)
    candidate = find_candidate(store, run, iteration, None, settings)
    role = player or candidate.cfg.examined
    with opened(candidate.cfg, open_store(), run, begins=False) as play:
        trained_player = play.player_after(role, candidate.iteration)
    if not trained_player.num_updates:
        trained = sorted({table.rows()[-1]["role"] for table in store.updates(run)})
        raise ValueError(
            f"run {run!r} has not trained {role!r} by iteration {candidate.iteration}; it trains"
            f" {', '.join(trained) or 'nothing yet'}"
        )
    policy = trained_player.policy
    check_kept(store.root, policy.adapter or policy.weights, again="updates")
    updates = [
        table
        for table in store.updates(run, until=candidate.iteration)
        if table.rows()[-1]["role"] == role
    ]
    served = {
        "config": candidate.cfg.engine.model_dump(mode="json"),
        "policy": policy.model_dump(mode="json"),
        "merged": str(_merged_folder(store, policy.content_hash)),
    }
    return served, usage_of(store, run, updates)


def _merged_folder(store: Store, content_hash: str) -> Path:
    """The folder for a merged model, next to the runs; it may be removed at any time."""
    folder = store.root / "served"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / content_hash


def _show(served: dict[str, Any], usage: Usage | None) -> None:
    url = f"http://{served['host']}:{served['port']}/v1"
    click.echo(f"{served['policy']['id']} as the model {served['name']!r} at {url}")
    if usage is None:
        return
    is_chat = usage.chat_template == "model"
    request: dict[str, Any] = {
        "model": served["name"],
        "temperature": 0,
        "max_tokens": usage.max_tokens,
    }
    if usage.stop:
        request["stop"] = usage.stop
    if is_chat:
        request["messages"] = usage.messages
        if usage.template_arguments:
            request["chat_template_kwargs"] = usage.template_arguments
    else:
        request["prompt"] = usage.text
    body = json.dumps(request, ensure_ascii=False)
    if len(body) <= SHOWN:
        path = "chat/completions" if is_chat else "completions"
        quoted = body.replace("'", "'\\''")
        click.echo(
            f"asked as in training, once it is up:\n  curl {url}/{path} -H 'Content-Type:"
            f" application/json' -d '{quoted}'"
        )
