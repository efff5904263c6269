"""The readers in tasks/readers that locate content in a reply: thoughts, tags, verdicts, JSON,
boxes."""

import pytest

from tasks.readers.boxed import last_box
from tasks.readers.malformed import Malformed
from tasks.readers.objects import MAX_DEPTH, Unescaped, last_object, objects
from tasks.readers.tags import elements, last_element
from tasks.readers.thoughts import is_thinking, spoken
from tasks.readers.verdicts import bracketed, marked

VOTES = {"YES": 1, "NO": 0}


def read(reader, *given):
    """What is read, or why the reply is malformed."""
    try:
        return reader(*given)
    except Malformed as problem:
        return f"malformed: {problem}"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("a", "a"),
        ("<think>a</think>b", "b"),
        ("a<think>b</think>c", "ac"),
        ("a</think>b", "b"),
        ("a<think>b", "a"),
        ("<THINKING>a</Thinking>b", "b"),
        ("<think>a <think>b</think>c</think>d", "d"),
        ("<think>a</think>b<think>c</think>d<think>e", "bd"),
    ],
)
def test_what_is_thought_is_not_said(reply, said):
    assert spoken(reply) == said
    assert is_thinking(reply) is (reply[-1] != said[-1])


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<a>x</a>", "x"),
        ('<A lang="en">x</A >', "x"),
        ('<A lang="en">x</A>', "x"),
        ("<a>x</a><a>y</a>", "y"),
        ("<a>x</a><a> </a>", "malformed: empty a element"),
        ("<a>x", "malformed: no a element"),
        ("<ab>x</ab>", "malformed: no a element"),
        ("between <a> and </a>", "malformed: no a element"),
        ("<a>x</a> between <a> and </a>", "x"),
        ("<a>x <a>y</a> z</a>", "x <a>y</a> z"),
        ("<a>x <a>y</a>", "y"),
        ("<a>use the <a> tag</a>", "use the <a> tag"),
        ("<a>x <think>y</think> z</a>", "x  z"),
        ("<a>x <think> y</a>", "x <think> y"),
        ("<think>t</think><a>x </think> y</a>", "x </think> y"),
        ("I may say <a>x</a> or <a> so</think> no", "malformed: no a element"),
        ("<a>draft</a></think><a>x</a>", "x"),
        ("<think>so <a>x</a>", "x"),
        ("<think>so <a>x</a>\n```<|im_end|>", "x"),
        ("<think>so <a>x</a> and", "malformed: no a element"),
        ("<a>x</a><think>so <a>y</a>", "x"),
    ],
)
def test_the_last_element_that_is_said_is_read(reply, text):
    assert read(last_element, reply, "a") == text


def test_elements_know_their_attributes_and_places():
    first, second = elements('so <a id="1">x</a> and <a>y</a>', "a")
    assert (first.text, first.attributes, first.start, first.end) == ("x", 'id="1"', 3, 18)
    assert (second.text, second.attributes) == ("y", "")


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("{1} {0}", 0),
        ("{0}. Wait, it does. {1}", 1),
        ("{1} or {0}", "malformed: no verdict is decided on"),
        ("{1}/{0}", "malformed: no verdict is decided on"),
        ("{1} or {0}? It names the year. {1}", 1),
        ("{1}, not {0}", 1),
        ("not {0}", "malformed: no verdict is decided on"),
        ("{1} if it is met, {0} otherwise", "malformed: no verdict is decided on"),
        ("If it is met I write {1}, otherwise {0}.", "malformed: no verdict is decided on"),
        ("If it is met: {1}. If not: {0}. It is not, so {0}", 0),
        ("{0} Had the year been there, {1}", 0),
        ("{0}. If the year were there it would be {1}.", 0),
        ("{1} at first; if we look at the units they differ, so {0}", 0),
        ("If rounding counts they agree: {1}", 1),
        ("so {1}. The other case is {0} if the year is missing", 1),
    ],
)
def test_a_verdict_that_is_named_is_not_yet_given(said, verdict):
    marks = ("<score>0</score>", "<score>1</score>")
    brackets = ("[[NO]]", "[[YES]]")
    assert read(marked, said.format(*marks)) == verdict
    assert read(bracketed, said.format(*brackets), VOTES) == verdict


