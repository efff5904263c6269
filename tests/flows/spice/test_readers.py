"""Which replies of the Challenger and the Reasoner are valid."""

import json
from pathlib import Path

import pytest

from flows import spice
from flows.spice.readers import (
    ANSWER_TYPES,
    FREE_FORM,
    MULTIPLE_CHOICE,
    last_object,
    read_choice,
    read_question,
)
from tasks.prompt import Malformed, Template
from tasks.readers.boxed import last_box
from tasks.readers.standalone import LEANS_ON_SOURCE

SPICE = Path(spice.__file__).parent
BOTH = (MULTIPLE_CHOICE, FREE_FORM)
TYPES = ("Integer", "Expression", "String")
OPTIONS = {"A": "10 km", "B": "12 km", "C": "14 km", "D": "16 km"}


def choice(**changed):
    said = {
        "suitable_for_mcq": False,
        "suitable_for_free_form": True,
        "best_answer_type": "Integer",
        "reason": "sums",
    }
    return json.dumps({**said, **changed})


def question(**changed):
    return json.dumps(
        {"question": "What is 3 + 4?", "answer": 7, "answer_type": "Integer", **changed}
    )


def letters(**changed):
    return json.dumps({"question": "How far is it?", "options": OPTIONS, "answer": "B", **changed})


def reason(read, *args) -> str:
    with pytest.raises(Malformed) as problem:
        read(*args)
    return str(problem.value)


@pytest.mark.parametrize("kind", [MULTIPLE_CHOICE, *ANSWER_TYPES])
def test_the_example_of_a_prompt_is_in_good_form_and_a_copy_of_it_asks_nothing(kind):
    name = MULTIPLE_CHOICE if kind == MULTIPLE_CHOICE else FREE_FORM
    shown = Template.load(SPICE / "prompts" / "english", name).render(
        document="Ferries.", answer_type=kind
    )
    (example,) = [line for line in shown.splitlines() if line.startswith("{")]
    assert reason(read_question, example, kind) == "the example of the prompt"
    own = read_question(example.replace("A ferry ", "A bus "), kind)
    assert own["text"].startswith("A bus ") and own["answer_type"] == kind


@pytest.mark.parametrize("formats", [BOTH, (MULTIPLE_CHOICE,), (FREE_FORM,)])
def test_the_prompt_of_the_choice_shows_an_example_of_every_format_that_is_allowed(formats):
    prompt = Template.load(SPICE / "prompts" / "english", "choose")
    shown = prompt.render(document="Ferries.", formats=formats, answer_types=TYPES)
    examples = [line for line in shown.splitlines() if line.startswith("{")]
    first = {MULTIPLE_CHOICE: MULTIPLE_CHOICE, FREE_FORM: "Integer"}
    assert [read_choice(example, formats, TYPES) for example in examples] == [
        first[name] for name in formats
    ]


def test_a_format_is_chosen():
    assert read_choice(choice(), BOTH, TYPES) == "Integer"
    assert read_choice(choice(best_answer_type=" String "), BOTH, TYPES) == "String"
    said = choice(suitable_for_mcq=True, suitable_for_free_form=False, best_answer_type=None)
    assert read_choice(f"<think>{choice()}</think> {said}", BOTH, TYPES) == MULTIPLE_CHOICE


@pytest.mark.parametrize("said", [f"```json\n{choice()}\n```", choice(suitable_for_mcq="false")])
def test_a_code_fence_and_a_quoted_truth_value_are_read_through(said):
    assert read_choice(said, BOTH, TYPES) == "Integer"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "no JSON object"),
        ("Integer", "no JSON object"),
        ("[1]", "no JSON object"),
        (choice()[:-1], "no JSON object"),
        (f"<think>{choice()}", "no JSON object"),
        (choice(suitable_for_mcq=True), "not exactly one format is suitable"),
        (choice(suitable_for_free_form=False), "not exactly one format is suitable"),
        (choice(suitable_for_mcq="maybe"), "suitability is not true or false"),
        ("{" + choice() + "}", "no JSON object"),
        (choice(suitable_for_mcq=0), "suitability is not true or false"),
        (choice(best_answer_type=None), "no answer type was not offered"),
        (choice(best_answer_type="Float"), "Float was not offered"),
        (choice(best_answer_type=["Integer"]), "no answer type was not offered"),
        ('{"a": NaN}', "no JSON object"),
    ],
)
def test_a_choice_that_is_none_says_why(said, why):
    assert reason(read_choice, said, BOTH, TYPES) == why


