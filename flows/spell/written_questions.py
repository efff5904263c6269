"""Questions about a corpus, written once by any model, to be reviewed, edited and trained on.

The rounds are SPELL's: the questioner is asked about clusters of documents, and its replies are
read into `tasks`. A question is taken if its answer occurs in the documents that the questioner was
shown, and if no other question has the same words.

Alternatively, the writer also answers its own questions, from all documents of the cluster, and a
question is taken if both answers are equal. This is how the data of the baseline RLVR is
synthesised (appendix E.5).
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from corpus_prep.read.titles import titled
from flows.blocks.questions import answer
from flows.run import Player, Run
from flows.spell.config import Config
from flows.spell.steps import Questions, Spell, ask_questions, judge_externally
from tasks.clusters import members_of
from tasks.readers.words import holds, words_of
from tasks.stage import rows_of
from warehouse.schemas import (
    Answer,
    Document,
    Match,
    Membership,
    PromptRow,
    Row,
    Sample,
    Task,
    Vote,
)
from warehouse.store import Place

log = logging.getLogger("selfplay")
NOT_AGREED = "its writer answers otherwise"
NOT_IN_TEXT = "the answer is not in the text"
NO_WORDS = "the answer has no words"  # a sign, such as "@", is in every text
NOT_NEEDED = "there are enough questions"
AGAIN = "asked before"
BOTH_SIDES = "about documents that are held out and others"
MOST_LAPS = 4  # how often a cluster is asked about, at most
FEW = 0.05  # share of a round's replies; a writer that gives fewer questions is not asked again
GAVE_FEW = f"fewer than {FEW:.0%} of its last replies gave a new question that can be used"
ASKED_ALL = f"it was asked about everything {MOST_LAPS} times"


@dataclass
class QuestionLists:
    """The questions taken so far, those about held-out documents, why the others were dropped, and,
    if there are fewer questions than wanted, the reason."""

    questions: list[Row] = field(default_factory=list)
    held_out: list[Row] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    short_because: str | None = None

    @property
    def num_asked(self) -> int:
        """The number of questions that the writer gave: taken, held out and dropped."""
        return len(self.questions) + len(self.held_out) + self.dropped.total()

    @property
    def num_usable(self) -> int:
        """The number of good questions, including those that were dropped because there were
        already enough."""
        return len(self.questions) + len(self.held_out) + self.dropped[NOT_NEEDED]


@dataclass(frozen=True)
class SecondAnswers:
    """The writer's second answers, for the questions on which both of its answers are equal."""

    answer_of: dict[str, str]
    context_of: dict[str, str]  # all documents of the question's cluster


def write_questions(
    run: Run[Config], count: int, num_held_out: int = 0, *, twice: bool = False
) -> QuestionLists:
    """Ask about rounds of `sampling.clusters_per_round` clusters until `count` questions are taken,
    and `num_held_out` more about documents that none of the others uses.

    With `twice`, the writer also answers each question from all documents of its cluster, and a
    question is taken only if `models.judge`, or without one the rule, finds both answers equal.

    Stops early after a round that gives almost no questions, and once every cluster has been asked
    about `MOST_LAPS` times.
    """
    spell = Spell.prepare(run)
    player = run.player("policy")
    place = run.place.iteration(1).phase("asking")
    written = QuestionLists()
    most_rounds = _most_rounds(spell)
    for number in range(most_rounds):
        step = place.step(number + 1)
        questions = ask_questions(spell, step, player, None, number, 1)
        before = written.num_usable
        second_answers = None
        if twice:
            second_answers = _answer_again(spell, step, player, questions)
        _take(written, questions, count, num_held_out, second_answers)
        after = len(written.questions) + len(written.held_out)
        log.info("%s: %d of %d questions", step.path, after, count + num_held_out)
        if after >= count + num_held_out:
            return written
        if written.num_usable - before < FEW * questions.tasks.num_rows:
            written.short_because = GAVE_FEW
            return written
    written.short_because = ASKED_ALL
    return written


def is_held_out(documents: Iterable[Document], share: float) -> bool | None:
    """Whether questions about these documents are held out; None if only some of them are.

    A hash of their names holds out a `share` of all documents, each with all its pieces.

    >>> town = {"document_id": "Arvel, piece 2", "piece_of": "Arvel"}
    >>> is_held_out([town], 0.0), is_held_out([town], 1.0)
    (False, True)
    """
    sides = {_hash(row["piece_of"] or row["document_id"]) < share for row in documents}
    return sides.pop() if len(sides) == 1 else None


