"""Export a run's tables as a dataset: Parquet in Hugging Face's layout, with a dataset card.

FOLDER/README.md                 the card: its header names a configuration for each folder
FOLDER/conversations/train-*     the default: a rollout as messages, its reward and advantage
FOLDER/conversations/held_out-*  the same for held-out tasks, which must not be trained on
FOLDER/preferences/train-*       the best and the worst rollout of each group
FOLDER/findings/train-*          what to know first about the run, found by rules
FOLDER/tasks/train-*.parquet     run, iteration, phase, step, label and the columns of the table
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from warehouse.address import no_run
from warehouse.clean import cleaned
from warehouse.draft import RECIPE
from warehouse.lake import Lake
from warehouse.new_folder import new_folder
from warehouse.provenance import NO_DRY_RUN, DryRun, by_reason, made_with, stale
from warehouse.ready import GRAINS, HELD_OUT, TRAIN, write_ready
from warehouse.schemas import TABLES, Row, Schema
from warehouse.store import Store, check_recipes
from warehouse.table import Table

EXPORTED = (
    "tasks",
    "rubrics",
    "prompts",
    "rollouts",
    "answers",
    "gates",
    "matches",
    "votes",
    "judgments",
    "labels",
    "rewards",
    "advantages",
    "selections",
    "groups",
    "evaluations",
    "updates",
    "documents",
    "annotations",
)
ADDRESS = pa.schema(
    [
        (name, pa.int32() if name in ("iteration", "step") else pa.string())
        for name in ("run", "iteration", "phase", "step", "label")
    ]
)
FINDINGS = pa.schema(
    [
        ("rule", pa.string()),
        ("severity", pa.string()),
        ("sentence", pa.string()),
        ("number", pa.float64()),
        ("compared_with", pa.float64()),
        ("comparison", pa.string()),
        ("iteration", pa.int32()),
        ("sql", pa.string()),
    ]
)
DEFAULT = "conversations"
OWN_GRAINS = {**GRAINS, "findings": "what to know first about the run, by a rule"}
SAMPLE_CHARACTERS = 300
SAMPLE_MESSAGES = 4
CARD = Path(__file__).parent / "card.md.jinja"
FILE_ROWS = 500_000
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_dataset(
    store: Store,
    run: str,
    folder: Path,
    checked: DryRun = NO_DRY_RUN,
    findings: Sequence[Row] = (),
) -> dict[str, int]:
    """Write the tables of a run that hold rows, and the card; returns the number of rows of each.

    `checked` says which tables the run would rebuild now; the card names them. `findings` are rows
    with the columns of `FINDINGS`.

    Raises ValueError if the run does not exist or the folder is not empty, and Damaged if a table
    has no intact recipe.
    """
    check_recipes(store.without_recipe(run))
    tables = list(store.reached(run))
    if not tables:
        raise no_run(run)
    with_rows = [table for table in tables if table.has_rows and table.num_rows]
    with new_folder(folder) as partial:
        counts = write_ready(with_rows, partial)
        if findings:
            counts["findings"] = len(findings)
            (partial / "findings").mkdir()
            told = pa.Table.from_pylist(list(findings), schema=FINDINGS)
            pq.write_table(told, partial / "findings" / "train-00000.parquet")
        for name in EXPORTED:
            of_kind = [table for table in with_rows if table.schema.name == name]
            if of_kind:
                counts[name] = _write(TABLES[name], of_kind, partial / name)
        splits = [
            split
            for split in (TRAIN, HELD_OUT)
            if any((partial / DEFAULT).glob(f"{split}-*.parquet"))
        ]
        text = card(store, run, tables, counts, checked, findings, splits, _sample(partial))
        (partial / "README.md").write_text(text, encoding="utf-8")
    return counts


def _sample(folder: Path) -> str:
    """The first rewarded conversation as JSON, with its texts cut; empty if there is none."""
    files = sorted((folder / DEFAULT).glob(f"{TRAIN}-*.parquet"))
    if not files:
        return ""
    first = next(pq.ParquetFile(files[0]).iter_batches(200)).to_pylist()
    row = next((row for row in first if row["advantage"]), first[0])
    messages = [
        {**message, "content": message["content"][:SAMPLE_CHARACTERS]}
        for message in row["messages"][:SAMPLE_MESSAGES]
    ]
    return json.dumps({**row, "messages": messages}, indent=1, ensure_ascii=True)


def _write(schema: Schema, tables: list[Table], folder: Path) -> int:
    """Write all rows of the tables of one kind, and return their number.

    Files have about `FILE_ROWS` rows. Checks each table's bytes.
    """
    folder.mkdir(parents=True)
    columns = pa.schema([*ADDRESS, *(pa.field(f.name, _loadable(f.type)) for f in schema.arrow)])
    writer = None
    written = 0
    total = 0
    files = 0
    for table in tables:
        at = [getattr(table.at, field.name) for field in ADDRESS]
        for batch in table.batches():
            if writer is None or written > FILE_ROWS:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(
                    folder / f"train-{files:05d}.parquet", columns, compression="zstd"
                )
                files += 1
                written = 0
            arrays = [
                pa.array([value] * batch.num_rows, field.type)
                for value, field in zip(at, ADDRESS, strict=True)
            ]
            arrays += [_pairs(batch.column(field.name)) for field in schema.arrow]
            writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
            written += batch.num_rows
            total += batch.num_rows
    if writer is not None:
        writer.close()
    return total


def _loadable(kind: pa.DataType) -> pa.DataType:
    """`datasets` has no maps: they become lists of pairs."""
    if not pa.types.is_map(kind):
        return kind
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def _pairs(column: pa.Array) -> pa.Array:
    if not pa.types.is_map(column.type):
        return column
    pairs = pa.StructArray.from_arrays(
        [column.keys, column.items], fields=list(_loadable(column.type).value_type)
    )
    return pa.ListArray.from_arrays(
        column.offsets, pairs, type=_loadable(column.type), mask=column.is_null()
    )


def card(
    store: Store,
    run: str,
    tables: list[Table],
    counts: dict[str, int],
    checked: DryRun = NO_DRY_RUN,
    findings: Sequence[Row] = (),
    splits: Sequence[str] = (),
    sample: str = "",
) -> str:
    """The dataset card, as Markdown.

    It has a header for `load_dataset`, lineage, gates, selections, scores, and licences of the
    sources. `counts` has the number of rows of each published table, `findings` are rows with the
    columns of `FINDINGS`, `splits` are those of the conversations, and `sample` is an example
    conversation as JSON.
    """
    lake = Lake(store)
    licences = _rows(lake, run, LICENCES)
    stated = {row["licence"] for row in licences}
    header: dict[str, Any] = {
        "pretty_name": f"selfplay run {run}",
        "license": "other" if stated else "unknown",
        "tags": ["selfplay", "synthetic"],
        "size_categories": [_size(sum(counts.values()))],
        "configs": [_config(name, splits) for name in counts],
    }
    template = jinja2.Template(
        CARD.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True
    )
    return template.render(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        run=run,
        asked=store.kept(run, "request.json") or {},
        made=time.strftime("%Y-%m-%d"),
        counts=counts,
        grains={
            name: OWN_GRAINS[name] if name in OWN_GRAINS else TABLES[name].grain for name in counts
        },
        findings=findings,
        splits=splits,
        # it must not end the card's code fence, or hold markup
        sample=sample.replace("`", r"\u0060").replace("<", r"\u003c"),
        headline=_headline(_rows(lake, run, QUERIES["evaluations"])),
        stages=Counter(table.recipe["stage"].rsplit(".", 1)[-1].lstrip("_") for table in tables),
        num_tables=len(tables),
        recipe=RECIPE,
        made_with=made_with(tables),
        stale=by_reason(stale(store, tables, checked.stale)),
        unchecked=checked.problem,
        licences=licences,
        cell=cell,
        cleaned=cleaned(store, run),
        **{name: _rows(lake, run, sql) for name, sql in QUERIES.items()},
    )


def _config(name: str, splits: Sequence[str]) -> Row:
    """A configuration, for the card's header; `splits` are those of the default one."""
    config: Row = {"config_name": name, "data_files": f"{name}/*.parquet"}
    if name == DEFAULT:
        config["data_files"] = [
            {"split": split, "path": f"{name}/{split}-*.parquet"} for split in splits
        ]
        config["default"] = True
    return config