def test_a_format_that_is_switched_off_cannot_be_chosen():
    assert reason(read_choice, choice(), (MULTIPLE_CHOICE,), TYPES) == "Integer was not offered"
    said = choice(suitable_for_mcq=True, suitable_for_free_form=False)
    assert reason(read_choice, said, (FREE_FORM,), TYPES) == "multiple_choice was not offered"


def test_a_free_form_question_has_text_reference_and_type():
    found = read_question(f"<think>easy? no.</think> Here it is: {question()} done", "Integer")
    assert found == {
        "text": "What is 3 + 4?",
        "reference": "7",
        "answer_type": "Integer",
        "options": None,
    }
    assert (
        read_question(question(answer=" gradient  descent ", answer_type=" String "), "String")[
            "reference"
        ]
        == "gradient  descent"
    )


@pytest.mark.parametrize(
    ("answer_type", "answer", "reference"),
    [
        ("Integer", "-1,234,567", "-1,234,567"),
        ("Float", 3.5, "3.5"),
        ("Float", "1e3", "1e3"),
        ("Expression", "2*x^2 + 3*x - 5", "2*x^2 + 3*x - 5"),
        ("Expression", r"\frac{1}{2}", r"\frac{1}{2}"),
        ("Boolean", True, "true"),
        ("List", "apple, banana", "apple, banana"),
    ],
)
def test_every_answer_type_has_its_shape(answer_type, answer, reference):
    assert answer_type in ANSWER_TYPES
    assert (
        read_question(question(answer=answer, answer_type=answer_type), answer_type)["reference"]
        == reference
    )


@pytest.mark.parametrize(
    ("answer_type", "changed", "why"),
    [
        ("Integer", {"question": ""}, "empty question"),
        ("Integer", {"question": "  "}, "empty question"),
        ("Integer", {"question": None}, "empty question"),
        ("Integer", {"question": ["What?"]}, "question is not a single value"),
        ("Integer", {"answer": ""}, "empty answer"),
        ("Integer", {"answer": None}, "empty answer"),
        ("Integer", {"answer": [7]}, "answer is not a single value"),
        ("Integer", {"answer": {"value": 7}}, "answer is not a single value"),
        ("Integer", {"answer": 7.5}, "the answer is no Integer"),
        ("Integer", {"answer": "7 km"}, "the answer is no Integer"),
        ("Integer", {"answer": "12,34"}, "the answer is no Integer"),
        ("Integer", {"answer": "9" * 400}, "the answer is no Integer"),
        ("Float", {"answer": "1e999", "answer_type": "Float"}, "the answer is no Float"),
        ("Integer", {"answer_type": "String"}, "another answer type than asked for"),
        ("Integer", {"answer_type": None}, "another answer type than asked for"),
        ("String", {}, "another answer type than asked for"),
        (
            "String",
            {"answer": "one two three four", "answer_type": "String"},
            "the answer has more than 3 words",
        ),
        ("Boolean", {"answer": "yes", "answer_type": "Boolean"}, "the answer is no Boolean"),
        ("Integer", {"question": "What does the text say?"}, "the question leans on its source"),
        (
            "Expression",
            {"answer": "\x0crac{1}{2}", "answer_type": "Expression"},
            "a backslash is not escaped",
        ),
    ],
)
def test_a_free_form_question_that_breaks_a_rule_says_which(answer_type, changed, why):
    assert reason(read_question, question(**changed), answer_type) == why


def test_a_question_in_a_code_fence_is_read_as_without():
    """The lenient reading that `flow.py` lists."""
    plain = question()
    assert read_question(f"```json\n{plain}\n```", "Integer") == read_question(plain, "Integer")


