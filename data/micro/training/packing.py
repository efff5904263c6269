"""Pack transcripts into rows of a fixed length; each transcript attends only to itself."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from data.micro.training.model import BLOCKED
from data.micro.training.tokenizer import UNKNOWN, WORDS, ids_of
from data.micro.training.transcripts import Transcript

ROW_TOKENS = 512


@dataclass
class Tokens:
    """A transcript as tokens; `branches[i]` is 0 in the trunk, and each branch's `positions`
    continue from the end of the trunk."""

    ids: list[int]
    weights: list[float]
    positions: list[int]
    branches: list[int]


@dataclass
class Batch:
    """B rows of T tokens: ids and positions [B, T], and bias [B, T, T], 0 where a token may attend.

    `targets` [N] indexes the flattened predictions that count; `weights` [N] are their weights.
    """

    ids: Tensor
    positions: Tensor
    bias: Tensor
    targets: Tensor
    weights: Tensor


def encode(text: str, words: tuple[str, ...] = WORDS) -> list[int]:
    ids = ids_of(words)
    return [ids.get(word, ids[UNKNOWN]) for word in text.split()]


def tokens_of(transcript: Transcript, words: tuple[str, ...] = WORDS) -> Tokens:
    tokens = Tokens([], [], [], [])
    for branch, segments in enumerate([transcript.trunk, *transcript.branches]):
        start = tokens.branches.count(0) if branch else 0
        for text, weight in segments:
            ids = encode(text, words)
            tokens.ids += ids
            tokens.weights += [weight] * len(ids)
            tokens.branches += [branch] * len(ids)
            tokens.positions += range(start, start + len(ids))
            start += len(ids)
    return tokens


def pack(pool: list[Tokens], row_tokens: int = ROW_TOKENS) -> list[list[Tokens]]:
    """Pack transcripts, longest first, each into the first row with room; drop any that is longer
    than a row."""
    rows: list[list[Tokens]] = []
    room: list[int] = []
    for tokens in sorted(pool, key=lambda t: -len(t.ids)):
        length = len(tokens.ids)
        if length > row_tokens:
            continue
        index = next((i for i, free in enumerate(room) if free >= length), len(rows))
        if index == len(rows):
            rows.append([])
            room.append(row_tokens)
        rows[index].append(tokens)
        room[index] -= length
    return rows


def collate(
    rows: list[list[Tokens]], context_share: float, rng: random.Random, row_tokens: int = ROW_TOKENS
) -> Batch:
    """Make a batch of packed rows.

    Tokens that the model said count with their weights; of the other tokens, a random share
    `context_share` counts with 0.999, just below the weight of what is said.
    """
    shape = (len(rows), row_tokens)
    ids = torch.zeros(shape, dtype=torch.long)
    positions = torch.zeros(shape, dtype=torch.long)
    owner = torch.full(shape, -1)
    branch = torch.zeros(shape, dtype=torch.long)
    weights = torch.zeros(shape)
    for r, row in enumerate(rows):
        at = 0
        for number, tokens in enumerate(row):
            span = slice(at, at + len(tokens.ids))
            ids[r, span] = torch.tensor(tokens.ids)
            positions[r, span] = torch.tensor(tokens.positions)
            owner[r, span] = number
            branch[r, span] = torch.tensor(tokens.branches)
            weights[r, span] = torch.tensor(
                [w or float(rng.random() < context_share) * 0.999 for w in tokens.weights]
            )
            weights[r, at] = 0.0
            weights[r, span][_branch_starts(tokens)] = 0.0
            at = span.stop
    allowed = (owner[:, :, None] == owner[:, None, :]) & torch.ones(
        row_tokens, row_tokens
    ).tril().bool()
    allowed &= (branch[:, None, :] == 0) | (branch[:, :, None] == branch[:, None, :])
    bias = torch.zeros(allowed.shape).masked_fill_(~allowed, BLOCKED)
    shifted = torch.cat([weights[:, 1:], torch.zeros(shape[0], 1)], 1).reshape(-1)
    targets = shifted.nonzero()[:, 0]
    return Batch(ids, positions, bias, targets, shifted[targets])


def _branch_starts(tokens: Tokens) -> list[int]:
    """The first tokens of branches, which are not targets: each follows the trunk rather than the
    token before it in the row."""
    return [i for i in range(1, len(tokens.ids)) if tokens.branches[i] != tokens.branches[i - 1]]
