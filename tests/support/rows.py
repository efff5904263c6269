"""Rows of the warehouse's tables: a test gives the columns that it is about; the other required
ones are empty."""

from typing import Any

import pyarrow as pa

from warehouse.schemas import TABLES, Schema
from warehouse.store import Place, Table


def row(table: str, **given: Any) -> dict[str, Any]:
    """A row with every column: as given, null where the schema allows it, else the empty value
    of its type."""
    columns = {c.name: None if c.nulls else _empty(c.type) for c in TABLES[table].columns}
    assert not given.keys() - columns.keys(), f"{table} has no {given.keys() - columns.keys()}"
    return {**columns, **given}


def publish(place: Place, table: str, *rows: dict[str, Any], label: str | None = None) -> Table:
    """Publish the rows at `place`, as a stage would."""
    schema: Schema = TABLES[table]
    recipe = {
        "key": "given",
        "stage": "tests.given",
        "started_at": 0.0,
        "seconds": 0.0,
        "counts": {},
    }
    with place.store.draft(schema) as draft:
        draft.write(rows)
        return place.store.publish(draft, place.address(table, label), recipe)


def updates(place: Place, before: Table | None = None, role: str = "solver") -> Table:
    """An update that continued from `before`, with weights and an optimizer state of 1,000 bytes
    each."""
    state = f"{before.address}/files/update/optimizer" if before else None
    with place.store.draft(TABLES["updates"]) as draft:
        draft.write([row("updates", role=role)])
        for name in ("policy/model.safetensors", "optimizer/optimizer.bin"):
            (draft.files / "update" / name).parent.mkdir(parents=True)
            (draft.files / "update" / name).write_bytes(b"x" * 1000)
        recipe = {"key": "k", "params": {"optimizer_state": state}}
        return place.store.publish(draft, place.address("updates"), recipe)


def turn(
    text: str, valid_search: bool = False, found: tuple[str, ...] = (), **given: Any
) -> dict[str, Any]:
    """A turn of a rollout, with or without a search and its results."""
    results = [{"query": "q", "document_ids": list(found)}] if valid_search else []
    ids = {
        "context_token_ids": [1],
        "sampled_token_ids": [2],
        "logprobs": [-0.5],
        "continues": False,
    }
    message = {"message": None, "message_role": None, "finish_reason": "stop"}
    queries = ["q"] if valid_search else []
    return {
        "text": text,
        "valid_search": valid_search,
        "queries": queries,
        "results": results,
        **ids,
        **message,
        **given,
    }


def _empty(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return []
    if pa.types.is_map(kind):
        return {}
    if pa.types.is_boolean(kind):
        return False
    return "" if pa.types.is_string(kind) else 0


def samples(*ids: str) -> list[dict]:
    return [row("samples", sample_id=i) for i in ids]
