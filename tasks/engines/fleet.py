"""A fleet: engines in child processes, shared by several callers.

Each engine runs the conversations of all callers in one batch.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tasks.engines.bar import Bar
from tasks.engines.call_queue import ROLL_OUT, Call, CallQueue
from tasks.engines.child import SLEEP
from tasks.engines.node_host import Seat
from tasks.engines.pool import Pool
from tasks.engines.prompt_queues import PromptQueues, split
from tasks.models.engine import EngineConfig, EngineDied, Policy, Sampling, check_policies
from tasks.rollouts.dialogue import Dialogue
from warehouse.schemas import PromptRow, Rollout, Row


class Fleet:
    """`num_engines` engines of one configuration.

    The engines start at their first use, or earlier with `start`. They are numbered from `first`
    on, so that two fleets share neither a GPU nor a log. Several threads may call at once. Rollouts
    of the same weights, whatever their adapters, settings and dialogues, share the engines'
    batches: an engine with room takes prompts in the order of the calls, and each caller gets its
    rows as they finish. Other weights and other work wait for their turn.
    """

    def __init__(self, config: EngineConfig, num_engines: int, log_dir: Path | str, first: int = 0):
        self.num_engines = num_engines
        self.first = first
        self.log_dir = Path(log_dir)
        self._queue = CallQueue()
        self._pool = Pool(config, num_engines, self.log_dir, first, self._queue)
        self._numbers = itertools.count()
        # guards all attributes; notified of rows, errors and turns
        self._changed = threading.Condition()
        # True while one caller waits for the engines' messages on behalf of all
        self._is_heard = False

    @property
    def config(self) -> EngineConfig:
        """The engines' configuration.

        After an engine has run out of memory, it allows fewer conversations at once.
        """
        return self._pool.config

    def recipe_identity(self) -> Row:
        """What a recipe records about the engines: the settings that change what they sample.

        The length of the context is not one of them: few replies reach it, and their rows say so.
        """
        return self.config.model_dump(mode="json", include={"yarn", "dtype"})

    @property
    def num_gpus(self) -> int:
        """The number of GPUs in use."""
        if self.config.device != "cuda":
            return 0
        return self.num_engines * self.config.tensor_parallel

    def start(self) -> None:
        """Start loading the engines, without waiting for them."""
        with self._changed:
            self._pool.start()

    def roll_out(
        self,
        prompts: Iterable[PromptRow],
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        index: Path | str | None = None,
        group_size: int = 1,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        skip: frozenset[tuple[str, int]] = frozenset(),
        attempt: int = 0,
    ) -> Iterator[Rollout]:
        """Sample conversations on all engines; rows come in the order in which they finish.

        Prompts with a common prefix go to one engine; an idle engine helps the others. An engine
        that dies is restarted once for the missing rows; each time it runs out of memory, it then
        takes half as many conversations at once. A caller that closes the iterator early ends only
        its own conversations.

        `skip` holds the (prompt_id, sample) pairs to leave out; `progress` is called with (rows so
        far, rows in total). `attempt` is 1 for prompts whose replies could not be read: at
        temperature 0 an engine would repeat them, so nothing is sampled.

        Raises:
            ValueError: errors that the caller can fix: repeated prompt ids, a missing model,
                another tokenizer, no index.
            EngineDied: an engine died twice.
        """
        if attempt and sampling.temperature == 0:
            return iter(())
        settings = {
            "work": ROLL_OUT,
            "policy": policy,
            "sampling": sampling,
            "dialogue": dialogue,
            "index": index and str(index),
            "seed": seed,
        }
        report = progress or Bar(policy.id, "rollouts")
        return self._call([dict(prompt) for prompt in prompts], settings, report, group_size, skip)

    def reply_logprobs(
        self, prompts: Iterable[Mapping[str, Any]], policy: Policy, dialogue: Dialogue
    ) -> Iterator[Row]:
        """Score each prompt's reply under the policy (see `tasks.rollouts.replies`).

        All engines work on it; rows come in the order in which they finish. Raises as `roll_out`
        does, and ValueError for an endpoint that cannot score replies.
        """
        settings = {"work": "reply_logprobs", "policy": policy, "dialogue": dialogue}
        return self._call([dict(prompt) for prompt in prompts], settings, Bar(policy.id, "replies"))

    def datum_logprobs(self, rows: Iterable[Mapping[str, Any]], policy: Policy) -> Iterator[Row]:
        """Score rows of token ids, as the trainer reads them, in the same way."""
        settings = {"work": "datum_logprobs", "policy": policy}
        return self._call(
            [{**row, "messages": []} for row in rows], settings, Bar(policy.id, "rows")
        )

    def _call(
        self,
        prompts: list[Row],
        settings: dict[str, Any],
        report: Callable[[int, int], None],
        group_size: int = 1,
        skip: frozenset[tuple[str, int]] = frozenset(),
    ) -> Iterator[Any]:
        if len({prompt["prompt_id"] for prompt in prompts}) < len(prompts):
            raise ValueError("prompt_id repeats: each prompt needs an id of its own")
        check_policies(self.config, [settings["policy"]])
        queues = PromptQueues(split(prompts, self.num_engines), self.first, self._pool.awake)
        all_rows = {
            (prompt["prompt_id"], sample) for prompt in prompts for sample in range(group_size)
        }
        call = Call(next(self._numbers), settings, queues, group_size, all_rows - skip)
        if not call.missing:
            return
        with self._turn(call):
            with self._changed:
                self._pool.announce(call)
            for count in itertools.count(len(skip) + 1):
                row = self._next(call)
                if row is None:
                    return
                report(count, len(all_rows))
                yield row

    @contextlib.contextmanager
    def _turn(self, call: Call) -> Iterator[None]:
        """Wait in the queue until the call may begin.

        On exit the engines forget the call and what is left of it.
        """
        with self._changed:
            self._queue.join(call)
            try:
                self._changed.wait_for(lambda: self._queue.may_begin(call))
            except BaseException:
                self._queue.leave(call)
                self._changed.notify_all()
                raise
            if not self._queue.under_way:
                self._pool.awake.clear()
            self._queue.begin(call)
            self._changed.notify_all()  # the next in the queue may begin, too
        try:
            yield
        finally:
            with self._changed:
                self._queue.leave(call)
                self._pool.forget(call)
                self._changed.notify_all()

    def _next(self, call: Call) -> Any:
        """The next row of a call; None after the last.

        One waiting caller listens to the engines on behalf of all.
        """
        with self._changed:
            has_listened = False
            try:
                while not call.is_settled:
                    if self._is_heard:
                        self._changed.wait()
                    else:
                        has_listened = True
                        self._listen()
            finally:
                if has_listened:
                    self._changed.notify_all()  # another takes over
            if call.rows:
                return call.rows.popleft()
            if call.missing and call.error is not None:
                raise call.error
            return None

    def _listen(self) -> None:
        """Wait for messages, for a second at most, since the fleet may be closed meanwhile."""
        pipes: dict[Any, int] = {
            child.pipe: number for number, child in self._pool.children.items()
        }
        ready: list[Any] = []
        self._is_heard = True
        self._changed.release()
        try:
            with contextlib.suppress(OSError):  # closed meanwhile
                ready = wait(list(pipes), timeout=1)
        finally:
            self._changed.acquire()
            self._is_heard = False
        for pipe in ready:
            child = self._pool.children.get(pipes[pipe])
            if child is not None and child.pipe is pipe and self._pool.hear(pipes[pipe]):
                self._changed.notify_all()

    def sleep(self) -> None:
        """Release the accelerators' memory until the next call.

        Waits until earlier calls are done. Does nothing on CPUs or if no engine is loaded.
        """
        no_prompts = PromptQueues([[]] * self.num_engines, self.first)
        call = Call(next(self._numbers), {"work": SLEEP}, no_prompts, 0, set())
        with self._turn(call), self._changed:
            self._pool.sleep()

    def seats(self) -> list[Seat]:
        """Where the engines run on the nodes of a cluster; those on GPUs sleep afterwards.

        Waits until earlier calls are done and every engine has a node. Raises EngineDied if no node
        had room for one.
        """
        no_prompts = PromptQueues([[]] * self.num_engines, self.first)
        call = Call(next(self._numbers), {"work": SLEEP}, no_prompts, 0, set())
        with self._turn(call), self._changed:
            seats = self._pool.seats()
            if self.config.device == "cuda":
                self._pool.sleep()
        return seats

    def close(self) -> None:
        """Stop the engines. Calls under way fail."""
        with self._changed:
            self._pool.fail(EngineDied("the engines were closed during a call"))
            self._pool.close()
            self._changed.notify_all()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
