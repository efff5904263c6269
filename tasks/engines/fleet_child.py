"""The child process of a fleet: one engine, calls in, rows out.

`python -m tasks.engines.fleet_child FILE_DESCRIPTOR`
"""

import contextlib
import gc
import os
import sys
import time
import traceback
from collections.abc import Iterator
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from tasks.engines.base import Engine, EngineConfig, EngineDied, check_model
from tasks.engines.fleet import MORE, OUT_OF_MEMORY
from tasks.engines.gpus import wrong_build
from tasks.processes.child_process import die_with_parent
from tasks.processes.imports import leave_out
from tasks.rollouts.replies import datum_logprobs, reply_logprobs
from tasks.rollouts.rollout import roll_out
from warehouse.schemas import Rollout, Row

ROWS_AT_ONCE = 16


def serve(pipe: Connection) -> None:
    """A child's life: load the engine at the first call, answer calls until the pipe ends."""
    die_with_parent()
    leave_out("sklearn", "scipy", "cv2")  # 15 % of the time to import vLLM; nothing is seen or heard here
    config: EngineConfig = pipe.recv()
    engine: Engine | None = None
    gc.disable()  # nothing imported or loaded is garbage, and a collection takes a second
    try:
        engine = open_engine(config)
    except Exception as error:
        traceback.print_exc()
        _fail_calls(pipe, error)
    gc.enable()
    while engine is not None:
        try:
            call = pipe.recv()
        except EOFError:
            engine.close()
            return
        try:
            if call == "sleep":
                engine.sleep()
                pipe.send(("done", None))
            else:
                engine.wake()
                answer_call(pipe, engine, call)
        except EngineDied as error:
            traceback.print_exc()
            pipe.send(("died", str(error)))
            return
        except Exception as error:
            traceback.print_exc()
            kind = ("died", repr(error)) if OUT_OF_MEMORY.search(repr(error)) else ("failed", _sendable(error))
            pipe.send(kind)
            return  # the engine may still hold requests


def open_engine(config: EngineConfig) -> Engine:
    """Load or connect to an engine.

    Raises:
        ValueError: the model folder is missing or has no weights, an endpoint returns no token ids, or vLLM is
            installed for other devices.
    """
    check_model(config.model)
    if config.kind == "openai":
        from tasks.engines.openai import EndpointEngine

        return EndpointEngine(config)
    if problem := wrong_build(config.device):
        raise ValueError(problem)
    from tasks.engines.vllm import VllmEngine

    return VllmEngine(config)


def answer_call(pipe: Connection, engine: Engine, call: dict[str, Any]) -> None:
    """Carry out a call; rows go back in small lots."""
    works = {"roll_out": search_and_roll_out, "reply_logprobs": reply_logprobs, "datum_logprobs": datum_logprobs}
    work = works[call.pop("work")]
    rows: list[Row] = []
    sent = time.monotonic()
    skip = set[tuple[str, int]]()
    try:
        for row in work(engine, prompts=_prompts(pipe, skip), skip=skip, **call):
            rows.append(row)
            if len(rows) >= ROWS_AT_ONCE or time.monotonic() - sent > 1:
                pipe.send(("rows", rows))
                rows, sent = [], time.monotonic()
    finally:
        if rows:
            pipe.send(("rows", rows))
    pipe.send(("done", None))


def _prompts(pipe: Connection, skip: set[tuple[str, int]]) -> Iterator[Row]:
    """Ask for prompts as there is room for them, and add their unwanted samples to `skip`."""
    while True:
        pipe.send((MORE, None))
        lot, unwanted = pipe.recv()
        if not lot:
            return
        skip |= unwanted
        yield from lot


def search_and_roll_out(engine: Engine, index: str | None, **call: Any) -> Iterator[Rollout]:
    return roll_out(engine, retriever=None if index is None else _load_index(index), **call)


def _fail_calls(pipe: Connection, error: Exception) -> None:
    with contextlib.suppress(EOFError):
        pipe.recv()
        pipe.send(("failed", _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """An error with plain text; it keeps its type if the user can fix it."""
    return ValueError(str(error)) if isinstance(error, ValueError) else RuntimeError(f"engine process: {error!r}")


@lru_cache(maxsize=4)
def _load_index(path: str) -> Any:
    from corpus_prep.search.index import load_index

    return load_index(path, verify=False)  # 94 GB in every engine; `selfplay verify` reads the files of a store


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)  # a regular shutdown of the engine would take seconds
