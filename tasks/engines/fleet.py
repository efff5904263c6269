"""Engines in child processes: each has its own log file, serves many calls, and dies with its parent."""

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tasks.engines.base import EngineConfig, EngineDied, Policy, Sampling, check_policies
from tasks.engines.gpus import devices
from tasks.engines.queues import Queues, split
from tasks.processes.child_process import told_parent
from tasks.rollouts.dialogue import Dialogue
from warehouse.schemas import PromptRow, Rollout, Row

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler runs in the child itself: no messages between two processes
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it tells no log-probabilities after top-p, so importing it is in vain
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
CPU_ENVIRONMENT = {
    "TORCH_COMPILE_DISABLE": "1",  # else the first reply compiles a log-prob helper for many seconds
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every child binds to the same first core
}
SLEEP, MORE = "sleep", "more"  # sent in place of a call; an engine's request for prompts, sent in place of rows
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|can't allocate memory", re.IGNORECASE)
log = logging.getLogger("selfplay")


class Child:
    """One engine process and the pipe to it."""

    def __init__(self, config: EngineConfig, number: int, log_dir: Path):
        log_dir.mkdir(parents=True, exist_ok=True)
        self.log_file = log_dir / f"engine-{os.getpid()}-{number}.log"
        ours, theirs = Pipe()
        environment = os.environ | ENVIRONMENT | told_parent() | {"PYTHONPATH": _python_path()}
        if config.device == "cpu":
            environment |= CPU_ENVIRONMENT | {"OMP_NUM_THREADS": str(config.threads), "CUDA_VISIBLE_DEVICES": ""}
        elif config.kind == "vllm":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices(config.tensor_parallel, number))
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tasks.engines.fleet_child", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the parent only, which then closes its children
            )
        theirs.close()
        self.pipe: Connection = ours
        self.pipe.send(config)

    def close(self) -> None:
        self.pipe.close()  # the child ends at the end of its pipe
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Fleet:
    """`num_engines` engines of one configuration, started at their first use, or earlier by `start`.

    They are numbered from `first` on, so that two fleets share neither a GPU nor a log.
    """

    def __init__(self, config: EngineConfig, num_engines: int, log_dir: Path | str, first: int = 0):
        self.config = config
        self.num_engines = num_engines
        self.first = first
        self.log_dir = Path(log_dir)
        self._children: dict[int, Child] = {}
        self._lock = threading.Lock()

    @property
    def num_gpus(self) -> int:
        """The number of GPUs in use."""
        return self.num_engines * self.config.tensor_parallel if self.config.device == "cuda" else 0

    def start(self) -> None:
        """Begin to load the engines, without waiting for them."""
        for number in range(self.first, self.first + self.num_engines):
            if number not in self._children:
                self._children[number] = Child(self.config, number, self.log_dir)

    def roll_out(
        self,
        prompts: Iterable[PromptRow],
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        index: Path | str | None = None,
        num_samples: int = 1,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        skip: frozenset[tuple[str, int]] = frozenset(),
    ) -> Iterator[Rollout]:
        """Sample conversations on all engines; rows come in the order in which they finish.

        Prompts with a common prefix go to one engine; an idle engine helps the others. An engine that dies is restarted
        once for the missing rows; each time it runs out of memory, it then takes half as many conversations at once.
        `skip` names the (prompt_id, sample) to leave out; `progress` gets (rows so far, rows in all).

        Raises:
            ValueError: what the caller can fix: repeated prompt ids, a missing model, another tokenizer, no index.
            EngineDied: an engine died twice.
        """
        settings = {"policy": policy, "sampling": sampling, "dialogue": dialogue, "index": index and str(index)}
        settings |= {"work": "roll_out", "num_samples": num_samples, "seed": seed}
        return self._call([dict(prompt) for prompt in prompts], settings, skip, progress or Bar(policy.id, "rollouts"))

    def reply_logprobs(self, prompts: Iterable[Mapping[str, Any]], policy: Policy, dialogue: Dialogue) -> Iterator[Row]:
        """How likely the policy is to give each prompt's reply (see `tasks.rollouts.replies`), on all engines.

        Rows come in the order in which they finish. Raises as `roll_out` does, and ValueError for an endpoint that
        cannot tell.
        """
        settings = {"work": "reply_logprobs", "policy": policy, "dialogue": dialogue}
        return self._call([dict(prompt) for prompt in prompts], settings, frozenset(), Bar(policy.id, "replies"))

    def datum_logprobs(self, rows: Iterable[Mapping[str, Any]], policy: Policy) -> Iterator[Row]:
        """The same for rows of token ids, as the trainer reads them."""
        settings = {"work": "datum_logprobs", "policy": policy}
        return self._call([{**row, "messages": []} for row in rows], settings, frozenset(), Bar(policy.id, "rows"))

    def _call(
        self,
        prompts: list[Row],
        settings: dict[str, Any],
        skip: frozenset[tuple[str, int]],
        report: Callable[[int, int], None],
    ) -> Iterator[Any]:
        if len({prompt["prompt_id"] for prompt in prompts}) < len(prompts):
            raise ValueError("prompt_id repeats: each prompt needs an id of its own")
        check_policies(self.config, [settings["policy"]])
        with self._lock:
            self.start()
            new = self._collect(split(prompts, self.num_engines), settings, set(skip))
            for count, row in enumerate(new, start=len(skip) + 1):
                report(count, len(prompts) * settings.get("num_samples", 1))
                yield row

    def _collect(self, parts: list[list[Row]], settings: dict[str, Any], done: set[tuple[str, int]]) -> Iterator[Any]:
        """Give engines prompts as they ask for them, and yield rows as they come back."""
        queues = Queues(parts, self.first)
        working, restarted = set(queues.engines()), set[int]()
        try:
            for number in working:
                self._send(number, settings)
            while working:
                pipes = {self._children[number].pipe: number for number in working}
                for pipe in wait(list(pipes)):
                    number = pipes[pipe]  # type: ignore[index]
                    kind, content = self._receive(number)
                    if kind == "rows":
                        done |= {(row["prompt_id"], row["sample"]) for row in content}
                        yield from content
                    elif kind == MORE:
                        lot = queues.next(number)
                        ids = {prompt["prompt_id"] for prompt in lot}
                        self._send(number, (lot, {key for key in done if key[0] in ids}))
                    elif kind == "done":
                        working.remove(number)
                    elif kind == "failed":
                        raise content
                    else:
                        self._restart(number, content, restarted)
                        queues.take_back(number)
                        self._send(number, settings)
        finally:
            for number in working & self._children.keys():  # still working for a caller that is gone
                self._children.pop(number).close()

    def _send(self, number: int, message: Any) -> None:
        with contextlib.suppress(OSError):  # reading the pipe will reveal a dead child
            self._children[number].pipe.send(message)

    def _receive(self, number: int) -> tuple[str, Any]:
        child = self._children[number]
        try:
            return child.pipe.recv()
        except (EOFError, OSError):
            return "died", f"process {child.process.pid} ended with status {child.process.wait()}"

    def _restart(self, number: int, reason: str, restarted: set[int]) -> None:
        child = self._children.pop(number)
        child.close()
        if OUT_OF_MEMORY.search(reason) and self.config.max_num_seqs > 1:
            half = self.config.max_num_seqs // 2
            self.config = self.config.model_copy(update={"max_num_seqs": half})
            log.warning("engine %d ran out of memory: from now on at most %d conversations at once", number, half)
        elif number in restarted:
            raise EngineDied(f"engine {number} died twice: {reason}. Its log: {child.log_file}")
        restarted.add(number)
        log.warning("engine %d died (%s), starting it again; log: %s", number, reason, child.log_file)
        self._children[number] = Child(self.config, number, self.log_dir)

    def sleep(self) -> None:
        """Give the accelerators' memory back until the next call; nothing happens on CPUs or with no engine loaded."""
        with self._lock:
            for number in self._children:
                self._send(number, SLEEP)
            for number in list(self._children):
                if self._receive(number)[0] != "done":  # it ends, and its memory must be free before an update begins
                    self._children.pop(number).close()

    def close(self) -> None:
        """Stop the engines."""
        while self._children:
            self._children.popitem()[1].close()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Bar:
    """Progress on a terminal; elsewhere a line in the log every 30 s."""

    def __init__(self, name: str, unit: str):
        self._name, self._unit = name, unit
        self._begun = self._shown = time.monotonic()

    def __call__(self, count: int, total: int) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._shown < (0.2 if terminal else 30) and not (terminal and count == total):
            return
        self._shown = now
        line = f"{self._name}: {count}/{total} {self._unit}, {count / max(now - self._begun, 1e-9):.0f}/s"
        if terminal:
            print(f"\r{line}", end="\n" if count == total else "", file=sys.stderr, flush=True)
        else:
            log.info(line)


def _python_path() -> str:
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(PROJECT), *filter(None, given)])
