"""Replies as models write them: well-formed, nearly well-formed, and hostile."""

import pytest

from flows.settings import profile
from flows.spell.config import Config
from flows.spell.readers import (
    CUT_THINKING,
    LONG_ANSWER,
    NO_NUMBER,
    NO_PENALTY,
    read_answer,
    read_question,
    read_questioner,
    read_vote,
)
from tasks.prompt import Malformed


def words(text: str) -> int:
    return len(text.split())


def question(reply: str, task_type: str = "general_qa") -> dict:
    return read_question(reply, task_type, words)


def why(reply: str, task_type: str = "general_qa") -> str:
    with pytest.raises(Malformed) as malformed:
        question(reply, task_type)
    return str(malformed.value)


CHOICE = (
    '{"question": "Which?", "options": {"A": "red", "B": "blue", "C": "green", "D": "grey"},'
    ' "answer": "%s"}'
)


@pytest.mark.parametrize(
    "reply",
    [
        '{"question": "Who?", "answer": "Ada"}',
        'Step 1: from {table 3} ... ```json\n{"question": "Who?", "answer": "Ada",}\n``` Done.',
        (
            '{"question": "An earlier one?", "answer": "x"} Better: {"question": "Who?", "answer":'
            ' "Ada"}'
        ),
        (
            '<think>{"question": "draft", "answer": "no"}</think>{"question": " Who? ", "answer": "'
            ' Ada "}'
        ),
        'a } b { c {"question": "Who?", "answer": "Ada", "note": {"deep": [1, {"x": 2}]}}',
        '{"question": "Who?",\n "answer": "Ada"}\n{"not": "closed"',
    ],
)
def test_the_last_whole_object_is_the_question(reply):
    found = question(reply)
    assert (found["text"], found["reference"], found["options"]) == ("Who?", "Ada", None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no JSON object"),
        ("Who? Ada.", "no JSON object"),
        ('{"question": "Who?", "answer": "Ada"', "no JSON object"),
        ('["question", "answer"]', "no JSON object"),
        ('{"question": "Who?"}', "no text under 'answer'"),
        ('{"answer": "Ada"}', "no text under 'question'"),
        ('{"question": "", "answer": "Ada"}', "no text under 'question'"),
        ('{"question": "Who?", "answer": null}', "no text under 'answer'"),
        ('{"question": "Who?", "answer": true}', "no text under 'answer'"),
        ('{"question": ["Who?"], "answer": "Ada"}', "no text under 'question'"),
        ('<think>{"question": "Who?", "answer": "Ada"}', "no JSON object"),
        ("{" * 3000, "no JSON object"),
    ],
)
def test_what_is_no_question_is_malformed_with_its_reason(reply, reason):
    assert why(reply) == reason
    assert reason not in NO_PENALTY


def test_an_answer_of_more_than_40_tokens_is_dropped_without_penalty():
    assert question('{{"question": "Who?", "answer": "{}"}}'.format(" ".join("x" * 40)))[
        "reference"
    ]
    assert (
        why('{{"question": "Who?", "answer": "{}"}}'.format(" ".join("x" * 41)))
        == LONG_ANSWER
        in NO_PENALTY
    )


@pytest.mark.parametrize("answer", ['"12.5"', "12.5", '"$12.5 million"', '"-3 %"'])
def test_a_calculation_is_answered_by_one_number(answer):
    assert (
        question(f'{{"question": "How much?", "answer": {answer}}}', "finance_math")["answer_type"]
        == "number"
    )


@pytest.mark.parametrize("answer", ['"0"', "0.0", '"12 or 13"', '"twelve"', '"2019-2020"'])
def test_a_calculation_without_one_number_that_is_not_zero_is_dropped_without_penalty(answer):
    assert (
        why(f'{{"question": "How much?", "answer": {answer}}}', "finance_math")
        == NO_NUMBER
        in NO_PENALTY
    )


