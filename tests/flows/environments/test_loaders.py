"""Exported tasks in the packages that train on them: they load, and score as the project does."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from corpus_prep.read.documents import DocumentRow
from corpus_prep.search.index import build_index
from flows.environments.environment import Environment, Search
from flows.environments.write import write_environment
from tests.support.scripted_play import any_text_model

ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".loaders"  # `make loaders`
LOADERS = ENVIRONMENTS / "bin/python"
OPENRLHF = ENVIRONMENTS / "openrlhf"  # a folder of packages, for this project's own interpreter
GYM = ENVIRONMENTS / "gym/bin/python"
with_verifiers = pytest.mark.skipif(not LOADERS.exists(), reason="`make loaders` was not run")
with_openrlhf = pytest.mark.skipif(
    not OPENRLHF.exists(), reason="`make loaders` was not run, or not with Python 3.11"
)
with_nemo_gym = pytest.mark.skipif(
    not GYM.exists(), reason="`make loaders` was not run, or found no Python 3.12"
)


def as_json(replies) -> str:
    return json.dumps([[task["task_id"], reply] for task, reply in replies])


def outside(python, folder: Path, script: str, given: str = "", timeout: int = 900) -> str:
    """What a script prints in a folder, in an interpreter that does not find the project."""
    script = f"import sys; sys.path.insert(0, '.')\n{script}"
    done = subprocess.run(
        [str(python), "-I", "-c", script],
        input=given,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def searching(environment: Environment, folder: Path) -> Environment:
    """The environment with a search over one document, whose index is in `folder`."""
    index = build_index([DocumentRow("d0", "Rhine", "A river of 1,233 km.")], folder)
    search = Search(index, documents_per_query=3, result_tokens=100, example="<search>x</search>")
    return replace(environment, search=search, searches=True)


@pytest.mark.slow
def test_trls_reward_function_gives_200_replies_the_scores_of_the_stages(
    environment, replies, our_scores, tmp_path
):
    write_environment(environment, "trl", tmp_path / "out", "card")
    script = """
import json
from reward import reward
rows = [json.loads(line) for name in ("train", "test") for line in open(f"{name}.jsonl")]
task_of = {json.loads(row["task"])["task_id"]: row["task"] for row in rows}
replies = json.loads(sys.stdin.read())
completions = [[{"role": "assistant", "content": reply}] for _, reply in replies]
print(json.dumps(reward(completions=completions, task=[task_of[name] for name, _ in replies])))
"""
    scores = json.loads(outside(sys.executable, tmp_path / "out", script, as_json(replies)))
    assert len(scores) == 200
    assert {1.0, 0.0} < {*scores}  # and some None
    assert scores == our_scores


@pytest.mark.slow
def test_openrlhfs_reward_function_gives_them_too(environment, replies, our_scores, tmp_path):
    write_environment(environment, "openrlhf", tmp_path / "out", "card")
    spec = importlib.util.spec_from_file_location("reward_func", tmp_path / "out/reward.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # as OpenRLHF loads it
    rows = [json.loads(line) for line in (tmp_path / "out/train.jsonl").open()]
    label_of = {json.loads(row["label"])["task_id"]: row["label"] for row in rows}
    prompt = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    for (task, reply), ours in list(zip(replies, our_scores, strict=True))[:40]:
        if task["task_id"] not in label_of:
            continue
        query = [f"{prompt}{reply}<|im_end|>\n"]
        if ours is None:
            with pytest.raises(module.Unscorable):
                module.reward_func(query, [prompt], [label_of[task["task_id"]]])
        else:
            found = module.reward_func(query, [prompt], [label_of[task["task_id"]]])
            assert found["rewards"].tolist() == [ours]


@pytest.mark.slow
@with_openrlhf
def test_openrlhf_reads_the_tasks_and_its_executor_gives_200_replies_the_scores_of_the_stages(
    environment, replies, our_scores, tmp_path
):
    """Its data set, chat template, decoding and call of the reward function are its own. The engine
    that would sample gives the stored replies instead. A reply that cannot be scored gets no
    reward."""
    write_environment(environment, "openrlhf", tmp_path / "out", "card")
    any_text_model(tmp_path / "model", max_tokens=100_000)
    script = f"""
