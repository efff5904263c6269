"""An exported run trains elsewhere as it is: conversations and preferences, findings and labels."""

from __future__ import annotations

import json
import stat

import pytest
import yaml

from flows.app.viewer.labels import annotation, label
from tests.support.rows import publish, row, turn
from tests.support.store_to_view import lay
from warehouse.publish import write_dataset


@pytest.fixture
def played(store):
    """A group of three answers with rewards 1, 0 and 0.5, the middle one in two turns, and a group
    of two with equal rewards."""
    place = store.run("r").iteration(1).phase("train").step(1)
    asked = [{"role": "user", "content": "Where?"}]
    publish(
        place,
        "prompts",
        *[row("prompts", prompt_id=p, role="solver", messages=asked, task_id="t") for p in "pq"],
    )
    texts = {"a": "Oslo", "b": "Rome", "c": "near Oslo", "d": "Bergen", "e": "Bodø"}
    rollouts = [
        row(
            "rollouts",
            rollout_id=i,
            prompt_id="p" if i in "abc" else "q",
            role="solver",
            sample=n,
            turns=[turn("Hm", message="Search again.", message_role="user"), turn(text)]
            if i == "b"
            else [turn(text)],
        )
        for n, (i, text) in enumerate(texts.items())
    ]
    publish(place, "rollouts", *rollouts, row("rollouts", rollout_id="f", prompt_id="p", turns=[]))
    rewards = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.5}
    for table in ("rewards", "advantages"):
        paid = [
            row(table, rollout_id=i, reward=reward, **_advantage(table, reward))
            for i, reward in rewards.items()
        ]
        publish(place, table, *paid)
    label(store, "r", annotation("rollout", "a", "Ada", "good"))
    return store


def _advantage(table: str, reward: float) -> dict[str, float]:
    return {"advantage": reward - 0.5} if table == "advantages" else {}


FINDING = {
    "rule": "own",
    "severity": "note",
    "sentence": "Answers | are short.",
    "number": 4.0,
    "compared_with": None,
    "comparison": "nothing",
    "iteration": 1,
    "sql": "select 1",
}


def test_the_default_is_conversations_that_a_trainer_takes(played, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_dataset(played, "r", tmp_path / "out", findings=[FINDING])
    loaded = datasets.load_dataset(
        str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache")
    )
    found = {r["rollout_id"]: (r["reward"], r["advantage"], r["messages"]) for r in loaded}
    assert found["a"] == (
        1.0,
        0.5,
        [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Oslo"}],
    )
    assert [m["content"] for m in found["b"][2]] == ["Where?", "Hm", "Search again.", "Rome"]
    assert "f" not in found  # nothing was sampled
    pairs = datasets.load_dataset(
        str(tmp_path / "out"), "preferences", split="train", cache_dir=str(tmp_path / "cache")
    )
    [pair] = pairs  # the other group has equal rewards
    assert pair["prompt"] == [{"role": "user", "content": "Where?"}]
    assert [m["content"] for m in pair["chosen"]] == ["Oslo"]
    assert [m["content"] for m in pair["rejected"]] == ["Hm", "Search again.", "Rome"]
    assert (pair["chosen_reward"], pair["rejected_reward"]) == (1.0, 0.0)
    told = datasets.load_dataset(
        str(tmp_path / "out"), "findings", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert told["sentence"] == ["Answers | are short."]
    labels = datasets.load_dataset(
        str(tmp_path / "out"), "annotations", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert labels["opinion"] == ["good"]


def test_conversations_of_held_out_tasks_are_a_split_of_their_own(played, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = played.run("r").iteration(0).phase("evaluation")
    asked = [{"role": "user", "content": "Who?"}]
    publish(place, "prompts", row("prompts", prompt_id="h", role="solver", messages=asked))
    publish(place, "rollouts", row("rollouts", rollout_id="h", prompt_id="h", turns=[turn("Ada")]))
    write_dataset(played, "r", tmp_path / "out")
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert set(loaded["train"]["rollout_id"]) == set("abcde")
    assert loaded["held_out"]["rollout_id"] == ["h"]
    assert "train on none" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_card_opens_with_findings_and_a_sample_and_folds_hashes(played, tmp_path):
    score = row("evaluations", benchmark="exam", metric="score", n=4, score=0.25)
    publish(played.run("r").iteration(0), "evaluations", score)
    publish(played.run("r").iteration(1), "evaluations", {**score, "score": 0.5})
    write_dataset(played, "r", tmp_path / "out", findings=[FINDING])
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    files = [{"split": "train", "path": "conversations/train-*.parquet"}]
    default = {"config_name": "conversations", "data_files": files}
    assert {**default, "default": True} in yaml.safe_load(card.split("---")[1])["configs"]
    assert "Held-out score on exam: 0.250 in iteration 0, 0.500 in iteration 1." in card
    assert "- note: Answers \\| are short." in card
    sample = json.loads(card.partition("```json\n")[2].partition("```")[0])
    assert sample["rollout_id"] == "a" and sample["messages"][-1]["content"] == "Oslo"
    assert card.index("<details>") < card.index("| policy | from |") < card.index("</details>")


def test_a_run_without_rollouts_has_no_conversations(store, tmp_path):
    publish(store.run("r"), "documents", row("documents", document_id="d"))
    assert write_dataset(store, "r", tmp_path / "out") == {"documents": 1}


def test_exported_weights_can_be_read_by_whoever_can_read_new_files(store, tmp_path):
    from warehouse.model import _make_readable

    folder = tmp_path / "policy"
    folder.mkdir(mode=0o700)
    weights = folder / "model.safetensors"
    weights.touch(mode=0o600)
    usual = tmp_path / "usual"
    usual.touch()
    _make_readable(folder)
    assert stat.S_IMODE(weights.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_a_hostile_text_leaves_the_card_whole(store, tmp_path):
    lay(store, text="``` </details>\n---\n# x")
    write_dataset(store, "mine", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert card.count("```") == 4 and "\n# x" not in card
