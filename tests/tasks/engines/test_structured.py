"""Replies that vLLM holds to a form, beside free ones, on a real engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, Policy, Sampling
from tasks.readers.lines import PAIR_FORM, VOTE_FORM, read_vote
from tasks.rollouts.rollout import Dialogue
from tests.support.scripted_play import any_text_model

pytestmark = pytest.mark.slow
AS_IT_IS = Dialogue(chat_template="none")
TEXTS = [f"Text: Ada left in 18{n:02}.\nRight:" for n in range(8)]
PROMPTS: list[Any] = [
    {
        "prompt_id": f"p{i}",
        "role": "judge",
        "messages": [{"role": "user", "content": text}],
        "search_turns": None,
    }
    for i, text in enumerate(TEXTS)
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = any_text_model(tmp_path_factory.mktemp("structured") / "model", hidden=64)
    return Policy(id="tiny", weights=str(folder), content_hash="1")


@pytest.fixture(scope="module")
def fleet(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    config = EngineConfig(
        model=policy.weights,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=16,
        kv_cache_bytes=1 << 25,
    )
    with Fleet(config, 1, tmp_path_factory.mktemp("logs")) as fleet:
        yield fleet


def replies(fleet: Fleet, policy: Policy, sampling: Sampling) -> list[Any]:
    rows = fleet.roll_out(PROMPTS, policy, sampling, AS_IT_IS, seed=3)
    return sorted(rows, key=lambda row: row["prompt_id"])


def next_token_logprobs(policy: Policy, row: Any) -> torch.Tensor:
    """The policy's own log-probabilities of a row's sampled tokens, T x V."""
    model = Qwen2ForCausalLM.from_pretrained(policy.weights, dtype=torch.float32)
    [turn] = row["turns"]
    ids = turn["context_token_ids"] + turn["sampled_token_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, len(turn["context_token_ids"]) - 1 : -1]
    return logits.double().log_softmax(-1)


def test_every_reply_has_the_form_and_random_weights_have_none_without_it(fleet, policy) -> None:
    held = replies(fleet, policy, Sampling(max_tokens=8, form=VOTE_FORM))
    assert {row["reply"] for row in held} <= {" yes", " no"}
    assert {read_vote(row["reply"]) for row in held} <= {0, 1}
    free = replies(fleet, policy, Sampling(max_tokens=8))
    assert not any(re.fullmatch(VOTE_FORM, row["reply"]) for row in free)


def test_a_question_with_its_answer_has_the_form_of_a_line(fleet, policy) -> None:
    held = replies(fleet, policy, Sampling(max_tokens=300, stop=("\n",), form=PAIR_FORM))
    whole = [row["reply"] for row in held if row["finish_reason"] == "final"]
    assert len(whole) >= len(PROMPTS) // 2
    for reply in whole:
        # lengths are not compared: random weights write bytes that are no character
        assert re.fullmatch(r" [^\n?]+\? Answer: [^\n]+\n", reply)


def test_logprobs_of_a_form_are_those_after_its_mask_and_not_the_policys(fleet, policy) -> None:
    for row in replies(fleet, policy, Sampling(max_tokens=1, form="[AB]")):
        [turn] = row["turns"]
        [token] = turn["sampled_token_ids"]
        own = next_token_logprobs(policy, row)[0]
        letters = fleet_tokens(policy, "A", "B")
        assert token in letters
        of_both = torch.logsumexp(own[letters], 0)
        assert turn["logprobs"][0] == pytest.approx(float(own[token] - of_both), abs=2e-5)
        assert turn["logprobs"][0] > float(own[token]) + 1.0  # 2 of 1,500 tokens are left


def fleet_tokens(policy: Policy, *texts: str) -> list[int]:
    from tasks.models.engine import load_tokenizer

    return load_tokenizer(policy.weights).convert_tokens_to_ids(list(texts))


def test_free_replies_and_their_logprobs_stay_the_policys_own(fleet, policy) -> None:
    free = Sampling(max_tokens=8)
    before = replies(fleet, policy, free)
    replies(fleet, policy, Sampling(max_tokens=8, form=VOTE_FORM))
    after = replies(fleet, policy, free)
    for first, second in zip(before, after, strict=True):
        [turn] = first["turns"]
        assert turn["sampled_token_ids"] == second["turns"][0]["sampled_token_ids"]
        assert turn["logprobs"] == pytest.approx(second["turns"][0]["logprobs"], abs=1e-6)
        own = next_token_logprobs(policy, first)
        sampled = torch.tensor(turn["sampled_token_ids"])[:, None]
        assert turn["logprobs"] == pytest.approx(own.gather(-1, sampled)[:, 0].tolist(), abs=2e-5)


def test_a_recipe_of_free_replies_is_the_one_from_before_there_were_forms() -> None:
    assert "form" not in Sampling(max_tokens=1).model_dump(mode="json")
    assert Sampling(max_tokens=1, form="[AB]").model_dump(mode="json")["form"] == "[AB]"