@pytest.mark.parametrize("letter", ["B", "b", "(B)", "B.", "**B**", "Option B", "B) blue", "blue"])
def test_a_choice_has_four_options_and_a_letter(letter):
    found = question(CHOICE % letter, "multiple_choice")
    assert (found["reference"], found["options"]) == ("B", ["red", "blue", "green", "grey"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (CHOICE % "E", "answer is none of the letters A to D"),
        (CHOICE % "pink", "answer is none of the letters A to D"),
        (CHOICE % "B or C", "answer is none of the letters A to D"),
        (CHOICE.replace('"D": "grey"', '"E": "grey"') % "B", "options are not A, B, C and D"),
        (CHOICE.replace(', "D": "grey"', "") % "B", "options are not A, B, C and D"),
        (CHOICE.replace("grey", "Red") % "B", "two options are the same"),
        ('{"question": "Which?", "answer": "B"}', "options are not A, B, C and D"),
    ],
)
def test_a_choice_that_cannot_be_chosen_from_is_malformed(reply, reason):
    assert why(reply, "multiple_choice") == reason


def test_a_reply_cut_off_inside_its_thinking_is_skipped_and_one_that_stopped_there_is_not():
    prompt = {"task_type": "general_qa"}
    for finish, reason in (("length", CUT_THINKING), ("final", "no JSON object")):
        with pytest.raises(Malformed, match=reason):
            rollout = {"finish_reason": finish, "reply": "<think>hm"}
            read_questioner(rollout, prompt, model="unused", most_words=None, in_lines=False)
    assert CUT_THINKING in NO_PENALTY


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The answer is Paris.", "Paris"),
        ("First the answer is Rome. Then: the correct answer is: **Paris**.\n", "Paris"),
        ("<think>the answer is Rome</think>\nTherefore, the final answer is (Paris).", "Paris"),
        ("So the answer is \\boxed{12.5}.", "12.5"),
        ('THE ANSWER IS "Paris"\nI hope this helps.', "Paris"),
        ("The answer is (B) because of (A)", "(B) because of (A)"),
        ("the answer is $1,234.5 million.", "$1,234.5 million"),
        ("Final answer is 3", "3"),
        ("Paris", None),
        ("The answer is", None),
        ("The answer is .", None),
        ("<think>The answer is Paris.", None),
        ("", None),
    ],
)
def test_an_answer_is_what_is_stated_last_past_the_thinking(reply, answer):
    if answer is None:
        with pytest.raises(Malformed):
            read_answer(reply)
    else:
        assert read_answer(reply) == answer


@pytest.mark.parametrize(
    ("reply", "vote"),
    [
        ("They agree. [[YES]]", 1),
        ("[[YES]] at first, but no: [[NO]]", 0),
        ("<think>[[YES]]</think> [[ no ]]", 0),
        ("[[YES]]<think>[[NO]]", 1),
        ("YES", None),
        ("[YES]", None),
        ("⟦⟦YES⟧⟧", None),
        ("", None),
    ],
)
def test_the_last_verdict_past_the_thinking_is_the_vote(reply, vote):
    if vote is None:
        with pytest.raises(Malformed):
            read_vote(reply)
    else:
        assert read_vote(reply) == vote


@pytest.mark.parametrize("task_type", ["general_qa", "finance_math", "multiple_choice"])
def test_the_examples_of_the_prompts_are_read_as_copies_and_would_be_read_if_they_were_none(
    task_type,
):
    prompts = profile.home(Config) / "prompts" / "english"
    for name in (f"questioner_{task_type}", f"questioner_{task_type}_again"):
        shown = (prompts / f"{name}.jinja").read_text()
        assert why(shown, task_type) == "the example of the prompt"
        assert question(shown.replace("Halden", "Varley"), task_type)["reference"]


@pytest.mark.parametrize("task_type", ["general_qa", "finance_math"])
def test_an_answer_copied_from_the_prompt_states_nothing(task_type):
    shown = (
        profile.home(Config) / "prompts" / "english" / f"responder_{task_type}.jinja"
    ).read_text()
    with pytest.raises(Malformed, match="no answer is stated"):
        read_answer(shown.splitlines()[-1])
