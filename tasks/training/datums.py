"""Stored datums, and the micro-batches that processes compute.

A datum is a prompt, its completion, and a mask of the completion's tokens that the policy sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tasks.training.grpo import LossType

COLUMNS = (
    "rollout_id",
    "prompt_token_ids",
    "completion_token_ids",
    "loss_mask",
    "logprobs",
    "advantage",
)


@dataclass(frozen=True)
class Datums:
    """Rows of a batch in file order.

    Lists hold one array per row; a row's completion, mask and logprobs have the same length.
    """

    rollout_ids: list[str]
    prompts: list[np.ndarray]
    completions: list[np.ndarray]
    masks: list[np.ndarray]
    logprobs: list[np.ndarray]
    advantages: np.ndarray
    # log-probabilities of the completions under the reference or the teacher, if stored
    reference_logprobs: list[np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.rollout_ids)

    @property
    def num_tokens(self) -> np.ndarray:
        """The number of sampled tokens of each row, int64 (N,)."""
        return np.array([int(mask.sum()) for mask in self.masks], dtype=np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """The number of prompt and completion tokens of each row, int64 (N,)."""
        return np.array(
            [len(p) + len(c) for p, c in zip(self.prompts, self.completions, strict=True)],
            dtype=np.int64,
        )


def read_datums(path: Path, reference_logprobs: Path | None = None) -> Datums:
    """Read a Parquet file, or all `*.parquet` files of a folder in name order.

    Columns other than `COLUMNS` are ignored. `reference_logprobs` has one row per datum, in the
    same order.

    Raises:
        ValueError: there are no files or no rows, a column is missing, or a value is null.
    """
    files = _files(path)
    if not files or not files[0].exists():
        raise ValueError(f"{path}: no Parquet file to train on")
    missing = set(COLUMNS) - set(pq.read_schema(files[0]).names)
    if missing:
        raise ValueError(f"{path}: column(s) {', '.join(sorted(missing))} missing from the batch")
    table = pa.concat_tables([pq.read_table(f, columns=list(COLUMNS)) for f in files])
    if table.num_rows == 0:
        raise ValueError(f"{path}: the batch is empty, there is nothing to train on")
    for name in COLUMNS:
        if table[name].null_count:
            raise ValueError(f"{path}: column {name} has {table[name].null_count} null(s)")
    rollout_ids = table["rollout_id"].to_pylist()
    stored = None
    if reference_logprobs is not None:
        stored = _read_reference_logprobs(reference_logprobs, rollout_ids)
    return Datums(
        rollout_ids=rollout_ids,
        prompts=_rows(table["prompt_token_ids"], np.int64),
        completions=_rows(table["completion_token_ids"], np.int64),
        masks=_rows(table["loss_mask"], np.int8),
        logprobs=_rows(table["logprobs"], np.float32),
        advantages=table["advantage"].to_numpy().astype(np.float64),
        reference_logprobs=stored,
    )


def _read_reference_logprobs(path: Path, rollout_ids: list[str]) -> list[np.ndarray]:
    table = pa.concat_tables(
        [pq.read_table(f, columns=["rollout_id", "logprobs"]) for f in _files(path)]
    )
    assert table["rollout_id"].to_pylist() == rollout_ids, f"{path} is of another batch"
    return _rows(table["logprobs"], np.float32)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    return [path]


def _rows(column: pa.ChunkedArray, dtype: type) -> list[np.ndarray]:
    """The lists of a column, as one array each."""
    array = column.combine_chunks()
    lengths = np.asarray(array.value_lengths())
    values = array.flatten().to_numpy(zero_copy_only=False).astype(dtype)
    return np.split(values, np.cumsum(lengths)[:-1])


def check_datums(datums: Datums, *, vocab_size: int, max_tokens: int) -> None:
    """Reject rows that the model cannot score.

    Raises:
        ValueError: names the first faulty rollout.
    """
    for i, rollout_id in enumerate(datums.rollout_ids):
        fault = _fault(datums, i, vocab_size, max_tokens)
        if fault:
            raise ValueError(f"rollout {rollout_id} (row {i}): {fault}")
    if not datums.num_tokens.sum():
        raise ValueError("loss_mask is 0 everywhere: no row holds a token that the policy sampled")


def _fault(datums: Datums, i: int, vocab_size: int, max_tokens: int) -> str | None:
    prompt = datums.prompts[i]
    completion = datums.completions[i]
    mask = datums.masks[i]
    logprobs = datums.logprobs[i]
    ids = np.concatenate([prompt, completion])
    if not len(prompt):
        return "the prompt is empty, so the first token has nothing to be predicted from"
    if not len(completion) == len(mask) == len(logprobs):
        return (
            f"{len(completion)} completion tokens, {len(mask)} loss_mask, {len(logprobs)} logprobs:"
            " must be as many"
        )
    if len(ids) > max_tokens:
        return f"{len(ids)} tokens are more than the model's context of {max_tokens}"
    if ids.min() < 0:
        return f"token id {ids.min()} is outside the vocabulary of {vocab_size}"
    if ids.max() >= vocab_size:
        return f"token id {ids.max()} is outside the vocabulary of {vocab_size}"
    if not np.isin(mask, (0, 1)).all():
        return "loss_mask holds something other than 0 and 1"
    if not np.isfinite(logprobs).all() or (logprobs[mask == 1] > 1e-3).any():
        return "logprobs must be finite natural log-probabilities, at most 0"
    if not np.isfinite(datums.advantages[i]):
        return f"advantage is {datums.advantages[i]}"
    return None


def check_pairs(datums: Datums) -> None:
    """Reject rows that are not pairs of a chosen reply (advantage 1) and a rejected one (-1).

    Rows 0 and 1 are a pair, rows 2 and 3 the next. Raises ValueError, which names the first faulty
    pair.
    """
    if len(datums) % 2:
        raise ValueError(f"{len(datums)} rows are no pairs of a chosen and a rejected reply")
    for i in range(0, len(datums), 2):
        fault = None
        if list(datums.advantages[i : i + 2]) != [1.0, -1.0]:
            fault = "their advantages must be 1 (chosen) and -1 (rejected)"
        elif not np.array_equal(datums.prompts[i], datums.prompts[i + 1]):
            fault = "they answer different prompts"
        elif not datums.num_tokens[i : i + 2].all():
            fault = "one has no sampled token"
        if fault:
            chosen, rejected = datums.rollout_ids[i : i + 2]
            raise ValueError(f"rows {i} and {i + 1}, rollouts {chosen} and {rejected}: {fault}")


def check_reference_logprobs(datums: Datums) -> None:
    """Reject stored values that are not log-probabilities, or not those of these rows.

    Raises ValueError, which names the first faulty rollout.
    """
    assert datums.reference_logprobs is not None, "the caller looked"
    for i, rollout_id in enumerate(datums.rollout_ids):
        logprobs = datums.reference_logprobs[i]
        sampled = datums.masks[i] == 1
        if len(logprobs) != len(sampled):
            raise ValueError(
                f"rollout {rollout_id} (row {i}): {len(sampled)} completion tokens and"
                f" {len(logprobs)} log-probabilities of the teacher: must be as many"
            )
        if not np.isfinite(logprobs[sampled]).all() or (logprobs[sampled] > 1e-3).any():
            raise ValueError(
                f"rollout {rollout_id} (row {i}): the teacher's logprobs must be finite natural"
                " log-probabilities, at most 0"
            )


@dataclass(frozen=True)
class Plan:
    """Which process computes which datums, and when.

    rows[step][micro-batch][process] holds indices of datums; -1 stands for a row without weight.
    For 5 datums, 1 optimizer step, 2 processes and micro-batches of 2 rows

        rows[0] == [[[0, 1], [2, 3]], [[4, -1], [-1, -1]]]

    If prompts are shared, a process's datums in a micro-batch share one prompt. members[step] are
    all datums of a step, computed or not: the step's denominators count them.
    """

    rows: list[list[list[np.ndarray]]]
    members: list[np.ndarray]
    num_processes: int
    shares_prompts: bool = False

    @property
    def accumulation_steps(self) -> int:
        """The number of micro-batches of a process in an optimizer step."""
        return len(self.rows[0])


def plan(
    datums: Datums,
    *,
    optimizer_steps: int,
    micro_batch_size: int,
    num_processes: int,
    by_length: bool,
    skip_zero_advantages: bool = False,
    shared_prompt_tokens: int | None = None,
    pairs: bool = False,
) -> Plan:
    """Split the file, in order, into equal mini-batches, one per optimizer step, and those into
    micro-batches.

    In every step all processes get the same number of micro-batches, as DDP and FSDP require; rows
    without weight, which no denominator counts, fill the gaps.

    With `by_length` the rows of a micro-batch have similar lengths, and the longest come first: so
    running out of memory shows at once, and later micro-batches reuse the memory blocks of the
    first. `skip_zero_advantages` does not compute datums of advantage 0: without KL and entropy
    bonus they have no gradient. With `shared_prompt_tokens` a process's micro-batch is one prompt
    with its answers, at most that many tokens; an answer too long for that stays alone. With
    `pairs`, rows 0 and 1 stay side by side, as do 2 and 3, and so on; `micro_batch_size` must then
    be even.

    Raises:
        ValueError: there are fewer datums, or pairs, than optimizer steps.
    """
    unit = 2 if pairs else 1  # rows that stay side by side
    num_units = len(datums) // unit
    if num_units < optimizer_steps:
        kind = "pair(s)" if pairs else "datum(s)"
        raise ValueError(f"{num_units} {kind} cannot make {optimizer_steps} optimizer steps")
    minis = [
        (unit * units[:, None] + np.arange(unit)).ravel()
        for units in np.array_split(np.arange(num_units), optimizer_steps)
    ]
    lengths = datums.lengths
    steps = []
    for mini in minis:
        ordered = mini
        if skip_zero_advantages:
            ordered = ordered[datums.advantages[ordered] != 0]
        if by_length:
            units = ordered.reshape(-1, unit)
            longest = lengths[units].max(axis=1)
            ordered = units[np.argsort(-longest, kind="stable")].ravel()
        if shared_prompt_tokens is not None:
            parts = _by_prompt(datums, ordered, shared_prompt_tokens)
        else:
            filled = np.append(ordered, np.full(-len(ordered) % micro_batch_size, -1))
            parts = list(filled.reshape(-1, micro_batch_size))
        steps.append(parts)
    accumulation = max(1, -(-max(map(len, steps)) // num_processes))
    nothing = np.full(micro_batch_size, -1)
    for parts in steps:
        parts += [nothing] * (accumulation * num_processes - len(parts))
    rows = [
        [parts[m * num_processes :][:num_processes] for m in range(accumulation)] for parts in steps
    ]
    return Plan(rows, minis, num_processes, shared_prompt_tokens is not None)


def _by_prompt(datums: Datums, indices: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Group indices by prompt, the longest group first.

    A group has at most `max_tokens` tokens, its prompt counted once, unless it is a single answer.
    """
    groups: dict[bytes, list[list[int]]] = {}
    tokens: dict[bytes, int] = {}
    for i in indices:
        prompt = datums.prompts[i].tobytes()
        answer = len(datums.completions[i])
        length = len(datums.prompts[i])
        # a prompt of one token leaves nothing to share: its last token is computed per answer
        if prompt not in groups or tokens[prompt] + answer > max_tokens or length < 2:
            groups.setdefault(prompt, []).append([])
            tokens[prompt] = length
        groups[prompt][-1].append(int(i))
        tokens[prompt] += answer
    flat = [np.array(rows) for parts in groups.values() for rows in parts]
    lengths = [
        len(datums.prompts[rows[0]]) + sum(len(datums.completions[i]) for i in rows)
        for rows in flat
    ]
    return [flat[k] for k in np.argsort(-np.array(lengths, dtype=np.int64), kind="stable")]


