"""The readers of tasks/readers one by one: what each takes, and what it refuses."""

import pytest

from tasks.readers.boxed import last_box
from tasks.readers.formulas import same_formula
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import is_finite, number_in, same_number
from tasks.readers.objects import MAX_DEPTH, Unescaped, last_object, objects
from tasks.readers.stated import stated_answer
from tasks.readers.tags import elements, last_element
from tasks.readers.thoughts import is_thinking, spoken
from tasks.readers.verdicts import bracketed, marked
from tasks.readers.words import holds

VOTES = {"YES": 1, "NO": 0}


def read(reader, *given):
    """What is read, or why it is not."""
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


@pytest.mark.parametrize("tail", ["which is a trick", "is what it says, but", '" to fool me, and so'])
def test_a_judge_cut_off_while_it_quotes_a_score_gives_none(tail):
    assert read(marked, f"<think>It ends in </think><score>1</score> {tail}") == (
        "malformed: cut off in a sentence about the score"
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
        ('{"b": 1, "c": {"a": 2}, "d": ', {"a": 2}),  # what is whole in what was cut off
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
    assert {key: isinstance(value, Unescaped) for key, value in found.items()} == {"a": True, "b": False, "c": False}


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


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        *(
            (text, "B")
            for text in ("B", "b", "(B)", "[b]", "B.", "B) 12 km", "B)12 km", "b: 12", "B, melted", "B - 12")
        ),
        *(
            (text, "B")
            for text in ("**B**", "$B$", r"\text{B}", r"\textbf{(B)}\ 12", r"\(\boxed{B}\)", "'B'", "Option B")
        ),
        *(
            (text, "B")
            for text in ("the answer is B", "B because A is cold", "B (12 km)", "B, not A", "(B", "B: A is wrong")
        ),
        ("A is right", "A"),
        ("a) the first", "A"),
        ("A, a dog", "A"),
        *(
            (text, None)
            for text in ("", "E", "AB", "A cat", "a cat", "a", "A's", "Although", "D-Day", "C#", "B.C.")[:4]
        ),
        *((text, None) for text in ("a cat", "A's", "Although", "D-Day", "C#", "B.C.", "12", "not B", "both A and B")),
        *(
            (text, None)
            for text in ("A or B", "B, C", "B/C", "(B) or (C)", "b or c", "B & C", "B (or C)", "A, B and C")
        ),
        ("x" * 100_000, None),
    ],
)
def test_a_letter_is_read_in_every_style_and_never_guessed(text, letter):
    assert letter_of(text) == letter


def test_the_text_of_exactly_one_option_stands_for_its_letter():
    options = ["12 km", "12 Miles", "14 km", "A"]
    assert [letter_of(text, options) for text in ("14 km", r"\text{12 miles}.", "12", "A")] == ["C", "B", None, "A"]
    assert letter_of("red", ["red", "Red", "blue", "grey"]) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-12.5", -12.5),
        ("−12", -12),
        ("(12)", -12),
        ("$(1,234.5)", -1234.5),
        ("-$5", -5),
        ("$-5", -5),
        ("minus 5", -5),
        ("1,234,567", 1234567),
        ("1{,}234", 1234),
        ("1\u202f234", 1234),
        ("1 234 567", 1234567),
        ("12%", 12),
        ("US$12.5m", 12.5e6),
        ("EUR 3 bn", 3e9),
        ("3 crore", 3e7),
        ("3.2x", 3.2),
        ("12 tonnes of CO2e", 12),
        ("12 m2", 12e6),  # "m" is read as million; alone it may also be left out
        ("1.5 × 10^6", 1.5e6),
        (r"1.5 \times 10^{-3}", 1.5e-3),
        ("10^6", 1e6),
        ("2/3", 2 / 3),
        (r"\frac{1}{4}", 0.25),
        ("4 + 8 = 12", 12),
        ("12 in 2019", 12),
        ("12% for Q3 2019", 12),
        ("12 as of December 31, 2019", 12),
        ("2019", 2019),
        ("12.5% (0.125)", 12.5),
        ("12.5 million (12,500,000)", 12.5e6),
        ("12. That is 3 times 4.", 12),
        *((text, "several numbers") for text in ("12 or 13", "12, 13", "3-4", "2019-2020", "1,2345", "12 and 2019-20")),
        *((text, "no number") for text in ("", "twelve", "CO2", "1.2.3", "2^3", "NUMBER", "nan")),
        *((text, "the number is not finite") for text in ("1e999", "9" * 400, "10^999", "1/0", "-1e999")),
        ("1" * 3_000, "too long for a number"),
    ],
)
def test_the_one_number_of_a_text(text, value):
    got = read(lambda given: number_in(given).scaled, text)
    assert got == (f"malformed: {value}" if isinstance(value, str) else pytest.approx(value, rel=1e-12))


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("5 million", "5 billion", False),
        ("5 million", "5,000 thousand", True),
        ("5", "5 million", True),
        ("5 million", "5", True),
        ("5%", "5 million", False),
        ("5%", "5", True),
        ("1000", "1001.5", True),
        ("1000", "1001.6", False),
        ("-5", "5", False),
        ("0", "0.0", True),
    ],
)
def test_a_scale_counts_where_both_state_one(reference, answer, same):
    assert same_number(reference, answer, 0.0015) is same


