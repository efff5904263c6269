"""How many replies the readers misread, by reader: `python -m tests.bench.replies [FILE...]`.

Files are named `<method>_*.jsonl` and hold cases as described in `tests.support.replies`; the
default is the project's.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from tests.support.replies import EITHER, REPLIES, Case, Outcome, cases, play


def attempt(case: Case) -> Outcome:
    """Like `play`, but a crash counts as misread."""
    try:
        return play(case)
    except Exception as problem:
        return Outcome(
            case, f"crash: {type(problem).__name__}", case.get("expected") == EITHER, False
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", help="files of replies")
    paths = parser.parse_args().paths or sorted(REPLIES.glob("*.jsonl"))
    by_reader: dict[str, list[Outcome]] = defaultdict(list)
    for case in cases(paths):
        by_reader[f"{case['method']} {case['reader']}"].append(attempt(case))
    print(f"{'reader':24}{'replies':>9}{'misread':>9}{'accepted wrongly':>18}")
    for name, outcomes in [
        *by_reader.items(),
        ("all", [o for group in by_reader.values() for o in group]),
    ]:
        wrong = [outcome for outcome in outcomes if not outcome.right]
        print(
            f"{name:24}{len(outcomes):9}{len(wrong):9}{sum(o.accepted_wrongly for o in wrong):18}"
        )
    for outcome in (o for group in by_reader.values() for o in group if not o.right):
        shown = {k: v for k, v in outcome.case.items() if k not in ("method", "reader")}
        print(
            f"\n{outcome.case['method']} {outcome.case['reader']}: read {outcome.read!r}\n  {shown}"
        )


if __name__ == "__main__":
    main()
