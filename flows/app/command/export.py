"""`selfplay export`: a run's tables, conversations or a policy, for Hugging Face and Scout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from flows.app.command.checked import check
from flows.runtime.store_root import existing_store

if TYPE_CHECKING:
    from flows.environments.environment import Environment
    from flows.environments.write import Format
    from warehouse.provenance import DryRun
    from warehouse.store import Store


@click.command()
@click.argument("name", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder.  [default: RUN-export]",
)
@click.option(
    "--transcripts", is_flag=True, help="Export conversations instead, in Inspect Scout's format."
)
@click.option(
    "--policy", "role", metavar="ROLE", help="Export a role's policy instead, with a model card."
)
@click.option(
    "--tasks",
    "kind",
    type=click.Choice(["verifiers", "nemo-gym", "trl", "openrlhf"]),
    help="Export the kept tasks instead, as an environment for another trainer.",
)
@click.option(
    "--keep", type=click.IntRange(1), help="With --tasks: maximum number of tasks.  [default: all]"
)
@click.option(
    "--without-search",
    is_flag=True,
    help="With --tasks: also export tasks whose answers searched documents, without the search.",
)
@click.option(
    "--without-votes",
    is_flag=True,
    help="With --tasks: score answers by the rule alone, if the run's rewards also rest on votes.",
)
@click.option("--iteration", type=int, help="Iteration of the policy.  [default: the last]")
@click.option(
    "--push", metavar="OWNER/NAME", help="Upload to the Hugging Face hub, as a private repository."
)
def export(
    name: str,
    output: Path | None,
    transcripts: bool,
    role: str | None,
    kind: Format | None,
    keep: int | None,
    without_search: bool,
    without_votes: bool,
    iteration: int | None,
    push: str | None,
) -> None:
    """Write RUN as a dataset: Parquet with a card, ready to train on elsewhere.

    load_dataset("FOLDER", split="train") has conversations: messages, reward, advantage; the split
    "held_out" has those of held-out tasks. The configuration `preferences` has prompt, chosen,
    rejected. Every table is also a configuration, with the columns of `selfplay sql`: "rollouts",
    "judgments", "annotations" (labels), ...; "findings" lists what to know first.
    """
    if sum(map(bool, (transcripts, role, kind))) > 1:
        raise ValueError("--transcripts, --policy and --tasks exclude each other")
    if kind is None and (keep or without_search or without_votes):
        raise ValueError(
            "--keep, --without-search and --without-votes are about tasks: name a format with"
            " --tasks"
        )
    if iteration is not None and not role:
        raise ValueError("--iteration selects a policy: name its role with --policy")
    if transcripts:
        folder = output or Path(f"{name}-transcripts")
        _write_transcripts(name, folder)
    elif role:
        folder = output or Path(f"{name}-{role}")
        _write_policy(name, role, iteration, folder)
    elif kind:
        from flows.app.command.played_again import record
        from flows.environments.environment import environment_of

        folder = output or Path(f"{name}-{kind}")
        store = existing_store()
        environment = environment_of(
            record(store, name),
            name,
            keep,
            without_search=without_search,
            without_votes=without_votes,
        )
        _write_tasks(store, environment, kind, folder)
    else:
        folder = output or Path(f"{name}-export")
        _write_dataset(name, folder)
    if push:
        _push(folder, push, "model" if role else "dataset")


def _write_dataset(run: str, folder: Path) -> None:
    from flows.app.findings import findings
    from warehouse.publish import FINDINGS, write_dataset

    store = existing_store()
    checked = check(store, run)
    known = [
        {name: getattr(finding, name) for name in FINDINGS.names}
        for finding in findings(store, run)
    ]
    counts = write_dataset(store, run, folder, checked, known)
    click.echo(f"wrote {folder}: {', '.join(f'{n:,} {table}' for table, n in counts.items())}")
    _say_what_is_left_out(store, run)
    _say_what_is_stale(checked)


def _write_transcripts(run: str, folder: Path) -> None:
    from warehouse.transcripts import write_transcripts

    store = existing_store()
    click.echo(f"wrote {folder}: {write_transcripts(store, run, folder):,} transcripts")
    _say_what_is_left_out(store, run)
    _say_what_is_stale(check(store, run))


def _write_tasks(store: Store, environment: Environment, kind: Format, folder: Path) -> None:
    from flows.environments.card import card_of
    from flows.environments.certificate import certificate
    from flows.environments.write import write_environment

    run = environment.run
    checked = check(store, run)
    shares = certificate(store, run, [row["task_id"] for row in environment.tasks])
    card = card_of(environment, kind, store, checked, shares)
    counts = write_environment(environment, kind, folder, card)
    click.echo(f"wrote {folder}: {counts['train']} tasks to train on, {counts['test']} for testing")
    for reason, number in environment.left_out.items():
        click.echo(f"left out: {number} kept tasks, because {reason}")
    _say_what_is_stale(checked)


def _say_what_is_left_out(store: Store, run: str) -> None:
    from warehouse.clean import cleaned

    for name, number in cleaned(store, run).items():
        click.echo(f"left out: {number} table(s) of {name}, whose rows `selfplay clean` removed")


def _write_policy(run: str, role: str, iteration: int | None, folder: Path) -> None:
    from warehouse.model import write_policy

    store = existing_store()
    checked = check(store, run)
    policy = write_policy(store, run, role, iteration, folder, checked, _stretched)
    click.echo(f"wrote {folder}: {policy}")
    _say_what_is_stale(checked)


def _stretched(folder: Path, yarn: dict[str, Any]) -> dict[str, Any]:
    """The values to replace in a model's config.json if its positions are stretched by YaRN."""
    from tasks.models.yarn import Yarn

    return Yarn.model_validate(yarn).settings(folder)


def _say_what_is_stale(checked: DryRun) -> None:
    if checked.problem:
        click.echo(f"not checked for stale tables: {checked.problem}")
    elif checked.stale:
        click.echo(
            f"{len(checked.stale)} table(s) of the run are stale, and the card names the reasons:"
            " `selfplay why` lists them"
        )


def _push(folder: Path, repository: str, kind: Literal["dataset", "model"]) -> None:
    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        made = hub.create_repo(repository, repo_type=kind, private=True, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=repository, repo_type=kind)
    except Exception as problem:
        # may come from the client, its HTTP library or Python: they share no documented base class
        why = "; ".join(str(fault).strip() for fault in (problem, problem.__cause__) if fault)
        raise ValueError(
            f"{folder} is written, but not pushed to {repository}: {why}\n`hf auth login` logs you"
            f" in, `hf upload {repository} {folder} --repo-type {kind}` pushes it again"
        ) from problem
    click.echo(f"pushed to {made}")
