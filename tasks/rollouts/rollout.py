"""Conversations: prompts in, rollouts out, many at once on one engine."""

from collections.abc import Iterable, Iterator, Set
from typing import TypedDict

from tasks.models.engine import Engine, Policy, Sampling
from tasks.rollouts.conversation import Conversation, digest
from tasks.rollouts.dialogue import Dialogue, Retriever
from tasks.rollouts.play import Play
from warehouse.schemas import PromptRow, Rollout

__all__ = ["Dialogue", "Retriever", "datums", "roll_out"]


class Tokens(TypedDict):
    """The token columns of a `Datum`, for training; logprobs are 0 where the mask is 0."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]


def roll_out(
    engine: Engine,
    prompts: Iterable[PromptRow],
    policy: Policy,
    sampling: Sampling,
    dialogue: Dialogue,
    retriever: Retriever | None = None,
    group_size: int = 1,
    seed: int = 0,
    skip: Set[tuple[str, int]] = frozenset(),
) -> Iterator[Rollout]:
    """Sample `group_size` conversations for each prompt; yield their rows as they finish.

    A prompt has prompt_id, role, messages (role, content) and search_turns (None: the dialogue's
    own limit). A row is a rollout: it depends on the prompt, the policy's weights, the sample
    number and the seed, not on order or batch. `skip` holds the (prompt_id, sample) pairs to leave
    out.

    Raises:
        EngineDied: after all finished rows were yielded.
        ValueError: a search syntax without a retriever, or a chat template that cannot represent
            the dialogue.
    """
    play = Play(engine)
    call = play.open(policy, sampling, dialogue, retriever, seed)
    requests = (
        (call, prompt, sample)
        for prompt in prompts
        for sample in range(group_size)
        if (prompt["prompt_id"], sample) not in skip
    )
    try:
        while call.error is None:
            for _, conversation in play.fill(lambda: next(requests, None)):
                yield rollout_row(conversation, policy, seed)
            if not play.is_busy:
                break
            for _, conversation in play.go_on():
                yield rollout_row(conversation, policy, seed)
    finally:
        play.close()
    if call.error is not None:
        raise call.error


def rollout_id(conversation: Conversation, seed: int) -> str:
    """The identity of a conversation's row."""
    return digest(conversation.prompt["prompt_id"], conversation.sample, seed).hex()


def rollout_row(conversation: Conversation, policy: Policy, seed: int) -> Rollout:
    """A finished conversation as a row of the table `rollouts`."""
    assert conversation.finish is not None
    return {
        "rollout_id": rollout_id(conversation, seed),
        "prompt_id": conversation.prompt["prompt_id"],
        "role": conversation.prompt["role"],
        "sample": conversation.sample,
        "policy": policy.id,
        "policy_hash": policy.content_hash,
        "seed": conversation.seed,
        "finish_reason": conversation.finish,
        "error": conversation.error,
        "reply": conversation.turns[-1]["text"] if conversation.turns else "",
        "num_turns": len(conversation.turns),
        "num_searches": conversation.num_searches,
        "num_sampled_tokens": sum(len(turn["sampled_token_ids"]) for turn in conversation.turns),
        "turns": conversation.turns,
        "usage": None,
    }


def datums(row: Rollout) -> Iterator[Tokens]:
    """The training rows of a rollout: the whole conversation, or each turn if every turn has its
    own prompt (reasoning models).
    """
    datum: Tokens | None = None
    for turn in row["turns"] or []:
        if not turn["sampled_token_ids"]:
            continue
        if datum is not None and not turn["continues"]:
            yield datum
            datum = None
        if datum is None:
            context = list(turn["context_token_ids"])
            datum = {
                "prompt_token_ids": context,
                "completion_token_ids": [],
                "loss_mask": [],
                "logprobs": [],
            }
        else:
            _extend(datum, turn["context_token_ids"], [0.0] * len(turn["context_token_ids"]), 0)
        _extend(datum, turn["sampled_token_ids"], turn["logprobs"], 1)
    if datum is not None:
        yield datum


def _extend(datum: Tokens, token_ids: list[int], logprobs: list[float], mask: int) -> None:
    datum["completion_token_ids"] += token_ids
    datum["logprobs"] += logprobs
    datum["loss_mask"] += [mask] * len(token_ids)
