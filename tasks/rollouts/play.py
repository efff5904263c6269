"""The conversations that one engine runs at once, for any number of calls.

A conversation's next turn is submitted as soon as its search returns, without waiting for slower
searches. While a search runs, an engine on a GPU works on the other conversations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tasks.models.engine import Engine, EngineDied, Policy, Sampling, never
from tasks.rollouts.conversation import Conversation, Talk
from tasks.rollouts.dialogue import Dialogue, Retriever
from tasks.rollouts.searches import Searches
from warehouse.schemas import PromptRow


@dataclass(eq=False)
class RolloutCall:
    """One call for rollouts: its number, the rules of its conversations, the conversations under
    way, and the error that ended them all."""

    number: int
    talk: Talk
    seed: int
    active: dict[int, Conversation] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def only_search(self) -> bool:
        """Whether none of its conversations awaits a reply and some await a search."""
        return len(self.active) == len(self.talk.searching) > 0


SampleRequest = tuple[RolloutCall, PromptRow, int]  # call, prompt, number of the sample
Over = list[tuple[RolloutCall, Conversation]]  # finished conversations


class Play:
    """Runs the conversations of all calls in one batch of an engine.

    An error in a call's conversations (a search that fails, a template that drops a message) ends
    only that call.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._calls: list[RolloutCall] = []
        self._of: dict[int, RolloutCall] = {}  # the call of each conversation under way
        self._num_begun = 0
        self._behind: Executor | None = (
            ThreadPoolExecutor(1, "search") if engine.is_on_gpu else None
        )

    def open(
        self,
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        retriever: Retriever | None,
        seed: int,
        number: int = 0,
    ) -> RolloutCall:
        """Prepare the engine for a call. If other calls are under way, it must use their weights.

        Raises ValueError for a search syntax without a retriever.
        """
        if dialogue.search is not None and retriever is None:
            raise ValueError(
                f'dialogue searches in syntax "{dialogue.search}" but there is no index: give one'
            )
        self.engine.use(policy)
        searches = Searches(retriever, dialogue.documents_per_query, self._behind)
        call = RolloutCall(number, Talk(self.engine, policy, sampling, dialogue, searches), seed)
        self._calls.append(call)
        return call

    @property
    def is_busy(self) -> bool:
        """Whether any conversation is under way."""
        return bool(self._of)

    def fill(
        self, ask: Callable[[], SampleRequest | None]
    ) -> Iterator[tuple[RolloutCall, Conversation]]:
        """Begin conversations while there is room and `ask` has any; yield those that are over
        immediately."""
        while len(self._of) < self.engine.max_num_seqs and (request := ask()) is not None:
            call, prompt, sample = request
            if call.error is not None:
                continue
            with self._errors_end(call):
                conversation = call.talk.start(prompt, sample, call.seed)
                if conversation.finish is None:
                    key = self._num_begun
                    self._num_begun = self._num_begun + 1
                    self._of[key] = call
                    call.active[key] = conversation
                    call.talk.submit(key, conversation)
                    continue
                yield call, conversation

    def go_on(self, interrupted: Callable[[], bool] = never) -> Over:
        """Wait for replies and continue their conversations. Returns the conversations that
        finished; none if interrupted.

        A call's searches are awaited at its own next replies, so a call that is alone has batches
        that do not depend on how long a search takes. Searches that are back are also continued at
        the replies of other calls, or immediately if their call awaits no replies.
        """
        only_search = [call for call in self._calls if call.only_search]
        awaits_replies = len(self._of) > sum(len(call.talk.searching) for call in self._calls)

        def stop() -> bool:
            return interrupted() or any(map(_is_back, only_search))

        done = self.engine.poll(stop) if awaits_replies else []
        assert done or not awaits_replies or stop(), "the engine lost requests"
        replies: dict[RolloutCall, list[Any]] = {}
        for key, completion in done:
            call = self._of[key]
            replies.setdefault(call, []).append((key, call.active[key], completion))
        over: Over = []
        for call in list(self._calls):
            may_go_on = bool(call.talk.searching) and (bool(replies) or call in only_search)
            if call in replies or (may_go_on and (_is_back(call) or not awaits_replies)):
                over += self._take(call, replies.get(call, []))
        return over

    def end(self, call: RolloutCall) -> None:
        """Forget a call and its conversations under way."""
        self.engine.abort(list(call.active))
        for key in call.active:
            del self._of[key]
        call.active.clear()
        if call in self._calls:
            self._calls.remove(call)

    def close(self) -> None:
        """Wait for the searches under way, and end their thread."""
        if self._behind is not None:
            self._behind.shutdown()

    def _take(self, call: RolloutCall, replies: list[Any]) -> Over:
        over: Over = []
        with self._errors_end(call):
            for key, conversation in call.talk.go_on(replies):
                del self._of[key], call.active[key]
                over.append((call, conversation))
        return over

    @contextlib.contextmanager
    def _errors_end(self, call: RolloutCall) -> Iterator[None]:
        try:
            yield
        except EngineDied:
            raise
        except Exception as error:
            # whatever it is, it concerns this caller: the conversations of others go on
            call.error = error
            self.end(call)


def _is_back(call: RolloutCall) -> bool:
    return call.talk.searches.are_back()
