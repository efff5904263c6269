"""Every table of self-play: its grain, key, columns, units and nulls. Those of corpus preparation are in
`warehouse.schemas.corpus`, what is remembered and chosen between steps in `warehouse.schemas.groups`.

Rows carry ids of what they came from, so that any row of an update's batch leads back to its document:
batches.rollout_id -> rollouts.prompt_id -> prompts.task_id -> tasks.document_id -> documents.
Run, iteration, phase and step are not columns: they are the address, and the views of `warehouse.query` read them
from it.
"""

from __future__ import annotations

import pyarrow as pa

from warehouse.schemas.columns import BOOL, FLOAT, IDS, INT, LOGPROBS, LONG, NUMBERS, STRING, STRINGS, Column, define

MALFORMED = Column("malformed", STRING, "why the reply could not be read", "the reply was read")

MESSAGES = pa.list_(pa.struct([("role", STRING), ("content", STRING)]))
RESULTS = pa.list_(pa.struct([("query", STRING), ("document_ids", STRINGS)]))
TURNS = pa.list_(
    pa.struct(
        [
            ("context_token_ids", IDS),  # what the policy read before this turn and had not yet read
            ("continues", BOOL),  # False: the context replaces all before it (turn 1, reasoning models)
            ("sampled_token_ids", IDS),
            ("logprobs", LOGPROBS),  # natural, of the sampled tokens, under the distribution they were drawn from
            ("text", STRING),
            ("finish_reason", STRING),  # stop, length, error
            ("queries", STRINGS),
            ("valid_search", BOOL),
            ("results", RESULTS),
            ("message", STRING),  # what the policy was told after this turn, null after the last
            ("message_role", STRING),
        ]
    )
)

SAMPLES = define(
    "samples",
    "a document, or several of one cluster, drawn for one prompt",
    "sample_id",
    Column("sample_id", STRING, "identity"),
    Column("document_id", STRING, "the document; the first where it is several"),
    Column("task_type", STRING, "the type of task asked for"),
    Column("search_turns", INT, "required number of search turns"),
    Column("cluster", INT, "the cluster they are of", "documents were not drawn by cluster"),
    Column("document_ids", STRINGS, "all documents drawn, in the order of the corpus", "it is one"),
)

CHOICES = define(
    "choices",
    "the type of task that a role chose for a document",
    "rollout_id",
    Column("rollout_id", STRING, "the rollout that chose"),
    Column("prompt_id", STRING, "its prompt"),
    Column("document_id", STRING, "the document"),
    Column("task_type", STRING, "the type chosen", "none could be read"),
    MALFORMED,
)

PROMPTS = define(
    "prompts",
    "a prompt as a policy is to read it",
    "prompt_id",
    Column("prompt_id", STRING, "identity, from its content and what it is about"),
    Column("role", STRING, "who answers it"),
    Column("template", STRING, "name of the template"),
    Column("template_version", STRING, "hash of the template's text"),
    Column("messages", MESSAGES, "the conversation so far"),
    Column("search_turns", INT, "search turns allotted", "the dialogue's own limit holds"),
    Column("sample_id", STRING, "the draw that it was made from", "not made from one, or known by its document"),
    Column("document_id", STRING, "document shown", "none"),
    Column("task_id", STRING, "task it is about", "it asks for a new one"),
    Column("task_type", STRING, "type of that task", "none"),
    Column("rollout_id", STRING, "rollout it asks a judgment of", "none"),
    Column("criterion_id", STRING, "criterion it asks a judgment by", "none"),
)

ROLLOUTS = define(
    "rollouts",
    "one conversation sampled from a policy",
    "rollout_id",
    Column("rollout_id", STRING, "identity, from prompt, sample and seed"),
    Column("prompt_id", STRING, "its prompt"),
    Column("role", STRING, "the role played"),
    Column("sample", INT, "0..G-1 within the prompt's group"),
    Column("policy", STRING, "id of the policy that sampled it"),
    Column("policy_hash", STRING, "content hash of that policy's weights"),
    Column("seed", LONG, "seed of the call; each turn's seed derives from it, the prompt and the sample"),
    Column("finish_reason", STRING, "final, turns, length, context or error"),
    Column("error", STRING, "what failed", "nothing did"),
    Column("reply", STRING, "text of the last turn", "there was none"),
    Column("num_turns", INT, "assistant turns"),
    Column("num_searches", INT, "valid searches"),
    Column("num_sampled_tokens", INT, "tokens sampled in all turns"),
    Column("turns", TURNS, "the turns, with token ids and log-probabilities", "no turn was sampled"),
)

TASKS = define(
    "tasks",
    "a candidate task: one rollout of the proposing role",
    "task_id",
    Column("task_id", STRING, "identity (the rollout that wrote it)"),
    Column("rollout_id", STRING, "that rollout"),
    Column("prompt_id", STRING, "its group"),
    Column("document_id", STRING, "source document"),
    Column("task_type", STRING, "type asked for"),
    Column("search_turns", INT, "search turns asked for"),
    Column("text", STRING, "the task", "none could be read"),
    Column("reference", STRING, "the answer that it was written with", "it has none, or none could be read"),
    Column("answer_type", STRING, "what kind of answer the reference is", "not stated"),
    Column("options", STRINGS, "choices offered, in order", "it offers none"),
    Column("evidence", STRINGS, "ids of the source document and all retrieved ones"),
    Column("format", NUMBERS, "parts of the format reward, each 0..1, and `total`"),
    MALFORMED,
)

