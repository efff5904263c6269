"""`selfplay evaluate`: run benchmarks on a run's policy, a model or an adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.parameters import from_here, read_settings
from flows.app.command.tables import print_list
from flows.runtime.store_root import in_workspace, open_store

if TYPE_CHECKING:
    from warehouse.store import Store


@dataclass(frozen=True)
class Choices:
    """The options of the command line; None stands for the default of the run or the benchmark."""

    iteration: int | None
    items: int | None  # 0 means all
    paper: str | None
    prompts: str | None
    file: str | None
    corpus: str | None
    profile: str | None
    settings: dict[str, Any]

    @property
    def evaluation(self) -> dict[str, Any]:
        """The options that are settings of `evaluation`; the tables' names contain them."""
        chosen = {"items": self.items, "paper": self.paper, "prompts": self.prompts}
        return {key: value for key, value in chosen.items() if value is not None}


@click.command()
@click.argument("target", metavar="[RUN|MODEL|ADAPTER]", required=False)
@click.option(
    "--benchmark",
    "names",
    multiple=True,
    help="Name, .toml file, or a file of your own questions (.csv, .jsonl, ...).",
)
@click.option(
    "--against",
    metavar="base|start|MODEL",
    help="Paired differences from the base model, from where RUN started, or from MODEL.",
)
@click.option("--iteration", type=int, help="Iteration of RUN.  [default: the last]")
@click.option(
    "--items",
    type=click.IntRange(0),
    help=(
        "Items to draw from each benchmark; 0: all.  [default: the run's evaluation.items; all for"
        " a model]"
    ),
)
@click.option(
    "--paper",
    help="Paper whose protocol is used.  [default: that of RUN's method, or the benchmark's first]",
)
@click.option(
    "--prompts",
    help="english; or, without a chat template: lines, lines-2-shot, lines-4-shot, lines-5-shot.",
)
@click.option("--file", help="Read items from this file, not the entry's own.")
@click.option("--corpus", help="Documents to search, named as for a run, if the protocol searches.")
@click.option(
    "--profile",
    metavar="FLOW/PROFILE",
    help=(
        "For MODEL or ADAPTER: use this profile's engine settings.  [default: the CPU, and a"
        " context of 4,096 tokens]"
    ),
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Run nothing; print the cost of all benchmarks of --paper, or of those given.",
)
@click.option("--gpu", "card", default="h100-80", help="GPU model for the hours of --dry-run.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. models.examiner=MODEL.",
)
def evaluate(  # noqa: PLR0913 -- one argument for each option
    target: str | None,
    names: tuple[str, ...],
    against: str | None,
    iteration: int | None,
    items: int | None,
    paper: str | None,
    prompts: str | None,
    file: str | None,
    corpus: str | None,
    profile: str | None,
    dry_run: bool,
    card: str,
    settings: tuple[str, ...],
) -> None:
    """Run benchmarks on a run's policy, a model, or a LoRA adapter; every answer is stored.

    Answers and scores of earlier calls are reused. Without arguments, lists the benchmarks.
    """
    if dry_run:
        plan_evaluation(names, paper, profile, card, items, settings)
        return
    if target is None and not names:
        list_benchmarks()
        return
    if target is None or not names:
        raise ValueError(
            "name a run or model, and a benchmark, as in `selfplay evaluate mine --benchmark"
            " gsm8k`; `selfplay evaluate` alone lists the benchmarks"
        )
    from flows.app.command.candidates import is_run

    store = open_store()
    choices = Choices(
        iteration=iteration,
        items=items,
        paper=paper,
        prompts=prompts,
        file=file and from_here(file),
        corpus=corpus and from_here(corpus),
        profile=profile,
        settings=read_settings(settings),
    )
    if not is_run(store, target):
        target = from_here(target)
    if against not in (None, "base", "start"):
        against = from_here(against)
    names = tuple(from_here(name) if _is_path(name) else name for name in names)
    run_benchmarks(store, target, names, against, choices)


