"""The address of a table as a value: `run/iter-003/phase/step-007/table.label`.

`parse` and `str` are inverses. The views of `warehouse.query` parse the same parts in SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# one whole folder name; `runs/runs` would mislead the views
RUN_NAME = re.compile(r"(?!runs$)[^\W_][\w.+=@-]{0,99}")
EVALUATION = "evaluation"  # the phase that scores held-out tasks
MOST_BYTES = 100  # the names of lock files contain a run's name and are limited to 255 bytes
NUMBER = r"(\d{3}|[1-9]\d{3,})"  # as `{:03d}` writes it
SHAPE = re.compile(
    rf"([^/]+)(?:/iter-{NUMBER})?(?:/([^/]+))??(?:/step-{NUMBER})?/([a-z]\w*)(?:\.([^/]+))?"
)


def check_run_name(name: str) -> str:
    """Return the name if it is a valid name of a run.

    A path would lead out of the store; "." or "" would mean all runs.

    Raises ValueError, stating what is allowed, for an invalid name.

    >>> check_run_name("qwen3-8b.seed=1")
    'qwen3-8b.seed=1'
    """
    if not RUN_NAME.fullmatch(name) or len(name.encode()) > MOST_BYTES:
        raise ValueError(
            f"a run cannot be called {name!r}: use at most {MOST_BYTES} letters (fewer if they take"
            " several bytes), digits and any of . _ - + = @, starting with a letter or digit"
        )
    return name


def no_run(name: str) -> ValueError:
    """The error to raise if the store has no run of this name."""
    return ValueError(f"there is no run {name!r}; `selfplay status` lists the runs")


def by_number(name: str) -> tuple[list[str | int], str]:
    """A sort key that orders the numbers within names by value.

    >>> sorted(["step-1000", "step-999", "report"], key=by_number)
    ['report', 'step-999', 'step-1000']
    """
    parts = re.split(r"(\d+)", name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


@dataclass(frozen=True)
class Address:
    """A table of a run, or a place for tables if `table` is None. Absent parts are None.

    >>> Address.parse("r/iter-003/solver/step-007/rollouts.grade").step
    7
    >>> str(Address("r", iteration=3, table="report"))
    'r/iter-003/report'
    """

    run: str
    iteration: int | None = None
    phase: str | None = None
    step: int | None = None
    table: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for parts that `parse` would read differently."""
        text = str(self)
        if not self.table:
            text = f"{self}/table"
        read = _read(text)
        is_place = read[:4] == (self.run, self.iteration, self.phase, self.step)
        if not is_place or (self.table and read[5] != self.label):
            raise ValueError(
                f"these names do not form an address: {text!r} would be read as {read}"
            )

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse the address of a table. Raises ValueError for any other text."""
        return cls(*_read(text))

    @property
    def name(self) -> str:
        """Table and label: `rollouts.grade`."""
        if self.label:
            return f"{self.table}.{self.label}"
        return self.table or ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the folders, from the run down."""
        iteration = None if self.iteration is None else f"iter-{self.iteration:03d}"
        step = None if self.step is None else f"step-{self.step:03d}"
        return tuple(filter(None, (self.run, iteration, self.phase, step, self.name)))

    @property
    def shown(self) -> str:
        """A short name for display within a run, place first.

        >>> Address("mine", 3, "solver", 7, "rollouts", "grade").shown
        '3 solver 7 rollouts.grade'
        >>> Address("mine", table="documents").shown
        'documents'
        """
        return " ".join(
            str(part)
            for part in (self.iteration, self.phase, self.step, self.name)
            if part is not None
        )

    def __str__(self) -> str:
        return "/".join(self.parts)

    def __lt__(self, other: Address) -> bool:
        """The order in which a store lists its tables: step 999 before step 1000."""
        return [*map(by_number, self.parts)] < [*map(by_number, other.parts)]


def _read(text: str) -> tuple[str, int | None, str | None, int | None, str, str | None]:
    match = SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not the address of a table: run/iter-003/phase/step-007/table.label"
        )
    run, iteration, phase, step, table, label = match.groups()
    return run, _number(iteration), phase, _number(step), table, label


def _number(digits: str | None) -> int | None:
    if digits is None:
        return None
    return int(digits)
