"""`selfplay import`: tasks of other loaders as a file of questions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.app.command.parameters import read_settings


@click.command(name="import")
@click.argument("source")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["nemo-gym", "verifiers"]),
    required=True,
    help="nemo-gym: SOURCE is a JSONL file. verifiers: SOURCE is the id of an installed taskset.",
)
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("questions.jsonl"),
    show_default=True,
)
@click.option(
    "--python",
    default=sys.executable,
    help="Interpreter with verifiers and the taskset installed.  [this one]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Argument of the taskset, e.g. split=test.",
)
@click.option("--limit", type=click.IntRange(1), default=1_000_000, help="Maximum number of tasks.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def import_tasks(
    source: str,
    kind: str,
    out: Path,
    python: str,
    settings: tuple[str, ...],
    limit: int,
    force: bool,
) -> None:
    """Write the tasks of a verifiers taskset or a NeMo Gym file as questions with references.

    Train on the file (`--set questions=FILE` for TTRL, `given=FILE` for SPELL), or score policies
    on it (`selfplay evaluate RUN --benchmark FILE`, `evaluation.benchmark=FILE`). Data sets on the
    hub need no import: name them as hf:owner/name?split=...&revision=... there.
    """
    from flows.environments.import_tasks import from_nemo_gym, from_verifiers, write_questions

    if out.exists() and not force:
        raise ValueError(f"{out} exists: --force overwrites it, --out names another file")
    if kind == "nemo-gym":
        questions = from_nemo_gym(Path(source))[:limit]
    else:
        questions = from_verifiers(source, python, read_settings(settings), limit)
    number = write_questions(questions, out)
    answered = "with" if "answers" in questions[0] else "without"
    click.echo(f"{out}: {number} questions, {answered} reference answers")
