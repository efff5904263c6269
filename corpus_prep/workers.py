"""Map work over shards.

The same functions run in this process, in a pool of processes, or on a Ray cluster.

`process(spec, settings)` makes the file or folder `spec.out`. It gets that name only when it is
complete, and existing shards are not recomputed: after a kill, repeating the call resumes. On
several machines, all must see the same folders.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.cluster import connect

log = logging.getLogger("selfplay")
PR_SET_PDEATHSIG = 1


class Workers(BaseModel):
    """Where the work runs, which does not change the result.

    count: processes on this machine; 1 means this process. On Ray, the number of CPUs of a cluster
    to start here; with an `address` (as for ray.init; `auto` for the running cluster), or
    RAY_ADDRESS in the environment, that cluster's own CPUs count.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["processes", "ray"] = Field(
        default="processes", description="where the work runs; it changes no row"
    )
    count: PositiveInt = Field(
        default=1,
        description="processes on this machine; with ray, CPUs of the cluster that is started",
    )
    address: str | None = Field(
        default=None,
        description=(
            "of a Ray cluster, as for ray.init; null: RAY_ADDRESS, or a cluster of its own"
        ),
    )


class Spec(Protocol):
    """What one call makes: a dataclass with the output's path and the inputs."""

    @property
    def out(self) -> Path:
        """The file or folder that the call makes."""
        ...


S = TypeVar("S", bound=Spec)
C = TypeVar("C")
Process = Callable[[S, C], None]


def map_shards(
    process: Process[S, C], specs: Sequence[S], settings: C, workers: Workers | None = None
) -> list[Path]:
    """Make every spec's `out` that does not exist yet.

    Returns all of them, in the order of the specs.

    Raises what `process` raises, once the shards already begun have ended. Finished shards stay.
    """
    workers = workers or Workers()
    missing = [spec for spec in specs if not spec.out.exists()]
    for folder in {spec.out.parent for spec in missing}:
        folder.mkdir(parents=True, exist_ok=True)
    work = functools.partial(_make_whole, process, settings)
    if workers.kind == "ray":
        finished = _on_ray
    elif min(workers.count, len(missing)) > 1:
        finished = _in_pool
    else:
        finished = _in_this_process
    for done, name in enumerate(finished(work, missing, workers), 1):
        log.info("%s: %d of %d", name, len(specs) - len(missing) + done, len(specs))
    return [spec.out for spec in specs]


def _make_whole(process: Process[Any, Any], settings: Any, spec: Any) -> str:
    """Make a shard under a temporary name beside its place, and rename it when it is complete."""
    fresh = spec.out.with_name(f".{spec.out.name}.{uuid.uuid4().hex}")
    try:
        process(dataclasses.replace(spec, out=fresh), settings)
        os.rename(fresh, spec.out)
    except BaseException:
        if fresh.is_dir():
            shutil.rmtree(fresh)
        else:
            fresh.unlink(missing_ok=True)
        raise
    return spec.out.name


def _in_this_process(
    work: Callable[[Any], str], specs: Iterable[Any], workers: Workers
) -> Iterator[str]:
    return map(work, specs)


def _in_pool(work: Callable[[Any], str], specs: Iterable[Any], workers: Workers) -> Iterator[str]:
    # this process has threads, which do not survive a fork
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers.count, spawn, _end_with_parent) as pool:
        begun = [pool.submit(work, spec) for spec in specs]
        try:
            yield from (future.result() for future in as_completed(begun))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """End with the parent.

    Otherwise, if the parent is killed, a pool's processes would wait for work forever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _on_ray(work: Callable[[Any], str], specs: Iterable[Any], workers: Workers) -> Iterator[str]:
    ray = connect("workers", workers.address, workers.count)
    remote: Any = ray.remote(_call)
    waiting = [remote.remote(work, spec) for spec in specs]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def _call(work: Callable[[Any], str], spec: Any) -> str:
    return work(spec)
