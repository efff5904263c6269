"""How a run watches its own drift, before every update and before every iteration.

The measures are computed in `tasks.monitors.drift`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tasks.monitors.drift import (
    Scored,
    held_out_course,
    repeated,
    survivors,
    trained_on,
    untrained,
)
from tasks.monitors.monitor import BATCH, COURSE, POOL
from tasks.stage import Tables
from warehouse.address import EVALUATION, Address
from warehouse.schemas import EVALUATIONS
from warehouse.store import Place, Store, Table

SCORE = "score"
Watch = Callable[..., dict[str, float]]  # the method `watch` of a run
Series = dict[str, list[Scored]]  # for each benchmark, a mean and its standard error per iteration


@dataclass
class Drift:
    """The measurements of a run so far, with which its later updates and iterations are compared:
    the means of each player's first update, the share of survivors in the first iteration, the
    tasks written in each iteration, and for how many steps in a row each player could not be
    trained."""

    first: dict[str, Mapping[str, float]] = field(default_factory=dict)
    survivors: float | None = None
    tasks: dict[int, list[Table]] = field(default_factory=lambda: defaultdict(list))
    untrained: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def after_writing(self, tasks: Table, at: Address) -> None:
        """Remember the tasks that a role wrote at `at`, to find later repeats of them. Held-out
        tasks are left out."""
        if at.phase != EVALUATION and at.iteration:
            self.tasks[at.iteration].append(tasks)

    def before_iteration(self, watch: Watch, run: Place, iteration: int, policy: str) -> None:
        """Compare the held-out scores of the iterations before `iteration` with each other.

        `run` is the run's own place. Nothing is measured before the first iteration or without
        held-out scores. Raises Alarm as `watch` does.
        """
        if iteration == 1:
            return
        series = held_out_series(run.store, run.at.run, before=iteration)
        if not series.scores:
            return
        measure = partial(held_out_course, held_out=series.scores, passes=series.passes)
        at = run.iteration(iteration - 1).phase("monitor")
        scores = "; ".join(f"{name} {_means(scored)}" for name, scored in series.scores.items())
        name = run.at.run
        way_out = (
            f"Held-out scores, from the base model on: {scores}. `selfplay findings {name}` and"
            f" `selfplay view {name}` help to find out why. To go on all the same, change"
            " monitor.max_falls or monitor.max_narrowings."
        )
        watch(at, measure, policy=policy, benchmark=COURSE, label="course", way_out=way_out)

    def before_update(
        self,
        watch: Watch,
        at: Place,
        player: str,
        policy: str,
        *,
        advantages: Tables,
        rollouts: Tables,
    ) -> None:
        """Compare rewards and rollouts with those of the player's first update.

        `policy` is the id of the player's policy. Raises Alarm as `watch` does.
        """
        means = watch(
            at,
            partial(trained_on, first=self.first.get(player, {})),
            policy=policy,
            benchmark=BATCH,
            label="batch",
            advantages=advantages,
            rollouts=rollouts,
        )
        self.first.setdefault(player, means)

    def after_update(self, player: str) -> None:
        """Reset the count of steps in a row in which the player was not trained."""
        self.untrained[player] = 0

    def after_skip(self, watch: Watch, at: Place, player: str, policy: str) -> None:
        """Count a step in which no rollout has an advantage, so that the player is unchanged.

        Raises Alarm, as `watch` does, if there are too many of them in a row.
        """
        self.untrained[player] += 1
        watch(
            at,
            partial(untrained, num_steps=self.untrained[player]),
            policy=policy,
            benchmark=BATCH,
            label="untrained",
        )

    def after_filter(
        self, watch: Watch, iteration: Place, policy: str, chosen: Tables, passed: tuple[str, ...]
    ) -> None:
        """Compare the share of survivors with the first iteration's, and the tasks with those of
        all earlier iterations.

        `chosen` says which candidates were kept; `passed` lists the reasons of candidates that
        passed but were not needed. Raises Alarm as `watch` does.
        """
        at = iteration.phase("monitor")
        means = watch(
            at,
            partial(survivors, passed=passed, first=self.survivors),
            policy=policy,
            benchmark=POOL,
            label="kept",
            chosen=chosen,
        )
        self.survivors = self.survivors or means.get("kept")
        number = iteration.at.iteration or 0
        tasks = self.tasks[number]
        earlier = self.earlier_tasks(number)
        if tasks and earlier:
            watch(
                at,
                repeated,
                policy=policy,
                benchmark=POOL,
                label="repeats",
                tasks=tasks,
                earlier=earlier,
            )

    def earlier_tasks(self, iteration: int) -> list[Table]:
        """The tables of tasks written in the iterations before `iteration`."""
        return [table for t, tables in self.tasks.items() if t < iteration for table in tables]


@dataclass(frozen=True)
class HeldOutSeries:
    """The held-out scores of iterations 0, 1, 2, ..., in the form that `held_out_course` takes, and
    pass@k at the largest k of each benchmark."""

    scores: Series
    passes: Series


def held_out_series(store: Store, run: str, before: int) -> HeldOutSeries:
    """The scores and pass@k of each benchmark at all iterations before `before`. A benchmark that
    was not scored at each of them is left out."""
    scores: dict[str, dict[int, Scored]] = defaultdict(dict)
    passes: dict[str, dict[int, Scored]] = defaultdict(dict)
    largest_k = dict[str, int]()
    for table in evaluations_before(store, run, before):
        iteration = table.at.iteration or 0
        for row in table.rows():
            benchmark = row["benchmark"]
            scored = [row["score"], row["standard_error"]]
            kind, _, k = row["metric"].partition("_at_")
            if row["metric"] == SCORE:
                scores[benchmark][iteration] = scored
            elif kind == "pass" and int(k) > 1 and int(k) >= largest_k.get(benchmark, 0):
                largest_k[benchmark] = int(k)
                passes[benchmark][iteration] = scored
    return HeldOutSeries(_complete(scores, before), _complete(passes, before))


def evaluations_before(store: Store, run: str, iteration: int) -> Iterator[Table]:
    """Yield the tables of held-out scores of a run's iterations before `iteration`."""
    for table in store.tables(run):
        is_held_out = table.schema is EVALUATIONS and table.at.phase == EVALUATION
        if is_held_out and (table.at.iteration or 0) < iteration:
            yield table


def _means(series: list[Scored]) -> str:
    """The means of a series.

    >>> _means([[0.5, 0.01], [None, None], [0.25, 0.02]])
    '0.500, –, 0.250'
    """
    return ", ".join("–" if mean is None else f"{mean:.3f}" for mean, _ in series)


def _complete(by_iteration: dict[str, dict[int, Scored]], before: int) -> Series:
    """The series that have a value at every iteration before `before`.

    >>> _complete({"gsm8k": {0: [0.1, 0.0], 1: [0.2, 0.0]}, "mmlu": {1: [0.3, 0.0]}}, 2)
    {'gsm8k': [[0.1, 0.0], [0.2, 0.0]]}
    """
    return {
        benchmark: [scores[t] for t in range(before)]
        for benchmark, scores in by_iteration.items()
        if set(scores) == set(range(before))
    }
