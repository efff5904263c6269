"""`selfplay export --policy`: weights as they were after an iteration, and a model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from flows.app.command import cli
from tests.support.rows import publish, row
from warehouse import clean
from warehouse.model import write_policy
from warehouse.publish import write_dataset
from warehouse.schemas import TABLES
from warehouse.store import Place, Store
from warehouse.table import Cleaned, Damaged

LAST = "mine/iter-002/solver/step-001/updates"


def update(
    place: Place, role: str, parent: str, config: dict[str, Any] | None = None, **more: str
) -> str:
    """An update that made a policy of one file; returns the policy's id."""
    address = place.address("updates")
    folder = f"{address}/files/update/policy"
    of = (
        {"adapter": folder, "weights": "Owner/Base", **more}
        if "adapter" in more
        else {"weights": folder}
    )
    with place.store.draft(TABLES["updates"]) as draft:
        draft.write(
            [
                row(
                    "updates",
                    policy=address,
                    parent=parent,
                    role=role,
                    policy_hash=f"hash of {address}",
                    **of,
                )
            ]
        )
        (draft.files / "update" / "policy").mkdir(parents=True)
        (draft.files / "update" / "policy" / "config.json").write_text(
            json.dumps(config or {"policy": address})
        )
        recipe = {"key": "k", "stage": "update", "params": {"settings": {"learning_rate": 0.5}}}
        place.store.publish(draft, address, recipe)
    return address


@pytest.fixture
def played(store: Store) -> Store:
    """Two iterations: the solver is updated in each, the other only in the first."""
    run = store.run("mine")
    store.keep(
        "mine", "request.json", {"flow": "some-iteration", "profile": "micro", "run": "mine"}
    )
    publish(run, "policies", row("policies", policy="base", weights="Owner/Base", policy_hash="h0"))
    publish(
        run, "documents", row("documents", document_id="d", source="a | book", licence="CC BY 4.0")
    )
    update(run.iteration(1).phase("other").step(1), "other", "base")
    first = update(run.iteration(1).phase("solver").step(1), "solver", "base")
    last = update(run.iteration(2).phase("solver").step(1), "solver", first)
    publish(
        run.iteration(2),
        "evaluations",
        row("evaluations", policy=last, benchmark="b", metric="score", n=4, score=0.5),
    )
    batch = {"completion_token_ids": [1, 2], "loss_mask": [1, 1]}
    publish(
        run.iteration(2).phase("solver").step(1),
        "batches",
        row("batches", rollout_id="r1", advantage=1.0, **batch),
        row("batches", rollout_id="r2", advantage=-1.0, **batch),
    )
    return store


def kept(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text())["policy"]


def test_the_last_policy_of_a_role_or_that_of_an_iteration_is_copied(played, tmp_path) -> None:
    assert write_policy(played, "mine", "solver", None, tmp_path / "a") == kept(tmp_path / "a")
    assert kept(tmp_path / "a").startswith("mine/iter-002/solver")
    write_policy(played, "mine", "solver", 1, tmp_path / "b")
    assert kept(tmp_path / "b").startswith("mine/iter-001/solver")
    write_policy(played, "mine", "other", 2, tmp_path / "c")
    assert kept(tmp_path / "c").startswith("mine/iter-001/other")


