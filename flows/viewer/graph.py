"""The stages of a phase as a graph: boxes in layers, each to the right of all that it was made from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warehouse.table import Table

WIDTH, HEIGHT, GAP_X, GAP_Y, PADDING = 140, 46, 20, 12, 4  # pixels


@dataclass
class Node:
    """The tables of one name in a phase, over all its steps."""

    name: str
    num_tables: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    gpu_s: float = 0.0
    tokens: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    stale: int = 0
    at_work: bool = False
    layer: int = 0
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class Graph:
    """A phase's nodes and edges, placed in a drawing of `width` by `height` pixels."""

    phase: str
    nodes: list[Node]
    edges: list[tuple[Node, Node]]
    width: int
    height: int
    num_steps: int
    seconds: float


def graphs(tables: Sequence[Table], current: dict[str, str], working: Iterable[str]) -> list[Graph]:
    """One graph per phase, in the order of building. `current`: content hashes of all tables of the run; `working`:
    addresses."""
    phases: defaultdict[str, list[Table]] = defaultdict(list)
    for table in sorted(tables, key=lambda t: t.recipe.get("started_at", 0)):
        phases[table.at.phase or ""].append(table)
    busy = set(working)
    return [_graph(phase, found, current, busy) for phase, found in phases.items()]


def _graph(phase: str, tables: list[Table], current: dict[str, str], busy: set[str]) -> Graph:
    nodes: dict[str, Node] = {}
    edges: set[tuple[str, str]] = set()
    inside = {table.address: table.at.name for table in tables}
    for table in tables:
        node = nodes.setdefault(table.at.name, Node(table.at.name))
        node.num_tables += 1
        node.num_rows += table.num_rows
        node.seconds += table.recipe.get("seconds", 0)
        node.gpu_s += table.recipe.get("gpu_s") or 0
        node.tokens += table.recipe.get("tokens") or 0
        node.reasons.update(table.recipe.get("counts", {}))
        node.stale += stale(table, current)
        node.at_work |= table.address in busy
        edges |= {(inside[a], node.name) for a in table.recipe["sources"] if a in inside and inside[a] != node.name}
    drawn = _place(nodes, edges)
    width = max(node.x for node in nodes.values()) + WIDTH + PADDING
    height = max(node.y for node in nodes.values()) + HEIGHT + PADDING
    num_steps = len({table.at.step for table in tables})
    return Graph(phase, list(nodes.values()), drawn, width, height, num_steps, sum(n.seconds for n in nodes.values()))


def stale(table: Table, current: dict[str, str]) -> bool:
    """Whether a table that this one was made from has changed since; settings and code are not compared."""
    sources = table.recipe["sources"].items()
    return any(then is not None and a in current and current[a] != then for a, then in sources)


def _place(nodes: dict[str, Node], edges: set[tuple[str, str]]) -> list[tuple[Node, Node]]:
    """Give every node its layer and place; an edge that leads back (a step to the next) is not drawn."""
    order = {name: i for i, name in enumerate(nodes)}
    forward = sorted((e for e in edges if order[e[0]] < order[e[1]]), key=lambda e: (order[e[1]], order[e[0]]))
    for source, target in forward:
        nodes[target].layer = max(nodes[target].layer, nodes[source].layer + 1)
    filled: Counter[int] = Counter()
    for node in nodes.values():
        node.x = PADDING + node.layer * (WIDTH + GAP_X)
        node.y = PADDING + filled[node.layer] * (HEIGHT + GAP_Y)
        filled[node.layer] += 1
    return [(nodes[a], nodes[b]) for a, b in forward]