def test_a_long_row_of_digits_with_something_behind_is_read_in_one_pass():
    """One that tried every way to split the digits took half a minute."""
    assert is_finite("1" * 50_000 + "f(" * 25_000)
    assert not is_finite("1" * 100_000)


@pytest.mark.parametrize("reference", ["1e999", "nan", "inf", "9" * 400, "-1e999"])
@pytest.mark.parametrize("answer", ["5", "1e999", "nan", "9" * 400, "0"])
def test_what_is_not_finite_equals_nothing(reference, answer):
    for compare in (lambda a, b: same_number(a, b, 0.0015), same_formula):
        assert read(compare, reference, answer) is not True
        assert read(compare, "5", reference) is not True


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The answer is 12.", "12"),
        ("**The answer is:** (B)", "B"),
        ("The right answer is B.", "B"),
        ("Answer: 12", "12"),
        ("Final Answer: *12*", "12"),
        ("The answer to the question is 12.", "12"),
        ("The answer is:\n\n$$\n12\n$$", "12"),
        ("The answer is 12.\n\nThe answer is not 13.", "12"),
        ("The answer is 12. The answer is 13.", "13"),
        ("The answer is NUMBER.", "malformed: no answer is stated"),
        ("The answer is 12.\n(In the form: The answer is NUMBER.)", "12"),
        ("So \\boxed{12}", "12"),
        ("The answer is ", "malformed: the stated answer is empty"),
        ("I think so.", "malformed: no answer is stated"),
        ("<think>The answer is 12.</think>", "malformed: no answer is stated"),
        ("The answer is (1,234).", "(1,234)"),
        ("The answer is 12.<|im_end|>", "12"),
    ],
)
def test_the_last_statement_of_an_answer_is_read(reply, answer):
    assert read(stated_answer, reply, ("NUMBER",)) == answer


@pytest.mark.parametrize(
    ("reference", "answer", "found"),
    [
        ("$5", "5", True),
        ("Vitamin A", "Vitamin C", False),
        ("Vitamin A", "vitamin a", True),
        ("A dog", "dog", True),
        ("-5", "5", False),
        ("5", "−5", False),
        ("3-5", "3 5", True),
        ("C#", "C", False),
        ("3/4", "34", False),
        ("30 percent", "30%", True),
        ("twenty-one", "twenty one", True),
        ("Jean-Paul", "JeanPaul", True),
        ("O'Brien", "O’Brien", True),
    ],
)
def test_words_that_mean_the_same_are_found_and_no_others(reference, answer, found):
    assert holds(reference, answer) is found


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("2*pi*r", r"2\pi r", True),
        ("rho*g*h", r"\rho g h", True),  # g and h are no grams and hours
        ("2*g", "2", False),
        ("m*v", "mV", False),
        ("delta", r"\Delta", False),
        ("I^2*R", "I^2 R", True),  # a current is not the imaginary unit
        ("I^2*R", "IR", False),
        ("F*d*cos(theta)", r"F d \cos\theta", True),
        ("v_max", r"v_{\text{max}}", True),
        ("epsilon0", r"\varepsilon_0", True),
        ("(-b + sqrt(b^2 - 4*a*c))/(2*a)", r"\frac{-b+\sqrt{b^2-4ac}}{2a}", True),
        ("8", r"\$8", True),
        ("1200", r"\$1{,}200.00", True),
        ("5", "5.000000000000002", True),
        ("1e-7", "2e-7", False),
        ("8", r"8 \text{ or } 9", False),
        ("hello", "olleh", False),
    ],
)
def test_formulas_are_compared_in_one_notation(reference, answer, same):
    assert same_formula(reference, answer) is same
