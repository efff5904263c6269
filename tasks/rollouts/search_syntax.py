"""How a model family asks for a search, and how its replies are read.

`tags` is `<search>query</search>`, `qwen` a `<tool_call>` with JSON, `olmo` a `<function_calls>` with a Python call.
Only what follows the last think block is read.
"""

import ast
import json
from dataclasses import dataclass
from typing import Any, Literal

Syntax = Literal["tags", "qwen", "olmo"]

ELEMENT: dict[Syntax, str] = {"tags": "search", "qwen": "tool_call", "olmo": "function_calls"}
MAX_QUERIES = 3
"""Queries of one search that are run; more are left out."""

QUERY = {"query": {"type": "string", "description": "What to look for."}}
QUERY_LIST = {"query_list": {"type": "array", "items": {"type": "string"}, "description": "What to look for."}}
PARAMETERS: dict[Syntax, dict[str, Any]] = {"qwen": QUERY_LIST, "olmo": QUERY}  # a reply may use either


@dataclass(frozen=True)
class Search:
    """A search a reply asks for: its queries, and whether it was well formed and not empty."""

    queries: tuple[str, ...]
    valid: bool


def stop_strings(syntax: Syntax) -> tuple[str, ...]:
    """Where a turn with a search ends.

    >>> stop_strings("qwen")
    ('</tool_call>',)
    """
    return (f"</{ELEMENT[syntax]}>",)


def tools(syntax: Syntax | None) -> list[dict[str, Any]] | None:
    """Tool schemas for the chat template; None where searches are plain tags."""
    if syntax not in PARAMETERS:
        return None
    arguments = PARAMETERS[syntax]
    function = {
        "name": "search",
        "description": "Search the document collection and return the passages that fit best.",
        "parameters": {"type": "object", "properties": arguments, "required": list(arguments)},
    }
    return [{"type": "function", "function": function}]


def result_role(syntax: Syntax | None) -> str:
    """Role of the message that brings search results."""
    return "tool" if syntax in ("qwen", "olmo") else "user"


def without_thoughts(text: str) -> str:
    """What follows the last think block; an open think block hides all that follows it.

    >>> without_thoughts("<think> <search>a</search> </think> b")
    ' b'
    """
    text = text.rpartition("</think>")[2]
    return text.partition("<think>")[0]


def find_search(text: str, syntax: Syntax) -> Search | None:
    """The last search a reply asks for; None when it names no search element at all."""
    text = without_thoughts(text)
    name = ELEMENT[syntax]
    if f"<{name}>" not in text and f"</{name}>" not in text:
        return None
    start = text.rfind(f"</{name}>")
    body = text[:start].rpartition(f"<{name}>")
    if start < 0 or not body[1]:
        return Search((), valid=False)
    queries = tuple(query.strip() for query in _queries(body[2], syntax) if query.strip())[:MAX_QUERIES]
    return Search(queries, valid=bool(queries))


def ends_with_final(text: str, final: str, syntax: Syntax | None) -> bool:
    """Whether a reply closes its final element, with no search after it."""
    text = without_thoughts(text)
    closed = text.rfind(f"</{final}>")
    return closed >= 0 and (syntax is None or f"</{ELEMENT[syntax]}>" not in text[closed:])


def _queries(body: str, syntax: Syntax) -> list[str]:
    """Queries of an element's content; empty when it is malformed."""
    if syntax == "tags":
        return [body]
    arguments = _json_call(body) if syntax == "qwen" else _python_call(body)
    given = arguments.get("query_list", arguments.get("query"))
    queries = [given] if isinstance(given, str) else given
    return queries if isinstance(queries, list) and all(isinstance(query, str) for query in queries) else []


def _json_call(body: str) -> dict[str, Any]:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    named = isinstance(call, dict) and call.get("name") == "search" and isinstance(call.get("arguments"), dict)
    return call["arguments"] if named else {}


def _python_call(body: str) -> dict[str, Any]:
    """Keyword arguments of the first `search(...)` line; one positional string counts as the query."""
    try:
        call = ast.parse(body.strip()).body[0]
        call = call.value if isinstance(call, ast.Expr) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "search"):
            return {}
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return arguments or {"query": ast.literal_eval(call.args[0])}
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return {}
