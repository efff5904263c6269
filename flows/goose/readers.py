"""Read the author's replies: a step that occurs in the text, and distractors for it.

A task is the text with the step masked, with the step and its distractors as options.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from tasks.read import UNANSWERED
from tasks.readers.letters import ALPHABET
from tasks.readers.malformed import Malformed
from tasks.readers.markup import folded
from tasks.readers.tags import elements, last_element
from tasks.scorers.equality import LETTER
from warehouse.schemas import PromptRow, Rollout, Row

MASK = "[MASK]"
NO_PASSAGE = "none"  # the author's reply for a text without a passage to ask about
# around the text in the prompts of the set `english`
TEXT_BEGINS = "\nText:\n"
TEXT_ENDS = "\nEnd of the text."
# the last lines of the prompt of the set `lines`, which a reply continues
LINE_OF_TEXT = "\nText: "
LINE_OF_STEP = "\nStep:"
WRONG = "Wrong:"


def text_of(content: str) -> str:
    """The text in a prompt for the author; empty if the lines around it are missing.

    >>> text_of("Copy it. \\nText:\\nTwo is even.\\nEnd of the text.\\nThink first.")
    'Two is even.'
    """
    return content.partition(TEXT_BEGINS)[2].rpartition(TEXT_ENDS)[0]


def line_of_text(content: str) -> str:
    """The last text in a prompt for the author in lines; empty if the lines around it are missing.

    >>> line_of_text("\\nText: One.\\nStep: x\\n\\nText: Two is even.\\nStep:")
    'Two is even.'
    """
    return content.rpartition(LINE_OF_TEXT)[2].rpartition(LINE_OF_STEP)[0]


def read_task(rollout: Rollout, prompt: PromptRow, *, num_distractors: int, min_words: int) -> Row:
    """A task about the text of the prompt, as columns of `tasks`; see `masked_task`.

    Raises Malformed for a reply without a step and enough distractors.
    """
    reply = rollout["reply"] or ""
    content = prompt["messages"][-1]["content"]
    return masked_task(
        text_of(content),
        last_element(reply, "step"),
        [element.text for element in elements(reply, "distractor")],
        num_distractors=num_distractors,
        min_words=min_words,
        seed=rollout["rollout_id"],
    )


def read_extracted_task(
    rollout: Rollout, prompt: PromptRow, *, num_distractors: int, min_words: int
) -> Row:
    """A task about the passage that the author extracted from the prompt's text; see `masked_task`.

    Raises Malformed as `read_task` does, and if the author found no passage.
    """
    reply = rollout["reply"] or ""
    passage = last_element(reply, "passage")
    if folded(passage) == NO_PASSAGE:
        raise Malformed("the author found no passage to ask about")
    return masked_task(
        passage,
        last_element(reply, "step"),
        [element.text for element in elements(reply, "distractor")],
        num_distractors=num_distractors,
        min_words=min_words,
        seed=rollout["rollout_id"],
    )


def read_lines(rollout: Rollout, prompt: PromptRow, *, num_distractors: int, min_words: int) -> Row:
    """A task in lines: the rest of the line `Step:`, then lines `Wrong: ...`, up to a blank one.

    Small models continue past the required distractors up to the token limit. The last line of such
    a reply counts as cut off; the lines before it are read. Raises Malformed as `read_task` does.
    """
    content = prompt["messages"][-1]["content"]
    written, blank_line, _ = (rollout["reply"] or "").strip().partition("\n\n")
    step, *others = written.split("\n")
    if rollout["finish_reason"] == "length" and not blank_line:
        if not others:
            raise Malformed(UNANSWERED["length"])
        others.pop()
    distractors = [line.removeprefix(WRONG).strip() for line in others if line.startswith(WRONG)]
    return masked_task(
        line_of_text(content),
        step.strip(),
        distractors,
        num_distractors=num_distractors,
        min_words=min_words,
        seed=rollout["rollout_id"],
    )


def pattern_of(words: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds these words with any whitespace between them, at word boundaries.

    >>> [bool(pattern_of(["art", "of"]).search(text)) for text in ("an art  of old", "a cart of")]
    [True, False]
    """
    between = r"\s+".join(re.escape(word) for word in words)
    begins = r"\b" if re.match(r"\w", words[0]) else ""
    ends = r"\b" if re.search(r"\w$", words[-1]) else ""
    return re.compile(begins + between + ends)


def masked_task(
    text: str,
    step: str,
    distractors: Sequence[str],
    *,
    num_distractors: int,
    min_words: int,
    seed: str,
) -> Row:
    """The columns text, options, reference and answer_type of a task.

    A mask replaces the step in `text`. The options are the step and the first `num_distractors`
    distractors, in an order that `seed` determines; the reference is the step's letter.

    Raises Malformed unless the step occurs in the text exactly once, has at least `min_words` words
    and at most half of the text, and the options all differ.

    >>> task = masked_task(
    ...     "Two is even, so its square is even.",
    ...     "its square is even",
    ...     ["its square is odd"],
    ...     num_distractors=1,
    ...     min_words=2,
    ...     seed="",
    ... )
    >>> task["text"], task["options"], task["reference"]
    ('Two is even, so [MASK].', ['its square is odd', 'its square is even'], 'B')
    """
    words = step.split()
    if len(words) < min_words:
        raise Malformed(f"the step has fewer than {min_words} words")
    if MASK in text:
        raise Malformed("the text has a mask of its own")
    places = list(pattern_of(words).finditer(text))
    if not places:
        raise Malformed("the step is not in the text")
    if len(places) > 1:
        raise Malformed("the step occurs in the text more than once")
    if 2 * len(words) > len(text.split()):
        raise Malformed("the step is more than half of the text")
    if len(distractors) < num_distractors:
        raise Malformed("too few distractors")
    options = [" ".join(words), *(" ".join(d.split()) for d in distractors[:num_distractors])]
    if not all(options):
        raise Malformed("an empty distractor")
    if len({folded(option) for option in options}) < len(options):
        raise Malformed("options repeat")
    order = random.Random(seed).sample(range(len(options)), len(options))
    start, end = places[0].span()
    return {
        "text": text[:start] + MASK + text[end:],
        "options": [options[i] for i in order],
        "reference": ALPHABET[order.index(0)],
        "answer_type": LETTER,
    }
