"""The stages of a phase as a graph: boxes in layers, each to the right of all its inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warehouse.table import Table

# pixels
WIDTH = 168
HEIGHT = 46
GAP_X = 20
GAP_Y = 12
PADDING = 4


@dataclass
class Node:
    """All tables of one name in a phase, across its steps."""

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
    """A phase's nodes and edges, laid out in a drawing of `width` by `height` pixels."""

    phase: str
    nodes: list[Node]
    edges: list[tuple[Node, Node]]
    width: int
    height: int
    num_steps: int
    seconds: float


def graphs(tables: Sequence[Table], current: dict[str, str], working: Iterable[str]) -> list[Graph]:
    """One graph per phase, in the order in which phases were built.

    `current` maps the addresses of all tables of the run to their content hashes; `working` holds
    the addresses of tables that are being made.
    """
    phases: defaultdict[str, list[Table]] = defaultdict(list)
    for table in sorted(tables, key=lambda t: t.recipe.get("started_at", 0)):
        phases[table.at.phase or ""].append(table)
    busy = set(working)
    return [_graph(phase, some, current, busy) for phase, some in phases.items()]


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
        sources = {inside[source] for source in table.recipe["sources"] if source in inside}
        edges |= {(source, node.name) for source in sources if source != node.name}
    drawn = _place(nodes, edges)
    width = max(node.x for node in nodes.values()) + WIDTH + PADDING
    height = max(node.y for node in nodes.values()) + HEIGHT + PADDING
    num_steps = len({table.at.step for table in tables})
    return Graph(
        phase=phase,
        nodes=list(nodes.values()),
        edges=drawn,
        width=width,
        height=height,
        num_steps=num_steps,
        seconds=sum(node.seconds for node in nodes.values()),
    )


def stale(table: Table, current: dict[str, str]) -> bool:
    """Whether any table that this one was made from has changed since. Ignores settings and
    code."""
    for source, then in table.recipe["sources"].items():
        if then is not None and current.get(source, then) != then:
            return True
    return False


def _place(nodes: dict[str, Node], edges: set[tuple[str, str]]) -> list[tuple[Node, Node]]:
    """Set the layer and position of every node; return the edges to draw.

    An edge that leads back, from one step to the next, is not drawn.
    """
    order = {name: i for i, name in enumerate(nodes)}
    forward = [(source, target) for source, target in edges if order[source] < order[target]]
    forward.sort(key=lambda edge: (order[edge[1]], order[edge[0]]))
    for source, target in forward:
        nodes[target].layer = max(nodes[target].layer, nodes[source].layer + 1)
    filled: Counter[int] = Counter()
    for node in nodes.values():
        node.x = PADDING + node.layer * (WIDTH + GAP_X)
        node.y = PADDING + filled[node.layer] * (HEIGHT + GAP_Y)
        filled[node.layer] += 1
    return [(nodes[source], nodes[target]) for source, target in forward]