def micro_batches(
    datums: Datums, planned: Plan, process: int, loss_type: LossType, constant: int
) -> list[dict]:
    """This process's micro-batches, step by step, as TRL's `_compute_loss` reads them.

    `constant` is dr_grpo's denominator of a datum. Keys in addition to TRL's own:
      token_weight     (B, T), multiplies each token's term of the loss
      loss_scale       turns TRL's mean over padded rows or micro-batches into one over real ones
      num_tokens, num_rows, num_slots
                       of the micro-batch over all processes; slots include rows without weight
      step_tokens, step_rows
                       of the whole step
      answer_tokens    the lengths of the answers to a shared prompt
    """
    batches = []
    shortest = int(datums.lengths.argmin())
    num_tokens = datums.num_tokens  # the property sums all masks at every access
    for step, members in zip(planned.rows, planned.members, strict=True):
        step_tokens = int(num_tokens[members].sum())
        filled = [rows for micro in step for rows in micro if num_tokens[rows[rows >= 0]].sum()]
        for micro in step:
            present = np.concatenate(micro)
            present = present[present >= 0]
            batch = collate(datums, micro[process], shortest)
            batch["step_tokens"] = step_tokens
            batch["step_rows"] = len(members)
            if planned.shares_prompts and len(micro[process]) > 1:
                batch["answer_tokens"] = [len(datums.completions[i]) for i in micro[process]]
            batch["num_tokens"] = int(num_tokens[present].sum())
            batch["num_rows"] = len(present)
            batch["num_slots"] = sum(map(len, micro))
            batch["num_items_in_batch"] = torch.tensor(float(step_tokens))
            mask = batch["tool_mask"].float()
            slots = planned.accumulation_steps * planned.num_processes
            if loss_type == "dapo":
                batch["loss_scale"] = 1.0
                batch["token_weight"] = mask / max(step_tokens, 1)
            elif loss_type == "bnpo":
                batch["loss_scale"] = slots / max(len(filled), 1)
                batch["token_weight"] = mask / mask.sum().clamp(min=1) / max(len(filled), 1)
            else:
                batch["loss_scale"] = slots * len(mask) / len(members)
                if loss_type == "grpo":
                    denominator = mask.sum(1, keepdim=True).clamp(min=1)
                else:
                    denominator = constant
                batch["token_weight"] = mask / denominator / len(members)
            batches.append(batch)
    return batches