def _hash(name: str) -> float:
    """A number in [0, 1) derived from a name."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32


def _most_rounds(spell: Spell) -> int:
    """The number of rounds that ask about every cluster `MOST_LAPS` times."""
    clusters = {row["cluster"] for table in spell.corpus.clusters for row in table.rows()}
    per_round = spell.run.cfg.sampling.clusters_per_round
    return max(1, MOST_LAPS * len(clusters) // per_round)


def _answer_again(spell: Spell, step: Place, player: Player, questions: Questions) -> SecondAnswers:
    """Ask the writer for one answer to each question; returns the answers that equal its first."""
    writer = spell.run.models.get("questioner")
    responder = spell.roles.responder
    if writer is not None:
        player = replace(player, policy=writer)
        responder = replace(responder, on_judge_engine=True)
    responses = answer(
        spell.run,
        step,
        responder,
        player,
        group_size=1,
        compare=spell.rule,
        label="responder",
        tasks=questions.tasks,
        documents=questions.documents,
        memberships=spell.corpus.clusters,
        closed_book=(),
    )
    judged = judge_externally(
        spell, step, spell.roles.judge, responses.answers, questions.tasks, label="judge"
    )
    if judged:
        equal = {row["rollout_id"] for row in rows_of(judged, Vote) if row["vote"]}
    else:
        equal = {row["rollout_id"] for row in responses.matches.rows(Match) if row["matched"]}
    answer_of = {
        row["task_id"]: row["answer"] or ""
        for row in responses.answers.rows(Answer)
        if row["rollout_id"] in equal
    }
    memberships = rows_of(spell.corpus.clusters, Membership)
    cluster_of: dict[str | None, int] = {row["document_id"]: row["cluster"] for row in memberships}
    members = members_of(memberships)
    text_of = {
        row["document_id"]: titled(row["title"], row["text"] or "")
        for row in questions.documents.rows(Document)
    }
    context_of = {
        task["task_id"]: "\n\n".join(
            text_of[i] for i in members[cluster_of[task["document_id"]]] if i in text_of
        )
        for task in questions.tasks.rows(Task)
        if task["task_id"] in answer_of
    }
    return SecondAnswers(answer_of, context_of)


def _take(
    written: QuestionLists,
    questions: Questions,
    count: int,
    num_held_out: int,
    second_answers: SecondAnswers | None,
) -> None:
    """Add the questions of a round that are good, up to `count` and `num_held_out`; count the
    others by reason."""
    share = num_held_out / (count + num_held_out)
    document_of = {row["document_id"]: row for row in questions.documents.rows(Document)}
    shown_to = _shown(questions)
    taken = (*written.questions, *written.held_out)
    known = {tuple(words_of(row["question"])) for row in taken}
    for task in questions.tasks.rows(Task):
        if task["text"] is None:
            written.dropped[task["malformed"] or "malformed"] += 1
            continue
        documents = [document_of[i] for i in shown_to[task["prompt_id"]] if i in document_of]
        context = "\n\n".join(titled(row["title"], row["text"] or "") for row in documents)
        words = tuple(words_of(task["text"]))
        held_out = is_held_out(documents, share)
        if words in known:
            written.dropped[AGAIN] += 1
        elif second_answers is not None and task["task_id"] not in second_answers.answer_of:
            written.dropped[NOT_AGREED] += 1
        elif second_answers is None and not words_of(task["reference"] or ""):
            written.dropped[NO_WORDS] += 1
        elif second_answers is None and not holds(task["reference"] or "", context):
            written.dropped[NOT_IN_TEXT] += 1
        elif held_out is None:
            written.dropped[BOTH_SIDES] += 1
        elif held_out and len(written.held_out) < num_held_out:
            known.add(words)
            written.held_out.append(_question(task, context, second_answers))
        elif not held_out and len(written.questions) < count:
            known.add(words)
            written.questions.append(_question(task, context, second_answers))
        else:
            written.dropped[NOT_NEEDED] += 1


def _shown(questions: Questions) -> dict[str | None, list[str]]:
    """The ids of the documents that the questioner was shown, by prompt."""
    [samples] = questions.samples
    [prompts] = questions.prompts
    ids_of: dict[str | None, list[str]] = {
        row["sample_id"]: list(row["document_ids"] or ()) for row in samples.rows(Sample)
    }
    return {row["prompt_id"]: ids_of[row["sample_id"]] for row in prompts.rows(PromptRow)}


def _question(task: Task, context: str, second_answers: SecondAnswers | None) -> Row:
    """A line of the file, with the columns that question files are read by."""
    row = {
        "id": task["task_id"],
        "task_type": task["task_type"],
        "question": task["text"],
        "answer": task["reference"],
        "context": context,
    }
    if task["options"]:
        row["options"] = task["options"]
    if second_answers is not None:
        row["context"] = second_answers.context_of[task["task_id"]]
        row["responder_answer"] = second_answers.answer_of[task["task_id"]]
    return row


def take_examples(questions: list[Row], number: int) -> tuple[list[Row], list[Row]]:
    """Take `number` worked examples for prompts; returns them and the other questions.

    The examples are about different texts, the shortest first, since every prompt shows them. Other
    questions about an example's text stay among the other questions.

    >>> asked = [{"id": i, "context": text} for i, text in enumerate(["a b", "a b", "c", "d e f"])]
    >>> examples, others = take_examples(asked, 2)
    >>> [row["id"] for row in examples], [row["id"] for row in others]
    ([2, 0], [1, 3])
    """
    shortest_first = sorted(questions, key=lambda row: len(row["context"].split()))
    example_of: dict[str, Row] = {}
    for row in shortest_first:
        example_of.setdefault(row["context"], row)
    examples = list(example_of.values())[:number]
    ids = {row["id"] for row in examples}
    return examples, [row for row in questions if row["id"] not in ids]


def without_answers(questions: list[Row]) -> Iterator[Row]:
    """The same questions without answers, for training on the majority answer as the reference."""
    for question in questions:
        yield {name: value for name, value in question.items() if name != "answer"}
