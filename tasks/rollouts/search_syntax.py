"""How a model family asks for a search, and how its replies are read.

`tags` is `<search>query</search>`, `qwen` a `<tool_call>` with JSON, `olmo` a `<function_calls>`
with a Python call. Think blocks are not read. `lines`, for models that continue worked examples, is
the line `Search: query`; the final line is `Answer: ...`, named after the final element.
"""

import ast
import json
import re
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from tasks.readers.malformed import Malformed
from tasks.readers.tags import elements
from tasks.readers.thoughts import spoken

Syntax = Literal["tags", "qwen", "olmo", "lines"]

ELEMENT = {"tags": "search", "qwen": "tool_call", "olmo": "function_calls"}
LABEL = "Search"  # label of a line with a search
EXAMPLES: dict[Syntax, str] = {
    "tags": "<search>the words to look for</search>",
    "qwen": (
        '<tool_call>\n{"name": "search", "arguments": {"query_list": ["the words to look'
        ' for"]}}\n</tool_call>'
    ),
    "olmo": '<function_calls>search(query="the words to look for")</function_calls>',
    "lines": "Search: the words to look for",
}
MAX_QUERIES = 3
"""Queries of one search that are run; more are left out."""

MAX_CALL_CHARS = 10_000

QUERY = {"query": {"type": "string", "description": "What to look for."}}
QUERY_LIST = {
    "query_list": {"type": "array", "items": {"type": "string"}, "description": "What to look for."}
}
_ONE_CALL = re.compile(  # for a query whose quotes are not escaped
    r"(?:#.*\n\s*)*search\(\s*(?:query\s*=\s*)?([\"'])(.*?)\1\s*"
    r"(?:,\s*\w+\s*=\s*[\w.]+\s*)?\)[ ;]*(?:#.*)?$",
    re.MULTILINE,
)
# a reply may use either
PARAMETERS: dict[Syntax, dict[str, Any]] = {"qwen": QUERY_LIST, "olmo": QUERY}


@dataclass(frozen=True)
class Search:
    """A search that a reply asks for: its queries, and whether it was well-formed and not empty."""

    queries: tuple[str, ...]
    valid: bool


def stop_strings(syntax: Syntax) -> tuple[str, ...]:
    """The stop strings of a turn with a search.

    >>> stop_strings("qwen")
    ('</tool_call>',)
    """
    if syntax == "lines":
        return ("\n",)
    return (f"</{ELEMENT[syntax]}>",)


def tools(syntax: Syntax | None) -> list[dict[str, Any]] | None:
    """Tool schemas for the chat template; None if searches are plain tags."""
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
    """The role of the message that holds search results."""
    if syntax in ("qwen", "olmo"):
        return "tool"
    return "user"


def find_search(text: str, syntax: Syntax, *, open_thoughts: bool = True) -> Search | None:
    """The last search that a reply asks for; None if it has no search element at all.

    `open_thoughts`: also count a search at the end of an unclosed think block (see `elements`).

    >>> find_search("Search: Port Varley", "lines")
    Search(queries=('Port Varley',), valid=True)
    """
    if syntax == "lines":
        return _search_in_line(text)
    name = ELEMENT[syntax]
    calls = elements(text, name, open_thoughts=open_thoughts)
    if not calls:
        if re.search(rf"</?{name}>", spoken(text), re.IGNORECASE):
            return Search((), valid=False)
        return None
    queries = tuple(query.strip() for query in _queries(calls[-1].text, syntax) if query.strip())[
        :MAX_QUERIES
    ]
    return Search(queries, valid=bool(queries))


def ends_with_final(
    text: str, final: str, syntax: Syntax | None, *, open_thoughts: bool = True
) -> bool:
    """Whether a reply ends with a final element that is not empty, with no search after it.

    >>> ends_with_final("Answer: in 1868", "answer", "lines")
    True
    """
    if syntax == "lines":
        return _line(text, final) is not None
    parts = elements(text, final, open_thoughts=open_thoughts)
    if not parts or not parts[-1].text:
        return False
    return syntax is None or f"</{ELEMENT[syntax]}>" not in spoken(text[parts[-1].end :]).lower()


def _search_in_line(text: str) -> Search | None:
    """The search in the first line of a reply."""
    query = _line(text, LABEL)
    if query is not None:
        return Search((query,), valid=True)
    if text.strip().lower().startswith(f"{LABEL.lower()}:"):
        return Search((), valid=False)
    return None


def _line(text: str, name: str) -> str | None:
    """What the line `name: ...` of a reply says; None if there is none."""
    from tasks.readers.lines import labelled  # settings need this module, and not its libraries

    try:
        return labelled(text, name)
    except Malformed:
        return None


def _queries(body: str, syntax: Syntax) -> list[str]:
    """The queries in an element's content; empty if it is malformed."""
    if syntax == "tags":
        return [body]
    if len(body) > MAX_CALL_CHARS:
        return []
    arguments = _json_call(body) if syntax == "qwen" else _python_call(body)
    value = arguments.get("query_list") or arguments.get("query")
    queries = [value] if isinstance(value, str) else value
    if isinstance(queries, list) and all(isinstance(query, str) for query in queries):
        return queries
    return []


def _json_call(body: str) -> dict[str, Any]:
    call = _json_object(body)
    arguments = call.get("arguments") if call.get("name") == "search" else None
    if isinstance(arguments, str):
        return _json_object(arguments)
    if isinstance(arguments, dict):
        return arguments
    return {}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}


def _python_call(body: str) -> dict[str, Any]:
    """The keyword arguments of the first `search(...)` line; a single positional string is the
    query."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's warnings about the text
            call = ast.parse(body.strip()).body[0]
        call = call.value if isinstance(call, ast.Expr) else None
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "search"
        ):
            return {}
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return arguments or {"query": ast.literal_eval(call.args[0])}
    except SyntaxError:
        call = _ONE_CALL.match(body.strip())
        if call:
            return {"query": call[2]}
        return {}
    except (ValueError, TypeError, OverflowError, IndexError, RecursionError, MemoryError):
        return {}  # not a literal, or too large for Python