def run_benchmarks(
    store: Store, target: str, names: tuple[str, ...], against: str | None, choices: Choices
) -> None:
    """Evaluate the policy that `target` names on the benchmarks `names`, and print its scores; with
    `against`, also the differences from that policy.

    Raises ValueError if there is no such policy or benchmark, or if a benchmark does not work with
    the run.
    """
    from flows.app.service.shown_log import shown_log

    chosen = choices.evaluation
    settings = choices.settings | {
        f"evaluation.{key}": value or None for key, value in chosen.items()
    }
    suffix = "".join(f"-{value or 'all'}" for value in chosen.values())
    with shown_log(), in_workspace():
        from flows.app.command.candidates import evaluate_on, find_candidate, print_averages
        from flows.app.command.own_questions import evaluate_on_own
        from flows.blocks.corpora import open_documents
        from flows.blocks.evaluation import open_evaluation
        from flows.method import opened
        from tasks.benchmarks.own_file import is_file_of_rows

        candidate = find_candidate(store, target, choices.iteration, choices.profile, settings)
        engine = candidate.cfg.engine
        if not candidate.is_run and choices.profile is None and engine.device == "cpu":
            click.echo(
                f"no GPU is used, and contexts have at most {engine.max_model_len:,} tokens:"
                " --profile FLOW/PROFILE names other engine settings",
                err=True,
            )
        with opened(candidate.cfg, store, candidate.run, begins=not candidate.is_run) as run:
            place = run.place.iteration(0).phase("benchmark")
            index = None
            if choices.corpus:
                index = open_documents(place, choices.corpus, label="searched")
            evaluations = []
            for name in names:
                label = f"{Path(name).stem}{suffix}"
                if is_file_of_rows(name) and against is None:
                    evaluate_on_own(run, name, candidate, index, label, choices.prompts)
                else:
                    evaluations.append(open_evaluation(run, name, index, choices.file, label))
            for evaluation in evaluations:
                evaluate_on(evaluation, candidate, against)
            if evaluations:
                print_averages(evaluations, candidate, suffix)


def plan_evaluation(
    names: tuple[str, ...],
    paper: str | None,
    profile: str | None,
    card: str,
    items: int | None,
    settings: tuple[str, ...],
) -> None:
    """Print what an evaluation requires, including hours if a profile is named.

    `names`: the benchmarks; if empty, all of the `paper`'s, by default the paper of the profile's
    method. `card`: the kind of GPU. `items`: the maximum number of items per benchmark. `settings`:
    as `--set KEY=VALUE` takes them. Raises ValueError for an unknown name.
    """
    from flows.app.command.evaluation_plan import print_evaluation_plan
    from flows.app.command.parameters import find_flow, find_method
    from flows.settings import profile as profiles

    cfg = None
    if profile is not None:
        flow, _, name = profile.rpartition("/")
        config = find_method(find_flow(flow)).config
        cfg = profiles.load(config, name, read_settings(settings))
        paper = paper or profiles.home(config).name
    print_evaluation_plan(paper, names, cfg, card, items)  # pyright: ignore[reportArgumentType]


def _is_path(name: str) -> bool:
    """Whether a benchmark is given as a file: one of an entry, or one of questions."""
    from tasks.benchmarks.own_file import is_file_of_rows

    return name.endswith(".toml") or is_file_of_rows(name)


def list_benchmarks() -> None:
    """Print every benchmark with its title, scorer, papers and licence."""
    from flows.benchmarks import find, names

    rows = [
        {
            "benchmark": entry.name,
            "title": entry.title,
            "scorer": entry.scorer if entry.columns else f"lm-eval {entry.harness}",
            "papers": ", ".join(entry.protocol),
            "licence": entry.licence + (", gated" if entry.gated else ""),
        }
        for entry in map(find, names())
    ]
    print_list(rows, "benchmarks")