def test_a_multiple_choice_question_has_four_options_and_a_letter():
    found = read_question(letters(), MULTIPLE_CHOICE)
    assert found["options"] == list(OPTIONS.values())
    assert (found["reference"], found["answer_type"]) == ("B", MULTIPLE_CHOICE)
    lettered = [f"{letter}) {text}" for letter, text in OPTIONS.items()]
    assert read_question(letters(options=lettered, answer="(C)"), MULTIPLE_CHOICE) == {
        **found,
        "reference": "C",
    }
    assert (
        read_question(letters(answer="12 km"), MULTIPLE_CHOICE) == found
    )  # the text of an option stands for its letter


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"options": list(OPTIONS.values())[:3]}, "not four options"),
        ({"options": {**OPTIONS, "E": "18 km"}}, "not four options"),
        ({"options": "A) 1 B) 2 C) 3 D) 4"}, "not four options"),
        ({"options": ["1", "2", "3", ""]}, "empty option"),
        ({"options": ["1", "2", "3", ["4"]]}, "option is not a single value"),
        ({"options": ["one", "two", "three", " ONE "]}, "options repeat"),
        ({"answer": "E"}, "the answer is not a letter from A to D"),
        ({"answer": "13 km"}, "the answer is not a letter from A to D"),
        ({"answer": ""}, "empty answer"),
        ({"answer": "AB"}, "the answer is not a letter from A to D"),
        (
            {"question": "According to the passage, how far is it?"},
            "the question leans on its source",
        ),
    ],
)
def test_a_multiple_choice_question_that_breaks_a_rule_says_which(changed, why):
    assert reason(read_question, letters(**changed), MULTIPLE_CHOICE) == why


@pytest.mark.parametrize(
    "text",
    [
        "According to the text, what is heat?",
        "What is the main point of this passage?",
        "As mentioned, heat flows. Where to?",
        "Which of the above statements hold? (see the given table in the document)",
        "In the excerpt, who speaks?",
        "What was described earlier as heat?",
        "Based on the analysis, what follows?",
        "What does the following short article claim?",
        "WHAT DOES THE PASSAGE SAY?",
        "What does The Following Passage say of the trade?",
        "Which claim does the first passage make?",
    ],
)
def test_questions_that_lean_on_their_source_are_seen(text):
    assert LEANS_ON_SOURCE.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "A text message takes 2 s. How long do ten take?",
        "How many documents fit on a shelf of 2 m if each is 4 cm thick?",
        "In a vacuum, a stone falls 20 m. How long does it fall?",
        "Which enzyme was discovered in 1897 and named zymase?",
        "A source of light stands 3 m above a table. How bright is it?",
        "How many years lie between the passage of the first act (1970) and that of the second?",
        "Who first sailed the Northwest Passage in 1906?",
        "Which sea current flows through the Drake Passage?",
        "A treaty sets 3 % in its first article. Under the second article, 4 % come later. When?",
    ],
)
def test_questions_that_stand_alone_pass(text):
    assert not LEANS_ON_SOURCE.search(text)


@pytest.mark.parametrize(
    "hostile", ["{" * 30_000, '{"a":' * 30_000, '{"a":' * 400 + "1" + "}" * 400, "}{" * 9_000]
)
def test_a_reply_of_braces_is_read_in_no_time(hostile):
    try:
        last_object(hostile)
    except Malformed as problem:
        assert str(problem) == "no JSON object"


@pytest.mark.parametrize("latex", ["\\frac{1}{2}", "\\theta", "\\neq 0", "\\alpha"])
def test_latex_that_is_not_escaped_is_malformed_where_it_is_used_and_only_there(latex):
    broken = f'{{"question": "What is 3 + 4?", "answer": "{latex}", "answer_type": "Expression"}}'
    assert reason(read_question, broken, "Expression") == "a backslash is not escaped"
    assert read_question(broken.replace("\\", "\\\\"), "Expression")["reference"] == latex
    beside = broken.replace(f'"{latex}"', '"7"').removesuffix("}") + f', "note": "{latex}"}}'
    assert read_question(beside, "Expression")["reference"] == "7"


def test_the_last_object_counts_and_a_later_thought_does_not():
    assert (
        read_question(f"{question(answer=1)} no: {question(answer=2)}", "Integer")["reference"]
        == "2"
    )
    assert read_question(f"{question()} <think>{question(answer=1)}", "Integer")["reference"] == "7"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} no, \boxed{ 2 }.", "2"),
        (r"<think>\boxed{1}</think>\boxed {2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}} and more {", r"\frac{1}{\sqrt{2}}"),
        (r"$\boxed{\{1, 2\}}$", r"\{1, 2\}"),
        (r"\boxed{\text{Paris}}", r"\text{Paris}"),
    ],
)
def test_the_last_box_is_the_answer(reply, answer):
    assert last_box(reply) == answer


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("42", "no boxed answer"),
        (r"<think>\boxed{42}", "no boxed answer"),
        (r"\boxed{}", "empty box"),
        (r"\boxed{1} then \boxed{2", "the box does not close"),
        (r"\boxed{{{{{{1}", "the box does not close"),
    ],
)
def test_a_reply_without_a_closed_box_has_no_answer(reply, why):
    assert reason(last_box, reply) == why
