"""Real vLLM in child processes, compared with Hugging Face and PEFT."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, EngineDied, Policy, Sampling
from tasks.models.yarn import Yarn
from tasks.rollouts.rollout import Dialogue
from tests.support.scripted import model_folder, word_tokenizer

pytestmark = pytest.mark.slow
ONE_TURN = Dialogue()
WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "moon", "sun", "sea", "red", "blue"]


def prompts(num=6):
    texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(3 + i)) for i in range(num)]
    messages = [[{"role": "user", "content": text}] for text in texts]
    return [
        {"prompt_id": f"p{i}", "role": "r", "messages": m, "search_turns": None}
        for i, m in enumerate(messages)
    ]


def config(policy, **settings):
    small = {
        "dtype": "float32",
        "max_model_len": 128,
        "max_num_seqs": 16,
        "kv_cache_bytes": 1 << 24,
    }
    return EngineConfig(model=policy.weights, **small, **settings)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folders = [model_folder(tmp_path_factory.mktemp("model"), seed) for seed in (1, 2)]
    return [
        Policy(id=f"m{i}", weights=str(folder), content_hash=str(i))
        for i, folder in enumerate(folders)
    ]


@pytest.fixture(scope="module")
def fleet(models, tmp_path_factory):
    with Fleet(config(models[0]), 1, tmp_path_factory.mktemp("logs")) as fleet:
        yield fleet


def sample(fleet, policy, sampling=None, some=None, **settings):
    sampling = sampling or Sampling(max_tokens=12)
    rows = fleet.roll_out(some or prompts(), policy, sampling, ONE_TURN, **settings)
    return sorted(rows, key=lambda row: (row["prompt_id"], row["sample"]))


def reference(model, row, temperature=1.0, top_p=1.0):
    """Log-probabilities of a row's sampled tokens by Hugging Face, after temperature and top-p."""
    (turn,) = row["turns"]
    ids = turn["context_token_ids"] + turn["sampled_token_ids"]
    with torch.no_grad():
        logits = (
            model(torch.tensor([ids])).logits[0, len(turn["context_token_ids"]) - 1 : -1].double()
            / temperature
        )
    ordered, index = logits.softmax(-1).sort(descending=True)
    dropped = (ordered.cumsum(-1) - ordered) > top_p
    logits = logits.scatter(-1, index, logits.gather(-1, index).masked_fill(dropped, -torch.inf))
    return (
        logits.log_softmax(-1)
        .gather(-1, torch.tensor(turn["sampled_token_ids"])[:, None])[:, 0]
        .tolist()
    )


def load(policy):
    from transformers import Qwen2ForCausalLM

    return Qwen2ForCausalLM.from_pretrained(policy.weights, dtype=torch.float32)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9)])
def test_logprobs_are_those_of_the_sampled_distribution_whichever_weights_were_loaded(
    fleet, models, temperature, top_p
):
    for policy in (*models, *models):
        model = load(policy)
        for row in sample(
            fleet, policy, Sampling(temperature=temperature, top_p=top_p, max_tokens=12)
        ):
            assert row["turns"][0]["logprobs"] == pytest.approx(
                reference(model, row, temperature, top_p), abs=2e-5
            )


def test_stretched_positions_are_those_of_hugging_face(models, tmp_path):
    """Contexts of 300 tokens; the model has 256 positions."""
    from transformers import Qwen2ForCausalLM

    yarn = Yarn(factor=2.0)
    policy = models[0]
    positions = yarn.settings(Path(policy.weights))
    stretched = Qwen2ForCausalLM.from_pretrained(policy.weights, dtype=torch.float32, **positions)
    long = [
        {**prompt, "messages": [{"role": "user", "content": "moon sea " * 150}]}
        for prompt in prompts(2)
    ]
    settings = config(policy).model_copy(update={"yarn": yarn, "max_model_len": 512})
    with Fleet(settings, 1, tmp_path) as fleet:
        for row in sample(fleet, policy, some=long):
            assert len(row["turns"][0]["context_token_ids"]) > 300
            assert row["turns"][0]["logprobs"] == pytest.approx(reference(stretched, row), abs=2e-5)


