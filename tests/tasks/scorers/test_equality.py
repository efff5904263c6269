r"""Answers compared with references. Mathematical verdicts are Math-Verify's; the rest is worked
by hand."""

import pytest

from tasks.match import match
from tasks.scorers.equality import agree
from tests.support.comparisons import begin_a_trap, limits_of_traps
from tests.support.rows import publish, row

HOLDS = True
NOT = False
TABLE = [
    ("Integer", "12", "12", HOLDS),
    ("Integer", "12", "1200", NOT),
    ("Integer", "12", "12.0", HOLDS),
    ("Integer", "12", "12.5", NOT),
    ("Integer", "125", "1.25", NOT),
    ("Integer", "7", "-7", NOT),
    ("Integer", "1000", "1,000", HOLDS),
    ("Integer", "1,234,567", "1234567", HOLDS),
    ("Integer", "7", "$7", HOLDS),
    ("Integer", "7", r"7\text{ km}", HOLDS),
    ("Integer", "7", "7 apples", HOLDS),
    ("Integer", "3", "x = 3", HOLDS),
    ("Integer", "100", "10^2", HOLDS),
    ("Integer", "12", "12 or 13", NOT),
    ("Integer", "12", "12, 13", NOT),
    ("Integer", "12", "twelve", NOT),
    ("Integer", "14", "x + 14", NOT),
    ("Integer", "5", "1/0", NOT),
    ("Integer", "7", "+07", HOLDS),
    ("Float", "5", ".5", NOT),
    ("Float", "0.5", ".5", HOLDS),
    ("Float", "0.5", "1/2", HOLDS),
    ("Float", "0.5", r"\frac12", HOLDS),
    ("Float", "0.5", r"50\%", HOLDS),
    ("Float", "3.14", "3.14159", NOT),
    ("Float", "1e3", "1000", HOLDS),
    ("Float", "0.001", r"10^{-3}", HOLDS),
    ("Expression", "x + 14", "14 + x", HOLDS),
    ("Expression", "x + 14", "14", NOT),
    ("Expression", "x + 14", "x + 15", NOT),
    ("Expression", "x", "y", NOT),
    ("Expression", "x**2 + 1", "1 + x^2", HOLDS),
    ("Expression", "2*x**3", "2*x**2", NOT),
    ("Expression", "n(n+1)/2", r"\frac{n^2 + n}{2}", HOLDS),
    ("Expression", "(x + 1)^2", "x^2 + 2x + 1", HOLDS),
    ("Expression", "sqrt(2)", r"\sqrt{2}", HOLDS),
    ("Expression", "O(n log n)", "O(n log n)", HOLDS),
    ("Expression", "hello", "olleh", NOT),  # read as products of letters they would be equal
    ("String", "Paris", "paris", HOLDS),
    ("String", "Paris", r"\text{Paris}.", HOLDS),
    ("String", "gradient descent", " Gradient  Descent ", HOLDS),
    ("String", "Paris", "Paris, France", NOT),
    ("String", "no", "I do not know", NOT),
    ("String", "1.25", "125", NOT),
    ("String", "7", "07", NOT),
    ("String", "'TCP/IP'", "tcp/ip", HOLDS),
    ("Boolean", "true", "True", HOLDS),
    ("Boolean", "true", "yes", NOT),
    ("List", "apple, banana", "[apple,banana]", HOLDS),
    ("List", "apple, banana", "banana, apple", NOT),
    (None, "???", "???", HOLDS),  # equal as texts, though not mathematics
    (None, "to be", "not to be", NOT),
    (None, "12", "12.0", HOLDS),
    ("multiple_choice", "B", "B", HOLDS),
    ("multiple_choice", "B", "(b)", HOLDS),
    ("multiple_choice", "B", "B) 149,600,000 km", HOLDS),
    ("multiple_choice", "B", r"\text{B}", HOLDS),
    ("multiple_choice", "B", "A", NOT),
    ("multiple_choice", "B", "12 km", NOT),
    ("multiple_choice", "A", "A cat", NOT),
    ("multiple_choice", "B", "A or B", NOT),
]
TRAPS = ("9^{9^{9^{9^{9}}}}", "100000000!", "(" * 3000 + "1" + ")" * 3000)


@pytest.mark.parametrize(("answer_type", "reference", "answer", "holds"), TABLE)
def test_an_answer_is_compared_as_its_type_demands(answer_type, reference, answer, holds):
    assert agree({"answer_type": answer_type, "reference": reference}, answer) is holds


def agree_or_tell(task, answer):
    if answer in TRAPS:
        begin_a_trap()
    return agree(task, answer)


def test_what_would_run_for_ever_or_fill_the_memory_is_killed_and_counted(place, monkeypatch):
    """Math-Verify does not finish any of these within a minute."""
    limits_of_traps(monkeypatch)
    tasks = publish(place, "tasks", row("tasks", task_id="t", answer_type="Integer", reference="7"))
    given = ["7", *TRAPS, "8"]
    answers = publish(
        place,
        "answers",
        *(row("answers", rollout_id=f"a{i}", task_id="t", answer=a) for i, a in enumerate(given)),
    )
    table = match(place, answers, tasks, compare=agree_or_tell, time_limit_s=1.0)
    found = [(r["matched"], r["reason"]) for r in table.rows()]
    assert (found[0], found[-1]) == ((True, None), (False, None))
    stopped = {"timed out", "out of memory", "nested too deeply", "the comparison crashed"}
    assert all(matched is None and reason in stopped for matched, reason in found[1:-1])
    assert sum(table.recipe["counts"].values()) == len(TRAPS)


def test_a_reference_without_mathematics_cannot_be_compared_with(place):
    tasks = publish(
        place, "tasks", row("tasks", task_id="t", answer_type="Expression", reference="???")
    )
    answers = publish(place, "answers", row("answers", rollout_id="a", task_id="t", answer="7"))
    (found,) = match(place, answers, tasks, compare=agree).rows()
    assert (found["matched"], found["reason"]) == (
        None,
        "Math-Verify finds no mathematics in the reference",
    )


@pytest.mark.parametrize("label", ["B", "(B)", r"\text{B}", "12 km"])
def test_a_voted_label_of_a_choice_may_be_written_in_any_way(label):
    task = {"answer_type": "multiple_choice", "options": ["3 km", "12 km"], "reference": label}
    assert [agree(task, answer) for answer in ("B", "(B)", "12 km", "A")] == [True] * 3 + [False]