@pytest.mark.parametrize(
    "tail", ["which is a trick", "is what it says, but", '" to fool me, and so']
)
def test_a_judge_cut_off_while_it_quotes_a_score_gives_none(tail):
    assert (
        read(marked, f"<think>It ends in </think><score>1</score> {tail}")
        == "malformed: cut off in a sentence about the score"
    )


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": null,},}', {"a": [1, 2], "b": {"c": None}}),
        ('{"a": "x,]"}', {"a": "x,]"}),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{"a": "\\u00e9 \\ud83d\\ude00"}', {"a": "é 😀"}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),  # half a surrogate pair cannot be stored
        ('{"a": "\\\\frac12"}', {"a": "\\frac12"}),
        ('{"a": "\\frac12 \\nu \\theta \\rho"}', {"a": "\\frac12 \\nu \\theta \\rho"}),
        ('{"a": "one\\ntwo\\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"a": "\\$8, 5\\%"}', {"a": "$8, 5%"}),
        ('say "{" {x} {"a": 1} }', {"a": 1}),
        ('{"a": 1} {"b": 2}', {"a": 1}),
        ('{"a": 1} {"a": 2}', {"a": 2}),
        ('{"b": 1} {"b": 2}', {"b": 2}),
        ('{"b": {"a": 1}}', {"b": {"a": 1}}),
        ('{"b": 1, "c": {"a": 2}, "d": ', {"a": 2}),  # the complete part of a truncated reply
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('<think>{"a": 1}</think>{"a": 2}', {"a": 2}),
        ('{"a": 1.5e3}', {"a": 1500.0}),
        *(
            (broken, "malformed: no JSON object")
            for broken in (
                "",
                "[1]",
                '{"a": 1',
                '{"a" 1}',
                '{"a": 1 "b": 2}',
                "{'a': 1}",
                "{a: 1}",
                '{"a": True}',
                '{"a": NaN}',
                '{"a": 1e999}',
                '{"a": ' + "9" * 5000 + "}",
                '{{"a": 1}}',
                '{"a": 1, , }',
                '{"a": tru}',
                '{"a": 01x}',
                '{"a": "x}',
            )
        ),
    ],
)
def test_the_last_object_with_the_keys_is_read_and_nothing_is_guessed(reply, found):
    assert read(last_object, reply, ["a"]) == found


def test_an_object_may_be_nested_but_not_without_end():
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    assert [start for start, _ in objects(nested(MAX_DEPTH))] == [0]
    assert 0 not in [start for start, _ in objects(nested(MAX_DEPTH + 1))]


def test_a_text_whose_backslashes_were_put_back_says_so():
    found = last_object('{"a": "\\alpha", "b": "\\\\alpha", "c": "x\\n"}')
    assert {key: isinstance(value, Unescaped) for key, value in found.items()} == {
        "a": True,
        "b": False,
        "c": False,
    }


def test_objects_come_in_their_order_and_without_those_within_them():
    assert objects('{"a": {"b": 1}} x {"c": "{"} {') == [(0, {"a": {"b": 1}}), (18, {"c": "{"})]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"\boxed{1}", "1"),
        (r"\boxed{ \{1\} } ", r"\{1\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\fbox{1}", "1"),
        (r"\boxed{1} and \boxed{...}", "1"),
        (r"\boxed{1} or \boxed{2}", "malformed: two boxes with or between them"),
        (r"$\boxed{1}$ or $\boxed{2}$", "malformed: two boxes with or between them"),
        (r"\boxed{1} or so. No: \boxed{2}", "2"),
        (r"\boxed 1", "malformed: no boxed answer"),
        (r"\boxed{\boxed{1}}", "1"),
    ],
)
def test_the_last_box_that_holds_something_is_read(reply, answer):
    assert read(last_box, reply) == answer


def test_a_box_that_is_denied_is_not_called_empty():
    assert read(last_box, r"It is not \boxed{5}.") == "malformed: the box is denied"
    assert read(last_box, r"Answer in \boxed{}.") == "malformed: empty box"


@pytest.mark.parametrize("denial", ["It does not", "They aren't", "so it cannot"])
def test_a_clause_that_ends_in_a_negation_does_not_deny_the_verdict_behind_it(denial):
    for between in (": ", "; ", " — ", ", "):
        assert read(bracketed, f"{denial}{between}[[NO]]", VOTES) == 0
    assert str(read(bracketed, f"{denial} [[YES]]", VOTES)).startswith("malformed")
