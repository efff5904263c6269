"""Tables of answers, the verdicts on them, and the rewards and advantages computed from these."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import ReplyColumns, WhyMalformed, define

SCORE = (
    "how well the task was answered, 0..1: the mean over its answers for who proposed it, this"
    " answer's own for who solved it"
)


class Answer(TypedDict):
    """A row of `answers`: an answer to a task, which is one rollout of the solving role."""

    rollout_id: Annotated[str, "the rollout"]
    prompt_id: Annotated[str, "its group"]
    task_id: Annotated[str, "the task"]
    answer: Annotated[str | None, "text between the answer tags", "none could be read"]
    answer_tokens: Annotated[int | None, "its length in tokens of the policy", "not counted"]
    format: Annotated[
        dict[str, float] | None,
        "parts of the format reward, each 0..1, and `total`",
        "none is paid",
    ]
    num_searches: Annotated[int | None, "valid searches in all turns", "it could not search"]
    evidence: Annotated[
        list[str] | None, "what it quotes from its context, in order", "it was not asked to quote"
    ]
    verbatim: Annotated[
        float | None,
        "share of the quotes that are in its prompt word for word",
        "it quotes nothing",
    ]
    malformed: WhyMalformed


ANSWERS = define(
    "answers",
    Answer,
    grain="an answer to a task: one rollout of the solving role",
    key="rollout_id",
    parsed=ReplyColumns("rollout_id", "answer"),
)


class Match(TypedDict):
    """A row of `matches`: a rule's comparison of an answer with its task's reference."""

    rollout_id: Annotated[str, "the answer"]
    task_id: Annotated[str, "its task"]
    matched: Annotated[
        bool | None, "whether the rule holds them equal", "they could not be compared"
    ]
    reason: Annotated[str | None, "why they could not be compared", "they were"]
    seconds: Annotated[float, "time of the comparison"]


MATCHES = define(
    "matches",
    Match,
    grain="a rule's comparison of an answer with its task's reference",
    key="rollout_id",
)


class ExecutionRow(TypedDict):
    """A row of `executions`: a program run on one input."""

    subject_id: Annotated[str, "the task, or the rollout with an answer, that it ran for"]
    position: Annotated[int, "0-based place among the inputs of that task or answer"]
    program: Annotated[str, "Python that defines a function `f`"]
    input: Annotated[str, "the arguments of `f`, separated by commas"]
    output: Annotated[str | None, "what `f` returned, as a literal", "see reason"]
    error: Annotated[
        str | None, "the name of the exception that it raised", "none, or it did not get so far"
    ]
    reason: Annotated[str | None, "why there is no output", "there is one"]
    seconds: Annotated[float, "time of all its runs"]


EXECUTIONS = define(
    "executions",
    ExecutionRow,
    grain="a program run on one input",
    key="subject_id position",
)


class Vote(TypedDict):
    """A row of `votes`: one of a judge's votes on an answer."""

    judge_rollout_id: Annotated[str, "the rollout that voted"]
    rollout_id: Annotated[str, "the answer"]
    task_id: Annotated[str, "its task"]
    vote: Annotated[int | None, "1 correct, 0 not", "no vote could be read"]
    malformed: WhyMalformed


VOTES = define(
    "votes",
    Vote,
    grain="one of a judge's votes on an answer",
    key="judge_rollout_id",
    parsed=ReplyColumns("judge_rollout_id", "vote"),
)


class Judgment(TypedDict):
    """A row of `judgments`: a verdict on one answer by one criterion."""

    rollout_id: Annotated[str, "the answer judged (a canary's own id)"]
    task_id: Annotated[str, "its task"]
    criterion_id: Annotated[str, "the criterion"]
    verdict: Annotated[int | None, "1 met, 0 not met", "no verdict could be read"]
    oracle: Annotated[int | None, "what the true facts say, 1 or 0", "no oracle knows this task"]
    expected: Annotated[int | None, "the known verdict of a canary", "not a canary"]
    judge_rollout_id: Annotated[str, "the rollout that judged"]
    malformed: WhyMalformed


JUDGMENTS = define(
    "judgments",
    Judgment,
    grain="a verdict on one answer by one criterion",
    key="rollout_id criterion_id",
    parsed=ReplyColumns("judge_rollout_id", "verdict"),
)


class Mark(TypedDict):
    """A row of `marks`: one of a judge's marks for a task, or for an answer to it."""

    judge_rollout_id: Annotated[str, "the rollout that marked"]
    prompt_id: Annotated[str, "its prompt"]
    task_id: Annotated[str, "the task"]
    rollout_id: Annotated[str | None, "the answer that is marked", "the task itself is"]
    position: Annotated[
        int | None, "0-based place among those that the reply compares", "it marks one"
    ]
    mark: Annotated[float | None, "how good it is, 0..1", "no mark could be read"]
    is_best: Annotated[
        bool | None, "whether the reply names it as the best of those compared", "it names none"
    ]
    format: Annotated[
        dict[str, float] | None,
        "parts of the format reward, each 0..1, and `total`",
        "none is paid",
    ]
    malformed: WhyMalformed


MARKS = define(
    "marks",
    Mark,
    grain="one of a judge's marks for a task, or for an answer to it",
    key="judge_rollout_id position",
    parsed=ReplyColumns("judge_rollout_id", "mark", order="position"),
)


class Reward(TypedDict):
    """A row of `rewards`: the reward of one rollout, part by part."""

    rollout_id: Annotated[str, "the rollout"]
    group_id: Annotated[str, "the prompt whose rollouts are compared"]
    task_id: Annotated[str, "the task it wrote or answered"]
    score: Annotated[
        float | None, SCORE, "no answer counted, or it neither wrote nor answered a task"
    ]
    components: Annotated[
        dict[str, float], "parts of the reward, unweighted, and what they were made of"
    ]
    reward: Annotated[float | None, "what the rollout earned", "unscorable"]
    unscorable: Annotated[str | None, "why there is no reward", "there is one"]


REWARDS = define(
    "rewards",
    Reward,
    grain="the reward of one rollout, part by part",
    key="rollout_id",
    finite="score reward",
)


class Advantage(Reward):
    """A row of `advantages`: the reward and advantage of one rollout."""

    advantage: Annotated[float, "normalised reward; 0 where unscorable or without contrast"]


ADVANTAGES = define(
    "advantages", Advantage, grain="the reward and advantage of one rollout", key="rollout_id"
)
