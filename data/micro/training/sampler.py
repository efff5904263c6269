"""Batched sampling from the torch twin, for the quality bars and the grader's training answers,
without an engine.

Conversations have the pipeline's form; searches look up exact entity names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from data.micro.training.model import BLOCKED, LAYERS, Cache, MicroModel
from data.micro.training.packing import encode
from data.micro.training.tokenizer import EOS, ids_of
from data.micro.training.transcripts import results, user
from flows.worlds.encyclopaedia import World

STOPS = ("</search>", "</task>", "</answer>", EOS)
MAX_TURN_TOKENS = 112


@torch.no_grad()
def sample(
    model: MicroModel,
    prompts: list[str],
    temperature: float,
    seed: int = 0,
    max_tokens: int = MAX_TURN_TOKENS,
    rows: int = 256,
) -> list[str]:
    """One reply to each prompt (a prefix of text), including the stop word; temperature 0 is
    greedy."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i].split()))
    generator = torch.Generator().manual_seed(seed)
    replies = [""] * len(prompts)
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        for index, ids in zip(
            chosen,
            _sample_rows(
                model,
                [encode(prompts[i], model.words) for i in chosen],
                temperature,
                generator,
                max_tokens,
            ),
            strict=True,
        ):
            replies[index] = " ".join(model.words[i] for i in ids)
    return replies


def _sample_rows(
    model: MicroModel,
    prompts: list[list[int]],
    temperature: float,
    generator: torch.Generator,
    max_tokens: int,
) -> list[list[int]]:
    rows = len(prompts)
    longest = max(map(len, prompts))
    stop_ids = torch.tensor([ids_of(model.words)[word] for word in STOPS])
    padding = torch.tensor([longest - len(p) for p in prompts])
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    blocked = torch.zeros(rows, 1, longest + max_tokens)
    blocked.masked_fill_(torch.arange(longest + max_tokens) < padding[:, None, None], BLOCKED)
    positions = (torch.arange(longest) - padding[:, None]).clamp(min=0)
    caches = [Cache(rows, longest + max_tokens) for _ in range(LAYERS)]
    causal = torch.full((longest, longest), BLOCKED).triu(1)
    hidden = model(ids, positions, blocked[:, :, :longest] + causal, caches)[:, -1]
    replies: list[list[int]] = [[] for _ in prompts]
    live = torch.arange(rows)
    for length in range(longest, longest + max_tokens):
        drawn = _draw(model.logits(hidden), temperature, generator)
        for row, token in zip(live.tolist(), drawn.tolist(), strict=True):
            replies[row].append(token)
        going = ~torch.isin(drawn, stop_ids)
        if not going.any() or length + 1 == longest + max_tokens:
            break
        if going.sum() < going.numel():
            keep = going.nonzero()[:, 0]
            live = live[keep]
            drawn = drawn[keep]
            for cache in caches:
                cache.select(keep)
        hidden = model(
            drawn[:, None],
            (length - padding[live])[:, None],
            blocked[live, :, : length + 1],
            caches,
        )[:, -1]
    return replies


def _draw(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


@dataclass
class Conversation:
    """A rollout as one text; `final` is the last assistant turn, and `found` holds the entities
    whose documents were retrieved."""

    text: str
    final: str = ""
    found: tuple[str, ...] = ()


def last_element(reply: str, tag: str) -> str | None:
    """The text of the last `<tag> ... </tag>`; None if there is none."""
    found = re.findall(rf"<{tag}> (.*?) </{tag}>", reply)
    if found:
        return found[-1]
    return None


def converse(
    model: MicroModel,
    openings: list[str],
    world: World,
    role: str,
    searches: Sequence[int],
    temperature: float,
    seed: int,
) -> list[Conversation]:
    """Play `role` ("challenger" or "solver") through its searches; the message with the last
    search's results asks for the final tag."""
    talks = [Conversation(text) for text in openings]
    live = list(range(len(openings)))
    for turn in range(max(searches) + 1):
        replies = sample(model, [talks[i].text for i in live], temperature, seed + turn)
        for i, reply in zip(live, replies, strict=True):
            talks[i].final = reply
        live = [i for i in live if talks[i].final.endswith("</search>") and turn < searches[i]]
        for i in live:
            entity = last_element(talks[i].final, "search") or ""
            documents = []
            if entity in world.texts:
                talks[i].found += (entity,)
                documents = [world.texts[entity]]
            left = searches[i] - turn - 1
            shown = results(*documents)
            if not left:
                prompt, _ = user(f"{role}_searched_out", results=shown)
            elif role == "challenger":
                prompt, _ = user(f"{role}_searched", results=shown, searches_left=left)
            else:
                prompt, _ = user(f"{role}_searched", results=shown)
            talks[i].text += f" {talks[i].final} {EOS} {prompt}"
        if not live:
            break
    return talks


def answers(
    model: MicroModel,
    tasks: list[str],
    world: World,
    temperature: float = 1.0,
    seed: int = 0,
    max_searches: int = 4,
) -> list[str | None]:
    """The Solver's answer to each task; None if it gave none."""
    openings = [user("solver", max_searches=max_searches, task=task)[0] for task in tasks]
    talks = converse(
        model, openings, world, "solver", [max_searches] * len(tasks), temperature, seed
    )
    return [last_element(talk.final, "answer") for talk in talks]
