"""How far each of SCOPE's conversations goes, and how its turns are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flows.scope.config import ScopeConfig
from flows.scope.roles import SEARCH_EXAMPLES, Roles
from tasks.engines.base import Sampling
from tasks.rollouts.rollout import Dialogue
from tasks.rollouts.search_syntax import stop_strings


@dataclass(frozen=True)
class Talk:
    """A dialogue and the sampling of its turns."""

    dialogue: Dialogue
    sampling: Sampling


@dataclass(frozen=True)
class Talks:
    """The conversations of one configuration."""

    propose: Talk
    estimate: Talk
    filter: Talk
    solve: Talk
    evaluate: Talk
    gate: Talk
    write_rubric: Talk
    grade: Talk


def make_talks(cfg: ScopeConfig, roles: Roles) -> Talks:
    d, judge = cfg.dialogues, cfg.judge
    propose = _searching(cfg, roles, "challenger", "task", d.challenger_turns, insist_times=0)
    solve = _searching(cfg, roles, "solver", "answer", d.solver_turns, insist_times=0)
    insisted = solve.model_copy(update={"insist_times": d.insist_times})
    one_turn = Dialogue(search=None, final=None, max_turns=1, reasoning=d.reasoning)

    def turns(tag: str, temperature: float, top_p: float = 1.0) -> Sampling:
        stop = (*stop_strings(d.search_syntax), f"</{tag}>")
        return Sampling(temperature=temperature, top_p=top_p, max_tokens=d.response_tokens, stop=stop)

    c = cfg.challenger
    return Talks(
        propose=Talk(propose, turns("task", c.temperature)),
        estimate=Talk(insisted, turns("answer", c.difficulty_temperature, c.difficulty_top_p)),
        filter=Talk(insisted, turns("answer", cfg.solver.temperature)),
        solve=Talk(solve, turns("answer", cfg.solver.temperature)),
        evaluate=Talk(insisted, turns("answer", cfg.evaluation.temperature)),
        gate=Talk(one_turn, Sampling(temperature=0, max_tokens=judge.gate_tokens)),
        write_rubric=Talk(one_turn, Sampling(temperature=0, max_tokens=judge.rubric_tokens)),
        grade=Talk(one_turn, Sampling(temperature=judge.grading_temperature, max_tokens=judge.grading_tokens)),
    )


def replay_talk(talk: Talk) -> Talk:
    """The same with nothing left to search: one turn, which is to be the answer."""
    keep = {"final": talk.dialogue.final, "reasoning": talk.dialogue.reasoning}
    return Talk(Dialogue(search=None, max_turns=1, **keep), talk.sampling)


def hints(cfg: ScopeConfig) -> dict[str, Any]:
    """What opening prompts say of searching."""
    d = cfg.dialogues
    return {"search_example": SEARCH_EXAMPLES[d.search_syntax], "max_searches": d.solver_turns - 1}


def _searching(cfg: ScopeConfig, roles: Roles, role: str, final: str, max_turns: int, insist_times: int) -> Dialogue:
    d = cfg.dialogues
    return Dialogue(
        search=d.search_syntax,
        final=final,
        max_turns=max_turns,
        results=roles.templates("results").text,
        searched=roles.templates(f"{role}_searched").text,
        searched_out=roles.templates(f"{role}_searched_out").text,
        format_error=roles.templates("format_error").text,
        insist=roles.templates("answer_now").text,
        insist_times=insist_times,
        documents_per_query=d.documents_per_query,
        result_tokens=d.result_tokens,
        reasoning=d.reasoning,
        prompt_tokens=d.challenger_prompt_tokens if role == "challenger" else d.solver_prompt_tokens,
    )
