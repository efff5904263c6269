"""The interface for writing a method: roles that are asked, players that learn, and what a run can do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from flows.ahead import Ahead, Slice
from flows.course import Course
from flows.engine_scores import check_in_effect, references_of
from flows.machines import Machines
from flows.profile import NUM_TO_JUDGE, MethodSettings, Settings, home
from flows.templates import load, rendered
from flows.unread import check_read, check_rollouts
from tasks.ask import ask
from tasks.batch import batch, sampled_at
from tasks.engines.base import Policy, Sampling
from tasks.evaluate import Measure
from tasks.generate import generate
from tasks.imitate import imitate
from tasks.monitor import UPDATE, sampler_mismatch, watch
from tasks.prompt import Prompt, Row, Template
from tasks.read import Reader, read
from tasks.report import report
from tasks.rollouts.rollout import Dialogue
from tasks.stage import Tables, rows_of
from tasks.training.grpo import GRPOSettings
from tasks.update import update, updated_policy
from warehouse.schemas import TASKS, Schema
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
ONE_REPLY = Dialogue(max_turns=1)


def templates(cfg: Settings, prompts: str) -> Callable[[str], Template]:
    """The templates of a prompt set: for "english", `prompts/english/NAME.jinja` beside the method's config."""
    folder = home(type(cfg)) / "prompts" / prompts
    return lambda name: load(folder, name)


@dataclass(frozen=True)
class Role:
    """A role: what it is asked, and what its replies become.

    `about` yields the ids and template values of each prompt, from the rows of the tables that its parameters name.
    `read` turns replies into rows of `into`. Settings are keyword-only parameters of `about`.
    """

    name: str
    templates: tuple[Template, ...]
    about: Callable[..., Iterator[Row]]
    sampling: Sampling
    into: Schema
    read: Reader
    dialogue: Dialogue = ONE_REPLY
    player: str = ""  # the player that speaks, if one player has several roles
    values: Mapping[str, Any] = field(default_factory=dict)  # template values that the flow sets
    system: str = ""  # the system message
    judge: bool = False  # sampled by the judges' engines
    ask_again: Callable[[str], Any] | Reader | None = None  # a reply that this finds malformed is sampled once more

    def given(self, **settings: Any) -> Role:
        """The same role with these settings of `about`."""
        return replace(self, about=partial(self.about, **settings))

    @property
    def prompt(self) -> Prompt:
        return Prompt(self.player or self.name, self.templates, self.about, self.system)


@dataclass(frozen=True)
class Player:
    """An evolving policy, the state of its optimizer, and the number of its updates."""

    name: str
    policy: Policy
    optimizer_state: str | None = None
    num_updates: int = 0

    def updated(self, table: Table) -> Player:
        policy, state = updated_policy(table)
        return replace(self, policy=policy, optimizer_state=state, num_updates=self.num_updates + 1)


@dataclass(frozen=True)
class Replies:
    """A role's prompts, its rollouts, and the rows read from them."""

    prompts: Table
    rollouts: Table
    rows: Table


Config = TypeVar("Config", bound=MethodSettings)


