"""Models behind an API, in place of engines: conversations of one reply, for roles that are never trained.

Every reply is kept in the store as it arrives. A failed request leaves nothing there: the stage's next attempt sends it
again.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.engines.base import EngineDied, Policy, Sampling
from tasks.engines.budget import Budget
from tasks.engines.chat_client import ChatClient, NotAnswered
from tasks.engines.endpoint import API, ChatEndpoint
from tasks.engines.fleet import Bar
from tasks.rollouts.conversation import Conversation, number
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.rollout import rollout_row
from warehouse.draft import hash_json
from warehouse.replies import PaidReplies, PaidReply
from warehouse.schemas import PromptRow, Rollout, Row, Turn

MOST_SEED = 2**31  # a bound that every endpoint accepts


class ChatFleet:
    """The models of one endpoint, with the interface of a `Fleet`; the cost is charged to `run`."""

    def __init__(self, endpoint: ChatEndpoint, root: Path, run: str):
        self.endpoint, self.run = endpoint, run
        self._paid = PaidReplies(root)
        self._client: ChatClient | None = None

    def roll_out(
        self,
        prompts: Iterable[PromptRow],
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        index: Path | None = None,
        num_samples: int = 1,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        skip: frozenset[tuple[str, int]] = frozenset(),
    ) -> Iterator[Rollout]:
        """Rows of `num_samples` replies to each prompt, without those in `skip`; replies already paid for come first.

        Requests with the same prompt, model, settings, sample and (at temperature > 0) seed are sent once.

        Raises:
            ValueError: a dialogue of several turns; no key; a refusal that holds for every request.
            EngineDied: more failures than `max_failed_share` of all rows; what was answered is kept.
            SpendingCapReached: `max_cost` is spent; what was answered is kept.
        """
        if dialogue.search or dialogue.max_turns > 1:
            raise ValueError(f"{policy.id} is behind an API: it can take roles of one reply, without searches")
        asked = list(prompts)
        wanted: dict[str, list[Conversation]] = {}
        for prompt in asked:
            for sample in range(num_samples):
                if (prompt["prompt_id"], sample) not in skip:
                    own = number(seed, prompt["prompt_id"], sample)
                    conversation = Conversation(
                        prompt,
                        sample,
                        own,
                        [{"role": m["role"], "content": m["content"]} for m in prompt["messages"]],
                        [],
                    )
                    wanted.setdefault(self._cache_key(conversation, policy, sampling), []).append(conversation)
        total = len(asked) * num_samples
        report = progress or Bar(policy.id, "replies")
        new = self._rows(wanted, policy, sampling, seed, math.ceil(total * self.endpoint.max_failed_share))
        for count, row in enumerate(new, start=len(skip) + 1):
            report(count, total)
            yield row

    def _cache_key(self, conversation: Conversation, policy: Policy, sampling: Sampling) -> str:
        seed = conversation.seed if sampling.temperature > 0 else None  # else other runs draw the same replies
        settings = sampling.model_dump(mode="json")
        return hash_json([policy.content_hash, conversation.messages, settings, conversation.sample, seed])

    def _rows(
        self, wanted: dict[str, list[Conversation]], policy: Policy, sampling: Sampling, seed: int, allowed: int
    ) -> Iterator[Rollout]:
        found = self._paid.find(wanted)
        for key, reply in found.items():
            for conversation in wanted.pop(key):
                yield _row(conversation, policy, seed, sampling, reply, cached=True)
        failed: dict[str, str] = {}
        for again in (False, True):
            bodies = {key: self._body(wanted[key][0], policy, sampling) for key in (failed if again else wanted)}
            failed = {} if again else failed
            for key, reply in self._ask(bodies, failed, allowed):
                first, *others = wanted.pop(key)
                yield _row(first, policy, seed, sampling, reply, cached=False)
                for conversation in others:
                    yield _row(conversation, policy, seed, sampling, reply, cached=True)
        for key, why in failed.items():
            for conversation in wanted[key]:
                conversation.finish, conversation.error = "error", why
                yield rollout_row(conversation, policy, seed)

    def _ask(self, bodies: dict[str, dict[str, Any]], failed: dict[str, str], allowed: int) -> Iterator[Any]:
        """Send requests, store each reply before handing it on, and put the reason of each failure into `failed`."""
        if not bodies:
            return
        client = self._client = self._client or ChatClient(self.endpoint)
        client.throttle.begin()
        budget = Budget(self.endpoint, self._paid.spent(self.run))
        done: queue.SimpleQueue[tuple[str, PaidReply | Exception]] = queue.SimpleQueue()
        stop: Exception | None = None
        try:
            num_pending = _start(bodies, client, budget, done)
            while num_pending:
                some = _drain(done)
                num_pending -= len(some)
                yield from self._keep(some)
                failed |= {key: str(said) for key, said in some if isinstance(said, NotAnswered)}
                stop = stop or self._why_stop(some, failed, allowed, len(bodies))
                if stop is not None:
                    client.throttle.stop()  # wait for requests in flight: they are paid for
                    budget.stop()
        finally:
            client.throttle.stop()
            budget.stop()
            list(self._keep(_drain(done, wait=False)))
        if stop is not None:
            raise stop

    def _keep(self, some: list[tuple[str, PaidReply | Exception]]) -> Iterator[tuple[str, PaidReply]]:
        replies = {key: said for key, said in some if isinstance(said, PaidReply)}
        if replies:
            self._paid.put(replies, self.run)
        yield from replies.items()

    def _why_stop(
        self, some: list[tuple[str, PaidReply | Exception]], failed: dict[str, str], allowed: int, num_asked: int
    ) -> Exception | None:
        """The error that ends the stage, if one of `some` does."""
        for key, said in some:
            if isinstance(said, NotAnswered) and said.kind == "hopeless":
                return ValueError(f"{self.endpoint.url} serves nobody: {said}")
            if isinstance(said, NotAnswered) and said.kind != "stopped" and len(failed) > allowed:
                return EngineDied(
                    f"{len(failed)} of {num_asked} requests failed, and {allowed} may (api.max_failed_share); the last "
                    f"one: {failed[key]}. What was answered is kept: repeat the command to ask for the rest"
                )
            if isinstance(said, Exception) and not isinstance(said, NotAnswered):
                return said
        return None

    def _body(self, conversation: Conversation, policy: Policy, sampling: Sampling) -> dict[str, Any]:
        body = {
            "model": policy.weights.removeprefix(API),
            "messages": conversation.messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": conversation.seed % MOST_SEED,
            **self.endpoint.extra,
        }
        return {name: value for name, value in body.items() if name not in self.endpoint.omit}

    def reply_logprobs(self, prompts: Iterable[Mapping[str, Any]], policy: Policy, dialogue: Dialogue) -> Iterator[Row]:
        """Raises ValueError: no API tells how likely a given reply is."""
        raise ValueError(
            f"{policy.id} is behind an API, which does not tell how likely a reply is. Switch off what asks for that, "
            "or let an engine serve the model"
        )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _start(
    bodies: dict[str, dict[str, Any]],
    client: ChatClient,
    budget: Budget,
    done: queue.SimpleQueue[tuple[str, PaidReply | Exception]],
) -> int:
    """Begin to send requests; returns how many. Daemon threads, so an interrupted process waits for no reply."""
    waiting = list(reversed(bodies.items()))

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                _send(*waiting.pop(), client, budget, done)

    for _ in range(min(client.endpoint.max_concurrency, len(bodies))):
        threading.Thread(target=work, name="chat", daemon=True).start()
    return len(bodies)


def _send(
    key: str,
    body: dict[str, Any],
    client: ChatClient,
    budget: Budget,
    done: queue.SimpleQueue[tuple[str, PaidReply | Exception]],
) -> None:
    try:
        with budget.reserved(body) as bill:
            said = client.ask(body)
            counted = said.num_prompt_tokens, said.num_completion_tokens
            reply = PaidReply(said.text, said.finish_reason, *counted, bill(*counted), said.model)
        done.put((key, reply))
    except Exception as problem:  # the thread that reads `done` raises it or counts it
        done.put((key, problem))


def _drain(
    done: queue.SimpleQueue[tuple[str, PaidReply | Exception]], wait: bool = True
) -> list[tuple[str, PaidReply | Exception]]:
    """The replies that have arrived; with `wait`, at least one."""
    some = [done.get()] if wait else []
    while not done.empty():
        some.append(done.get())
    return some


def _row(
    conversation: Conversation, policy: Policy, seed: int, sampling: Sampling, reply: PaidReply, *, cached: bool
) -> Rollout:
    """A reply as a rollout, without token ids, so that nothing can be trained on it."""
    text = cut_at_stop(reply.text, sampling.stop)
    turn: Turn = {
        "context_token_ids": [],
        "continues": False,
        "sampled_token_ids": [],
        "logprobs": [],
        "text": text,
        "finish_reason": reply.finish_reason,
        "queries": [],
        "valid_search": False,
        "results": [],
        "message": None,
        "message_role": None,
    }
    conversation.turns.append(turn)
    conversation.finish = "length" if reply.finish_reason == "length" and text == reply.text else "final"
    row = rollout_row(conversation, policy, seed)
    row["num_sampled_tokens"] = reply.num_completion_tokens or 0
    row["usage"] = {
        "num_prompt_tokens": reply.num_prompt_tokens,
        "num_completion_tokens": reply.num_completion_tokens,
        "cost": reply.cost,
        "cached": cached,
        "model": reply.model,
    }
    return row


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """A text up to its first stop string, which stays. Endpoints cut it off, so none is sent to them.

    >>> cut_at_stop("<score>1</score> because", ("</score>", "because"))
    '<score>1</score>'
    """
    ends = [at + len(string) for string in stop if (at := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text
