"""How a run monitors its own course, before every update and before every iteration: see `tasks.course`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tasks.course import divergence, repeated, survivors, trained_on
from tasks.monitor import BATCH, COURSE, POOL
from tasks.stage import Tables
from warehouse.address import Address
from warehouse.schemas import EVALUATIONS
from warehouse.store import Place, Store, Table

EVALUATION = "evaluation"  # the phase that scores held-out tasks
SCORE = "score"
Watch = Callable[..., dict[str, float]]  # the method `watch` of a run


@dataclass
class Course:
    """What was measured so far: the means of each player's first update, the survivors of the first iteration, rewards
    by iteration, and the tasks written in each."""

    first: dict[str, Mapping[str, float]] = field(default_factory=dict)
    survivors: float | None = None
    rewards: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    tasks: dict[int, list[Table]] = field(default_factory=lambda: defaultdict(list))

    def after_writing(self, tasks: Table, at: Address) -> None:
        """Remember tasks that were written for training, to find repeats of them."""
        if at.phase != EVALUATION and at.iteration:
            self.tasks[at.iteration].append(tasks)

    def before_iteration(self, watch: Watch, run: Place, iteration: int, policy: str) -> None:
        """Compare the held-out scores of earlier iterations with their rewards."""
        series = held_out_series(run.store, run.at.run, before=iteration)
        if iteration > 1 and series["held_out"]:
            at = run.iteration(iteration - 1).phase("monitor")
            measure = partial(divergence, rewards=self.mean_rewards(iteration), **series)
            watch(at, measure, policy=policy, benchmark=COURSE, label="course")

    def before_update(self, watch: Watch, at: Place, player: str, policy: str, **tables: Tables) -> None:
        """Compare rewards and rollouts with those of the player's first update."""
        measure = partial(trained_on, first=self.first.get(player, {}))
        means = watch(at, measure, policy=policy, benchmark=BATCH, label="batch", **tables)
        self.first.setdefault(player, means)
        if at.at.iteration and "reward" in means:
            self.rewards[at.at.iteration].append(means["reward"])

    def after_filter(
        self, watch: Watch, iteration: Place, policy: str, chosen: Tables, passed: tuple[str, ...]
    ) -> None:
        """Compare survivors with those of the first iteration, and tasks with those of all earlier iterations."""
        at, t = iteration.phase("monitor"), iteration.at.iteration or 0
        about: dict[str, Any] = {"policy": policy, "benchmark": POOL}
        measure = partial(survivors, passed=passed, first=self.survivors)
        found = watch(at, measure, label="kept", chosen=chosen, **about)
        self.survivors = self.survivors or found.get("kept")
        if self.tasks[t] and (earlier := self.earlier_tasks(t)):
            watch(at, repeated, label="repeats", tasks=self.tasks[t], earlier=earlier, **about)

    def mean_rewards(self, before: int) -> list[float]:
        """The mean reward of each iteration before `before`."""
        return [sum(some) / len(some) for t, some in sorted(self.rewards.items()) if t < before]

    def earlier_tasks(self, iteration: int) -> list[Table]:
        return [table for t, tables in self.tasks.items() if t < iteration for table in tables]


def held_out_series(store: Store, run: str, before: int) -> dict[str, Any]:
    """Scores and pass@k (the largest k) of each benchmark at all iterations before `before`, as
    `tasks.course.divergence` takes them. A benchmark that was not scored at each of them is left out."""
    found: dict[str, dict[str, dict[int, Any]]] = {SCORE: defaultdict(dict), "passes": defaultdict(dict)}
    most = dict[str, int]()
    for table in store.tables(run):
        at = Address.parse(table.address)
        if table.schema is EVALUATIONS and at.phase == EVALUATION and (at.iteration or 0) < before:
            for row in table.rows():
                kind, _, k = row["metric"].partition("_at_")
                scored = [row["score"], row["standard_error"]]
                if row["metric"] == SCORE:
                    found[SCORE][row["benchmark"]][at.iteration or 0] = scored
                elif kind == "pass" and int(k) > 1 and int(k) >= most.get(row["benchmark"], 0):
                    most[row["benchmark"]] = int(k)
                    found["passes"][row["benchmark"]][at.iteration or 0] = scored
    held_out, passes = (
        {name: [of[t] for t in sorted(of)] for name, of in some.items() if set(of) == set(range(before))}
        for some in found.values()
    )
    return {"held_out": held_out, "passes": passes}