import asyncio, json
from types import SimpleNamespace
sys.path.insert(0, {str(OPENRLHF)!r})
from openrlhf.datasets.prompts_dataset import PromptDataset
from openrlhf.datasets.utils import blending_datasets
from openrlhf.utils.agent import SingleTurnAgentExecutor
from transformers import PreTrainedTokenizerFast

tokenizer = PreTrainedTokenizerFast.from_pretrained({str(tmp_path / "model")!r})
keys = SimpleNamespace(input_key="input", label_key="label", apply_chat_template=True)
strategy = SimpleNamespace(
    args=SimpleNamespace(data=keys), is_rank_0=lambda: False, print=lambda *_: None
)
rows = {{}}
for split in ("train", "test"):
    loaded = blending_datasets(f"{{split}}.jsonl", None, strategy, dataset_split="train")
    for _, prompt, label, _ in PromptDataset(loaded, tokenizer, strategy):
        rows[json.loads(label)["task_id"]] = (prompt, label)

class Engine:
    def __init__(self, reply):
        self.ids = tokenizer(reply + "<|im_end|>", add_special_tokens=False)["input_ids"]

    async def generate(self, prompt, params, multi_modal_data):
        output = SimpleNamespace(token_ids=self.ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])

async def score(executor, name, reply):
    prompt, label = rows[name]
    params = SimpleNamespace(max_tokens=1000, logprobs=None)
    found = await executor.execute(prompt, label, params, 100_000, tokenizer, Engine(reply))
    reward = found["reward"]
    return None if reward is None else float(reward)

async def main():
    executor = SingleTurnAgentExecutor("reward.py")
    return [await score(executor, *pair) for pair in json.loads(sys.stdin.read())]

print(json.dumps(asyncio.run(main())))
"""
    scores = json.loads(outside(sys.executable, tmp_path / "out", script, as_json(replies)))
    assert scores == our_scores


@pytest.mark.slow
@with_nemo_gym
def test_nemo_gyms_server_verifies_200_replies_with_the_scores_of_the_stages(
    environment, replies, our_scores, tmp_path
):
    """The exported server, with its routes and request types. A reply that cannot be scored is an
    error, not a 0."""
    write_environment(environment, "nemo-gym", tmp_path / "out", "card")
    script = """
import json
import warnings
from unittest.mock import MagicMock
from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

sys.path.insert(0, "resources_servers/selfplay_made_up")
from app import SelfplayConfig, SelfplayServer

config = SelfplayConfig(host="127.0.0.1", port=1, entrypoint="app.py")
server = SelfplayServer(config=config, server_client=MagicMock(spec=ServerClient))
client = TestClient(server.setup_webserver(), raise_server_exceptions=False)
rows = {}
for split in ("train", "validation"):
    for line in open(f"resources_servers/selfplay_made_up/data/{split}.jsonl"):
        row = json.loads(line)
        rows[row["task"]["task_id"]] = row

def response(reply):
    content = {"type": "output_text", "text": reply, "annotations": []}
    message = {
        "id": "m", "type": "message", "role": "assistant", "status": "completed",
        "content": [content],
    }
    return {
        "id": "r", "object": "response", "created_at": 0.0, "model": "policy",
        "output": [message], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
    }

def score(name, reply):
    answer = client.post("/verify", json={**rows[name], "response": response(reply)})
    if answer.status_code == 500:
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()["reward"]