def collate(datums: Datums, rows: Sequence[int] | np.ndarray, shortest: int) -> dict[str, Any]:
    """The tensors of a micro-batch, padded on the right only.

    The prompt ends where the shortest prompt ends; what longer prompts have beyond that becomes
    completion tokens that were not sampled. Prompts of 2 and 4 tokens, with completions of 3 and 2,
    become

        prompt_ids  completion_ids     tool_mask
        p p         c c c .            1 1 1 0
        p p         p p c c            0 0 1 1

    `shortest` is the index of the shortest datum.
    """
    # A row without weight (-1) borrows the tokens of a neighbour, or of the shortest datum; its
    # mask and advantage are 0.
    borrowed = int(np.max(rows))
    if borrowed < 0:
        borrowed = shortest
    indices = [int(i) if i >= 0 else borrowed for i in np.asarray(rows)]
    start = min(len(datums.prompts[i]) for i in indices)
    width = max(len(datums.prompts[i]) + len(datums.completions[i]) for i in indices) - start
    shape = (len(indices), width)
    ids = np.zeros(shape, dtype=np.int64)
    present = np.zeros(shape, dtype=np.int64)
    sampled = np.zeros(shape, dtype=np.int64)
    logprobs = np.zeros(shape, dtype=np.float32)
    reference_logprobs = np.zeros(shape, dtype=np.float32)
    for b, i in enumerate(indices):
        tail = np.concatenate([datums.prompts[i][start:], datums.completions[i]])
        ids[b, : len(tail)] = tail
        present[b, : len(tail)] = 1
        if rows[b] >= 0:
            span = slice(len(tail) - len(datums.completions[i]), len(tail))
            sampled[b, span] = datums.masks[i]
            logprobs[b, span] = datums.logprobs[i] * datums.masks[i]
            if datums.reference_logprobs is not None:
                reference_logprobs[b, span] = datums.reference_logprobs[i] * datums.masks[i]
    advantages = [datums.advantages[i] if i >= 0 else 0.0 for i in rows]
    batch: dict[str, Any] = {}
    if datums.reference_logprobs is not None:
        batch["ref_per_token_logps"] = torch.from_numpy(reference_logprobs)
    return batch | {
        "prompt_ids": torch.from_numpy(np.stack([datums.prompts[i][:start] for i in indices])),
        "prompt_mask": torch.ones((len(indices), start), dtype=torch.int64),
        "completion_ids": torch.from_numpy(ids),
        "completion_mask": torch.from_numpy(present),
        "tool_mask": torch.from_numpy(sampled),
        "old_per_token_logps": torch.from_numpy(logprobs),
        "advantages": torch.tensor(advantages, dtype=torch.float32),
        "rollout_ids": [datums.rollout_ids[i] for i in rows if i >= 0],
    }
