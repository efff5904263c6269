"""The readers in tasks/readers that interpret a text: letters, numbers, statements, words,
formulas."""

import pytest

from tasks.readers.formulas import same_formula
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import is_finite, number_in, same_number
from tasks.readers.stated import stated_answer
from tasks.readers.words import holds


def read(reader, *given):
    """What is read, or why the text is malformed."""
    try:
        return reader(*given)
    except Malformed as problem:
        return f"malformed: {problem}"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        *(
            (text, "B")
            for text in (
                "B",
                "b",
                "(B)",
                "[b]",
                "B.",
                "B) 12 km",
                "B)12 km",
                "b: 12",
                "B, melted",
                "B - 12",
            )
        ),
        *(
            (text, "B")
            for text in (
                "**B**",
                "$B$",
                r"\text{B}",
                r"\textbf{(B)}\ 12",
                r"\(\boxed{B}\)",
                "'B'",
                "Option B",
            )
        ),
        *(
            (text, "B")
            for text in (
                "the answer is B",
                "B because A is cold",
                "B (12 km)",
                "B, not A",
                "(B",
                "B: A is wrong",
            )
        ),
        ("A is right", "A"),
        ("a) the first", "A"),
        ("A, a dog", "A"),
        *(
            (text, None)
            for text in (
                "",
                "E",
                "AB",
                "A cat",
                "a cat",
                "a",
                "A's",
                "Although",
                "D-Day",
                "C#",
                "B.C.",
            )[:4]
        ),
        *(
            (text, None)
            for text in (
                "a cat",
                "A's",
                "Although",
                "D-Day",
                "C#",
                "B.C.",
                "12",
                "not B",
                "both A and B",
            )
        ),
        *(
            (text, None)
            for text in (
                "A or B",
                "B, C",
                "B/C",
                "(B) or (C)",
                "b or c",
                "B & C",
                "B (or C)",
                "A, B and C",
            )
        ),
        ("x" * 100_000, None),
    ],
)
def test_a_letter_is_read_in_every_style_and_never_guessed(text, letter):
    assert letter_of(text) == letter


def test_the_text_of_exactly_one_option_stands_for_its_letter():
    options = ["12 km", "12 Miles", "14 km", "A"]
    assert [letter_of(text, options) for text in ("14 km", r"\text{12 miles}.", "12", "A")] == [
        "C",
        "B",
        None,
        "A",
    ]
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
        ("12 m2", 12e6),  # "m" is read as million; a lone unit may also be ignored
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
        ("(5)", -5),  # accountants' minus
        ("$(1,234)", -1234),
        ("(-5.2%)", -5.2),  # it has a sign already
        ("(+5)", 5),
        ("12.5 million (12,500,000)", 12.5e6),
        ("12. That is 3 times 4.", 12),
        ("3.2 m\u0130llion", 3.2),
        *(
            (text, "several numbers")
            for text in ("12 or 13", "12, 13", "3-4", "2019-2020", "1,2345", "12 and 2019-20")
        ),
        *((text, "no number") for text in ("", "twelve", "CO2", "1.2.3", "2^3", "NUMBER", "nan")),
        *(
            (text, "the number is not finite")
            for text in ("1e999", "9" * 400, "10^999", "1/0", "-1e999")
        ),
        ("1" * 3_000, "too long for a number"),
    ],
)
def test_the_one_number_of_a_text(text, value):
    got = read(lambda given: number_in(given).scaled, text)
    assert got == (
        f"malformed: {value}" if isinstance(value, str) else pytest.approx(value, rel=1e-12)
    )


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
    """A reader that tried every way to split the digits took half a minute."""
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
        ("1918", "from 1914–1918", True),
        ("Ada", "Ada—who came late", True),
    ],
)
def test_words_that_mean_the_same_are_found_and_no_others(reference, answer, found):
    assert holds(reference, answer) is found


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("2*pi*r", r"2\pi r", True),
        ("rho*g*h", r"\rho g h", True),  # g and h are not grams and hours
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
        (r"1.67 \times 10^{-27}", r"9.11 \times 10^{-31}", False),
        (r"1.67 \times 10^{-27}", "1.67e-27", True),
        ("0.0000121", "0.0000124", False),
        ("1e-7", r"10^{-7}", True),
        ("6.63e-34", "-1.6e-19", False),
        ("8", r"8 \text{ or } 9", False),
        ("hello", "olleh", False),
    ],
)
def test_formulas_are_compared_in_one_notation(reference, answer, same):
    assert same_formula(reference, answer) is same


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("A*exp(-E_a/(R*T))", r"Ae^{-\frac{E_a}{RT}}", True),  # an energy, not an expectation
        ("E_k/2", r"\frac{E_k}{2}", True),
        ("E0 + I1*R", r"E_0 + I_1R", True),  # the index is one character
        ("I_1/2", r"\frac{I_1}{2}", True),
        ("E_a", "E_b", False),
        ("I_1*R", "I_2*R", False),
    ],
)
def test_energies_and_currents_with_an_index_are_symbols(reference, answer, same):
    assert same_formula(reference, answer) is same