def _headline(evaluations: list[Row]) -> list[str]:
    """The first and the last held-out score of each benchmark, as sentences.

    >>> scores = [(0, 0.25), (2, 0.5)]
    >>> row = {"benchmark": "exam", "is_held_out": True}
    >>> _headline([{**row, "iteration": t, "score": score} for t, score in scores])
    ['Held-out score on exam: 0.250 in iteration 0, 0.500 in iteration 2.']
    """
    of_benchmark: dict[str, list[Row]] = {}
    for row in evaluations:
        if row["score"] is not None and row["is_held_out"]:
            of_benchmark.setdefault(row["benchmark"], []).append(row)
    sentences = []
    for benchmark, rows in of_benchmark.items():
        ends = [rows[0]] if len(rows) == 1 else [rows[0], rows[-1]]
        scores = ", ".join(f"{row['score']:.3f} in iteration {row['iteration']}" for row in ends)
        sentences.append(f"Held-out score on {benchmark}: {scores}.")
    return sentences


LICENCES = """
    select source, licence, count(*) as n from documents where run = $run and dropped_reason is null
    group by all order by n desc, source limit 50
"""
QUERIES = {
    "policies": """
        select distinct policy, parent, role, policy_hash
        from policies where run = $run order by all
    """,
    "templates": """
        select role, template, template_version, count(*) as n
        from prompts where run = $run group by all order by all
    """,
    "gates": """
        select gate, kind, count(*) as n,
            count(*) filter (where passed) as passed, count(malformed) as malformed
        from gates where run = $run group by all order by all
    """,
    "selections": """
        select iteration, coalesce(reason, 'kept') as reason, count(*) as n
        from selections where run = $run
        group by all order by iteration, n desc, reason
    """,
    "evaluations": """
        select iteration, benchmark, n, score, standard_error,
            is_held_out(phase, benchmark) as is_held_out
        from evaluations where run = $run and metric = 'score'
        order by benchmark, iteration
    """,
}


def _rows(lake: Lake, run: str, sql: str) -> list[Row]:
    return lake.query(run, sql, {"run": run}).rows


def _size(num_rows: int) -> str:
    return next((name for limit, name in SIZES if num_rows < limit), "1M<n<10M")


def cell(value: Any) -> str:
    """Escape a value for a Markdown table: no markup, no line break, no new column.

    >>> cell("a|b <img>\\n*c*")
    'a\\\\|b \\\\<img\\\\> \\\\*c\\\\*'
    """
    if isinstance(value, float):
        return f"{value:.3f}"
    if value is None:
        text = ""
    elif isinstance(value, dict):
        text = json.dumps(value)
    else:
        text = str(value)
    text = " ".join(text.split())
    return "".join(f"\\{mark}" if mark in "\\`*_{}[]<>#|!~" else mark for mark in text)