@dataclass(frozen=True)
class Run(Generic[Config]):
    """A run of a method: its configuration, its place in the store, the models it starts from, and its machines."""

    cfg: Config
    place: Place
    models: Mapping[str, Policy] = field(default_factory=dict)
    _machines: Machines | None = None
    _course: Course = field(default_factory=Course)

    @property
    def machines(self) -> Machines:
        assert self._machines is not None, "this run trains no model"
        return self._machines

    @property
    def method(self) -> str:
        """The method's name: that of its folder."""
        return home(type(self.cfg)).name

    def model(self, name: str) -> Policy:
        """A model of the configuration; the base model if the configuration names none."""
        return self.models.get(name, self.models["base"])

    def player(self, name: str) -> Player:
        """A player before its first update."""
        return Player(name, self.models["base"])

    def player_after(self, name: str, iteration: int, run: str | None = None) -> Player:
        """A player as an iteration of this run, or of another, left it; the base model if it was never updated.

        Raises ValueError if there is no such run.
        """
        store, player = self.place.store, self.player(name)
        if run is not None and not store.folder(run).exists():
            raise ValueError(f"there is no run {run!r} to take the {name} from; `selfplay status` lists the runs")
        for table in store.updates(run or self.place.at.run):
            if (table.at.iteration or 0) <= iteration and table.rows()[-1]["role"] == name:
                player = player.updated(table)
        return player

    def iterations(self, first: int = 1) -> Iterator[tuple[int, Place]]:
        """Number and place of each iteration. Writes a report after each.

        Raises Alarm before an iteration begins if the held-out scores of earlier iterations show that rewards mislead.
        """
        for t in range(first, self.cfg.iterations + 1):
            try:
                self._course.before_iteration(self.watch, self.place, t, self.models["base"].id)
            finally:  # it measures the iteration before, whose report shows that
                if t > first:
                    report(self.place, iteration=t - 1)
            yield t, self.place.iteration(t)
            if t == self.cfg.iterations:
                report(self.place, iteration=t)

    def sample(
        self,
        at: Place,
        role: Role,
        policy: Policy,
        *,
        n: int = 1,
        label: str | None = None,
        index: Table | None = None,
        **tables: Tables,
    ) -> tuple[Table, Table]:
        """Prompts that `role` makes from the tables, and `n` rollouts of each. `index`: the documents to search."""
        label = label or role.name
        by_position = not self.cfg.ahead
        with rendered(role.name, role.templates):
            prompts = ask(at, role.prompt, values=dict(role.values), by_position=by_position, label=label, **tables)
        if isinstance(at, Ahead):
            prompts, fleet = at.begin(prompts, self.machines, policy, role.judge, label)
        else:
            fleet = self.machines.serving(policy, role.judge)
        rollouts = generate(
            at,
            prompts,
            policy=policy,
            sampling=role.sampling,
            dialogue=role.dialogue,
            fleet=fleet,
            num_samples=n,
            index=index if role.dialogue.search else None,
            seed=self.cfg.seed,
            ask_again=role.ask_again,
            label=label,
        )
        if isinstance(at, Ahead):
            at.end(rollouts)
        return prompts, rollouts

    def ask(
        self,
        at: Place,
        role: Role,
        policy: Policy,
        *,
        n: int = 1,
        label: str | None = None,
        attempt: int | None = None,
        **tables: Any,
    ) -> Replies:
        """Sample, and add the rows that `role` reads from the rollouts. `attempt`: as in `check_read`."""
        prompts, rollouts = self.sample(at, role, policy, n=n, label=label, **tables)
        rows = read(role.into)(at, rollouts, prompts, reader=role.read, label=label)
        if not isinstance(at, Slice):
            check_read(at, rows, self.cfg, role=role.name, attempt=attempt)
            if role.into is TASKS:
                self._course.after_writing(rows, at.at)
        return Replies(prompts, rollouts, rows)

    def watch(self, at: Place, measure: Measure, *, policy: str, benchmark: str, **given: Any) -> dict[str, float]:
        """Store what `measure` computes from tables. Raises Alarm if a value is beyond the limits in the
        configuration's `monitor`. Call this before the update that the alarm should stop."""
        return watch(at, measure, limits=self.cfg.monitor, policy=policy, benchmark=benchmark, **given)

    def watch_pool(self, iteration: Place, policy: str, chosen: Tables, passed: tuple[str, ...] = ()) -> None:
        """Watch the share of candidates that pass a filter, against the first iteration's, and how many tasks repeat
        those of earlier iterations word for word. `passed`: reasons of candidates that passed but were not needed."""
        self._course.after_filter(self.watch, iteration, policy, chosen, passed)

    def learn(
        self,
        at: Place,
        player: Player,
        rewards: Tables,
        rollouts: Tables,
        settings: GRPOSettings,
        *,
        max_tokens: int | None = None,
        equal_tables: bool = False,
        rows_per_step: int | None = None,
    ) -> Player:
        """One update on rewarded rollouts. Returns the player unchanged if there is nothing to train on: no rollouts,
        or all advantages are 0. A place holds one update: two players that learn in one step need a phase each.

        The KL reference is the base model. Log-probabilities are compared at the rollouts' temperature. `equal_tables`:
        every table of rewards has the same weight in a mean over tokens. `rows_per_step`: the rows of one optimizer
        step, in random order; None takes `settings.optimizer_steps` steps, in order. Raises ValueError for rollouts of
        different temperatures; Alarm beyond a monitor's limit, or if none of `NUM_TO_JUDGE` or more could be rewarded.
        """
        order = {"shuffle_seed": self.cfg.seed} if rows_per_step else {}
        rows = batch(at, rewards, rollouts, max_tokens=max_tokens, equal_tables=equal_tables, **order)
        check_rollouts(at, rows, rewards, rollouts)
        is_trained, totals = any(rows.arrow["advantage"].to_pylist()), [row["total"] for row in rows_of(rewards)]
        if is_trained or totals.count(None) == len(totals) >= NUM_TO_JUDGE:  # without any reward: an alarm
            who = player.name, player.policy.id
            self._course.before_update(self.watch, at, *who, rewards=rewards, rollouts=rollouts)
        if not is_trained:
            log.warning("%s: no rollout has an advantage, so nothing is trained", at.path)
            return player
        if rows_per_step and (steps := round(rows.num_rows / rows_per_step)) > 1:
            settings = settings.model_copy(update={"optimizer_steps": steps, "on_policy": False})
        return self._update(at, player, rows, settings.model_copy(update={"temperature": sampled_at(rollouts)}))

    def imitate(
        self,
        at: Place,
        player: Player,
        chosen: Tables | None,
        rollouts: Tables,
        settings: GRPOSettings,
        *,
        batch_size: int,
        max_tokens: int | None = None,
    ) -> Player:
        """One supervised update on the rollouts of the kept groups (None: of all groups), one optimizer step per
        `batch_size` rollouts. Returns the player unchanged if there are none."""
        rows = imitate(at, rollouts, chosen, max_tokens=max_tokens)
        if not rows.num_rows:
            log.warning("%s: no group is kept, so nothing is trained", at.path)
            return player
        steps = {"objective": "likelihood", "optimizer_steps": max(1, rows.num_rows // batch_size)}
        return self._update(at, player, rows, settings.model_copy(update=steps))

    def _update(self, at: Place, player: Player, rows: Table, settings: GRPOSettings) -> Player:
        asked: Any = {"cfg": self.cfg, "machines": self.machines}
        settings, start = settings.decayed(player.num_updates), self.model(player.name)
        references = references_of(at, rows, self.models["base"], settings, **asked)
        self.machines.release_engines()
        table = update(
            at,
            rows,
            policy=player.policy,
            reference=self.models["base"],
            optimizer_state=player.optimizer_state,
            settings=settings,
            role=player.name,
            references=references,
            yarn=self.machines.serving_player(start).config.yarn,
            trainer=self.machines.trainer,
        )
        if settings.objective != "likelihood":  # likelihood does not depend on who sampled
            self.watch(at, sampler_mismatch, updates=table, policy=player.policy.id, benchmark=UPDATE, label="update")
        player = player.updated(table)
        check_in_effect(at, rows, table, player.policy, start, **asked)
        self.machines.free_superseded(self.place.store, table)
        return player
