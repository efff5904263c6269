"""Run a command where another user has been before: `python -m tests.support.another_user make
test`.

The project's own store holds runs of other flows with the names that tests use, and damaged runs;
the shell has useless settings, GPUs and proxies. Exits with the command's status, or with 1 if the
command changed that store. An existing store is left as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flows.runtime.store_root import SOURCE
from tests.support.rows import publish, row
from warehouse.store import Store

STORE = SOURCE / "data" / "store"
RUNS = (
    "micro",
    "spell-micro",
    "spice-micro",
    "rzero-micro",
    "qwen3-8b-1gpu",
    "mine",
    "first",
    "r",
    "chaos",
    "wiki",
)
SHELL = {
    "SELFPLAY_STORE": str(STORE),
    "SELFPLAY_DATA": "/nowhere",
    "SELFPLAY_PREFECT_PORT": "abc",
    "SELFPLAY_PREFECT_HOME": "/nowhere",
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "PREFECT_HOME": "/nowhere",
    "CUDA_VISIBLE_DEVICES": "7",
    "HF_HOME": "/nowhere",
    "COLUMNS": "20",
    "no_proxy": "localhost",
    **{f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")},
}


def lay(root: Path) -> None:
    """Write runs of another flow with their own tables, two of them damaged, and a truncated
    database."""
    store = Store(root)
    for run in RUNS:
        store.keep(run, "config.json", {"another": {"setting": 1}})
        store.keep(
            run, "request.json", {"flow": "another-iteration", "profile": "micro", "run": run}
        )
        publish(store.run(run), "documents", row("documents", document_id="d0", text="of another"))
        publish(
            store.run(run).iteration(1),
            "evaluations",
            row("evaluations", benchmark="micro", metric="score"),
        )
    (store.get("micro/documents").folder / "recipe.json").write_text("{}")
    part = store.get("mine/iter-001/evaluations")
    (part.folder / part.parts[0]).write_bytes(b"")
    (root / "warehouse.duckdb").touch()


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """Size in bytes and modification time (ns) of everything in a folder."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def main(command: list[str]) -> int:
    ours = not STORE.exists()
    if ours:
        lay(STORE)
    before = listing(STORE)
    try:
        status = subprocess.run(command, env=os.environ | SHELL, check=False).returncode
        changed = sorted(path for path, _ in before.items() ^ listing(STORE).items())
    finally:
        if ours:
            shutil.rmtree(STORE)
    if changed:
        print(
            f"the command changed the store of another: {', '.join(changed[:5])}", file=sys.stderr
        )
    return status or bool(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
