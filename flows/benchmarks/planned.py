"""What a paper's evaluation costs and how its benchmarks are asked, computed from the entries
alone.

No item is read and no model is loaded. This is for `selfplay evaluate --dry-run` and for the tables
in PROTOCOLS.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flows.benchmarks import FOLDER, Benchmark, Protocol, find, names
from flows.benchmarks.averages import averages_of, notes_on
from flows.settings.workload import Lengths, PlannedConversations, PlannedRole

PAPERS = ("scope", "spell", "spell-100k", "spice", "eapo", "mae", "rzero")
SECOND = ("triviaqa-hub",)  # second entries for a benchmark that another entry, triviaqa, has
# what a plan assumes
SAID = 900  # tokens of a reply
THOUGHT = 4000  # the same for a reasoning model
ASKED = 250  # tokens of a prompt without a context
READ = 0.8  # share of the tokens that a protocol allows for a context
SEARCHES = 3  # searches per rollout, where it may search
RESULTS = 500  # tokens of one search's results
VERDICT = 250  # tokens that a judge writes
JUDGED = 600  # tokens of a judge's prompt without the answer


@dataclass(frozen=True)
class PlannedBenchmark:
    """One benchmark by one paper's protocol; `num_items` is None if it changes over time."""

    benchmark: Benchmark
    protocol: Protocol
    num_items: int | None

    @property
    def num_answers(self) -> int:
        """The number of answers to all items, with the protocol's number of samples per item; 0 if
        the number of items changes."""
        return (self.num_items or 0) * self.protocol.samples

    @property
    def num_verdicts(self) -> int:
        """The number of calls of the judge, if there is one, assuming that all answers and verdicts
        can be read."""
        if not self.protocol.judged:
            return 0
        return round(self.num_answers * self.verdicts_each)

    @property
    def judges_by(self) -> str:
        """The judge's prompt: the protocol's, or else the one that suits the items' columns."""
        columns = self.benchmark.columns
        if self.protocol.judge.prompt is not None:
            return self.protocol.judge.prompt
        if columns is not None and columns.against:
            return "pair"
        if columns is not None and columns.criteria:
            return "criterion"
        return "judge"

    @property
    def verdicts_each(self) -> float:
        """The number of verdicts per answer: one per criterion of a rubric, two for a
        comparison."""
        if self.judges_by in ("pair", "pair_graded"):
            return 2.0  # in both orders
        if self.judges_by == "criterion":
            return self.benchmark.num_criteria or 1.0
        return 1.0

    def conversations(self, *, thinks: bool) -> Iterator[PlannedConversations]:
        """Yield the policy's conversations, then the judge's, if the protocol has a judge.

        Lengths are assumed: a reply has `THOUGHT` tokens if the policy `thinks`, else `SAID`, and
        never more than the protocol allows.
        """
        protocol = self.protocol
        reply = float(min(protocol.response_tokens, THOUGHT if thinks else SAID))
        prompt = float(ASKED)
        if protocol.input_tokens:
            prompt += READ * protocol.input_tokens
        turns = 1.0
        if protocol.searches:
            turns += SEARCHES
        name = self.benchmark.name
        lengths = Lengths(prompt, reply / turns, turns, RESULTS if protocol.searches else 0.0)
        items = float(self.num_items or 0)
        yield PlannedRole(name, lengths).conversations(items, protocol.samples)
        if self.num_verdicts:
            judged = Lengths(JUDGED + reply, VERDICT)
            yield PlannedRole(f"judge of {name}", judged).conversations(float(self.num_verdicts))


def planned(paper: str, chosen: tuple[str, ...] = ()) -> list[PlannedBenchmark]:
    """The benchmarks of a paper at full size, those of its averages first; or the chosen ones.

    Raises ValueError for a paper or a benchmark without an entry.
    """
    wanted = chosen or members(paper)
    if not wanted:
        raise ValueError(f"no benchmark has a protocol of {paper}; papers: {', '.join(PAPERS)}")
    rows = []
    for name in wanted:
        benchmark = find(name)
        protocol = benchmark.of_paper(paper, paper)
        rows.append(PlannedBenchmark(benchmark, protocol, _num_items(benchmark, protocol)))
    return rows