print(json.dumps([score(*pair) for pair in json.loads(sys.stdin.read())]))
"""
    scores = json.loads(outside(GYM, tmp_path / "out", script, as_json(replies)))
    assert scores == our_scores


@pytest.mark.slow
@with_verifiers
def test_verifiers_loads_the_taskset_and_its_rewards_are_those_of_the_stages(
    environment, replies, our_scores, tmp_path
):
    write_environment(environment, "verifiers", tmp_path / "out", "card")
    script = """
import asyncio, json
import verifiers.v1 as vf
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

name = "selfplay-made-up"
config = taskset_config_type(name)
tasks = {
    task.data.id: task
    for split in ("train", "test")
    for task in load_taskset(config(id=name, split=split))
}

async def score(name, reply):
    task = tasks[name]
    trace = Trace(
        task=TraceTask(type="SelfplayTask", data=task.data),
        agent=AgentInfo(config=vf.AgentConfig()),
        root_reply=reply,
    )
    try:
        await task.score(trace)
    except vf.TaskError:
        return None
    return trace.rewards["correct"].value

async def main():
    return [await score(*pair) for pair in json.loads(sys.stdin.read())]

print(json.dumps(asyncio.run(main())))
"""
    scores = json.loads(outside(LOADERS, tmp_path / "out", script, as_json(replies)))
    assert scores == our_scores


@pytest.mark.slow
@with_verifiers
def test_verifiers_reads_the_rows_of_nemo_gym(environment, tmp_path):
    write_environment(environment, "nemo-gym", tmp_path / "out", "card")
    script = """
import json
from verifiers.v1.tasksets.nemo_gym.taskset import NeMoGymConfig, NeMoGymTaskset
rows = "resources_servers/selfplay_made_up/data/train.jsonl"
tasks = list(NeMoGymTaskset(NeMoGymConfig(id="nemo_gym", dataset=rows)))
first = tasks[0].data
print(json.dumps([len(tasks), first.row["task"]["task_id"], first.prompt[0].content]))
"""
    count, task_id, prompt = json.loads(outside(LOADERS, tmp_path / "out", script))
    assert (count, task_id) == (20, "t0")
    assert prompt.startswith("Question 0?")


@pytest.mark.slow
@with_verifiers
def test_a_taskset_brings_the_search_as_a_tool(environment, tmp_path):
    write_environment(
        searching(environment, tmp_path / "index"), "verifiers", tmp_path / "out", "card"
    )
    script = """
import json
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type
name = "selfplay-made-up"
task = next(iter(load_taskset(taskset_config_type(name)(id=name))))
[tools] = type(task).toolsets(task.config)
print(json.dumps([type(tools).__module__, tools.search("which river"), tools.search("xyzzy")]))
"""
    module, found, nothing = json.loads(outside(LOADERS, tmp_path / "out", script))
    assert module == "selfplay_made_up.search_server"  # what verifiers starts as a process
    assert found == "[1] Rhine\nA river of 1,233 km."
    assert nothing == "Nothing was found for this query."


@pytest.mark.slow
@pytest.mark.parametrize("searches", [False, True])
def test_the_training_script_for_trl_trains_a_tiny_model(environment, tmp_path, searches):
    if searches:
        environment = searching(environment, tmp_path / "index")
    write_environment(environment, "trl", tmp_path / "out", "card")
    model = any_text_model(tmp_path / "model")
    if searches:
        trl = importlib.util.find_spec("trl")
        assert trl and trl.origin
        with_tools = Path(trl.origin).parent / "chat_templates/qwen3.jinja"
        shutil.copy(with_tools, model / "chat_template.jinja")
    options = (
        "--max_steps 1 --max_completion_length 8 --num_generations 2"
        " --per_device_train_batch_size 2 --report_to none --use_cpu"
    )
    done = subprocess.run(
        [sys.executable, "train.py", str(model), *options.split()],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "train_loss" in done.stdout
    assert f"trl=={version('trl')}" in (tmp_path / "out/requirements.txt").read_text().split()
    assert (tmp_path / "out/trained/model.safetensors").is_file()
