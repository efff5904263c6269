"""A run's judge on trial: how far its verdicts can be trusted, and where they cannot be.

    lake = Lake(store)
    trial = hold_trial(lake, "mine")
    trial.overall, trial.by["phase"], trial.wrong, ...     # rows, for a page
    card(trial)                                            # Markdown
    dataclasses.asdict(trial)                              # what its JSON holds

Every number comes from a statement in `tasks/judges/sql` over the view `verdicts`, which
`selfplay sql` also has. Rows are empty if a run has no such verdicts or standards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from tasks.reports.data import tables_until
from tasks.reports.percent import percent
from tasks.reports.statement import parameters_of
from warehouse.lake import Lake
from warehouse.schemas import Row

HERE = Path(__file__).parent
PARTS = ("phase", "iteration", "place", "role", "criterion", "length", "position")
MOST_WRONG = 50  # number of wrong verdicts listed
MOST_CRITERIA = 20
LEAST_ANSWERS = 4  # a criterion judged on fewer answers says little


@dataclass(frozen=True)
class Trial:
    """What is known about a run's judge. Each field except the first three holds rows.

    `overall` and every table of `by` have: what (criterion, canary, vote or a gate), standard
    (truth, canary, label, rule or auditor), part (the group), n, num_right, num_false_pass,
    num_false_fail, num_unread, agreement with its bounds low and high, base_rate (how often the
    standard says yes), yes_rate (how often the judge does), kappa, and weighted: the share of
    |advantage| that rests on right verdicts, null if nothing was trained on.

    `by` has keys of PARTS. In `by["iteration"]` the rows of one `what` and `standard` are the
    judge's drift.

    `wrong` are the verdicts that a standard contradicts, those on the most reinforced answers
    first; `num_wrong` counts all of them. `criteria` counts, by iteration and phase, the criteria
    that no answer or every answer meets; `one_sided` lists some. `asked_again` says how often two
    verdicts on the same thing agree. `marks` has the mean mark at each place in a comparison.
    """

    run: str
    iteration: int | None  # the last iteration that was read; None: all
    num_wrong: int
    overall: list[Row]
    by: dict[str, list[Row]]
    wrong: list[Row]
    criteria: list[Row]
    one_sided: list[Row]
    asked_again: list[Row]
    marks: list[Row]


def hold_trial(
    lake: Lake,
    run: str,
    *,
    iteration: int | None = None,
    parts: Collection[str] = PARTS,
) -> Trial:
    """All that is known about the judge of a run, up to an iteration if one is given. Verdicts are
    grouped by these `parts`."""
    near = None
    if iteration is not None:
        near = tables_until(lake.tables(run), iteration)

    def rows(name: str, **parameters: Any) -> list[Row]:
        sql = statement(name)
        return lake.query(run, sql, parameters_of(sql, {"run": run, **parameters}), near).rows

    return _trial(run, iteration, rows, parts)


def statement(name: str) -> str:
    """The text of `tasks/judges/sql/<name>.sql`, for a page that shows what it ran."""
    return (HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def _trial(
    run: str,
    iteration: int | None,
    rows: Callable[..., list[Row]],
    parts: Collection[str],
) -> Trial:
    overall = rows("agreement", by="")
    return Trial(
        run=run,
        iteration=iteration,
        num_wrong=sum(row["n"] - row["num_right"] for row in overall),
        overall=overall,
        by={part: rows("agreement", by=part) for part in parts},
        wrong=rows("wrong", most=MOST_WRONG),
        criteria=rows("criteria", least=LEAST_ANSWERS),
        one_sided=rows("one_sided", least=LEAST_ANSWERS, most=MOST_CRITERIA),
        asked_again=rows("asked_again"),
        marks=rows("marks"),
    )


def card(trial: Trial) -> str:
    """The judge card, as Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = share
    environment.filters["cell"] = cell
    return environment.get_template("card.md.jinja").render(trial=trial, parts=PARTS)


def share(value: float | None) -> str:
    """A share as text, in percent; a dash for None.

    >>> share(0.9412), share(None)
    ('94.1%', '–')
    """
    return "–" if value is None else percent(value)


def cell(text: str | None, longest: int = 80) -> str:
    """A text for one cell of a Markdown table.

    >>> cell("a | b\\nc")
    'a \\\\| b c'
    """
    line = " ".join((text or "").split()).replace("|", "\\|")
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
