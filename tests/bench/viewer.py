"""The viewer over a large store: `python -m tests.bench.viewer [FOLDER]`.

Makes a store of 1,000,000 rollouts in over 3,000 tables in FOLDER unless it exists. For every page
it prints, and appends to data/bench/viewer.jsonl: the time to its first paint in Chromium, the
server's processor time (which other work on the machine does not change), the time of its
statements, their time in plain DuckDB over the store's own views, and the server's memory. A part
that a page loads by itself after its first paint is measured as a page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import uvicorn

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from flows.app.viewer.server import listen
from tests.support.chromium import Tab, chromium
from tests.support.corpora import generated
from tests.support.rows import row
from warehouse.draft import hash_json
from warehouse.query import write_views
from warehouse.schemas import TABLES
from warehouse.store import Place, Store

BENCH = Path(__file__).parents[2] / "data" / "bench" / "viewer.jsonl"
ITERATIONS = 10
STEPS = 25
PROMPTS = 500
GROUP = 8
DOCUMENTS = 20_000
POOL = 2_000  # distinct replies
MADE_FROM = {
    "tasks": ["samples"],
    "prompts": ["tasks"],
    "rollouts": ["prompts"],
    "answers": ["rollouts", "tasks"],
    "gates": ["tasks"],
    "rubrics": ["tasks"],
    "judgments": ["answers", "rubrics"],
    "scores": ["answers", "judgments"],
    "advantages": ["rewards"],
    "selections": ["advantages"],
    "batches": ["advantages", "rollouts"],
    "updates": ["batches"],
}
FIRST = "i01s01"
STEP = "iteration=1&phase=training&step=1"
PAGES = {
    "runs": "/",
    "run": "/run/big",
    "candidates": "/run/big/candidates?iteration=5",
    "dropped": "/run/big/candidates?iteration=5&phase=training&of=selections&reason=too+easy",
    "gate": "/run/big/candidates?iteration=5&phase=training&of=gates&gate=source&reason=refused",
    "task": f"/run/big/task?id={FIRST}t0",
    "conversation": f"/run/big/rollout?id={FIRST}r0",
    "group": f"/run/big/group?id={FIRST}p0",
    "document": "/run/big/document?id=d7",
    "documents": "/run/big/documents",
    "rollouts": "/run/big/rollouts",
    "rollouts, best first": "/run/big/rollouts?order=best&iteration=5",
    "rollouts, best of all": "/run/big/rollouts?order=best",
    "updates": "/run/big/updates",
    "update": f"/run/big/update?{STEP}",
    "elsewhere": f"/across?run=big&task={FIRST}t0",
    "document elsewhere": "/across?document=d7",
    "compare": "/compare?run=big",
    "search": "/search?run=big&text=zzzz",
    "SQL": "/sql",
    "labels": "/run/big/labels",
    "read 20": "/run/big/read?stratum=role",
    "read 20 by outcome": "/run/big/read?stratum=outcome",
}
Asked = list[tuple[str, dict[str, Any], float]]  # statements, their parameters and seconds
LATER = {
    "figures of the run": "/run/big/figures",
    "a text in all rollouts": "/search/rollouts?run=big&text=zzzz",
    "a pattern in all tasks": "/search/tasks?run=big&text=zz.z&regex=1",
    "a count by SQL": "/sql/result?text=select+role,count(*)+from+rollouts_table+group+by+all",
}


def make_store(folder: Path) -> Store:
    store = Store(folder)
    if store.find("big/documents") is None:
        store.keep("big", "config.json", {"seed": 0})
        store.keep(
            "big", "request.json", {"flow": "some-iteration", "profile": "large", "run": "big"}
        )
        texts = np.array(list(generated(POOL, 1, (40, 60))))
        for t in range(1, ITERATIONS + 1):
            for s in range(1, STEPS + 1):
                step = store.run("big").iteration(t).phase("training").step(s)
                for name, columns in step_tables(
                    f"i{t:02d}s{s:02d}", texts, np.random.default_rng(100 * t + s)
                ):
                    publish(step, name, columns)
        documents = {
            "document_id": [f"d{i}" for i in range(DOCUMENTS)],
            "text": texts[np.arange(DOCUMENTS) % POOL],
        }
        publish(store.run("big"), "documents", documents)
    write_views(store)
    return store


def step_tables(
    key: str, texts: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of a step: 500 tasks, 8 answers to each task, a verdict on each answer."""
    n = PROMPTS * GROUP
    of = np.repeat(np.arange(PROMPTS), GROUP)
    prompts = [f"{key}p{i}" for i in range(PROMPTS)]
    rollouts = [f"{key}r{i}" for i in range(n)]
    tasks = [f"{key}t{i}" for i in range(PROMPTS)]
    of_task = [tasks[i] for i in of]
    of_prompt = [prompts[i] for i in of]
    picks = rng.integers(0, POOL, n)
    documents = [f"d{i}" for i in rng.integers(0, DOCUMENTS, PROMPTS)]
    total = rng.random(n)
    yield "samples", {"sample_id": prompts, "document_id": documents}
    yield (
        "prompts",
        {
            "prompt_id": prompts,
            "role": ["answerer"] * PROMPTS,
            "task_id": tasks,
            "document_id": documents,
            "messages": [[{"role": "user", "content": texts[i]}] for i in picks[:PROMPTS]],
        },
    )
    yield (
        "rollouts",
        {
            "rollout_id": rollouts,
            "prompt_id": of_prompt,
            "role": ["answerer"] * n,
            "reply": texts[picks],
            "policy": ["base"] * n,
            "sample": np.arange(n) % GROUP,
            "turns": turns(texts).take(pa.array(picks)),
        },
    )
    yield (
        "tasks",
        {
            "task_id": tasks,
            "document_id": documents,
            "text": texts[picks[:PROMPTS]],
            "reference": tasks,
        },
    )
    yield (
        "answers",
        {
            "rollout_id": rollouts,
            "prompt_id": of_prompt,
            "task_id": of_task,
            "answer": texts[picks],
        },
    )
    yield (
        "gates",
        {"task_id": tasks, "gate": ["source"] * PROMPTS, "passed": rng.random(PROMPTS) > 0.2},
    )
    yield (
        "rubrics",
        {
            "criterion_id": [f"{i}-0" for i in tasks],
            "task_id": tasks,
            "criterion": texts[picks[:PROMPTS]],
        },
    )
    yield (
        "judgments",
        {
            "rollout_id": rollouts,
            "task_id": of_task,
            "criterion_id": [f"{i}-0" for i in of_task],
            "verdict": rng.integers(0, 2, n),
            "judge_rollout_id": rollouts,
        },
    )
    paid = {
        "rollout_id": rollouts,
        "group_id": of_prompt,
        "task_id": of_task,
        "reward": total,
        "score": total,
    }
    yield "rewards", paid
    yield "advantages", {**paid, "advantage": total - 0.5}
    yield (
        "selections",
        {
            "task_id": tasks,
            "kept": rng.random(PROMPTS) > 0.7,
            "mean_score": rng.random(PROMPTS),
            "reason": rng.choice(["too easy", "too hard", "no rubric"], PROMPTS),
            "bounds": ["{}"] * PROMPTS,
        },
    )
    some = rollouts[: n // 4]
    yield (
        "batches",
        {
            "rollout_id": some,
            "advantage": total[: n // 4],
            "completion_token_ids": [[5] * 50] * len(some),
        },
    )
    yield (
        "updates",
        {"policy": [key], "role": ["answerer"], "metrics": [[("loss", 0.1), ("kl", 0.01)]]},
    )


def turns(texts: np.ndarray) -> pa.Array:
    ids = list(range(60))
    one = {**row_of_turn(), "sampled_token_ids": ids, "logprobs": [-0.1] * 60}
    return pa.array(
        [[{**one, "text": text}] for text in texts], TABLES["rollouts"].arrow.field("turns").type
    )


def row_of_turn() -> dict[str, Any]:
    return {
        "context_token_ids": list(range(40)),
        "continues": False,
        "finish_reason": "stop",
        "queries": [],
        "valid_search": False,
        "results": [],
        "message": None,
        "message_role": None,
    }


def publish(place: Place, name: str, given: dict[str, Any]) -> None:
    schema = TABLES[name]
    num = len(next(iter(given.values())))
    empty = row(name)
    columns = [
        given[f.name]
        if isinstance(given.get(f.name), pa.Array | pa.ChunkedArray)
        else pa.array(given.get(f.name, [empty[f.name]] * num), f.type)
        for f in schema.arrow
    ]
    inputs = {
        source: {"address": place.address(source), "content_hash": "h"}
        for source in MADE_FROM.get(name, [])
    }
    recipe = {
        "key": "k",
        "stage": f"bench.{name}",
        "columns": hash_json(str(schema.arrow)),
        "inputs": inputs,
        "params": {},
    }
    with place.store.draft(schema) as draft:
        draft.write(pa.Table.from_arrays(columns, schema=schema.arrow))
        notes = {"started_at": time.time(), "seconds": 1.0, "counts": {}}
        place.store.publish(draft, place.address(name), {**recipe, **notes})


def paint(tab: Tab, address: str) -> float:
    """Milliseconds from requesting the page to its first paint."""
    tab.open(address)
    script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    tab.wait(f"({script}) !== undefined")
    return tab.eval(script)


class Server:
    """The viewer over the large store in this process, and the times of its statements."""

    def __init__(self, store: Store) -> None:
        listening = listen(None)
        self.key = Key(listening.getsockname()[1])
        app = make_app(store, self.key)
        self.asked: Asked = []
        self._query, app.state.lake.query = app.state.lake.query, self.query
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.key.port}"

    def query(
        self, run: str, sql: str, parameters: dict[str, Any] | None = None, *near: Any
    ) -> Any:
        answer = self._query(run, sql, parameters, *near)
        self.asked.append((sql, parameters or {}, answer.seconds))
        return answer


def measure(server: Server, tab: Tab, path: str) -> dict[str, Any]:
    first = paint(tab, server.base + path)
    server.asked.clear()
    busy = time.process_time()
    again = paint(tab, server.base + path)
    busy = time.process_time() - busy
    ours = sum(seconds for _, _, seconds in server.asked)
    times = {"first_ms": first, "again_ms": again, "cpu_ms": 1000 * busy, "sql_ms": 1000 * ours}
    return {name: round(value) for name, value in times.items()}


def in_plain_duckdb(store: Store, asked: Asked) -> float:
    """Milliseconds of the same statements, after a warm-up run of each."""
    with duckdb.connect(str(write_views(store)), read_only=True) as plain:

        def ask() -> None:
            for sql, parameters, _ in asked:
                plain.execute(sql, parameters or None).fetchall()

        ask()
        started = time.perf_counter()
        ask()
        return 1000 * (time.perf_counter() - started)


def main(folder: Path) -> None:
    store = make_store(folder)
    server = Server(store)
    found: dict[str, tuple[dict[str, Any], Asked]] = {}
    with chromium() as tab:
        tab.enter(f"{server.base}/#{server.key.token}")
        for name, path in (PAGES | LATER).items():
            found[name] = (measure(server, tab, path), list(server.asked))
    memory = round(psutil.Process().memory_info().rss / 1e6)
    code = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout
    about = {
        "server_mb": memory,
        "load": os.getloadavg()[0],
        "code": code.strip(),
        "day": time.strftime("%Y-%m-%d"),
    }
    print(f"memory of the server: {memory} MB")
    print(f"{'page':24}{'first, ms':>10}{'again':>8}{'CPU':>8}{'SQL':>8}{'DuckDB':>8}{'ratio':>8}")
    with BENCH.open("a", encoding="utf-8") as file:
        for name, (row, asked) in found.items():
            peer = in_plain_duckdb(store, asked)
            row |= {
                "duckdb_ms": round(peer),
                "ratio": round(row["sql_ms"] / peer, 2) if asked else None,
            }
            first, *others = row.values()
            print(
                f"{name:24}{first:10}" + "".join(f"{'' if v is None else v:>8}" for v in others),
                flush=True,
            )
            file.write(json.dumps({"name": name, **row, **about}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/bench/viewer.tmp"))
    main(parser.parse_args().folder)
