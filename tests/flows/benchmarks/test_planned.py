"""What the evaluation of a paper takes, at its size, and the tables that say how it is asked."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.benchmarks import FOLDER, find
from flows.benchmarks.averages import averages_of
from flows.benchmarks.planned import PAPERS, members, planned, tables

UNCOUNTED = {"livebench-reasoning"}  # its questions are replaced every few months


def output(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli.main, ["evaluate", "--dry-run", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def of(paper: str) -> dict[str, tuple[int, int]]:
    """Answers and verdicts by benchmark."""
    return {row.benchmark.name: (row.num_answers, row.num_verdicts) for row in planned(paper)}


def test_spells_long_contexts_are_asked_eight_times_and_judged_but_for_the_choices():
    """200 + 200 + 200 + 800 + 824 items with a judge, 503 by their letter, 8 answers each."""
    rows = of("spell")
    judged = [f"longbench-{name}" for name in ("hotpotqa", "2wiki", "musique")]
    judged += ["docmath", "frames"]
    assert sum(rows[name][0] for name in judged) == 8 * 2224 == 17_792
    assert sum(verdicts for _, verdicts in rows.values()) == 17_792
    assert rows["longbench-v2"] == (8 * 503, 0)


def test_scope_draws_a_thousand_items_and_judges_criterion_by_criterion():
    """Fifteen benchmarks, at most 1,000 items: seven of short answers have 5,125; a comparison
    takes two verdicts, and a rubric one for each of its criteria."""
    rows = of("scope")
    short = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")
    assert sum(rows[name][0] for name in short) == 4 * 1000 + 2 * 500 + 125
    assert rows["arena-hard-cw"] == (250, 500)
    assert rows["healthbench"] == (1000, 9700)
    assert rows["deepresearch-bench"] == (100, 100)
    assert max(answers for answers, _ in rows.values()) == 1000


def test_eapo_asks_three_kinds_of_longbench_v2_and_grades_each_answer():
    """175 + 125 + 33 of the 503; with 111 + 254 of SEAL and three times 200."""
    rows = of("eapo")
    assert rows["longbench-v2"] == (333, 333)
    assert sum(answers for answers, _ in rows.values()) == 111 + 254 + 600 + 333


def test_spices_aime_is_asked_32_times():
    rows = of("spice")
    assert rows["aime24"] == rows["aime25"] == (32 * 30, 32 * 30)
    assert rows["supergpqa"] == (26_529, 0)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_papers_averages_are_over_benchmarks_that_have_its_protocol(paper: str) -> None:
    averages = averages_of(paper)
    parts = {member for average in averages.values() for member in average.of} - set(averages)
    assert {part.partition("/")[0] for part in parts} <= set(members(paper))
    for name in members(paper):
        assert paper in find(name).protocol, f"{name} is asked by another paper's protocol"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_evaluation_is_planned_at_the_papers_size(paper: str) -> None:
    uncounted = {row.benchmark.name for row in planned(paper) if row.num_items is None}
    assert uncounted <= UNCOUNTED
    said = output("--paper", paper)
    assert f"computed plan of the evaluation of {paper}: nothing is read or run" in said
    for row in planned(paper):
        for difference in row.protocol.differs:
            assert difference in said


def test_a_profile_gives_the_paper_and_the_hours():
    said = output("--profile", "spell-iteration/qwen2.5-7b", "--benchmark", "longbench-v2")
    assert "the evaluation of spell" in said and "hours" in said
    assert "4,024" in said
    thinking = output("--profile", "spell-iteration/qwen3-30b-a3b-thinking", "--gpu", "h200-141")
    assert "replies of thinking models" in thinking


def test_a_group_of_27_tasks_is_planned_with_as_many_items_of_each():
    said = output("--paper", "mae", "--benchmark", "bbh", "--items", "200")
    (line,) = [line for line in said.splitlines() if "bbh " in line and "216" in line]
    assert line.count("216") == 2  # items and answers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--dry-run needs --paper PAPER, or --profile FLOW/PROFILE of its method"),
        (("--paper", "other"), "no benchmark has a protocol of other"),
        (("--paper", "spell", "--benchmark", "nq"), "nq has no protocol of spell"),
        (
            ("--profile", "spell-iteration/qwen2.5-7b", "--gpu", "abacus"),
            "no GPU 'abacus'; there are",
        ),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: tuple[str, ...], message: str) -> None:
    assert message in output(*arguments, code=1)


def test_the_tables_of_protocols_are_those_of_the_entries():
    """`python -m flows.benchmarks.planned` writes them."""
    assert tables() == (FOLDER / "PROTOCOLS.md").read_text(encoding="utf-8")