GATES = define(
    "gates",
    "a check of a task",
    "task_id gate",
    Column("task_id", STRING, "the task"),
    Column("gate", STRING, "name of the check"),
    Column("kind", STRING, "model or rule"),
    Column("passed", BOOL, "verdict", "the reply was malformed: not passed"),
    Column("judge_rollout_id", STRING, "the rollout that judged", "a rule did"),
    MALFORMED,
)

RUBRICS = define(
    "rubrics",
    "a criterion of a task's rubric; a malformed rubric is one row without criterion",
    "criterion_id",
    Column("criterion_id", STRING, "identity: task and position"),
    Column("task_id", STRING, "the task"),
    Column("position", INT, "0-based place in the rubric"),
    Column("criterion", STRING, "one sentence", "the rubric is malformed"),
    Column("priority", STRING, "critical, important or bonus", "the rubric is malformed"),
    Column("weight", FLOAT, "weight in the score", "the rubric is malformed"),
    Column("judge_rollout_id", STRING, "the rollout that wrote it"),
    MALFORMED,
)

ANSWERS = define(
    "answers",
    "an answer to a task: one rollout of the solving role",
    "rollout_id",
    Column("rollout_id", STRING, "the rollout"),
    Column("prompt_id", STRING, "its group"),
    Column("task_id", STRING, "the task"),
    Column("answer", STRING, "text between the answer tags", "none could be read"),
    Column("answer_tokens", INT, "its length in tokens of the policy"),
    Column("format", NUMBERS, "parts of the format reward, each 0..1, and `total`"),
    Column("num_searches", INT, "valid searches in all turns"),
    MALFORMED,
)

MATCHES = define(
    "matches",
    "a rule's comparison of an answer with its task's reference",
    "rollout_id",
    Column("rollout_id", STRING, "the answer"),
    Column("task_id", STRING, "its task"),
    Column("matched", BOOL, "whether the rule holds them equal", "they could not be compared"),
    Column("reason", STRING, "why they could not be compared", "they were"),
    Column("seconds", FLOAT, "time of the comparison"),
)

VOTES = define(
    "votes",
    "one of a judge's votes on an answer",
    "judge_rollout_id",
    Column("judge_rollout_id", STRING, "the rollout that voted"),
    Column("rollout_id", STRING, "the answer"),
    Column("task_id", STRING, "its task"),
    Column("vote", INT, "1 correct, 0 not", "no vote could be read"),
    MALFORMED,
)

JUDGMENTS = define(
    "judgments",
    "a verdict on one answer by one criterion",
    "rollout_id criterion_id",
    Column("rollout_id", STRING, "the answer judged (a canary's own id)"),
    Column("task_id", STRING, "its task"),
    Column("criterion_id", STRING, "the criterion"),
    Column("verdict", INT, "1 met, 0 not met", "no verdict could be read"),
    Column("oracle", INT, "what the true facts say, 1 or 0", "no oracle knows this task"),
    Column("expected", INT, "the known verdict of a canary", "not a canary"),
    Column("judge_rollout_id", STRING, "the rollout that judged"),
    MALFORMED,
)

SCORES = define(
    "scores",
    "the reward of one rollout, part by part",
    "rollout_id",
    Column("rollout_id", STRING, "the rollout"),
    Column("group_id", STRING, "the prompt whose rollouts are compared"),
    Column("task_id", STRING, "the task it wrote or answered"),
    Column("components", NUMBERS, "parts of the reward, unweighted, and what they were made of"),
    Column("total", FLOAT, "the reward", "unscorable"),
    Column("unscorable", STRING, "why there is no reward", "there is one"),
)

REWARDS = define(
    "rewards",
    "the reward and advantage of one rollout",
    "rollout_id",
    *SCORES.columns,
    Column("advantage", FLOAT, "normalised reward; 0 where unscorable or without contrast"),
)

SELECTIONS = define(
    "selections",
    "a candidate task: kept, or the first reason why not",
    "task_id",
    Column("task_id", STRING, "the task"),
    Column("document_id", STRING, "its source document"),
    Column("kept", BOOL, "whether it is trained on"),
    Column("reason", STRING, "first failing test", "kept"),
    Column("num_met", LONG, "verdicts met, over all counted rollouts", "no rollout counted"),
    Column("num_criteria", LONG, "verdicts asked for, over all counted rollouts", "no rollout counted"),
    Column("num_rollouts", LONG, "rollouts behind the mean score"),
    Column("mean_score", FLOAT, "mean weighted score over these rollouts, 0..1", "no rollout counted"),
    Column("bounds", STRING, "the bounds used, as JSON"),
)

LIKELIHOODS = define(
    "likelihoods",
    "a stored reply under one prompt, its own or one that shows another document",
    "prompt_id",
    Column("prompt_id", STRING, "the prompt"),
    Column("rollout_id", STRING, "the rollout whose last reply it is"),
    Column("task_id", STRING, "the task that the reply is or belongs to"),
    Column("kind", STRING, "what the reply is"),
    Column("document_id", STRING, "the document that the prompt shows"),
    Column("is_source", BOOL, "whether that is the task's source document"),
    Column("logprob", FLOAT, "natural, of the whole reply, at temperature 1", "it could not be computed"),
    Column("num_tokens", INT, "tokens of the reply"),
    Column("error", STRING, "what failed", "nothing did"),
)

EVALUATIONS = define(
    "evaluations",
    "a metric of a policy on a benchmark",
    "policy benchmark metric",
    Column("policy", STRING, "the policy"),
    Column("benchmark", STRING, "which tasks"),
    Column("metric", STRING, "what was measured"),
    Column("n", LONG, "number of tasks"),
    Column("score", FLOAT, "mean over tasks", "n is 0"),
    Column("standard_error", FLOAT, "of that mean, over tasks", "n is below 2"),
)
