"""Replies that are given, not sampled: as rollouts, and their log-probabilities under a policy."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from types import SimpleNamespace
from typing import Any, TypedDict

from tasks.models.engine import Completion, Engine, Policy, Sampling, load_tokenizer
from tasks.rollouts.conversation import Talk
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.rollout import rollout_row
from tasks.rollouts.searches import Searches
from warehouse.schemas import PromptRow, Rollout, Row

NOBODY = Policy(id="given", weights="", content_hash="")


class GivenDatum(TypedDict):
    """Token ids as the trainer reads them, with an id."""

    prompt_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]  # T > 0
    loss_mask: list[int]  # T; 1 where the token counts


class GivenReply(PromptRow):
    """A prompt and the reply to it."""

    between_token_ids: list[int]  # tokens between the prompt and the reply
    reply_token_ids: list[int]  # T > 0


def speak(
    prompts: Sequence[PromptRow], texts: Sequence[str], model: Policy, dialogue: Dialogue
) -> Iterator[Rollout]:
    """Yield a rollout for every prompt whose reply is the prompt's text, in `model`'s tokens, and
    the end of the turn.

    A prompt over the dialogue's limit gets an error instead. No token counts as sampled.
    """
    tokenizer = load_tokenizer(model.weights)
    silent: Any = SimpleNamespace(tokenizer=tokenizer, max_model_len=sys.maxsize)
    talk = Talk(silent, NOBODY, Sampling(max_tokens=1), dialogue, Searches())
    for prompt, text in zip(prompts, texts, strict=True):
        conversation = talk.start(prompt, 0, 0)
        if conversation.finish is None:
            ids = [*talk.encode(text), tokenizer.eos_token_id]
            talk.take(conversation, Completion(ids, [0.0] * len(ids), text, "stop"))
        yield {**rollout_row(conversation, NOBODY, 0), "num_sampled_tokens": 0}


def reply_logprobs(
    engine: Engine,
    prompts: Iterable[GivenReply],
    policy: Policy,
    dialogue: Dialogue,
    skip: Set[tuple[str, int]] = frozenset(),
) -> Iterator[Row]:
    """Yield the log-probability of each prompt's reply, in the order in which they finish.

    A row has prompt_id, sample (0), num_tokens (T), logprob (natural, summed over T, at temperature
    1; None if it failed) and error. `skip` holds the (prompt_id, 0) pairs to leave out.

    Raises:
        EngineDied: after all finished rows were yielded.
        ValueError: the engine returns no log-probabilities of a given reply.
    """
    engine.use(policy)
    talk = Talk(engine, policy, Sampling(max_tokens=1), dialogue, Searches())
    waiting = (prompt for prompt in prompts if (prompt["prompt_id"], 0) not in skip)
    active: dict[str, GivenReply] = {}
    while True:
        while len(active) < engine.max_num_seqs and (prompt := next(waiting, None)) is not None:
            assert prompt["reply_token_ids"], "an empty reply has no probability"
            opening = talk.start(prompt, 0, 0)
            if opening.finish is not None:
                yield _row(prompt, Completion([], [], "", "error", opening.error))
                continue
            active[prompt["prompt_id"]] = prompt
            before = opening.context + prompt["between_token_ids"]
            engine.submit_reply(prompt["prompt_id"], before, prompt["reply_token_ids"], policy)
        if not active:
            return
        replies = engine.poll()
        assert replies, "the engine lost requests"
        for key, completion in replies:
            yield _row(active.pop(key), completion)


def datum_logprobs(
    engine: Engine,
    prompts: Iterable[GivenDatum],
    policy: Policy,
    skip: Set[tuple[str, int]] = frozenset(),
) -> Iterator[Row]:
    """Yield the same for rows of token ids: `logprob` is the sum over the tokens with mask 1,
    `num_tokens` is their number, and `logprobs` has one value per token, T.

    Raises as `reply_logprobs` does.
    """
    engine.use(policy)
    waiting = (prompt for prompt in prompts if (prompt["prompt_id"], 0) not in skip)
    active: dict[str, GivenDatum] = {}
    while True:
        while len(active) < engine.max_num_seqs and (prompt := next(waiting, None)) is not None:
            active[prompt["prompt_id"]] = prompt
            engine.submit_reply(
                prompt["prompt_id"],
                prompt["prompt_token_ids"],
                prompt["completion_token_ids"],
                policy,
            )
        if not active:
            return
        for key, completion in engine.poll():
            mask = active.pop(key)["loss_mask"]
            counted = [
                logprob
                for logprob, counts in zip(completion.logprobs, mask, strict=False)
                if counts
            ]
            failed = completion.finish_reason == "error"
            yield {
                "prompt_id": key,
                "sample": 0,
                "num_tokens": sum(mask),
                "logprob": None if failed else math.fsum(counted),
                "logprobs": None if failed else list(completion.logprobs),
                "error": completion.error,
            }


def _row(prompt: GivenReply, completion: Completion) -> Row:
    failed = completion.finish_reason == "error"
    return {
        "prompt_id": prompt["prompt_id"],
        "sample": 0,
        "num_tokens": len(prompt["reply_token_ids"]),
        "logprob": None if failed else math.fsum(completion.logprobs),
        "error": completion.error,
    }
