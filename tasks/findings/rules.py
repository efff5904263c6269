"""Rules: small SQL files that look for one thing worth saying about a run.

A file begins with a header of comments, then has two statements:

    -- title:         the judge errs on what is trained on
    -- severity:      serious
    -- sentence:      the judge is wrong on {number:%} of ... in iteration {iteration}
    -- compared with: the same share in the iterations before
    -- page:          judge
    -- $z = 3:        standard errors between the two shares
    -- grain:         an iteration for which the rule fires, the gravest first
    -- inputs:        judgments; $run
    with ... select iteration, number, compared_with, ...;

    -- rows: the verdicts
    select ... where iteration = $iteration ...;

The first statement yields no row if there is nothing to say. Its first row is the finding:
`number`, `compared_with` (or null), and whatever else the sentence names. The sentence is a
template for Python's `str.format`, in which `{number:%}` formats a share as everywhere: 5.9% or
33%. The second statement selects the rows that the finding is about; it may use every column of the
first statement's row, and every threshold, as a parameter.

`$run` is the run. `$made` is a JSON list of its tables and what making them cost, `$settings` its
configuration and `$stopped` the error that stopped it, as JSON or null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SHIPPED = HERE / "rules"
SEVERITIES = ("serious", "warning", "note")  # most serious first
PAGES = (  # of the viewer
    "candidates",
    "documents",
    "group",
    "judge",
    "overview",
    "rollouts",
    "sql",
    "stages",
    "updates",
)
NEEDED = ("title", "severity", "sentence", "compared with", "page")
FIELD = re.compile(r"-- (?P<name>[a-z][a-z ]*|\$\w+ = [^:]+):\s+(?P<text>.*)")
CONTINUED = re.compile(r"--\s+(?P<text>\S.*)")
ROWS = re.compile(r"^-- rows:.*$", re.MULTILINE)


class Unreadable(ValueError):
    """A file that is not a rule."""


@dataclass(frozen=True)
class Rule:
    """A rule as stated in its file."""

    name: str  # the file's name without `.sql`
    title: str
    severity: str
    sentence: str
    comparison: str  # what the number is compared with
    page: str
    thresholds: dict[str, float]
    measure: str  # the statement whose first row is the finding
    rows: str  # the statement that selects the rows that the finding is about


def read_rules(folders: Iterable[Path] = ()) -> list[Rule | Unreadable]:
    """The shipped rules, then those of other folders. A file replaces an earlier rule of the same
    name; in place of an unreadable file stands its error."""
    files = {
        file.stem: file for folder in (SHIPPED, *folders) for file in sorted(folder.glob("*.sql"))
    }
    return [_read_or_error(file) for file in files.values()]


def _read_or_error(file: Path) -> Rule | Unreadable:
    try:
        return read_rule(file)
    except Unreadable as problem:
        return problem
    except (OSError, UnicodeDecodeError) as problem:
        return Unreadable(f"{file}: {problem}")


def read_rule(file: Path) -> Rule:
    """Read a rule from an SQL file with a header. Raises Unreadable for a file that lacks a header
    field or `-- rows:`, or has an unknown severity or page."""
    text = file.read_text(encoding="utf-8")
    fields = _header(text)
    if missing := [name for name in NEEDED if name not in fields]:
        raise Unreadable(f"{file}: its header has no line `-- {missing[0]}: ...`")
    if fields["severity"] not in SEVERITIES:
        raise Unreadable(
            f"{file}: severity {fields['severity']!r} is none of {', '.join(SEVERITIES)}"
        )
    if fields["page"] not in PAGES:
        raise Unreadable(f"{file}: page {fields['page']!r} is none of {', '.join(PAGES)}")
    statements = ROWS.split(text)
    if len(statements) != 2:
        raise Unreadable(
            f"{file}: write `-- rows: what they are` once, above the statement that selects the"
            " rows of a finding"
        )
    return Rule(
        name=file.stem,
        title=fields["title"],
        severity=fields["severity"],
        sentence=fields["sentence"],
        comparison=fields["compared with"],
        page=fields["page"],
        thresholds=_thresholds(file, fields),
        measure=_statement(statements[0]),
        rows=_statement(statements[1]),
    )


def _header(text: str) -> dict[str, str]:
    """The fields of the comments at the top. A line without a name continues the one above."""
    fields: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if field := FIELD.fullmatch(line):
            last = field["name"]
            fields[last] = field["text"]
        elif (more := CONTINUED.fullmatch(line)) and last:
            fields[last] += f" {more['text']}"
        else:
            break
    return fields


def _thresholds(file: Path, fields: dict[str, str]) -> dict[str, float]:
    thresholds = {}
    for name in fields:
        if name.startswith("$"):
            parameter, _, value = name.partition(" = ")
            try:
                thresholds[parameter.removeprefix("$")] = float(value)
            except ValueError:
                raise Unreadable(f"{file}: {parameter} is {value!r}, not a number") from None
    return thresholds


def _statement(text: str) -> str:
    return text.strip().removesuffix(";")