def weighed(fleet, policy, reply, between=()):
    asked = [
        {**prompt, "between_token_ids": list(between), "reply_token_ids": reply}
        for prompt in prompts()
    ]
    return {row["prompt_id"]: row for row in fleet.reply_logprobs(asked, policy, ONE_TURN)}


def assert_weighed_as_by(model, found, reply, between=()):
    tokenizer = word_tokenizer()
    for prompt in prompts():
        text = tokenizer.apply_chat_template(
            prompt["messages"], tokenize=False, add_generation_prompt=True
        )
        before = [*tokenizer(text, add_special_tokens=False)["input_ids"], *between]
        row = {"turns": [{"context_token_ids": before, "sampled_token_ids": reply}]}
        assert found[prompt["prompt_id"]]["logprob"] == pytest.approx(
            sum(reference(model, row)), abs=1e-4
        )


def test_a_given_reply_is_as_likely_as_by_hugging_face_whichever_weights_were_loaded(fleet, models):
    reply = [20, 25, 31, 3]
    between = [20, 21, 3, 2, 6]
    for policy in (models[0], models[1], models[0]):
        for before in ((), between):
            assert_weighed_as_by(load(policy), weighed(fleet, policy, reply, before), reply, before)


def test_a_sampled_reply_weighs_what_it_was_sampled_with(fleet, models):
    for row in sample(fleet, models[1], group_size=4):
        (turn,) = row["turns"]
        found = weighed(fleet, models[1], turn["sampled_token_ids"])[row["prompt_id"]]
        assert found["logprob"] == pytest.approx(sum(turn["logprobs"]), abs=1e-4)


def test_a_given_reply_that_does_not_fit_is_a_row_with_its_reason(fleet, models):
    found = weighed(fleet, models[0], [20] * 115)  # prompts of 8 to 13 tokens, a context of 128
    assert {i: row["error"] is None for i, row in found.items()} == {
        f"p{i}": 8 + i + 115 < 128 for i in range(6)
    }
    assert (
        found["p5"]["logprob"] is None
        and "leaves no room in a context of 128" in found["p5"]["error"]
    )


def test_rows_depend_on_neither_order_nor_batch_nor_number_of_engines(fleet, models, tmp_path):
    def key(rows):
        return [(row["rollout_id"], row["turns"][0]["sampled_token_ids"]) for row in rows]

    together = key(sample(fleet, models[0], group_size=3, seed=4))
    assert key(sample(fleet, models[0], some=prompts()[::-1], group_size=3, seed=4)) == together
    alone = [
        row
        for prompt in prompts()
        for row in sample(fleet, models[0], some=[prompt], group_size=3, seed=4)
    ]
    assert key(alone) == together
    assert key(sample(fleet, models[0], group_size=3, seed=5)) != together
    with Fleet(fleet.config, 2, tmp_path) as two:
        assert key(sample(two, models[0], group_size=3, seed=4)) == together


def tokens(rows):
    return {(row["prompt_id"], row["sample"]): row["turns"][0]["sampled_token_ids"] for row in rows}


def assert_calls_at_once_are_alike(fleet, calls):
    """Calls in threads of their own sample the tokens that each samples alone."""
    alone = [
        tokens(sample(fleet, policy, sampling, seed=seed, group_size=4))
        for policy, sampling, seed in calls
    ]
    with ThreadPoolExecutor(len(calls)) as threads:
        begun = [
            threads.submit(sample, fleet, *call[:2], seed=call[2], group_size=4) for call in calls
        ]
        assert [tokens(rows.result()) for rows in begun] == alone


def test_calls_from_several_threads_sample_what_each_samples_alone(fleet, models):
    short = Sampling(max_tokens=8)
    long = Sampling(temperature=0.7, max_tokens=40)
    calls = [
        (models[0], long, 1),
        (models[0], short, 2),
        (models[1], long, 3),
        (models[0], short, 4),
    ]
    assert_calls_at_once_are_alike(fleet, calls)


