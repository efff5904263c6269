"""Tables of training: what an update reads, what it did, and the policies it starts from."""

from __future__ import annotations

import pyarrow as pa

from warehouse.schemas.columns import FLOAT, IDS, INT, LOGPROBS, NUMBERS, STRING, Column, define

BATCHES = define(
    "batches",
    "a training datum: what one optimizer step reads of one rollout",
    "rollout_id datum",
    Column("rollout_id", STRING, "the rollout"),
    Column("datum", INT, "0 for whole conversations; the turn for models trained turn by turn"),
    Column("prompt_token_ids", IDS, "context before the first trained token"),
    Column("completion_token_ids", IDS, "sampled tokens, and what was put between turns"),
    Column("loss_mask", pa.list_(pa.int8()), "1 where the policy sampled the token"),
    Column("logprobs", LOGPROBS, "natural, at sampling time; 0 where the mask is 0"),
    Column("advantage", FLOAT, "the rollout's advantage"),
)

UPDATES = define(
    "updates",
    "an optimizer step",
    "policy optimizer_step",
    Column("policy", STRING, "policy that came out of the update"),
    Column("parent", STRING, "policy that went in"),
    Column("role", STRING, "whose policy"),
    Column("policy_hash", STRING, "content hash of the new weights"),
    Column("weights", STRING, "folder of the weights, relative to the store"),
    Column("adapter", STRING, "folder of the LoRA adapter, relative to the store", "full weights"),
    Column("optimizer_state", STRING, "file of the optimizer's state, relative to the store", "not kept"),
    Column("optimizer_step", INT, "0-based within the update"),
    Column(
        "metrics", NUMBERS, "loss, kl, clip_fraction, grad_norm, learning_rate, num_tokens, num_datums, seconds, ..."
    ),
)

POLICIES = define(
    "policies",
    "a policy a run starts from",
    "policy",
    Column("policy", STRING, "id"),
    Column("parent", STRING, "policy it came from", "a model given from outside"),
    Column("role", STRING, "whose"),
    Column("policy_hash", STRING, "content hash of the weights"),
    Column("weights", STRING, "folder or hub name"),
    Column("adapter", STRING, "LoRA adapter folder", "full weights"),
    Column("optimizer_state", STRING, "file of the optimizer's state", "none"),
)
