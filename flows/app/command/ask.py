"""`selfplay ask`: let a model write questions about documents, once, into a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flows.app.command.documents import last_part, request_with_documents
from flows.app.command.parameters import (
    find_deployment,
    find_flow,
    from_here,
    load_config,
    make_parameters,
    method_module,
    read_settings,
)
from flows.app.command.tables import print_table
from flows.app.command.worked_examples import show_examples
from flows.app.service.site import Site
from flows.runtime.store_root import WORKSPACE, in_workspace

FLOW = "spell-iteration"
EXAMPLES = 5  # number of questions shown, and of worked examples: as many as our prompts show
TO_AUDIT = 20  # number of held-out questions shown


@click.command()
@click.argument("corpus")
@click.option(
    "--with",
    "writer",
    metavar="MODEL",
    required=True,
    help="A model's folder or hub name, or api:NAME (with --set api.url=...).",
)
@click.option(
    "--count",
    type=click.IntRange(1),
    default=180,
    show_default=True,
    help="Number of questions to write.",
)
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("questions.jsonl"),
    show_default=True,
    help="File to write.",
)
@click.option(
    "--held-out",
    "test",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write questions for evaluation, about documents that no other question is about.",
)
@click.option(
    "--held-out-count",
    "num_held_out",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Number of questions in the --held-out file.",
)
@click.option(
    "--examples",
    "examples_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write five of the questions to FILE, as worked examples for prompts.",
)
@click.option(
    "--prompts",
    default="passage",
    show_default=True,
    help="passage: in MODEL's chat template; lines: worked examples, for a small or base model.",
)
@click.option(
    "--twice",
    is_flag=True,
    help="MODEL also answers each question from all documents of its cluster; keep it if both"
    " answers are equal (SPELL's RLVR baseline).",
)
@click.option(
    "--judge",
    metavar="MODEL",
    help="With --twice: decides whether both answers are equal.  [default: a rule]",
)
@click.option(
    "--profile",
    default="smollm2",
    show_default=True,
    help=(
        "Profile of spell-iteration: how CORPUS is prepared, and the device of MODEL's engine"
        " (smollm2: CPU, small-1gpu: GPU)."
    ),
)
@click.option("--run", "name", help="Name of the run that keeps the rollouts.  [ask-CORPUS]")
@click.option("--tokens", default=512, show_default=True, help="Maximum tokens per reply.")
@click.option("--context", default=4096, show_default=True, help="MODEL's context in tokens.")
@click.option("--force", is_flag=True, help="Overwrite the file and another request's run.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. api.max_cost=2.",
)
def ask(  # noqa: PLR0913 -- one argument for each option
    corpus: str,
    writer: str,
    count: int,
    out: Path,
    test: Path | None,
    num_held_out: int,
    examples_file: Path | None,
    prompts: str,
    twice: bool,
    judge: str | None,
    profile: str,
    name: str | None,
    tokens: int,
    context: int,
    force: bool,
    settings: tuple[str, ...],
) -> None:
    """Have a model (--with) write questions and answers about CORPUS; drop unusable ones.

    CORPUS is a file or folder of text, or a prepared corpus. Review the file, edit it, and train on
    it: `selfplay run spell-iteration --profile documents --set given=questions.jsonl`. Repeating
    the command with --force writes the file again from the stored rollouts and samples nothing. A
    model also writes the held-out questions, so a score is only as good as they are: check the
    twenty that are shown.

    With --examples, five of the questions become worked examples from your own documents: add
    `--set dialogues.examples=FILE` to a run. None is about a held-out document, and none is trained
    on.
    """
    from flows.app.service.shown_log import shown_log
    from flows.method import opened
    from flows.runtime.record import open_run
    from tasks.engines.endpoint import API

    _check_files([path for path in (out, test, examples_file) if path is not None], force)
    if test is None:
        num_held_out = 0
    site = Site.here()
    flow = find_flow(FLOW)
    writer = from_here(writer)
    changes = _settings_of(writer, prompts, tokens, context)
    if judge and not twice:
        raise ValueError("--judge compares two answers: add --twice")
    if twice:
        del changes["task_types"]  # use the profile's
    if judge:
        changes["models.judge"] = from_here(judge)
    changes |= read_settings(settings)
    run = name or f"ask-{last_part(corpus)}"
    parameters = make_parameters(profile, run, corpus, changes)
    deployment = find_deployment(flow, profile, site)
    if not writer.startswith(API) and "judge_engine" not in changes:
        # the writer has its own engine; the policy's engine is never used, so it never starts
        engine = load_config(deployment, parameters).engine.model_dump()
        changes["judge_engine"] = {**engine, "model": writer, "max_model_len": context}
    request, cfg = request_with_documents(site, flow, parameters)
    out = out.resolve()
    test = test and test.resolve()
    examples_file = examples_file and examples_file.resolve()
    own = cfg.judge_engine
    if own and own.device == "cpu" and WORKSPACE / writer != WORKSPACE / cfg.models.base:
        click.echo(
            f"no GPU is used: profile {profile} loads {writer} on the CPU; --profile names another,"
            " such as small-1gpu",
            err=True,
        )
    with (
        shown_log(),
        in_workspace(),  # paths in profiles are relative to it
        open_run(request, cfg, force=force) as store,
        opened(cfg, store, request.run) as play,
    ):
        module = method_module(deployment, "written_questions")
        written = module.write_questions(play, count, num_held_out, twice=twice)
    if not written.questions:
        _show_dropped(written.dropped)
        raise click.ClickException(
            f"{writer} wrote no question that can be used: try --prompts lines for a base or small"
            " model, or another model"
        )
    questions = written.questions
    if examples_file is not None:
        examples, questions = module.take_examples(questions, EXAMPLES)
        _write(examples_file, examples, writer)
        show_examples(examples_file)
    _write(out, questions, writer)
    _show(questions, EXAMPLES)
    if test is not None:
        _write(test, written.held_out, writer)
        click.echo(
            f"Check these held-out questions: {writer} wrote them, and nobody has reviewed them."
        )
        _show(written.held_out, TO_AUDIT)
    _show_dropped(written.dropped)
    click.echo(f"{out}: {len(questions)} questions from {written.num_asked} replies")
    if test is not None:
        click.echo(f"{test}: {len(written.held_out)} questions about other documents")
    if written.short_because:
        click.echo(
            f"fewer than the {count + num_held_out} that were wanted, because"
            f" {written.short_because}: use a larger model, or more documents"
        )
        sys.exit(1)


def _check_files(paths: Sequence[Path], force: bool) -> None:
    """Raise ValueError for a file that cannot be written, or would be overwritten."""
    for path in paths:
        if not path.resolve().parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}; make it first")
        if path.exists() and not force:
            raise ValueError(f"{path} exists: --force overwrites it, or name another file")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError("--out, --held-out and --examples need a file each, of different names")


def _write(path: Path, questions: list[dict[str, Any]], writer: str) -> None:
    """Write one line per question, which names the writer."""
    lines = (
        json.dumps({**question, "written_by": Path(writer).name}, ensure_ascii=False)
        for question in questions
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _settings_of(writer: str, prompts: str, tokens: int, context: int) -> dict[str, Any]:
    """Settings of a run in which an untrained model writes the questions."""
    in_lines = prompts == "lines"
    asking = {
        "prompts": prompts,
        "chat_template": "none" if in_lines else "model",
        "stop": ["\n"] if in_lines else [],
        "response_tokens": 28 if in_lines else tokens,
        "input_tokens": context - tokens,
        "temperature": 0.7,
        "top_p": 1.0,
    }
    return {
        "models.questioner": writer,
        "asking": asking,
        "questioner.trained": False,
        "questioner.memory_pairs": 0,
        "questioner.grounding_filter": False,
        "verifier.enabled": False,
        # malformed replies are counted and left out, and nothing is trained, so allow any share
        "monitor.max_malformed": 1.0,
        "unread": "warn",
        "evaluation.benchmark": "none",
        "evaluation.benchmarks": [],
        "evaluation.also": [],
        "task_types": ["general_qa"],
    }


def _show(questions: list[dict[str, Any]], most: int) -> None:
    rows = [{"question": row["question"], "answer": row["answer"]} for row in questions[:most]]
    print_table(rows, f"{len(rows)} of {len(questions)}")


def _show_dropped(dropped: dict[str, int]) -> None:
    rows = [{"not taken because": reason, "n": n} for reason, n in dropped.items()]
    if rows:
        print_table(sorted(rows, key=lambda row: -row["n"])[:8], "replies that gave no question")
