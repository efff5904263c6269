"""Tables of prompts, of rollouts sampled from them, and of replies' likelihoods under others."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import Logprob, Long, define


class Message(TypedDict):
    """One message of a conversation, as chat templates take it."""

    role: str
    content: str


class SearchResult(TypedDict):
    """A query, and the documents that its results showed."""

    query: str
    document_ids: list[str]


class Turn(TypedDict):
    """One assistant turn of a rollout."""

    context_token_ids: Annotated[
        list[int], "what the policy read before this turn and had not yet read"
    ]
    continues: Annotated[
        bool, "False: the context replaces all before it (turn 1, reasoning models)"
    ]
    sampled_token_ids: list[int]
    logprobs: Annotated[
        list[Logprob], "of the sampled tokens, under the distribution they were drawn from"
    ]
    text: str
    finish_reason: Annotated[str, "stop, length, error"]
    queries: list[str]
    valid_search: bool
    results: list[SearchResult]
    message: Annotated[str | None, "what the policy was told after this turn", "it was the last"]
    message_role: str | None


class Usage(TypedDict):
    """What an API bills for one reply."""

    num_prompt_tokens: Annotated[int | None, "None where the endpoint does not count"]
    num_completion_tokens: Annotated[
        int | None, "with what it thought; None where the endpoint does not count"
    ]
    cost: Annotated[float, "in the currency of the prices, when it was first asked"]
    cached: Annotated[bool, "it was paid for with another row, whose request was the same"]
    model: Annotated[str | None, "what the endpoint says has replied; None where it does not say"]


class PromptRow(TypedDict):
    """A row of `prompts`: a prompt as a policy reads it."""

    prompt_id: Annotated[str, "identity, from its content and what it is about"]
    role: Annotated[str, "who answers it"]
    template: Annotated[str, "name of the template"]
    template_version: Annotated[str, "hash of the template's text"]
    messages: Annotated[list[Message], "the conversation so far"]
    search_turns: Annotated[int | None, "search turns allotted", "the dialogue's own limit holds"]
    sample_id: Annotated[
        str | None, "the draw that it was made from", "not made from one, or known by its document"
    ]
    document_id: Annotated[str | None, "document shown", "none"]
    task_id: Annotated[str | None, "task it is about", "it asks for a new one"]
    task_type: Annotated[str | None, "type of that task", "none"]
    rollout_id: Annotated[str | None, "rollout it asks a judgment of", "none"]
    rollout_ids: Annotated[
        list[str] | None, "rollouts it asks to compare, in the order shown", "none, or one"
    ]
    criterion_id: Annotated[str | None, "criterion it asks a judgment by", "none"]


class Rollout(TypedDict):
    """A row of `rollouts`: one conversation sampled from a policy."""

    rollout_id: Annotated[str, "identity, from prompt, sample and seed"]
    prompt_id: Annotated[str, "its prompt"]
    role: Annotated[str, "the role played"]
    sample: Annotated[int, "0..G-1 within the prompt's group"]
    policy: Annotated[str, "id of the policy that sampled it"]
    policy_hash: Annotated[str, "content hash of that policy's weights"]
    seed: Annotated[
        Long, "seed of the call; each turn's seed derives from it, the prompt and the sample"
    ]
    finish_reason: Annotated[str, "final, turns, length, context or error"]
    error: Annotated[str | None, "what failed", "nothing did"]
    reply: Annotated[str | None, "text of the last turn", "there was none"]
    num_turns: Annotated[int, "assistant turns"]
    num_searches: Annotated[int, "valid searches"]
    num_sampled_tokens: Annotated[int, "tokens sampled in all turns"]
    turns: Annotated[
        list[Turn] | None, "the turns, with token ids and log-probabilities", "no turn was sampled"
    ]
    usage: Annotated[
        Usage | None, "tokens and cost", "it was sampled by an engine of the run, or failed"
    ]


class Likelihood(TypedDict):
    """A row of `likelihoods`: a stored reply under one prompt, its own or one that shows another
    document."""

    prompt_id: Annotated[str, "the prompt"]
    rollout_id: Annotated[str, "the rollout whose last reply it is"]
    task_id: Annotated[str, "the task that the reply is or belongs to"]
    kind: Annotated[str, "what the reply is"]
    document_id: Annotated[str, "the document that the prompt shows"]
    is_source: Annotated[bool, "whether that is the task's source document"]
    logprob: Annotated[
        float | None,
        "natural, of what the reply's element holds, at temperature 1",
        "it could not be computed",
    ]
    num_tokens: Annotated[int, "tokens of that"]
    error: Annotated[str | None, "what failed", "nothing did"]


PROMPTS = define("prompts", PromptRow, grain="a prompt as a policy is to read it", key="prompt_id")
ROLLOUTS = define(
    "rollouts", Rollout, grain="one conversation sampled from a policy", key="rollout_id"
)
LIKELIHOODS = define(
    "likelihoods",
    Likelihood,
    grain="a stored reply under one prompt, its own or one that shows another document",
    key="prompt_id",
)