def members(paper: str) -> tuple[str, ...]:
    """The benchmarks in a paper's averages, then others that have a protocol of the paper."""
    averages = averages_of(paper)
    of_averages = [
        member.partition("/")[0]
        for average in averages.values()
        for member in average.of
        if member not in averages
    ]
    others = [name for name in names() if paper in find(name).protocol and name not in SECOND]
    return tuple(dict.fromkeys([*of_averages, *others]))


def _num_items(benchmark: Benchmark, protocol: Protocol) -> int | None:
    """The number of items in a protocol: those of its kinds, but no more than it draws."""
    number = benchmark.num_items
    if protocol.kinds and benchmark.num_of_kind:
        number = sum(benchmark.num_of_kind.get(kind, 0) for kind in protocol.kinds)
    if number is None:
        return protocol.items
    return min(number, protocol.items or number)


# ---- in words ----


def asked_by(row: PlannedBenchmark) -> str:
    """In words: with which prompt a benchmark is asked, how often, and with which token budgets."""
    protocol = row.protocol
    if row.benchmark.columns is None:
        return f"lm-evaluation-harness, task {row.benchmark.harness}"
    parts = [f"prompt {protocol.prompt or row.benchmark.prompt}"]
    if protocol.samples > 1:
        parts.append(f"{protocol.samples} answers")
    temperature = f"temperature {protocol.temperature:g}"
    if protocol.reasoning_temperature is not None:
        temperature += f" ({protocol.reasoning_temperature:g} if it thinks)"
    parts.append(temperature)
    if protocol.top_p < 1:
        parts.append(f"top-p {protocol.top_p:g}")
    parts.append(f"{protocol.response_tokens:,} tokens")
    if protocol.input_tokens:
        parts.append(f"contexts of {protocol.input_tokens:,}")
    if protocol.longest_context:
        parts.append(f"none above {protocol.longest_context:,}")
    if protocol.searches:
        parts.append(f"{protocol.searches} searches")
    return ", ".join(parts)


def scored_by(row: PlannedBenchmark) -> str:
    """In words: by which rule a benchmark is scored, or by which judge and with how many verdicts
    per answer."""
    protocol = row.protocol
    if row.benchmark.columns is None:
        return "the harness"
    rule = f"rule {row.benchmark.scorer}"
    if not protocol.judged:
        return rule
    judge = f"judge, prompt {row.judges_by}"
    if row.verdicts_each != 1:
        judge += f", {row.verdicts_each:g} verdicts"
    if "judged" in protocol.metric and len(protocol.metric) > 1:
        return f"{rule}, or {judge}"
    return judge


def tables() -> str:
    """The text of PROTOCOLS.md: a table for each paper of how it evaluates and how our evaluation
    differs."""
    lines = [
        "# How each paper evaluates, and where ours differs",
        "",
        "Made from the entries: `python -m flows.benchmarks.planned`. An item count is that of",
        "the whole split, or of the paper's draw. Without a judge (`models.examiner`) answers are",
        "scored by rule, and published numbers are printed as not comparable; a benchmark that",
        "only a judge can score is refused.",
        "`selfplay evaluate --dry-run --paper PAPER` says what an evaluation of this size takes.",
        "",
        "In every row: the prompts of policy and judge are worded for this project, the judge is"
        " the model that you name, and",
        "searches are in the corpus that you name, exact or, in a large one, in an IVF index.",
    ]
    for paper in PAPERS:
        lines += [
            "",
            f"## {paper}",
            "",
            "| benchmark | items | asked | scored | ours differs |",
            "|---|---|---|---|---|",
        ]
        for row in planned(paper):
            items = "changes" if row.num_items is None else f"{row.num_items:,}"
            differs = "; ".join(row.protocol.differs) or "-"
            cells = (row.benchmark.name, items, asked_by(row), scored_by(row), differs)
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *(f"- {note[0].upper()}{note[1:]}." for note in notes_on(paper))]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables beside the entries, as PROTOCOLS.md."""
    import argparse

    parser = argparse.ArgumentParser(
        description="Write how each paper evaluates, and how we do, to PROTOCOLS.md."
    )
    parser.parse_args()
    (FOLDER / "PROTOCOLS.md").write_text(tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
