"""The baseline SFT, played without an engine: pairs from a file become rollouts that no policy
sampled, and an update."""

from __future__ import annotations

import json

import pytest

from flows.mae.config import Config
from flows.mae.flow import mae_iteration
from flows.run import templates
from flows.settings.profile import load
from flows.worlds.tables import ledger_oracle
from tests.support.rows import row
from tests.support.scripted_play import Asked, Script, any_text_model, load_tokenizer, perform
from warehouse.query import query
from warehouse.store import Store

PAIRS = [
    {
        "question": "How many legs have three spiders?",
        "answer": "24",
        "solution": "3 times 8 is 24.",
    },
    {"question": "Which is most?", "answer": "B", "options": ["2", "7"]},
    {"question": "How old is Bo?", "answer": "9", "context": "Bo turned nine today."},
    {"question": "Who wrote <answer>Emma</answer>?", "answer": "Jane Austen"},
]
SETTINGS = {
    "iterations": 2,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "fine_tuning.batch_size": 1,
    "evaluation.benchmark": "none",
}


def say(asked: Asked) -> str:
    raise AssertionError("nobody is asked")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    folder = tmp_path_factory.mktemp("sft")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(say), patch)
        own = {
            "models.base": model,
            "engine.model": model,
            "fine_tuning.pairs.file": str(folder / "pairs.jsonl"),
            "fine_tuning.pairs.columns.context": ["context"],
        }
        mae_iteration("micro-sft-workings", "r", {**SETTINGS, **own})
    return Store(folder / "store"), model


def rows(played: tuple[Store, str], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_what_is_learnt_is_the_solvers_reply_to_the_end_of_its_turn(played):
    found = rows(
        played,
        "select prompt_token_ids, completion_token_ids, loss_mask, advantage, logprobs from"
        " batches",
    )
    tokenizer = load_tokenizer(played[1])
    said = {}
    for prompt, reply, mask, advantage, logprobs in found:
        said[tokenizer.decode(reply)] = tokenizer.decode(prompt)
        assert (set(mask), advantage, set(logprobs)) == ({1}, 1.0, {0.0})
        assert len(mask) == len(reply)
    assert set(said) == {
        "3 times 8 is 24.\n\n<answer>24</answer><|im_end|>",
        "<answer>B</answer><|im_end|>",
        "<answer>9</answer><|im_end|>",
        "<answer>Jane Austen</answer><|im_end|>",
    }
    asked = said["<answer>B</answer><|im_end|>"]
    assert (
        "Which is most?" in asked and "B) 7" in asked and asked.endswith("<|im_start|>assistant\n")
    )
    assert "Bo turned nine today.\n\nHow old is Bo?" in said["<answer>9</answer><|im_end|>"]


def test_the_papers_baseline_learns_the_answers_alone():
    """No workings stand in the replies of `micro-sft`, nor in those of the profile for a GPU."""
    template = templates(load(Config, "micro-sft"), "english")("solved")
    assert template.render(answer="24").strip() == "<answer>24</answer>"
    for name in ("micro-sft", "qwen2.5-3b-instruct-sft-1gpu"):
        fine_tuning = load(Config, name).fine_tuning
        assert fine_tuning is not None and fine_tuning.pairs.columns.given == ()
    on_gpu = load(Config, "qwen2.5-3b-instruct-sft-1gpu")
    assert on_gpu.iterations == 5 and on_gpu.update.lora is not None
    assert on_gpu.update.lora.rank == 128


def test_every_pair_is_learnt_once_an_epoch_each_in_an_optimizer_step(played):
    counted = rows(
        played,
        "select iteration, count(*), count(distinct rollout_id) from batches group by 1 order by 1",
    )
    assert counted == [(1, 4, 4), (2, 4, 4)]
    steps = rows(
        played,
        "select iteration, max(optimizer_step) from updates group by iteration order by iteration",
    )
    assert steps == [(1, 3), (2, 3)]
    parents = rows(
        played, "select distinct iteration, parent, policy from updates order by iteration"
    )
    assert parents[1][1] == parents[0][2]


def test_nobody_sampled_it_and_the_lineage_leads_to_the_pair(played):
    assert rows(
        played, "select distinct policy, num_sampled_tokens, finish_reason from rollouts"
    ) == [("given", 0, "final")]
    found = rows(played, "select distinct task from lineage order by task")
    questions = (task.rpartition("\n")[2] for (task,) in found)
    assert sorted(questions) == sorted(pair["question"] for pair in PAIRS)


def test_pairs_of_the_micro_world_are_true_and_their_solutions_end_with_the_answer():
    with open("data/micro/pairs.jsonl", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file]
    assert len({pair["question"] for pair in pairs}) == 384
    for pair in pairs:
        task = row("tasks", task_id="t", text=pair["question"], options=pair.get("options"))
        assert ledger_oracle(task, pair["answer"])  # pyright: ignore[reportArgumentType]
        assert pair["solution"].removesuffix(" .").endswith(pair["answer"])
