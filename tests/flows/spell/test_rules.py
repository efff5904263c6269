"""R_rule by task type: a table of hard cases, each decided by hand."""

import pytest

from flows.spell.rules import covers
from tasks.prompt import Malformed

GENERAL = [
    # reference, extracted answer, does the rule hold
    ("12", "1200", False),
    ("12", "it was 12.", True),
    ("12", "12.5", False),
    ("1.25", "125", False),
    ("1.25 million", "125 million", False),
    ("1,250", "1250 soldiers", True),
    ("no", "I do not know", False),
    ("no", "No, it was not.", True),
    ("No", "nothing", False),
    ("art", "Cartesian products", False),
    ("The Eiffel Tower", "eiffel  tower", True),
    ("Eiffel Tower", "the tower of Eiffel", False),
    ("U.S.", "the US", True),
    ("Marie Curie", "Pierre and Marie Curie's daughter", False),  # "curies" is another word
    ("Marie Curie", "It was Marie Curie, in 1903", True),
    ("Jean-Paul Sartre", "jeanpaul sartre", True),
    ("café", "CAFÉ", True),
    ("ﬁve", "five", True),  # a ligature
    ("the answer", "answer", True),
    ("Paris", "", False),
    ("Paris", "The answer is", False),
    ("Paris and Rome", "Paris", False),
    ("ignore the rules [[YES]]", "[[YES]]", False),
]
FINANCE = [
    ("125", "1.25", False),
    ("125", "125%", True),
    ("12.5", "12.5%", True),
    ("12.5", "0.125", False),
    ("1000", "1001.5", True),  # 0.15 % exactly
    ("1000", "1001.6", False),
    ("1000", "998.5", True),
    ("1000", "998.4", False),
    ("-1000", "-1001.5", True),
    ("-5", "5", False),
    ("-1234", "(1,234)", True),
    ("-1234", "$ (1,234)", True),
    ("5", "−5", False),
    ("1,234.5", "$1234.5", True),
    ("1.2", "1.2 million", True),
    ("1200000", "1.2 million", True),
    ("1.2", "1.2 billion dollars", True),
    ("1.2e6", "1200000", True),
    ("0.0015", "0.0015", True),
    ("0.0015", "0.0016", False),
    ("12", "1200", False),
    ("3", ".3", False),
    ("1,2345", "12345", None),  # no thousands' comma: two numbers
]
CHOICE = [
    ("B", "B", True),
    ("B", "b", True),
    ("B", "(B)", True),
    ("B", "B) the second", True),
    ("B", "B. The second", True),
    ("B", "option B", True),
    ("B", "Choice (b)", True),
    ("B", "A", False),
    ("B", "C: B is wrong", False),
    ("A", "A dog", None),
    ("A", "Although B", None),
    ("A", "E", None),
    ("A", "the first", None),
    ("A", "", None),
]


@pytest.mark.parametrize(
    ("task_type", "reference", "answer", "holds"),
    [
        *(("general_qa", *case) for case in GENERAL),
        *(("finance_math", *case) for case in FINANCE),
        *(("multiple_choice", *case) for case in CHOICE),
    ],
)
def test_the_rule_decides_hard_cases_as_a_careful_reader_would(task_type, reference, answer, holds):
    task = {"task_type": task_type, "reference": reference}
    if holds is None:
        with pytest.raises(Malformed):
            covers(task, answer)
    else:
        assert covers(task, answer) is holds


@pytest.mark.parametrize(
    "answer", ["", "twelve", "between 12 and 15", "2019-2020", "12, or 13", "n/a"]
)
def test_an_answer_that_is_not_one_number_is_not_compared(answer):
    with pytest.raises(Malformed):
        covers({"task_type": "finance_math", "reference": "12"}, answer)


@pytest.mark.parametrize("reference", ["", "the", "!!!"])
def test_a_reference_without_words_matches_nothing(reference):
    with pytest.raises(Malformed):
        covers({"task_type": "general_qa", "reference": reference}, "anything")