def test_the_card_says_what_it_was_trained_from_on_and_to_what_score(played, tmp_path) -> None:
    write_policy(played, "mine", "solver", None, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert header["base_model"] == "Owner/Base" and header["library_name"] == "transformers"
    for shown in (
        "after 2 updates (2 optimizer steps) from Owner/Base (content hash h0)",
        "| 2 | b | this one | 4 | 0.500 |",
        "| 2 | 2 | 4 | 1 | 1 |",
        "| 1 | mine/iter-001/solver/step-001/updates | base |",
        "| 2 | mine/iter-002/solver/step-001/updates | mine/iter-001/solver/step-001/updates |",
        '"learning\\_rate": 0.5'.replace("\\", ""),
        "| a \\| book | CC BY 4.0 | 1 |",
    ):
        assert shown in card, shown
    assert "other/step" not in card


def test_an_exported_adapter_names_its_base_as_it_is_called_from_any_folder(
    store, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/base").mkdir(parents=True)
    publish(store.run("mine"), "policies", row("policies", policy="base", weights="Owner/Base"))
    named = {}
    for step, base in enumerate(("models/base", "Owner/Base"), 1):
        address = update(store.run("mine").phase("p").step(step), "solver", "base", adapter="yes")
        table = store.find(address)
        config = {"base_model_name_or_path": base, "r": 4}
        adapter = table.file(table.rows()[-1]["adapter"])
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        write_policy(store, "mine", "solver", None, tmp_path / f"out-{step}")
        written = json.loads((tmp_path / f"out-{step}/adapter_config.json").read_text())
        assert written["r"] == 4
        named[base] = written["base_model_name_or_path"]
    assert named == {"models/base": str(tmp_path / "models/base"), "Owner/Base": "Owner/Base"}


def test_an_adapter_is_exported_as_one_with_the_model_it_needs(store, tmp_path) -> None:
    update(store.run("mine").iteration(1).phase("p").step(1), "solver", "base", adapter="yes")
    publish(store.run("mine"), "policies", row("policies", policy="base", weights="Owner/Base"))
    write_policy(store, "mine", "solver", None, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        yaml.safe_load(card.split("---")[1])["library_name"] == "peft" and "A LoRA adapter" in card
    )


@pytest.mark.parametrize(
    "own",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_theta": 1e6, "rope_scaling": None},  # as older files say it
    ],
)
def test_weights_trained_with_yarn_say_so_in_their_own_config(
    store, own, tmp_path, monkeypatch
) -> None:
    from transformers import AutoConfig

    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    base = {"model_type": "qwen2", "max_position_embeddings": 32768, **own}
    update(store.run("mine").iteration(1).phase("p").step(1), "solver", "base", config=base)
    table = store.get("mine/iter-001/p/step-001/updates")
    params = {**table.recipe["params"], "yarn": {"factor": 4.0, "original": None}}
    store.amend(table.address, {**table.recipe, "params": params})
    out = tmp_path / "out"
    arguments = ["export", "mine", "--policy", "solver", "-o", str(out)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.output
    config = AutoConfig.from_pretrained(out)
    assert config.max_position_embeddings == 131072
    rope = config.rope_parameters
    expected = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}
    assert {name: rope[name] for name in expected} == expected
    assert rope["original_max_position_embeddings"] == 32768
    assert "stretched by a factor of 4.0" in (out / "README.md").read_text()
    assert json.loads((table.files / "update/policy/config.json").read_text()) == base


def test_a_role_without_updates_and_a_folder_in_use_are_refused(played, tmp_path) -> None:
    with pytest.raises(ValueError, match="no update of a policy 'judge'; there are other, solver"):
        write_policy(played, "mine", "judge", None, tmp_path / "out")
    publish(played.run("mine").iteration(0), "documents")
    with pytest.raises(ValueError, match="up to iteration 0"):
        write_policy(played, "mine", "solver", 0, tmp_path / "out")
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match="not empty"):
        write_policy(played, "mine", "solver", None, tmp_path)


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_weights_that_are_not_those_of_the_update_are_no_model(played, tmp_path, damage) -> None:
    policy = played.folder(LAST) / "files" / "update" / "policy"
    if damage == "lost":
        policy.rename(tmp_path / "moved")
    else:
        text = (policy / "config.json").read_text()
        (policy / "config.json").write_text(text.replace("mine", "none"))
    with pytest.raises(Damaged, match=r"policy/config.json is .*repeat `selfplay run`"):
        write_policy(played, "mine", "solver", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_earlier_policy_does_not_pass_for_the_last_one_whose_recipe_is_damaged(
    played, tmp_path
) -> None:
    (played.folder(LAST) / "recipe.json").write_text("{")
    with pytest.raises(Damaged, match=f"{LAST}/recipe.json is lost, truncated or changed"):
        write_policy(played, "mine", "solver", None, tmp_path / "out")
    until_first = played.updates("mine", until=1)
    assert [table.at.phase for table in until_first] == ["other", "solver"]
    played.note_orphaned("mine", [LAST])
    assert write_policy(played, "mine", "solver", None, tmp_path / "out") != LAST


def test_an_export_of_rows_lacks_no_table_unsaid(played, tmp_path) -> None:
    (played.folder("mine/documents") / "recipe.json").unlink()
    with pytest.raises(Damaged, match=r"mine/documents/recipe.json is lost, truncated or changed"):
        write_dataset(played, "mine", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_iteration_that_the_run_does_not_have_is_refused(played, tmp_path) -> None:
    for iteration in (-1, 99):
        with pytest.raises(ValueError, match=f"'mine' has no iteration {iteration}; there are"):
            write_policy(played, "mine", "solver", iteration, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_that_clean_removed_are_no_model(played, tmp_path) -> None:
    """Their folder stays, without files."""
    table = played.get(LAST)
    weights = ("files/update/policy/config.json",)
    clean.remove(played, [clean.Removal(table, clean.WEIGHTS, weights)])
    assert (table.files / "update" / "policy").is_dir()
    with pytest.raises(Cleaned, match="selfplay rerun mine updates --only --iteration 2 --step 1"):
        write_policy(played, "mine", "solver", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()
