"""What an iteration of R-Zero asks and trains, for `selfplay plan`."""

from __future__ import annotations

from flows.plan.workload import Asked, Lengths, Step, Update, Workload
from flows.rzero.config import Config


def workload(cfg: Config) -> Workload:
    c, s = cfg.challenger, cfg.solver
    asked = c.prompts_per_step * c.group_size
    tasks = s.prompts_per_step
    return Workload(
        lengths={"challenger": Lengths(250, 900), "solver": Lengths(250, 900)},
        steps=(
            Step(
                "challenger",
                c.steps,
                (
                    Asked("challenger", c.prompts_per_step, c.group_size, model="challenger"),
                    Asked("solver", asked, s.answers, model="solver"),
                ),
                Update("challenger", c.update, {"challenger": asked}),
            ),
            Step(
                "pool",
                1,
                (
                    Asked("challenger", s.candidates, model="challenger"),
                    Asked("solver", s.candidates, s.answers, model="solver"),
                ),
            ),
            Step(
                "solver",
                s.steps,
                (Asked("solver", tasks, s.group_size, model="solver"),),
                Update("solver", s.update, {"solver": tasks * s.group_size}),
            ),
        ),
    )