def test_a_stop_string_ends_the_reply_and_stays(fleet, models):
    rows = sample(fleet, models[0], Sampling(max_tokens=60, stop=("</search>",)), group_size=8)
    stopped = [row["reply"] for row in rows if "</search>" in row["reply"]]
    assert stopped and all(
        reply.endswith("</search>") and reply.count("</search>") == 1 for reply in stopped
    )


def test_a_prompt_longer_than_the_context_is_a_row_and_the_others_go_on(fleet, models):
    long = {
        **prompts(1)[0],
        "prompt_id": "long",
        "messages": [{"role": "user", "content": "a " * 130}],
    }
    rows = sample(fleet, models[0], some=[long, *prompts(2)])
    assert [row["finish_reason"] == "error" for row in rows] == [True, False, False]
    assert "leaves no room in a context of 128" in rows[0]["error"]


def test_swapping_weights_many_times_does_not_leak(fleet, models):
    def swap(times):
        for i in range(times):
            sample(fleet, models[i % 2], Sampling(max_tokens=1), some=prompts(1))

    swap(10)
    child = psutil.Process(fleet._pool.children[0].process.pid)
    before = child.memory_info().rss
    swap(100)
    assert child.memory_info().rss - before < 20 * 2**20


def test_an_engine_that_dies_is_started_once_more_and_loses_no_row(fleet, models):
    def rows(num_kills):
        found = []
        killed = set()
        for row in fleet.roll_out(
            prompts(), models[0], Sampling(max_tokens=40), ONE_TURN, group_size=100
        ):
            found.append((row["rollout_id"], row["reply"]))
            pid = fleet._pool.children[0].process.pid
            # more rows are left than its pipe holds
            if pid not in killed and len(killed) < num_kills:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return sorted(found)

    undisturbed = rows(0)
    assert len(undisturbed) == 600 and rows(1) == undisturbed
    with pytest.raises(EngineDied, match=r"engine 0 died twice.*Its log: "):
        rows(2)
    assert rows(0) == undisturbed


def test_a_caller_that_stops_early_leaves_the_engine_free(fleet, models):
    child = fleet._pool.children[0]
    before = tokens(sample(fleet, models[0], seed=7))
    rows = fleet.roll_out(prompts(), models[0], Sampling(max_tokens=100), ONE_TURN, group_size=100)
    next(rows)
    rows.close()
    assert (
        tokens(sample(fleet, models[1], seed=7))
        != before
        == tokens(sample(fleet, models[0], seed=7))
    )
    assert fleet._pool.children[0] is child


def test_a_wrong_policy_is_an_error_and_the_fleet_serves_on(fleet, models):
    with pytest.raises(ValueError, match="no adapter_config"):
        sample(fleet, models[0].model_copy(update={"adapter": "/nowhere"}))
    assert len(sample(fleet, models[0])) == 6


def test_adapters_and_base_share_an_engine_and_match_peft(models, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    adapters = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
        model = get_peft_model(load(models[0]), settings)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(0, 0.3)
        model.save_pretrained(tmp_path / str(seed))
        adapters.append(
            Policy(
                id=f"a{seed}",
                weights=models[0].weights,
                adapter=str(tmp_path / str(seed)),
                content_hash=f"a{seed}",
            )
        )
    with Fleet(config(models[0], max_lora_rank=8), 1, tmp_path) as lora:
        for policy in (adapters[0], models[0], adapters[1], adapters[0], models[0]):
            model = load(policy)
            if policy.adapter:
                model = PeftModel.from_pretrained(model, policy.adapter)
            for row in sample(lora, policy):
                assert row["turns"][0]["logprobs"] == pytest.approx(reference(model, row), abs=2e-5)
            assert_weighed_as_by(model, weighed(lora, policy, [20, 25, 31]), [20, 25, 31])
        policies = (models[0], adapters[0], adapters[1], adapters[0])
        assert_calls_at_once_are_alike(
            lora, [(each, Sampling(max_tokens=30), i) for i, each in enumerate(policies)]
        )


def test_the_tokenizer_is_the_one_in_the_folder(fleet, models):
    (row,) = sample(fleet, models[0], some=prompts(1))
    shown = word_tokenizer().decode(row["turns"][0]["context_token_ids"])
    assert shown == "<|im_start|> user a b c <|im_end|> <|im_start|> assistant"
