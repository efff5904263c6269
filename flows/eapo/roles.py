"""EAPO's roles: what each is asked about which rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from flows.blocks.long_context import answers_to_judge
from flows.eapo.compare import (
    find_scores,
    find_scores_in_line,
    read_scores,
    read_scores_in_line,
)
from flows.eapo.config import Config
from flows.eapo.evidence import in_contexts
from flows.eapo.readers import read_answer, read_line, read_verdict
from flows.run import Role, templates
from tasks.models.engine import Sampling
from tasks.prompt import Row
from tasks.read import Reader, of_reply, reads
from tasks.readers.copies import Instructions
from tasks.readers.lines import VOTE_FORM, read_vote
from tasks.stage import rows_by
from warehouse.schemas import ANSWERS, MARKS, VOTES, Answer, Task

HIGHEST = 5  # v of section 3.2


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        dialogues = cfg.dialogues
        template = templates(cfg, dialogues.prompts)
        read_parts = Reader(
            partial(read_answer, instructions=Instructions.of([template("answer").text])),
            whole=True,
        )
        read_comparison = Reader(partial(read_scores, highest=HIGHEST), whole=True)
        self.find_scores = find_scores
        if cfg.reads_lines:
            read_parts = Reader(read_line)
            read_comparison = Reader(partial(read_scores_in_line, highest=HIGHEST))
            self.find_scores = find_scores_in_line
        self.policy = Role(
            name="policy",
            templates=(template("answer"),),
            variables=in_contexts,
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=read_parts,
            dialogue=dialogues.one_reply.model_copy(
                update={"prompt_tokens": dialogues.input_tokens}
            ),
        )
        self.evaluated_policy = self.policy
        if cfg.evaluation.temperature is not None:
            update = {"temperature": cfg.evaluation.temperature}
            self.evaluated_policy = replace(
                self.policy, sampling=dialogues.sampling.model_copy(update=update)
            )
        self.reward_model = Role(
            name="reward_model",
            templates=(template("compare"),),
            variables=groups,
            sampling=dialogues.sampling,
            into=MARKS,
            read=read_comparison,
            dialogue=dialogues.one_reply,
            on_judge_engine=True,
            ask_again=read_comparison.read,
        )

    @property
    def judge(self) -> Role | None:
        """The role that judges whether an answer is right; None if a rule decides."""
        if self._cfg.outcome == "rule":
            return None
        dialogues = self._cfg.dialogues
        read = read_verdict
        if self._cfg.reads_lines:
            read = read_vote
        return Role(
            name="judge",
            templates=(templates(self._cfg, dialogues.prompts)("judge"),),
            variables=answers_to_judge,
            sampling=Sampling(
                temperature=self._cfg.judge_temperature,
                max_tokens=dialogues.response_tokens,
                form=self._cfg.form_of("judge", VOTE_FORM),
            ),
            into=VOTES,
            read=reads("vote", read, whole=not self._cfg.reads_lines),
            dialogue=dialogues.one_reply,
            on_judge_engine=True,
            ask_again=of_reply(read),
        )


def groups(answers: list[Answer], tasks: list[Task]) -> Iterator[Row]:
    """Yield, for each prompt, the evidence of all its readable answers, without the context."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    readable = (row for row in answers if row["answer"] is not None)
    for group in rows_by("prompt_id", readable).values():
        task_id = group[0]["task_id"]
        yield {
            "task_id": task_id,
            "rollout_ids": [row["rollout_id"] for row in group],
            "question": text_of[task_id],
            "sets": [row["evidence"] for row in group],
        }
