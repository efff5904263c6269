"""lm-evaluation-harness as an external stage: its command, and its real logs as items, answers
and scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.benchmarks.harness import ask_harness, harness_items, harness_scores, samples
from tasks.engines.harness import Harness
from tasks.models.engine import EngineConfig, Policy
from tests.support.lm_eval import calls_of, like_lm_eval
from warehouse.store import Place, Table

POLICY = Policy(id="p", weights="models/p", content_hash="h")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A program like lm-eval."""
    return Harness(python=str(like_lm_eval(tmp_path)), backend="hf")


def asked(place: Place, harness: Harness, *arguments: str) -> Table:
    return ask_harness(
        place,
        policy=POLICY,
        task="tiny",
        limit=2,
        arguments=arguments,
        harness=harness,
        version="0.4.13",
    )


def test_every_logged_sample_is_an_answer_and_a_choice_is_the_likeliest_continuation(
    place, harness
):
    assert {row["task_id"]: row["answer"] for row in asked(place, harness).rows()} == {
        "tiny_choices-0": "stones",  # -0.109 against -0.551
        "tiny_choices-1": "fire",
        "tiny_questions-0": "lol",
        "tiny_questions-1": "lol",
    }


def test_a_line_of_a_log_ends_at_a_line_feed_alone(tmp_path):
    rows = [{"doc_id": n, "text": "one\u2028two\x85three"} for n in range(2)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "t.jsonl").write_text(lines, encoding="utf-8")
    assert list(samples(tmp_path)) == [("t-0", rows[:1]), ("t-1", rows[1:])]


def test_its_items_have_what_was_asked_and_the_target(place, harness):
    items = {row["task_id"]: row for row in harness_items(place, asked(place, harness)).rows()}
    question = items["tiny_questions-0"]
    choice = items["tiny_choices-0"]
    assert (question["text"], question["references"]) == (
        "Question: Who wrote it?\nAnswer:",
        ["Ann Lee"],
    )
    assert (question["options"], question["kind"]) == (None, "tiny_questions")
    assert (choice["options"], choice["references"]) == (["stones", "meat"], ["1"])


def test_its_metrics_are_those_that_it_logged(place, harness):
    answers = asked(place, harness)
    table = harness_scores(place, answers, metric=(), protocol={"revision": "lm-eval 0.4.13, tiny"})
    scores = {row["task_id"]: row["scores"] for row in table.rows()}
    assert scores["tiny_choices-0"] == {"acc": 0.0, "acc_norm": 0.0, "readable": 1.0, "score": 0.0}
    assert scores["tiny_questions-1"] == {"exact_match": 0.0, "readable": 1.0, "score": 0.0}
    assert {row["rollout_id"] for row in table.rows()} == {
        row["rollout_id"] for row in answers.rows()
    }


def test_a_failure_ends_in_what_it_said(place, harness):
    with pytest.raises(RuntimeError, match=r"lm-eval tiny failed \(1\): no such task"):
        asked(place, harness, "broken")
    with pytest.raises(ValueError, match="there is no lm-eval at nowhere/python: `make harness`"):
        asked(place, Harness(python="nowhere/python"))


def test_it_is_started_again_with_other_arguments_and_not_with_the_same(place, harness, tmp_path):
    few_shot = ("--num_fewshot", "0")
    for arguments in ((), ("--apply_chat_template",), ("--apply_chat_template",), few_shot):
        asked(place, harness, *arguments)
    calls = [line.partition(" --limit 2")[2] for line in calls_of(tmp_path)]
    assert calls == ["", " --apply_chat_template", " --num_fewshot 0"]


def test_it_gets_the_weights_with_the_adapter_or_a_servers_address(tmp_path):
    adapter = POLICY.model_copy(update={"adapter": str(tmp_path)})
    (tmp_path / "adapter_config.json").write_text('{"r": 48}')
    out = Path("out")
    limits = "dtype=bfloat16,max_model_len=4096,gpu_memory_utilization=0.6,tensor_parallel_size=2"
    on_gpus = f"pretrained=models/p,{limits},lora_local_path={tmp_path},max_lora_rank=64"
    engine = EngineConfig(
        model="m",
        dtype="bfloat16",
        max_model_len=4096,
        device="cuda",
        gpu_memory_utilization=0.6,
        tensor_parallel=2,
    )
    assert on_gpus in Harness().on(engine).command(adapter, "t", None, out)
    own = Harness(model_args={"gpu_memory_utilization": 0.3}).on(engine)
    assert "gpu_memory_utilization=0.3," in " ".join(own.command(adapter, "t", None, out))
    on_cpus = Harness().on(engine.model_copy(update={"device": "cpu", "tensor_parallel": 1}))
    assert f"pretrained=models/p,peft={tmp_path}" in on_cpus.command(adapter, "t", None, out)
    served = Harness(url="http://127.0.0.1:8000/v1/completions").command(POLICY, "t", 5, out)
    assert served[3:7] == [
        "--model",
        "local-completions",
        "--model_args",
        "model=p,base_url=http://127.0.0.1:8000/v1/completions,tokenizer=models/p",
    ]
    assert served[-2:] == ["--limit", "5"]
