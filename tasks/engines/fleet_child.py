"""The child process of a fleet: one engine, calls in, rows out.

`python -m tasks.engines.fleet_child FILE_DESCRIPTOR`, or `HOST PORT` of the fleet if it is on
another machine; the environment then has the key of the connection.
"""

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Iterator
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from tasks.engines.call_server import CallServer, sendable
from tasks.engines.child import DIED, FAILED, KEY, OUT_OF_MEMORY, connection
from tasks.engines.gpus import wrong_build
from tasks.engines.node_folders import NodeFolders
from tasks.models.engine import Engine, EngineConfig, EngineDied, check_model
from tasks.processes.child_process import die_with_parent
from tasks.processes.imports import left_out
from tasks.rollouts.rollout import roll_out
from warehouse.schemas import Rollout


def serve(pipe: Connection, folders: NodeFolders | None = None) -> None:
    """Load the engine and serve calls until the pipe ends. `folders`: the folders of the flow's
    machine, if this is another machine."""
    die_with_parent()
    config: EngineConfig = pipe.recv()
    engine: Engine | None = None
    gc.disable()  # nothing imported or loaded is garbage, and a collection takes a second
    try:
        if folders is not None:
            config = folders.config(config)
        # they take 15 % of the time to import vLLM; a search may need them
        with left_out("sklearn", "scipy", "cv2"):
            engine = open_engine(config)
    except Exception as error:
        traceback.print_exc()
        _fail_calls(pipe, error)
    gc.enable()
    if engine is not None:
        serve_calls(pipe, engine, folders)


def serve_calls(pipe: Connection, engine: Engine, folders: NodeFolders | None = None) -> None:
    """Serve calls until the fleet is closed or the engine fails."""
    try:
        CallServer(pipe, engine, _retriever, folders).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        engine.close()
    except EngineDied as error:
        traceback.print_exc()
        pipe.send((DIED, str(error)))
    except Exception as error:  # the engine may still hold requests: this process ends
        traceback.print_exc()
        if OUT_OF_MEMORY.search(repr(error)):
            pipe.send((DIED, repr(error)))
        else:
            pipe.send((FAILED, sendable(error)))


def open_engine(config: EngineConfig) -> Engine:
    """Load or connect to an engine.

    Raises:
        ValueError: the model folder is missing or has no weights, an endpoint returns no token ids,
            or vLLM is installed for other devices.
    """
    check_model(config.model)
    if config.kind == "openai":
        from tasks.engines.openai import EndpointEngine

        return EndpointEngine(config)
    problem = wrong_build(config.device)
    if problem:
        raise ValueError(problem)
    from tasks.engines.vllm import VllmEngine

    return VllmEngine(config)


def search_and_roll_out(engine: Engine, index: str | None, **call: Any) -> Iterator[Rollout]:
    """The rollouts of one call, with the index in the folder `index` if there is one. `call` are
    the other arguments of `roll_out`. Raises what `load_index` and `roll_out` raise."""
    return roll_out(engine, retriever=_retriever(index), **call)


def _fail_calls(pipe: Connection, error: Exception) -> None:
    with contextlib.suppress(EOFError):
        pipe.recv()
        pipe.send((FAILED, sendable(error)))


def _retriever(index: str | None) -> Any:
    if index is None:
        return None
    return _load_index(index)


@lru_cache(maxsize=4)
def _load_index(path: str) -> Any:
    from corpus_prep.search.index import load_index

    # verifying would read 94 GB in every engine; `selfplay verify` checks the files of a store
    return load_index(path, verify=False)


if __name__ == "__main__":
    key = os.environ.get(KEY, "")
    of_flow = None
    pipe = connection(sys.argv[1:])
    if key:
        of_flow = NodeFolders.of_flow(*sys.argv[1:], key=key)
    serve(pipe, of_flow)
    sys.stdout.flush()
    os._exit(0)  # a regular shutdown of the engine would take seconds
