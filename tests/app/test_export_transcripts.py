"""`selfplay export --transcripts`: conversations as Inspect Scout reads them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from flows.app.command import cli
from tests.support.rows import publish, row, turn
from tests.support.store_to_view import HOSTILE, lay
from warehouse.store import Store
from warehouse.transcripts import write_transcripts

SCOUT = Path(__file__).resolve().parents[2] / ".companions" / "bin"  # `make companions`


def exported(store: Store, folder: Path) -> dict[str, dict]:
    write_transcripts(store, "mine", folder)
    rows = pq.read_table(folder).to_pylist()
    return {row["transcript_id"]: row for row in rows}


def test_a_transcript_is_the_prompt_each_turn_and_what_was_told_after_it(store, tmp_path) -> None:
    place = store.run("mine").iteration(2).phase("solving").step(3)
    publish(
        place,
        "prompts",
        row("prompts", prompt_id="p", task_id="t", messages=[{"role": "user", "content": "Why?"}]),
    )
    turns = [turn("<search>x</search>", message="Found.", message_role="tool"), turn("Because.")]
    said = row(
        "rollouts",
        rollout_id="r",
        prompt_id="p",
        role="answerer",
        sample=2,
        policy="base",
        turns=turns,
    )
    publish(
        place,
        "rollouts",
        {**said, "finish_reason": "length", "num_sampled_tokens": 9},
        label="answerer",
    )
    publish(place, "rewards", row("rewards", rollout_id="r", reward=0.25))
    publish(place, "advantages", row("advantages", rollout_id="r", reward=0.25, advantage=-1.5))
    publish(place, "answers", row("answers", rollout_id="r", malformed="no box"))
    found = exported(store, tmp_path / "out")["r"]
    assert json.loads(found["messages"]) == [
        {"role": "user", "content": "Why?", "source": "input"},
        {
            "role": "assistant",
            "content": "<search>x</search>",
            "source": "generate",
            "model": "base",
        },
        {"role": "tool", "content": "Found."},
        {"role": "assistant", "content": "Because.", "source": "generate", "model": "base"},
    ]
    told = (
        "task_id",
        "task_repeat",
        "agent",
        "model",
        "score",
        "message_count",
        "total_tokens",
        "limit",
        "malformed",
    )
    assert [found[name] for name in told] == [
        "t",
        2,
        "answerer",
        "base",
        "0.25",
        4,
        9,
        "tokens",
        "no box",
    ]
    assert (found["iteration"], found["phase"], found["step"], found["label"]) == (
        2,
        "solving",
        3,
        "answerer",
    )
    assert found["advantage"] == -1.5 and found["trust_content"] is False


def test_what_was_not_sampled_is_its_prompt_and_what_has_no_reward_no_score(
    store, tmp_path
) -> None:
    place = store.run("mine").iteration(1)
    publish(
        place,
        "prompts",
        row("prompts", prompt_id="p", messages=[{"role": "odd", "content": HOSTILE}]),
    )
    publish(place, "rollouts", row("rollouts", rollout_id="r", prompt_id="p", error="engine error"))
    publish(place, "rewards", row("rewards", rollout_id="r", unscorable="engine error"))
    found = exported(store, tmp_path / "out")["r"]
    assert json.loads(found["messages"]) == [
        {"role": "user", "content": HOSTILE, "source": "input"}
    ]
    assert (found["score"], found["score_explanation"], found["error"]) == (
        None,
        "engine error",
        "engine error",
    )


def test_a_run_without_rollouts_and_a_folder_in_use_are_refused(store, tmp_path) -> None:
    publish(store.run("mine"), "tasks", row("tasks", task_id="t"))
    with pytest.raises(ValueError, match="no run 'mine' with rollouts"):
        write_transcripts(store, "mine", tmp_path / "out")
    publish(store.run("mine"), "rollouts", row("rollouts", rollout_id="r"))
    (tmp_path / "kept").touch()
    with pytest.raises(ValueError, match="not empty"):
        write_transcripts(store, "mine", tmp_path)
    done = CliRunner().invoke(cli.main, ["export", "mine", "--transcripts", "--policy", "solver"])
    assert done.exit_code == 1 and "exclude each other" in done.output


READ = """
import asyncio, sys
from inspect_scout import transcripts_from
from inspect_scout._transcript.types import TranscriptContent

async def main():
    async with transcripts_from(sys.argv[1]).reader() as lake:
        async for info in lake.index():
            whole = await lake.read(info, TranscriptContent(messages="all"))
            print(info.transcript_id, info.agent, len(whole.messages) == info.message_count)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not SCOUT.exists(), reason="Inspect Scout is not installed: make companions")
def test_scouts_own_validator_and_reader_take_them(store, tmp_path) -> None:
    lay(store, text=HOSTILE)
    write_transcripts(store, "mine", tmp_path / "out")
    told = subprocess.run(
        [SCOUT / "scout", "db", "validate", tmp_path / "out"], capture_output=True, text=True
    )
    assert told.returncode == 0 and "passed" in told.stdout, told
    read = subprocess.run(
        [SCOUT / "python", "-c", READ, tmp_path / "out"], capture_output=True, text=True, check=True
    )
    assert sorted(read.stdout.split("\n")) == [
        "",
        "a1 answerer True",
        "a2 answerer True",
        "j1 judge True",
        "t1 asker True",
    ]
