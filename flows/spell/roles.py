"""SPELL's roles: what each is asked, about which rows, and how its reply is read. One policy plays them all."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.spell import readers
from flows.spell.config import SpellConfig
from tasks.clusters import members_of
from tasks.prompt import Malformed, Prompt, Row, Template
from tasks.read import Reader
from tasks.rollouts.tokens import count_tokens, cut_middle

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Roles:
    """The prompts and readers of one configuration."""

    questioner: Prompt
    closed_book: Prompt
    responder: Prompt
    verifier: Prompt
    judge: Prompt
    read_question: Reader
    read_answer: Reader
    read_vote: Reader
    examinee: Callable[[int], Prompt]  # the responder on held-out tasks: contexts are cut to so many tokens of input


def make_roles(cfg: SpellConfig) -> Roles:
    template = functools.partial(Template.load, PROMPTS / cfg.dialogues.prompts)
    base, types = cfg.models.base, cfg.task_types
    document, empty = template("document"), template("empty").render()
    first, again = ([template(f"questioner_{t}{which}") for t in types] for which in ("", "_again"))
    responders = tuple(template(f"responder_{t}") for t in types)
    closed_book = tuple(template(f"responder_{t}") for t in types)
    verify = (template("verifier"),)

    def examinee(input_tokens: int) -> Prompt:
        cut = functools.partial(cut_to_fit, templates=responders, model=base, limit=input_tokens)
        return Prompt("responder", responders, functools.partial(examine, cut))

    return Roles(
        questioner=Prompt("questioner", (*first, *again), functools.partial(propose, document)),
        closed_book=Prompt("responder", closed_book, functools.partial(guess, empty)),
        responder=Prompt("responder", responders, functools.partial(respond, document)),
        verifier=Prompt("verifier", verify, verify_answers),
        judge=Prompt("judge", verify, verify_answers),
        read_question=Reader(about_question, functools.partial(read_question, model=base)),
        read_answer=Reader(functools.partial(about_answer, model=base), read_answer),
        read_vote=Reader(about_vote, read_vote),
        examinee=examinee,
    )


# ---- what they are asked ------------------------------------------------------------------------------------------


def propose(document: Template, samples: list[Row], documents: list[Row], memory: list[Row] = []) -> Iterator[Row]:  # noqa: B006
    """Questioner, l.9: the documents of its memory and the new ones, in the order of the corpus, and the pairs."""
    remembered: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in memory:
        remembered[row["cluster"], row["task_type"]].append(row)
    for sample in samples:
        pairs = remembered[sample["cluster"], sample["task_type"]]
        shown = {*sample["document_ids"], *(d for pair in pairs for d in pair["document_ids"])}
        yield {
            "sample_id": sample["sample_id"],
            "document_id": sample["document_id"],
            "task_type": sample["task_type"],
            "template": f"questioner_{sample['task_type']}" + ("_again" if pairs else ""),
            "context": show(document, [d for d in documents if d["document_id"] in shown]),
            "pairs": [{"question": pair["text"], "answer": pair["reference"]} for pair in pairs],
        }


def guess(empty: str, tasks: list[Row]) -> Iterator[Row]:
    """Grounding filter, l.11: the question with no document. The context says that it is empty."""
    for task in readable(tasks):
        yield {**question_of(task), "context": empty}


def respond(
    document: Template, tasks: list[Row], documents: list[Row], memberships: list[Row], *closed_book: list[Row]
) -> Iterator[Row]:
    """Responder, l.15: all documents of the cluster; those that the questioner did not see distract.

    Questions that were answered without a document are not asked.
    """
    ungrounded = {m["task_id"] for matches in closed_book for m in matches if m["matched"]}
    cluster_of = {m["document_id"]: m["cluster"] for m in memberships}
    members, text_of = members_of(memberships), {d["document_id"]: d for d in documents}
    for task in readable(tasks):
        if task["task_id"] not in ungrounded:
            shown = [text_of[d] for d in members[cluster_of[task["document_id"]]] if d in text_of]
            yield {**question_of(task), "context": show(document, shown)}


def examine(cut: Callable[[Row], Row], tasks: list[Row], contexts: list[Row]) -> Iterator[Row]:
    """The responder on held-out tasks: what does not fit is cut out of the middle of the context."""
    text_of = {row["document_id"]: row["text"] for row in contexts}
    for task in tasks:
        yield cut({**question_of(task), "context": text_of[task["document_id"]]})


def verify_answers(answers: list[Row], tasks: list[Row]) -> Iterator[Row]:
    """Verifier, l.17: question, answer and reference. No document, and no answer that was not stated."""
    by_id = {task["task_id"]: task for task in tasks}
    for answer in answers:
        if answer["answer"] is not None:
            task = by_id[answer["task_id"]]
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "rollout_id": answer["rollout_id"],
                "question": task["text"],
                "answer": answer["answer"],
                "reference": task["reference"],
            }


def question_of(task: Row) -> Row:
    """Ids and what a responder may see of a task: never its reference."""
    return {
        "task_id": task["task_id"],
        "task_type": task["task_type"],
        "template": f"responder_{task['task_type']}",
        "question": task["text"],
        "options": task["options"] or [],
    }


def show(document: Template, documents: list[Row]) -> str:
    """Documents as one context. They are neutralised again, harmlessly, when the prompt is rendered."""
    return "".join(document.render(title=d["title"] or "", text=d["text"]) for d in documents).strip()


def cut_to_fit(about: Row, *, templates: tuple[Template, ...], model: str, limit: int) -> Row:
    """Cut the middle of the context so that the prompt has at most `limit` tokens, chat markup included, roughly."""
    template = next(t for t in templates if t.name == about["template"])
    markup = 32  # tokens of a chat template around one message
    rest = count_tokens(template.render(**{**about, "context": ""}), model) + markup
    return {**about, "context": cut_middle(about["context"], model, max(1, limit - rest))}


# ---- how their replies are read -----------------------------------------------------------------------------------


def about_question(rollout: Row, prompt: Row) -> Row:
    return {
        "task_id": rollout["rollout_id"],
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "document_id": prompt["document_id"],
        "task_type": prompt["task_type"],
        "evidence": [prompt["document_id"]],
    }


def read_question(rollout: Row, prompt: Row, *, model: str) -> Row:
    if rollout["finish_reason"] == "length" and readers.still_thinking(rollout["reply"]):
        raise Malformed(readers.CUT_THINKING)
    return readers.read_question(rollout["reply"], prompt["task_type"], lambda text: count_tokens(text, model))


def about_answer(rollout: Row, prompt: Row, *, model: str) -> Row:
    return {
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "task_id": prompt["task_id"],
        "answer_tokens": count_tokens(rollout["reply"] or "", model),
    }


def read_answer(rollout: Row, prompt: Row) -> Row:
    return {"answer": readers.read_answer(rollout["reply"])}


def about_vote(rollout: Row, prompt: Row) -> Row:
    return {
        "judge_rollout_id": rollout["rollout_id"],
        "rollout_id": prompt["rollout_id"],
        "task_id": prompt["task_id"],
    }


def read_vote(rollout: Row, prompt: Row) -> Row:
    return {"vote": readers.read_vote(rollout["reply"])}


def readable(tasks: list[Row]) -> Iterator[Row]:
    return (task for task in tasks if task["malformed"] is None)
