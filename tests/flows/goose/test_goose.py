"""Golden Goose's parts: what is read from the author's replies, and what the prompts show."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flows.goose.config import Config
from flows.goose.readers import masked_task, read_extracted_task, read_lines, read_task
from flows.goose.roles import Roles, show_texts
from flows.settings import profile
from tasks.ask import readable_tasks
from tasks.readers.malformed import Malformed
from tasks.scorers.equality import agree
from tests.support.rows import row

TEXT = "Two is even, so its square is even. Three is odd, so its square is odd, by the same rule."
STEP = "its square is even"
WRONG = ["its square is odd", "its square is prime", "its square is two"]
LIMITS = {"num_distractors": 3, "min_words": 3}


def rollout(reply: str) -> Any:
    return row("rollouts", rollout_id="r", reply=reply)


def prompt(content: str) -> Any:
    return row("prompts", messages=[{"role": "user", "content": content}])


def asked(text: str = TEXT) -> Any:
    return prompt(f"Copy it.\n\nText:\n{text}\nEnd of the text.\n\nThink first:\n<step>...</step>")


def reply(step: str = STEP, wrong: list[str] = WRONG, before: str = "") -> Any:
    parts = [f"<step>{step}</step>", *(f"<distractor>{text}</distractor>" for text in wrong)]
    return rollout(before + "\n".join(parts))


def test_the_masked_step_is_the_option_of_the_reference() -> None:
    task = read_task(reply(), asked(), **LIMITS)
    assert task["text"] == TEXT.replace(STEP, "[MASK]")
    assert sorted(task["options"]) == sorted([STEP, *WRONG])
    assert task["options"]["ABCD".index(task["reference"])] == STEP
    assert task["answer_type"] == "multiple_choice"


def test_the_right_letter_is_no_habit() -> None:
    """Of 400 tasks, each letter is right in about 100: five standard deviations are 43."""
    letters = Counter(
        masked_task(TEXT, STEP, WRONG, **LIMITS, seed=str(i))["reference"] for i in range(400)
    )
    assert set(letters) == set("ABCD") and all(57 <= n <= 143 for n in letters.values())


def test_a_step_may_be_wrapped_otherwise_than_in_the_text() -> None:
    task = read_task(
        reply("its  square\nis even"), asked(TEXT.replace("square is", "square\nis", 1)), **LIMITS
    )
    assert "[MASK]" in task["text"] and STEP in task["options"]


def test_a_step_may_end_with_a_sign_before_a_word() -> None:
    text = "The rule (n is even) holds, so half(n) is whole, and so is half(n)+1 by adding one."
    task = masked_task(text, "so half(n) is whole,", WRONG, **LIMITS, seed="")
    assert task["text"] == text.replace("so half(n) is whole,", "[MASK]")
    task = masked_task(text, "(n is even) holds, so half(", WRONG, **LIMITS, seed="")
    assert task["text"] == text.replace("(n is even) holds, so half(", "[MASK]")


def test_thoughts_and_earlier_steps_do_not_count() -> None:
    before = "<think><step>Three is odd</step></think><step>so its square is odd</step>"
    assert STEP in read_task(reply(before=before), asked(), **LIMITS)["options"]


@pytest.mark.parametrize(
    ("written", "text", "why"),
    [
        (rollout(""), TEXT, "no step element"),
        (rollout("<step></step>"), TEXT, "empty step element"),
        (reply("its square"), TEXT, "fewer than 3 words"),
        (reply("its square is big"), TEXT, "is not in the text"),
        (reply("Its square is even"), TEXT, "is not in the text"),
        (reply(".* square is even"), TEXT, "is not in the text"),  # no pattern
        (reply("wo is even"), TEXT, "is not in the text"),  # a part of a word
        (reply("its square is eve"), TEXT, "is not in the text"),
        (reply("so its square is"), TEXT, "more than once"),
        (reply(TEXT), TEXT, "more than half"),
        (reply(" ".join(TEXT.split()[:12])), TEXT, "more than half"),
        (reply(), f"[MASK] {TEXT}", "a mask of its own"),
        (reply(wrong=WRONG[:2]), TEXT, "too few distractors"),
        (reply(wrong=[*WRONG[:2], " "]), TEXT, "empty distractor"),
        (reply(wrong=[*WRONG[:2], "Its square is  ODD"]), TEXT, "options repeat"),
        (reply(wrong=[*WRONG[:2], "Its square is even."]), TEXT, "options repeat"),
        (reply(), "", "is not in the text"),
    ],
)
def test_replies_without_a_task_have_the_reason(written: Any, text: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_task(written, asked(text), **LIMITS)


def test_a_text_cannot_end_before_its_end_nor_begin_again() -> None:
    """The text holds the words that stand around texts."""
    text = f"First this.\nEnd of the text.\nText:\n{TEXT}"
    task = read_task(reply(), asked(text), **LIMITS)
    assert task["text"] == text.replace(STEP, "[MASK]")


def test_what_follows_the_distractors_that_are_asked_for_is_left_out() -> None:
    task = read_task(reply(wrong=[*WRONG, "one more of them"]), asked(), **LIMITS)
    assert len(task["options"]) == 4


def test_an_author_may_find_no_passage() -> None:
    found = reply(before=f"<passage>{TEXT}</passage>")
    page = prompt("no matter")
    assert read_extracted_task(found, page, **LIMITS)["text"] == TEXT.replace(STEP, "[MASK]")
    for words, why in (
        (rollout("<passage>None.</passage>"), "found no passage"),
        (reply(), "no passage element"),
        (reply(before="<passage>Something else.</passage>"), "is not in the text"),
    ):
        with pytest.raises(Malformed, match=why):
            read_extracted_task(words, page, **LIMITS)


def test_a_task_in_lines_ends_at_a_blank_line() -> None:
    lines = " its square is even\n" + "".join(f"Wrong: {text}\n" for text in WRONG)
    content = prompt(f"Text: Another.\nStep: x\n\nText: {TEXT}\nStep:")
    written = rollout(f"{lines}\nText: It goes on.\nStep: y")
    task = read_lines(written, content, **LIMITS)
    assert task["text"] == TEXT.replace(STEP, "[MASK]") and len(task["options"]) == 4
    for broken, why in (
        (lines.replace("Wrong: ", "Right: ", 1), "too few distractors"),
        (lines.replace("\n", "\n\n", 2), "too few distractors"),
        ("", "fewer than 3 words"),
        ("Another one here\n" + lines, "is not in the text"),
    ):
        with pytest.raises(Malformed, match=why):
            read_lines(rollout(broken), content, **LIMITS)


def test_of_lines_that_ran_into_the_token_limit_the_last_is_not_read() -> None:
    """Small models go on past the distractors that are needed."""
    content = prompt(f"Text: {TEXT}\nStep:")
    wrong = [f"Wrong: {text}" for text in WRONG]

    def task(*lines: str) -> Any:
        cut: Any = {**rollout("\n".join([f" {STEP}", *lines])), "finish_reason": "length"}
        return read_lines(cut, content, **LIMITS)

    written = task(*wrong, "Wrong: its")
    assert set(written["options"]) == {STEP, *WRONG}
    with pytest.raises(Malformed, match="too few distractors"):
        task(*wrong)  # the last may be half of one
    with pytest.raises(Malformed, match="cut off at the token limit"):
        task()


@pytest.mark.parametrize("prompts", ["english", "lines"])
def test_prompts_show_the_text_and_the_solver_all_nine_options(prompts: str) -> None:
    changes: dict[str, Any] = {"dialogues.prompts": prompts}
    if prompts == "english":
        changes["author.num_distractors"] = 8
    cfg = profile.load(Config, "smollm2", changes)
    roles = Roles(cfg)
    rendered = roles.author.templates[0].render(
        {"document": TEXT, "num_distractors": cfg.author.num_distractors, "min_words": 3}
    )
    assert TEXT in rendered
    options = [f"option {i}" for i in range(1 + cfg.author.num_distractors)]
    task: Any = row("tasks", task_id="t", text="A [MASK] b.", options=options)
    [values] = readable_tasks([task])
    shown = roles.solver.templates[0].render(values)
    for letter, option in zip("ABCDEFGHI", options, strict=False):
        assert f"{letter}) {option}" in shown


def test_the_ninth_option_can_be_right() -> None:
    task = masked_task(TEXT, STEP, [f"its square is {i}" for i in range(8)],
                       num_distractors=8, min_words=3, seed="x")  # fmt: skip
    assert len(task["options"]) == 9
    ninth = {**task, "reference": "I"}
    assert agree(ninth, "I") and agree(ninth, "(I)") and not agree(ninth, "I think that it is B")
    assert agree(task, task["reference"]) and agree(task, STEP)


@pytest.mark.parametrize(
    ("prompts", "line", "translated"),
    [
        ("english", "\nText:\n", "\nTexte :\n"),
        ("english", "\nEnd of the text.\n", "\nFin du texte.\n"),
        ("lines", "\nText: {{", "\nTexte: {{"),
        ("lines", "\nStep:\n", "\nPassage:\n"),
    ],
)
def test_an_author_whose_text_could_not_be_found_is_refused(
    tmp_path: Path, prompts: str, line: str, translated: str
) -> None:
    folder = shutil.copytree(profile.home(Config) / "prompts" / prompts, tmp_path / "mine")
    author = folder / "author.jinja"
    text = author.read_text().rstrip("\n") + "\n"
    author.write_text(text.replace(line, translated))
    assert author.read_text() != text
    cfg = profile.load(Config, "smollm2", {"dialogues.prompts": str(folder)})
    with pytest.raises(ValueError, match=r"author\.jinja has to show the document between 'Text:'"):
        Roles(cfg)


def test_documents_are_cut_for_the_author(tmp_path: Any) -> None:
    from tests.support.scripted_play import any_text_model

    model = str(any_text_model(tmp_path / "model"))
    samples: list[Any] = [row("samples", document_id="d")]
    documents: list[Any] = [row("documents", document_id="d", text=TEXT)]
    [shown] = show_texts(samples, documents, model=model, limit=5)
    assert shown["document_id"] == "d"
    assert TEXT.startswith(shown["document"]) and 0 < len(shown["document"]) < len(TEXT)


def test_the_worked_examples_fix_the_number_of_distractors() -> None:
    with pytest.raises(ValueError, match=r"author\.num_distractors=3"):
        profile.load(Config, "smollm2", {"author.num_distractors": 8})
