"""A dry run, such as `why` or `whatif`, writes nothing to the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.method import opened
from flows.run import Run
from flows.settings import profile
from flows.settings.profile import MethodSettings
from flows.spice.config import Config as Spice
from tasks.models.engine import Policy
from tasks.stage import Rows, stage
from tests.support.rows import row
from warehouse import clean
from warehouse.draft import Draft
from warehouse.freshness import Playing
from warehouse.rerun import Inquiry
from warehouse.schemas import SAMPLES, UPDATES
from warehouse.store import Store
from warehouse.whatif import WhatIf

WEIGHTS = Path("update") / "policy" / "model.safetensors"


@stage(UPDATES)
def trained(*, number: int, draft: Draft) -> Rows:
    """Yield an update of the solver, with weights."""
    (draft.files / WEIGHTS).parent.mkdir(parents=True)
    (draft.files / WEIGHTS).write_text(str(number))
    yield row("updates", role="solver")


def play(store: Store, iterations: int) -> None:
    """Play a run of one update in each iteration."""
    base = Policy(id="base", weights="base", content_hash="0")
    about = {"models": {"base": "base"}, "engine": {"max_model_len": 64, "dtype": "float32"}}
    cfg = MethodSettings.model_validate({**about, "iterations": iterations})
    run = Run(cfg, store.run("r"), {"base": base})
    for t, place in run.iterations():
        trained(place.phase("solver").step(1), number=t)


def contents(root: Path) -> dict[Path, int]:
    """The modification time of every file and folder, in ns."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize(
    "rule",
    [
        lambda _: Inquiry(),
        lambda folder: WhatIf(scratch=Store(folder), wanted=frozenset()),
    ],
    ids=["why", "whatif"],
)
def test_fewer_iterations_that_are_only_assumed_leave_no_update_over(
    store: Store,
    rule: Callable[[Path], Inquiry],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else `clean` would remove the weights of the last policy."""
    monkeypatch.setattr("flows.run.report", lambda *_, **__: None)
    play(Store(store.root, Playing()), iterations=3)
    before = contents(store.root)
    offered = clean.removable(store, "r")
    dry = rule(tmp_path / "scratch")
    play(Store(store.root, dry), iterations=1)
    assert [address for address, _ in dry.reasons] == ["r/iter-001/solver/step-001/updates"]
    assert contents(store.root) == before
    assert clean.removable(store, "r") == offered
    assert [table.at.iteration for table in store.updates("r")] == [1, 2, 3]


def test_a_dry_run_makes_no_folder_for_logs(store: Store) -> None:
    """Nor does it change one: in the store of another user it may not."""
    cfg = profile.load(Spice, "micro")
    logs = store.root / "logs" / "mine"
    with opened(cfg, Store(store.root, Inquiry()), "mine", begins=False):
        assert not logs.parent.exists()
    logs.mkdir(parents=True)
    logs.chmod(0o755)
    with opened(cfg, Store(store.root, Inquiry()), "mine", begins=False):
        assert logs.stat().st_mode & 0o777 == 0o755
    with opened(cfg, store, "mine", begins=False):
        assert logs.stat().st_mode & 0o777 == 0o700


def test_a_flow_that_writes_by_itself_is_stopped_in_a_dry_run(store: Store) -> None:
    trained(store.run("r"), number=1)
    before = contents(store.root)
    dry = Store(store.root, Inquiry())
    told = "a dry run writes nothing to the store, and so not "
    with pytest.raises(RuntimeError, match=f"{told}notes.json of the run 'r'"):
        dry.keep("r", "notes.json", {})
    with pytest.raises(RuntimeError, match=f"{told}a table of samples"), dry.draft(SAMPLES):
        pass
    with pytest.raises(RuntimeError, match=f"{told}the recipe of r/updates"):
        dry.amend("r/updates", {})
    assert contents(store.root) == before
