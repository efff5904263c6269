"""Track the bytes of live tensors, real or fake, while code runs, and their peak in each phase."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

BLOCK = 512  # bytes to which CUDA's allocator rounds
INHERITED = object()


class MemoryTracker(TorchDispatchMode):
    """Counts every storage from the operation that made it until it is freed or resized.

    Its kind is the label in force when it was made, or the one that `see` gave it later. `peaks`
    holds bytes by kind at the peak of each `phase`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = "start"
        self.peaks = dict[str, dict[str, int]]()
        self._label = "activations"
        self._live = Counter[str]()
        self._total = 0
        self._entries: dict[int, list[Any]] = {}
        self._paused = 0

    @property
    def peak(self) -> int:
        return max(sum(kinds.values()) for kinds in self.peaks.values())

    def see(self, tensor: torch.Tensor, label: str | None = None) -> None:
        """Count a tensor's storage, or relabel one that is already counted."""
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        entry = self._entries.get(storage._cdata)
        if entry is None:
            entry = self._entries[storage._cdata] = [
                label or self._label,
                _rounded(storage.nbytes()),
                storage._cdata,
            ]
            weakref.finalize(storage, self._free, entry)
            self._add(entry[0], entry[1])
        elif label is not None:
            self._live[entry[0]] -= entry[1]
            self._live[label] += entry[1]
            entry[0] = label

    def _free(self, entry: list[Any]) -> None:
        self._entries.pop(entry[2], None)
        self._add(entry[0], -entry[1])

    def _add(self, label: str, size: int) -> None:
        self._live[label] += size
        self._total += size
        if self._total > sum(self.peaks.get(self.phase, {}).values()):
            self.peaks[self.phase] = dict(self._live)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        if entry := self._entries.get(storage._cdata):
            change = _rounded(storage.nbytes()) - entry[1]
            entry[1] += change
            self._add(entry[0], change)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t is DTensor for t in types):
            return NotImplemented
        found = func(*args, **(kwargs or {}))
        for item in () if self._paused else tree_iter(found):
            if isinstance(item, torch.Tensor) and item.device.type != "meta":
                self.see(item)
        return found

    def __enter__(self) -> MemoryTracker:
        # DTensor derives shapes from whole tensors that are never allocated.
        propagate = ShardingPropagator._propagate_tensor_meta_non_cached
        resize = torch.UntypedStorage.resize_

        def unseen(*args: Any, **kwargs: Any) -> Any:
            self._paused += 1
            try:
                return propagate(*args, **kwargs)
            finally:
                self._paused -= 1

        def seen(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            self._resized(storage)

        self._patches = contextlib.ExitStack()
        self._patches.enter_context(
            patched(
                (ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen),
                (torch.UntypedStorage, "resize_", seen),
            )
        )
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        self._patches.close()
        super().__exit__(*problem)

    @contextlib.contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        before, self._label = self._label, label
        try:
            yield
        finally:
            self._label = before


@contextlib.contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Temporarily replace attributes of modules and classes."""
    kept = [(owner, name, vars(owner).get(name, INHERITED)) for owner, name, _ in changes]
    for owner, name, new in changes:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in kept:
            delattr(owner, name) if old is INHERITED else setattr(owner, name, old)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
