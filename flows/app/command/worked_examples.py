"""Show the user the worked examples of a run's prompts before the run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import click

from flows.app.command.tables import print_table

MOST = 5  # no set of prompts uses more


def show_examples(path: Path) -> None:
    """Print the worked examples that prompts take from a file: the first `MOST`."""
    from flows.runtime.templates import read_examples

    examples = list(islice(read_examples(path), MOST))
    print_table(
        [
            {"text": each["context"], "question": each["question"], "answer": each["answer"]}
            for each in examples
        ],
        f"worked examples in {path}",
    )
    click.echo(
        f"Prompts show the first of these {len(examples)}: check that each answer stands in its"
        " text. A reply that copies one is refused."
    )


def show_examples_of(cfg: object) -> None:
    """Print the worked examples of `dialogues.examples`, if the configuration has any."""
    dialogues = getattr(cfg, "dialogues", None)
    examples = getattr(dialogues, "examples", None)
    if examples is not None:
        show_examples(Path(examples))
