"""An update continues from what the last one left in memory, and writes the same files as one
that reads the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tasks.training import kept_state
from tests.support.grpo_jobs import make_models, make_rows, update

LORA = {"lora": {"rank": 4, "alpha": 8}}
CHAIN = {"optimizer_steps": 2, "micro_batch_size": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept_state, "_shares", {})
    monkeypatch.setattr(kept_state, "_references", {})
    monkeypatch.setattr(kept_state, "_unwritten", [])


def files(result) -> dict[str, bytes]:
    found = [*result.policy.rglob("*"), *result.optimizer_state.rglob("*")]
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes() for file in found if file.is_file()
    }


def after(first, settings: dict) -> dict:
    start = {"adapter": first.policy} if "lora" in settings else {"policy": first.policy}
    return {**start, "optimizer_state": first.optimizer_state, "settings": settings}


def models(folder: Path, settings: dict) -> dict:
    return {"policy": folder / "base", "reference": folder / "base"} if "lora" in settings else {}


@pytest.mark.parametrize("settings", [{}, LORA, {"beta": 0.0}, {"export_dtype": "bfloat16"}])
def test_an_update_from_memory_writes_what_one_from_disk_writes(tmp_path, folder, settings):
    settings, place = {**CHAIN, "beta": 0.5, **settings}, models(folder, settings)
    first = update(
        tmp_path, folder, make_rows(folder / "policy", n=5), "first", settings=settings, **place
    )
    rows = make_rows(folder / "policy", n=5, seed=1)
    chain = {**place, **after(first, settings)}
    [kept] = kept_state._shares
    from_memory = update(tmp_path, folder, rows, "from-memory", **chain)
    assert kept not in kept_state._shares
    kept_state._shares.clear()
    kept_state._references.clear()
    from_disk = update(tmp_path, folder, rows, "from-disk", **chain)
    assert files(from_memory) == files(from_disk)
    numbers = [
        [s.model_dump(exclude={"duration_s", "peak_bytes"}) for s in r.steps]
        for r in (from_memory, from_disk)
    ]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("settings", [{}, LORA, {"export_dtype": "bfloat16"}])
def test_a_state_that_is_written_later_is_the_same(tmp_path, folder, settings):
    settings, place = {**CHAIN, **settings}, models(folder, settings)
    rows = make_rows(folder / "policy", n=5)
    at_once = update(tmp_path, folder, rows, "at-once", settings=settings, **place)
    kept_state._shares.clear()
    later = update(tmp_path, folder, rows, "later", settings=settings, state_later=True, **place)
    assert at_once.state_is_written and not later.state_is_written and not kept_state._shares
    assert not later.optimizer_state.exists()
    published = tmp_path / "published"
    later.policy.parent.rename(published)
    kept_state.write(published / "optimizer")
    assert files(at_once) == files(
        later.model_copy(
            update={"policy": published / "policy", "optimizer_state": published / "optimizer"}
        )
    )
    assert kept_state.take(published / "policy", published / "optimizer") is not None


def test_what_is_kept_is_known_by_its_files_wherever_their_folder_is_moved(tmp_path, folder):
    first = update(tmp_path, folder, make_rows(folder / "policy", n=3), "first", settings=CHAIN)
    published = tmp_path / "published"
    first.policy.parent.rename(published)
    assert kept_state.take(published / "policy", published / "optimizer") is not None
    assert kept_state.take(published / "policy", published / "optimizer") is None, (
        "it is trained further: nobody else's"
    )


@pytest.mark.parametrize("file", ["policy/model.safetensors", "optimizer/optimizer.pt"])
def test_files_that_were_written_again_are_read(tmp_path, folder, file):
    first = update(tmp_path, folder, make_rows(folder / "policy", n=3), "first", settings=CHAIN)
    shutil.copy(first.policy.parent / file, tmp_path / "copy")
    (tmp_path / "copy").rename(first.policy.parent / file)
    assert kept_state.take(first.policy, first.optimizer_state) is None


def test_an_update_without_a_state_before_it_takes_nothing(tmp_path, folder):
    first = update(tmp_path, folder, make_rows(folder / "policy", n=3), "first", settings=CHAIN)
    assert kept_state.take(first.policy, None) is None


def test_a_failed_update_leaves_its_start_to_be_read_from_disk(tmp_path, folder):
    """The weights in memory are half trained."""
    rows = make_rows(folder / "policy", n=5)
    first = update(tmp_path, folder, rows, "first", settings=CHAIN)
    broken = [{**rows[0], "advantage": 1e38}, {**rows[1], "advantage": 1e38}]
    with pytest.raises(RuntimeError, match="nothing was written"):
        update(
            tmp_path,
            folder,
            broken,
            "broken",
            **after(first, {"optimizer_steps": 1, "max_grad_norm": 0}),
        )
    again = update(tmp_path, folder, rows, "again", **after(first, CHAIN))
    alone = update(tmp_path, folder, rows, "first-again", settings=CHAIN)
    kept_state._shares.clear()
    assert files(again) == files(update(tmp_path, folder, rows, "alone", **after(alone, CHAIN)))


def test_where_memory_is_short_nothing_is_kept(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(kept_state, "SPARE", 1.0)
    settings = {**CHAIN, "beta": 0.5}
    made = update(
        tmp_path, folder, make_rows(folder / "policy", n=3), settings=settings, state_later=True
    )
    assert not kept_state._shares and not kept_state._references and not kept_state._unwritten
    assert made.state_is_written and made.optimizer_state.exists()


def test_a_state_that_the_host_has_no_room_for_is_written_at_once(tmp_path, folder, monkeypatch):
    def of(optimizer, on_host=True):
        if on_host:
            raise RuntimeError("CUDA error: out of memory")
        return whole(optimizer, on_host)

    whole = kept_state.Share.of
    monkeypatch.setattr(kept_state.Share, "of", of)
    settings = {"beta": 0.0}
    made = update(
        tmp_path, folder, make_rows(folder / "policy", n=3), settings=settings, state_later=True
    )
    assert made.state_is_written and any(made.optimizer_state.iterdir())
    assert not kept_state._shares and not kept_state._unwritten


def test_a_policy_rounded_for_engines_is_trained_in_float32(tmp_path, folder):
    """Two updates of 1e-6 per step, which bfloat16 would round away, add up; engines get the
    result, rounded."""
    from safetensors.torch import load_file

    exact = {**CHAIN, "learning_rate": 1e-6}
    rounded = {**CHAIN, "learning_rate": 1e-6, "export_dtype": "bfloat16"}
    ends = []
    for name, settings in (("exact", exact), ("rounded", rounded)):
        rows = [make_rows(folder / "policy", n=5, seed=i) for i in (0, 1)]
        first = update(tmp_path, folder, rows[0], f"{name}-1", settings=settings)
        kept_state._shares.clear()
        ends.append(update(tmp_path, folder, rows[1], f"{name}-2", **after(first, settings)))
    theirs, ours = (load_file(end.policy / "model.safetensors") for end in ends)
    for name, weight in theirs.items():
        assert ours[name].equal(weight.bfloat16()), name
    assert (ends[1].policy / "config.json").read_text().count('"dtype": "bfloat16"') == 1
