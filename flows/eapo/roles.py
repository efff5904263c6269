"""EAPO's roles: what each is asked, and about which rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from flows.eapo.config import Config
from flows.eapo.readers import read_answer, read_verdict
from flows.evidence import in_contexts
from flows.long_context import answers_to_judge
from flows.run import Role, templates
from tasks.compare import read_scores
from tasks.engines.base import Sampling
from tasks.prompt import Row
from tasks.read import Reader, reads
from tasks.stage import rows_by
from warehouse.schemas import ANSWERS, MARKS, VOTES, Answer, Task

HIGHEST = 5  # v of section 3.2


class Roles:
    def __init__(self, cfg: Config) -> None:
        d, template = cfg.dialogues, templates(cfg, cfg.dialogues.prompts)
        role = partial(Role, sampling=d.sampling, dialogue=d.one_reply)
        scores = Reader(partial(read_scores, highest=HIGHEST), whole=True)
        shown = d.one_reply.model_copy(update={"prompt_tokens": d.input_tokens})
        whole = Reader(read_answer, whole=True)
        self.policy = role("policy", (template("answer"),), in_contexts, into=ANSWERS, read=whole, dialogue=shown)
        warmth = d.temperature if cfg.evaluation.temperature is None else cfg.evaluation.temperature
        self.examinee = replace(self.policy, sampling=d.sampling.model_copy(update={"temperature": warmth}))
        self.reward_model = role(
            "reward_model", (template("compare"),), groups, into=MARKS, read=scores, judge=True, ask_again=scores
        )
        self._cfg = cfg

    @property
    def judge(self) -> Role | None:
        """The role that judges whether an answer is right; None if a rule decides."""
        if self._cfg.outcome == "rule":
            return None
        d = self._cfg.dialogues
        greedy = Sampling(temperature=0, max_tokens=d.response_tokens)
        asked, read = (templates(self._cfg, d.prompts)("judge"),), reads("vote", read_verdict)
        how = {"dialogue": d.one_reply, "judge": True, "ask_again": read_verdict}
        return Role("judge", asked, answers_to_judge, greedy, VOTES, read, **how)


def groups(answers: list[Answer], tasks: list[Task]) -> Iterator[Row]:
    """The evidence of all readable answers to one prompt, without the context."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    for group in rows_by("prompt_id", (row for row in answers if row["answer"] is not None)).values():
        task_id = group[0]["task_id"]
        ids = {"task_id": task_id, "rollout_ids": [row["rollout_id"] for row in group]}
        yield {**ids, "question": text_of[task_id], "sets": [row["evidence"] for row in group]}
