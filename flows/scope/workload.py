"""What an iteration of SCOPE asks and trains, for `selfplay plan`."""

from __future__ import annotations

from flows.plan.workload import Asked, Lengths, Step, Update, Workload
from flows.scope.config import Config

GATED = 0.8  # share of tasks that pass the gates: assumed, as are the next two
KEPT = 0.35  # share of candidates of moderate difficulty
CRITERIA = 5  # of a rubric


def workload(cfg: Config) -> Workload:
    c, pool, s = cfg.challenger, cfg.pool, cfg.solver
    answers = s.prompts_per_step * s.group_size
    proposed = c.prompts_per_step * c.group_size
    return Workload(
        lengths=_lengths(cfg),
        steps=(
            Step(
                "challenger",
                c.steps,
                _judged(cfg, c.prompts_per_step, c.group_size, c.solver_rollouts),
                Update("challenger", c.update, {"challenger": proposed}),
            ),
            Step(
                "pool",
                s.steps * s.prompts_per_step / (pool.candidates_per_batch * KEPT),
                _judged(cfg, pool.candidates_per_batch, 1, pool.solver_rollouts),
            ),
            Step(
                "solver",
                s.steps,
                (Asked("solver", s.prompts_per_step, s.group_size, model="solver"), Asked("grade", answers * CRITERIA)),
                Update("solver", s.update, {"solver": answers}),
            ),
        ),
    )


def _judged(cfg: Config, documents: int, n: int, answers: int) -> tuple[Asked, ...]:
    """l.7-11 for tasks over so many documents."""
    tasks = documents * n
    good = GATED * tasks
    gates = (Asked("gate", tasks * len(cfg.judge.applied_gates)),) if cfg.judge.applied_gates else ()
    return (
        Asked("challenger", documents, n, model="challenger"),
        *gates,
        Asked("rubric", good),
        Asked("solver", good, answers, model="solver"),
        Asked("grade", good * answers * CRITERIA),
    )


def _lengths(cfg: Config) -> dict[str, Lengths]:
    talk = cfg.dialogues
    turn, gate, rubric, verdict = (900, 350, 1500, 350) if talk.reasoning else (300, 150, 600, 200)
    result = talk.result_tokens + 60
    return {
        "challenger": Lengths(900, turn, 3.5, result, by_turn=talk.reasoning),
        "solver": Lengths(400, turn, min(3.0, talk.solver_turns), result, by_turn=talk.reasoning),
        "gate": Lengths(900, gate),
        "rubric": Lengths(2250, rubric),
        "grade": Lengths(1000, verdict, cached=0.7),
    }
