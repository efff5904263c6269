"""GRPO in plain torch, one datum at a time without padding, written from the papers' formulas, not
from TRL.

rho_t = pi(o_t) / pi_sampled(o_t),   KL_t = exp(x) - x - 1 with x = log pi_ref(o_t) - log pi(o_t)
term_t = -min(rho_t A, clip(rho_t, 1 - low, 1 + high) A), where A < 0 at most -dual A;  + beta KL_t
grpo: mean over datums of the mean over sampled tokens;  dapo: sum / all sampled tokens of the step
dr_grpo: sum / (datums * constant);  bnpo: mean over micro-batches of their token means
with an entropy bonus, term_t is lower by entropy_coef * H_t
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tasks.training.grpo import GRPOSettings

Row = dict
Scorer = Callable[[list[int]], torch.Tensor]


def load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def scorer(model: torch.nn.Module, temperature: float = 1.0) -> Scorer:
    """ids (L,) -> log-probabilities of ids[1:], (L - 1,)."""

    def score(ids: list[int]) -> torch.Tensor:
        logits = model(torch.tensor([ids])).logits[0, :-1].float() / temperature
        return torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]

    return score


def entropy_scorer(model: torch.nn.Module, temperature: float = 1.0) -> Scorer:
    """ids (L,) -> the entropy of the distribution at each position of ids[1:], (L - 1,)."""

    def score(ids: list[int]) -> torch.Tensor:
        logits = model(torch.tensor([ids])).logits[0, :-1].float() / temperature
        return torch.distributions.Categorical(logits=logits).entropy()

    return score


def lora_scorer(model: torch.nn.Module, factors: dict[str, torch.Tensor], scale: float) -> Scorer:
    """Score with every W that has factors replaced by W + scale * B A."""
    names = {
        k.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        for k in factors
        if "lora_A" in k
    }
    base = {n: model.get_parameter(f"{n}.weight").detach() for n in names}

    def score(ids: list[int]) -> torch.Tensor:
        merged = {}
        for name in names:
            a, b = (factors[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
            merged[f"{name}.weight"] = base[name] + scale * b @ a
        logits = torch.func.functional_call(model, merged, (torch.tensor([ids]),)).logits[0, :-1]
        return torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]

    return score


def token_terms(
    row: Row,
    policy: Scorer,
    reference: Scorer | None,
    s: GRPOSettings,
    entropy: Scorer | None = None,
) -> torch.Tensor:
    """Loss terms of a datum's sampled tokens, (n,)."""
    ids = row["prompt_token_ids"] + row["completion_token_ids"]
    start = len(row["prompt_token_ids"])
    sampled = [t for t, m in enumerate(row["loss_mask"]) if m]
    positions = [start + t - 1 for t in sampled]
    logps = policy(ids)[positions]
    log_rho = logps - torch.tensor([row["logprobs"][t] for t in sampled])
    if s.importance_sampling_level == "sequence":
        log_rho = log_rho.mean().expand_as(log_rho)
    rho = log_rho.exp()
    advantage = row["advantage"]
    objective = torch.minimum(
        rho * advantage, rho.clamp(1 - s.epsilon_low, 1 + s.epsilon_high) * advantage
    )
    if s.dual_clip is not None and advantage < 0:
        objective = objective.clamp(min=s.dual_clip * advantage)
    if entropy is not None:
        objective = objective + s.entropy_coef * entropy(ids)[positions]
    if reference is None:
        return -objective
    with torch.no_grad():
        reference_logps = reference(ids)[positions]
    x = reference_logps - logps
    kl = x.exp() - x - 1
    return -objective + s.beta * (kl * rho if s.use_bias_correction_kl else kl)


def loss(
    rows: list[Row],
    policy: Scorer,
    reference: Scorer | None,
    s: GRPOSettings,
    entropy: Scorer | None = None,
) -> torch.Tensor:
    """The loss of one optimizer step, ()."""
    terms = [token_terms(row, policy, reference, s, entropy) for row in rows]
    tokens = sum(len(t) for t in terms)
    match s.loss_type:
        case "grpo":
            return sum(t.sum() / max(len(t), 1) for t in terms) / len(rows)
        case "dapo":
            return sum(t.sum() for t in terms) / tokens
        case "dr_grpo":
            return sum(t.sum() for t in terms) / (len(rows) * s.max_completion_tokens)
        case "bnpo":
            chunks = [
                terms[i : i + s.micro_batch_size] for i in range(0, len(terms), s.micro_batch_size)
            ]
            return sum(torch.cat(c).mean() for c in chunks) / len(chunks)


def run(
    parameters: Iterable[torch.Tensor],
    policy: Scorer,
    reference: Scorer | None,
    batches: list[list[Row]],
    s: GRPOSettings,
    entropy: Scorer | None = None,
) -> list[float]:
    """Train `parameters` in place with one AdamW over all batches, each split into k mini-batches;
    returns the losses."""
    parameters = list(parameters)
    adam = torch.optim.AdamW(
        parameters,
        s.learning_rate,
        (s.adam_beta1, s.adam_beta2),
        s.adam_epsilon,
        weight_decay=s.weight_decay,
    )
    losses = []
    for rows in batches:
        size = math.ceil(len(rows) / s.optimizer_steps)
        for i in range(0, len(rows), size):
            adam.zero_grad()
            value = loss(rows[i : i + size], policy, reference, s, entropy)
            value.backward()
            if s.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(parameters, s.max_grad_norm)
            adam.step()
            losses.append(value.item())
    return losses


def relative_difference(before: dict, ours: dict, theirs: dict) -> float:
    """|change_ours - change_theirs| / |change_theirs|, Euclidean over all parameters."""
    names = list(before)
    change = torch.cat([(theirs[n].double() - before[n].double()).flatten() for n in names])
    error = torch.cat([(ours[n].double() - theirs[n].double()).flatten() for n in names])
    return float(error.norm() / change.norm())


def weights(folder: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(folder / name)
