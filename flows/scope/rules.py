"""Quality checks of tasks by rule, named in `judge.rule_gates`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flows.micro.worlds.encyclopaedia import parse_task
from tasks.check import asks_nothing_twice


def follows_grammar(text: str) -> bool:
    """A task that the micro-world's grammar knows."""
    return parse_task(text) is not None


RULES: dict[str, Callable[[str], bool]] = {"repeats": asks_nothing_twice, "grammar": follows_grammar}


def make_rules(names: Sequence[str]) -> dict[str, Callable[[str], bool]]:
    return {name: RULES[name] for name in names}
