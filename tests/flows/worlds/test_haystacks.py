"""The micro-world of haystacks: the steps of a question, and the marks that quotes deserve."""

from flows.worlds.haystacks import haystacks
from flows.worlds.tables import haystack_mark


def test_a_haystack_holds_the_sentences_that_answer_its_question():
    for one in haystacks(7, 60):
        assert all(sentence in one.context for sentence in one.evidence)
        assert (
            len(one.evidence) == one.hops + 1 and haystack_mark(one.question, one.evidence) == 1.0
        )


def test_quotes_deserve_the_share_of_the_steps_that_they_hold_from_the_first_on():
    """One of three steps gives 1 + 4/3 = 2.3, so 2 of 5; the second step without the first is
    worth nothing."""
    question = "what is the craft of the ruler of the ally of Ba ?"
    first = "Ba has ally Ce ."
    second = "Ce has ruler Du ."
    third = "Du has craft mito ."
    assert haystack_mark(question, [first]) == 0.25
    assert haystack_mark(question, [first, second]) == 0.75
    assert haystack_mark(question, [second, third]) == 0.0
    assert haystack_mark("why ?", [first]) is None
