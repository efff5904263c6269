# torch exports these names without saying so.
# pyright: reportPrivateImportUsage=false
"""An optimizer's state and the weights it trains, in memory and in a folder.

If weights are sharded, each process has its share of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as sharded
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    Metadata,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from tasks.training import pinned

OPTIMIZER_FILE = "optimizer.pt"
WEIGHTS_FILE = "weights.pt"
METADATA = ".metadata"  # file of a sharded state
WRITERS = 4  # threads per process, one file each, so that the files can also be hashed in parallel
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Share:
    """This process's part of each trained parameter and of its moments, in the optimizer's order.

    `layouts` say how each parameter is sharded (None: it is not); `groups` are the optimizer's
    settings.
    """

    weights: list[torch.Tensor]
    moments: list[Tensors]
    layouts: list[DTensorSpec | None]
    groups: list[dict[str, Any]]

    @classmethod
    def of(cls, optimizer: Any, on_host: bool = True) -> Share:
        """The optimizer's own tensors; with `on_host`, pinned copies of those on a GPU."""
        trained = list(parameters(optimizer))
        tensors = parts(optimizer)
        if on_host:
            tensors = pinned.on_host(tensors)
        # all weights, then the moments of the first, of the second, ...
        remaining = iter(tensors)
        return cls(
            weights=[next(remaining) for _ in trained],
            moments=[{name: next(remaining) for name in optimizer.state[p]} for p in trained],
            layouts=[p._spec if isinstance(p, DTensor) else None for p in trained],
            groups=optimizer.state_dict()["param_groups"],
        )

    @torch.no_grad()
    def fill(self, optimizer: Any) -> None:
        """Put the share back into the optimizer, on whichever device its parameters now are."""
        for parameter, weight, moments in zip(
            parameters(optimizer), self.weights, self.moments, strict=True
        ):
            put(parameter, weight)
            optimizer.state[parameter] = {
                name: _like(parameter, value) for name, value in moments.items()
            }

    def save(self, folder: Path, *, writes: bool, weights: bool) -> None:
        """Write moments and step counts to `folder`.

        With `weights`, also write the weights, which are rounded in the policy's files.

        If parameters are sharded, every process writes its share; otherwise only the process with
        `writes`.

        Raises OSError if a part was not written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.layouts[0] is not None:
            writer = FileSystemWriter(folder, thread_count=WRITERS, sync_files=False)
            _check_written(sharded.save(self._by_name(weights), storage_writer=writer), folder)
        elif writes:
            moments = [
                {name: _alone(value) for name, value in values.items()} for values in self.moments
            ]
            states = {"state": dict(enumerate(moments)), "param_groups": self.groups}
            torch.save(states, folder / OPTIMIZER_FILE)
            if weights:
                torch.save([_alone(weight.cpu()) for weight in self.weights], folder / WEIGHTS_FILE)

    def _by_name(self, weights: bool) -> Tensors:
        """The tensors under names such as "00000.exp_avg"; with `weights`, also "00000.weight"."""
        by_name: Tensors = {}
        for number, (weight, moments, layout) in enumerate(
            zip(self.weights, self.moments, self.layouts, strict=True)
        ):
            for name, value in moments.items():
                by_name[f"{number:05d}.{name}"] = _laid_out(value, layout)
            if weights:
                by_name[f"{number:05d}.weight"] = _laid_out(weight, layout)
        return by_name


def parameters(optimizer: Any) -> Iterator[torch.Tensor]:
    """The parameters of a torch optimizer, group by group."""
    for group in optimizer.param_groups:
        yield from group["params"]


def part(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    return tensor.detach()


def parts(optimizer: Any) -> list[torch.Tensor]:
    """This process's part of all weights, then of their moments."""
    trained = list(parameters(optimizer))
    return [
        *map(part, trained),
        *(part(value) for p in trained for value in optimizer.state[p].values()),
    ]


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if it shares memory with others, which `torch.save` would also write."""
    if tensor.untyped_storage().nbytes() > tensor.nbytes:
        return tensor.clone()
    return tensor


def put(parameter: torch.Tensor, values: torch.Tensor) -> None:
    """Set a parameter's local part; on the host, it takes over the tensor without a copy."""
    if isinstance(parameter, DTensor) or parameter.device != values.device:
        part(parameter).copy_(values)
    else:
        parameter.data = values


@torch.no_grad()
def load(optimizer: Any, folder: Path) -> None:
    """Read what `Share.save` wrote, from any number of processes.

    The optimizer keeps its learning rate and decay. Raises ValueError if the state was sharded and
    the parameters are not, or vice versa.
    """
    trained = list(parameters(optimizer))
    if _is_sharded(trained) != (folder / METADATA).exists():
        writers = "one process" if _is_sharded(trained) else "several processes that shard it"
        raise ValueError(
            f"{folder} was written by {writers}: set trainer_processes to what it was then"
        )
    if _is_sharded(trained):
        _load_sharded(optimizer, folder)
    else:
        _load_whole(optimizer, folder)


def _load_whole(optimizer: Any, folder: Path) -> None:
    settings = [
        {k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups
    ]
    optimizer.load_state_dict(
        torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
    )
    for group, own_settings in zip(optimizer.param_groups, settings, strict=True):
        group.update(own_settings)
    if (folder / WEIGHTS_FILE).exists():
        weights = torch.load(folder / WEIGHTS_FILE, weights_only=True)
        for parameter, weight in zip(parameters(optimizer), weights, strict=True):
            part(parameter).copy_(weight)


def _load_sharded(optimizer: Any, folder: Path) -> None:
    # `sharded.load` fills existing tensors: make the moments first
    is_fused = optimizer.param_groups[0].get("fused")
    for parameter in parameters(optimizer):
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device if is_fused else "cpu"),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    reader = FileSystemReader(folder)
    with_weights = any(
        name.endswith(".weight") for name in reader.read_metadata().state_dict_metadata
    )
    sharded.load(Share.of(optimizer, on_host=False)._by_name(with_weights), storage_reader=reader)


def _check_written(written: Metadata, folder: Path) -> None:
    """Raise OSError if a part is missing: torch drops the errors of its writer threads."""
    tensors = written.state_dict_metadata.values()
    num_parts = sum(len(t.chunks) for t in tensors if isinstance(t, TensorStorageMetadata))
    num_written = len(written.storage_data)
    if num_written < num_parts:
        raise OSError(f"{folder}: {num_written} of {num_parts} parts were written (a full disk?)")


def _laid_out(value: torch.Tensor, layout: DTensorSpec | None) -> torch.Tensor:
    """A process's part as the whole, sharded tensor. Step counts are equal everywhere."""
    if layout is None or value.dim() == 0:
        return value
    return DTensor(value, layout, requires_grad=False)


def _is_sharded(trained: list[torch.Tensor]) -> bool:
    return isinstance(trained[0], DTensor)


def _like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A moment on its parameter's device, sharded like it.

    The fused optimizer on GPUs keeps step counts there, too.
    """
    value = value.to(parameter.device)
    if value.dim() == 0 or not isinstance(parameter, DTensor):
        return value
    mesh = parameter.device_mesh
    placements = parameter.placements
    return DTensor.from_local(
        value, mesh, placements, shape=parameter.shape, stride=parameter.stride()
    )
