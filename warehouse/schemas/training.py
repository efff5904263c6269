"""Tables of training: what updates read and did, and the policies that a run starts from."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import Flag, Logprob, define


class Datum(TypedDict):
    """A row of `batches`: what one optimizer step reads of one rollout."""

    rollout_id: Annotated[str, "the rollout"]
    datum: Annotated[int, "0 for whole conversations; the turn for models trained turn by turn"]
    prompt_token_ids: Annotated[list[int], "context before the first trained token"]
    completion_token_ids: Annotated[list[int], "sampled tokens, and what was put between turns"]
    loss_mask: Annotated[list[Flag], "1 where the policy sampled the token"]
    logprobs: Annotated[list[Logprob], "natural, at sampling time; 0 where the mask is 0"]
    advantage: Annotated[float, "the rollout's advantage"]


BATCHES = define(
    "batches",
    Datum,
    grain="a training datum: what one optimizer step reads of one rollout",
    key="rollout_id datum",
)


class OptimizerStep(TypedDict):
    """A row of `updates`: an optimizer step."""

    policy: Annotated[str, "policy that came out of the update"]
    parent: Annotated[str, "policy that went in"]
    role: Annotated[str, "whose policy"]
    policy_hash: Annotated[str, "content hash of the new weights"]
    weights: Annotated[str, "folder of the weights, relative to the store"]
    adapter: Annotated[
        str | None, "folder of the LoRA adapter, relative to the store", "full weights"
    ]
    optimizer_state: Annotated[
        str | None, "file of the optimizer's state, relative to the store", "not kept"
    ]
    optimizer_step: Annotated[int, "0-based within the update"]
    metrics: Annotated[
        dict[str, float],
        "loss, kl, clip_fraction, sampler_kl, grad_norm, num_tokens, duration_s, peak_bytes, ...",
    ]


UPDATES = define("updates", OptimizerStep, grain="an optimizer step", key="policy optimizer_step")


class ReferenceRow(TypedDict):
    """A row of `reference_logprobs`: a datum under the KL reference, or under a teacher."""

    rollout_id: Annotated[str, "the rollout"]
    datum: Annotated[int, "which of its datums"]
    logprobs: Annotated[
        list[float], "of the completion's tokens under that model, natural, temperature 1"
    ]


REFERENCES = define(
    "reference_logprobs",
    ReferenceRow,
    grain="a datum under the KL reference, or under a teacher",
    key="rollout_id datum",
)


class Probe(TypedDict):
    """A row of `probes`: a trained datum under the policy that came out."""

    rollout_id: Annotated[str, "a rollout that was trained on"]
    datum: Annotated[int, "which of its datums"]
    policy: Annotated[str, "policy that came out of the update"]
    policy_hash: Annotated[str, "content hash of its weights"]
    num_tokens: Annotated[int, "sampled tokens"]
    engine: Annotated[
        float | None, "their log-probability by the engine, summed, temperature 1", "it failed"
    ]
    trainer: Annotated[float, "the same by the trainer, of the weights that it wrote"]
    before: Annotated[float, "the same at sampling time, as the batch has it"]
    trainer_before: Annotated[
        float | None,
        "the same by the trainer, of the weights before the update",
        "the update went on from a checkpoint",
    ]
    error: Annotated[str | None, "what the engine says", "it did not fail"]


PROBES = define(
    "probes", Probe, grain="a trained datum under the policy that came out", key="rollout_id datum"
)


class PolicyRow(TypedDict):
    """A row of `policies`: a policy a run starts from."""

    policy: Annotated[str, "id"]
    parent: Annotated[str | None, "policy it came from", "a model given from outside"]
    role: Annotated[str, "whose"]
    policy_hash: Annotated[str, "content hash of the weights"]
    weights: Annotated[str, "folder or hub name"]
    adapter: Annotated[str | None, "LoRA adapter folder", "full weights"]
    optimizer_state: Annotated[str | None, "file of the optimizer's state", "none"]


POLICIES = define("policies", PolicyRow, grain="a policy a run starts from", key="policy")


class Pair(TypedDict):
    """A row of `pairs`: two replies to one prompt, or why the prompt has none."""

    pair_id: Annotated[str, "identity, from the prompt and the number of the pair"]
    prompt_id: Annotated[str, "the prompt"]
    task_id: Annotated[str | None, "the task it is about", "it asks for a new one"]
    chosen: Annotated[str | None, "rollout of the better reply", "the prompt has no pair"]
    rejected: Annotated[str | None, "rollout of the worse reply", "the prompt has no pair"]
    chosen_worth: Annotated[
        float | None, "labels: share that call it good, or right; else its reward", "no pair"
    ]
    rejected_worth: Annotated[float | None, "the same of the worse reply", "no pair"]
    why: Annotated[str, "the labels, verdicts or rewards that say so"]
    held_out: Annotated[bool, "measured, and not trained on"]
    kept: Annotated[bool, "whether it is trained on or measured"]
    reason: Annotated[str | None, "why it is not", "it is"]


PAIRS = define(
    "pairs",
    Pair,
    grain="two replies to one prompt, the better and the worse; or a prompt without such",
    key="pair_id",
)
