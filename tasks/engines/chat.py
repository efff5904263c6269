"""Models behind an API, in place of engines, for roles that are never trained.

Their conversations have one reply. Every reply is stored as it arrives. Of a failed request only
the cost is stored: the stage's next attempt sends it again.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engines.bar import Bar
from tasks.engines.budget import Budget
from tasks.engines.chat_client import ChatClient, NotAnswered
from tasks.engines.endpoint import API, ChatEndpoint
from tasks.models.engine import EngineDied, Policy, Sampling
from tasks.rollouts.conversation import Conversation, seed_from
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.rollout import rollout_id, rollout_row
from warehouse.draft import hash_json
from warehouse.replies import PaidReplies, PaidReply
from warehouse.schemas import PromptRow, Rollout, Row, Turn

MOST_SEED = 2**31  # a bound that every endpoint accepts
# the outcome of each request: its key, and the reply or the reason why there is none
Results = list[tuple[str, PaidReply | Exception]]
ResultQueue = queue.SimpleQueue[tuple[str, PaidReply | Exception]]


@dataclass(frozen=True)
class Request:
    """A request, the key of its reply, and the run and row for which it is paid."""

    key: str
    body: dict[str, Any]
    run: str
    rollout_id: str


class ChatFleet:
    """The models of one endpoint, with the interface of a `Fleet`; the cost is charged to `run`."""

    def __init__(self, endpoint: ChatEndpoint, root: Path, run: str):
        self.endpoint = endpoint
        self.run = run
        self._paid = PaidReplies(root)
        self._client: ChatClient | None = None

    # the signature of `Fleet.roll_out`
    def roll_out(
        self,
        prompts: Iterable[PromptRow],
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        index: Path | None = None,
        group_size: int = 1,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        skip: frozenset[tuple[str, int]] = frozenset(),
        attempt: int = 0,
    ) -> Iterator[Rollout]:
        """Yield `group_size` replies to each prompt as rows, without those in `skip`.

        Replies already paid for come first. Requests with the same prompt, model, settings, sample,
        `attempt` and (at temperature > 0) seed are sent once. `attempt` is 1 for prompts whose
        replies could not be read.

        Raises:
            ValueError: a dialogue of several turns; a form, which only vLLM can enforce; no key; a
                refusal that applies to every request.
            EngineDied: failures exceed `max_failed_share` of all rows; replies are kept.
            SpendingCapReached: `max_cost` is spent; replies are kept.
        """
        if sampling.form is not None:
            raise ValueError(
                f"{policy.id} is behind an API, which holds no reply to a form: take its role out"
                " of `structured`"
            )
        if dialogue.search or dialogue.max_turns > 1:
            raise ValueError(
                f"{policy.id} is behind an API: it can take roles of one reply, without searches"
            )
        prompts = list(prompts)
        # by the key of the request that all of its conversations share
        pending: dict[str, list[Conversation]] = {}
        for prompt in prompts:
            for sample in range(group_size):
                if (prompt["prompt_id"], sample) not in skip:
                    conversation = _conversation(prompt, sample, seed)
                    key = self._cache_key(conversation, policy, sampling, attempt)
                    pending.setdefault(key, []).append(conversation)
        total = len(prompts) * group_size
        max_failed = math.ceil(total * self.endpoint.max_failed_share)
        report = progress or Bar(policy.id, "replies")
        rows = self._rows(pending, policy, sampling, seed, max_failed)
        for count, row in enumerate(rows, start=len(skip) + 1):
            report(count, total)
            yield row

    def _cache_key(
        self, conversation: Conversation, policy: Policy, sampling: Sampling, attempt: int
    ) -> str:
        drawn_by = attempt or None  # else the unreadable reply would come back from the store
        if sampling.temperature > 0:
            drawn_by = conversation.seed  # else other runs draw the same replies
        settings = sampling.model_dump(mode="json")
        return hash_json(
            [policy.content_hash, conversation.messages, settings, conversation.sample, drawn_by]
        )

    def _rows(
        self,
        pending: dict[str, list[Conversation]],
        policy: Policy,
        sampling: Sampling,
        seed: int,
        max_failed: int,
    ) -> Iterator[Rollout]:
        """Yield the rows of `pending`: from the store, then from the endpoint, then failed ones.

        A request that failed is sent once more before it is given up, unless it was refused.
        """
        for key, reply in self._paid.find(pending).items():
            for conversation in pending.pop(key):
                yield _row(conversation, policy, seed, sampling, reply, self.run)
        failed: dict[str, NotAnswered] = {}
        to_send = list(pending)
        num_requests = len(to_send)
        for _ in range(2):
            requests = [
                Request(
                    key,
                    self._body(pending[key][0], policy, sampling),
                    self.run,
                    rollout_id(pending[key][0], seed),
                )
                for key in to_send
            ]
            failed = {key: why for key, why in failed.items() if key not in to_send}
            for key, reply in self._send_all(requests, failed, max_failed, num_requests):
                for conversation in pending.pop(key):
                    yield _row(conversation, policy, seed, sampling, reply, self.run)
            to_send = [key for key, why in failed.items() if why.kind != "never"]
        for key, why in failed.items():
            for conversation in pending[key]:
                conversation.finish = "error"
                conversation.error = str(why)
                yield rollout_row(conversation, policy, seed)

    def _send_all(
        self,
        requests: list[Request],
        failed: dict[str, NotAnswered],
        max_failed: int,
        num_requests: int,
    ) -> Iterator[tuple[str, PaidReply]]:
        """Send requests, and store each reply before yielding it.

        Each failure is put into `failed`, which may already hold some of the `num_requests`.
        """
        if not requests:
            return
        if self._client is None:
            self._client = ChatClient(self.endpoint)
        client = self._client
        client.throttle.begin()
        budget = Budget(
            self.endpoint,
            spent=self._paid.spent(self.run),
            lost=self._paid.lost(self.run),
            keep_loss=lambda cost: self._paid.lose(cost, self.run),
        )
        done: ResultQueue = queue.SimpleQueue()
        stop: Exception | None = None
        try:
            num_pending = _start(requests, client, budget, done)
            while num_pending:
                results = _drain(done)
                num_pending -= len(results)
                yield from self._keep(results)
                failed |= {
                    key: result for key, result in results if isinstance(result, NotAnswered)
                }
                stop = stop or self._why_stop(results, failed, max_failed, num_requests)
                if stop is not None:
                    client.throttle.stop()  # wait for requests in flight: they are paid for
                    budget.stop()
        finally:
            client.throttle.stop()
            budget.stop()
            list(self._keep(_drain(done, wait=False)))
        if stop is not None:
            raise stop

    def _keep(self, results: Results) -> Iterator[tuple[str, PaidReply]]:
        """Store the replies among the results, then yield them."""
        replies = {key: result for key, result in results if isinstance(result, PaidReply)}
        if replies:
            self._paid.put(replies)
        yield from replies.items()

    def _why_stop(
        self, results: Results, failed: dict[str, NotAnswered], max_failed: int, num_requests: int
    ) -> Exception | None:
        """The error that ends the stage, if the results call for one."""
        for key, result in results:
            if isinstance(result, PaidReply):
                continue
            if not isinstance(result, NotAnswered):
                return result
            if result.kind == "hopeless":
                return ValueError(f"{self.endpoint.url} serves nobody: {result}")
            if result.kind != "stopped" and len(failed) > max_failed:
                return EngineDied(
                    f"{len(failed)} of {num_requests} requests failed, and {max_failed} may"
                    f" (api.max_failed_share); the last one: {failed[key]}. What was answered is"
                    " kept: repeat the command to ask for the rest"
                )
        return None

    def _body(
        self, conversation: Conversation, policy: Policy, sampling: Sampling
    ) -> dict[str, Any]:
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

    def reply_logprobs(
        self, prompts: Iterable[Mapping[str, Any]], policy: Policy, dialogue: Dialogue
    ) -> Iterator[Row]:
        """Always raises ValueError: no API returns the likelihood of a given reply."""
        raise ValueError(
            f"{policy.id} is behind an API, which does not tell how likely a reply is. Switch off"
            " what asks for that, or let an engine serve the model"
        )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _conversation(prompt: PromptRow, sample: int, seed: int) -> Conversation:
    messages = [{"role": m["role"], "content": m["content"]} for m in prompt["messages"]]
    return Conversation(prompt, sample, seed_from(seed, prompt["prompt_id"], sample), messages, [])


def _start(requests: list[Request], client: ChatClient, budget: Budget, done: ResultQueue) -> int:
    """Begin to send requests; return how many.

    The threads are daemons, so an interrupted process does not wait for replies.
    """
    waiting = list(reversed(requests))

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                _send(waiting.pop(), client, budget, done)

    for _ in range(min(client.endpoint.max_concurrency, len(requests))):
        threading.Thread(target=work, name="chat", daemon=True).start()
    return len(requests)


def _send(request: Request, client: ChatClient, budget: Budget, done: ResultQueue) -> None:
    """Send one request, and put the reply, or the reason why there is none, into `done`."""
    try:
        with budget.reserved(request.body) as reservation:
            try:
                answer = client.ask(request.body, again=reservation.lose_and_renew)
            except NotAnswered as problem:
                if problem.usage is not None:
                    reservation.lose(problem.usage)
                raise
            reply = PaidReply(
                text=answer.text,
                finish_reason=answer.finish_reason,
                num_prompt_tokens=answer.usage.num_prompt_tokens,
                num_completion_tokens=answer.usage.num_completion_tokens,
                cost=reservation.bill(answer.usage),
                model=answer.model,
                run=request.run,
                rollout_id=request.rollout_id,
            )
        done.put((request.key, reply))
    except Exception as problem:  # the thread that reads `done` raises it or counts it
        done.put((request.key, problem))


def _drain(done: ResultQueue, wait: bool = True) -> Results:
    """The results that have arrived; with `wait`, at least one."""
    results: Results = []
    if wait:
        results.append(done.get())
    while not done.empty():
        results.append(done.get())
    return results


def _row(
    conversation: Conversation,
    policy: Policy,
    seed: int,
    sampling: Sampling,
    reply: PaidReply,
    run: str,
) -> Rollout:
    """A reply as a rollout. It has no token ids, so it cannot be trained on."""
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
    conversation.finish = "final"
    if reply.finish_reason == "length" and text == reply.text:
        conversation.finish = "length"
    row = rollout_row(conversation, policy, seed)
    row["num_sampled_tokens"] = reply.num_completion_tokens or 0
    row["usage"] = {
        "num_prompt_tokens": reply.num_prompt_tokens,
        "num_completion_tokens": reply.num_completion_tokens,
        "cost": reply.cost,
        "cached": (run, row["rollout_id"]) != (reply.run, reply.rollout_id),
        "model": reply.model,
    }
    return row


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """A text up to and including its first stop string.

    Endpoints would cut the stop string off, so they are sent none.

    >>> cut_at_stop("<score>1</score> because", ("</score>", "because"))
    '<score>1</score>'
    """
    ends = [text.index(string) + len(string) for string in stop if string in text]
    return text[: min(ends, default=len(text))]
