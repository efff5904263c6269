"""The papers' headline claims, each in a world where its mechanism has something to do.

Files of claims mark them (`headline = true`); the numbers come from the tables of their studies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from flows.app.evidence import CONTRADICTED, SHOWN, SMALLER
from flows.app.older_rows import read_rows
from flows.app.study import STUDIES, Study
from warehouse.schemas import Row

METHODS = {
    "scope": "SCOPE",
    "spell": "SPELL",
    "spice": "SPICE",
    "eapo": "EAPO",
    "mae": "MAE",
    "rzero": "R-Zero",
}
FOUND = ("paper reports", "number", "mean [95%]", "seeds", "verdict")
NOT_MEASURED = "not measured"
DECIDED = (SHOWN, CONTRADICTED, SMALLER)


def headlines(folder: Path) -> list[Row]:
    """One row per headline claim, by method, from the tables of studies in `folder`."""
    studies = sorted(map(Study.load, STUDIES), key=lambda study: _position(study.method))
    rows = []
    for study in studies:
        tables = read_rows(folder / f"{study.name}-claims.jsonl")
        row_of = {row["claim"]: row for row in tables if "claim" in row}
        for claim in study.claims:
            if not claim.headline:
                continue
            found = row_of.get(claim.says, {"number": claim.number, "verdict": NOT_MEASURED})
            rows.append(
                {
                    "method": METHODS.get(study.method, study.method),
                    "claim": claim.says,
                    "study": f"[{study.name}]({study.name}-claims.md)" if tables else study.name,
                    **{column: found.get(column, "–") for column in FOUND},
                }
            )
    return rows


def _position(method: str) -> int:
    """The place of a method in the table; methods that it does not list come last."""
    names = list(METHODS)
    if method in names:
        return names.index(method)
    return len(names)


def count_verdicts(rows: Sequence[Row]) -> str:
    """How many headline claims are decided, and how.

    >>> count_verdicts([{"verdict": "shown"}, {"verdict": "cannot tell"}])
    '1 of 2 headline claims are decided: 1 shown, 0 contradicted, 0 smaller than reported.'
    """
    count = Counter(row["verdict"] for row in rows)
    by_verdict = ", ".join(f"{count[verdict]} {verdict}" for verdict in DECIDED)
    num_decided = sum(count[verdict] for verdict in DECIDED)
    return f"{num_decided} of {len(rows)} headline claims are decided: {by_verdict}."
