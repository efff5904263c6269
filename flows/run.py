"""The interface for writing a method: roles, players, and the operations of a run.

A method says who is asked what (`Role`), asks (`Run.ask`), computes rewards with the stages of
`tasks`, and lets a player learn from them (`Run.learn`). Every call that returns a table is a
stage: it is skipped if its table is fresh.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from flows.runtime.drift import Drift
from flows.runtime.engine_scores import check_in_effect, reference_logprobs_of, teaching_fleet
from flows.runtime.machines import Machines
from flows.runtime.record import note_orphaned
from flows.runtime.store_root import OWN_RULES
from flows.runtime.templates import load, rendered
from flows.runtime.unread import check_read, check_rollouts
from flows.settings.profile import NUM_TO_JUDGE, MethodSettings, Settings, home
from flows.settings.prompts import prompt_folder
from flows.worlds.built_in import open_world
from flows.worlds.world import World
from tasks.ask import ask
from tasks.batch import batch, sampled_at
from tasks.evaluate import Measure
from tasks.generate import generate
from tasks.models.engine import Policy, Sampling
from tasks.monitors.monitor import UPDATE, sampler_mismatch, watch
from tasks.preferences import preference_batch
from tasks.prompt import Prompt, Row, Template
from tasks.read import Reader, read
from tasks.readers.copies import Instructions
from tasks.references import references
from tasks.report import report
from tasks.reports.page import report_file
from tasks.rollouts.rollout import Dialogue
from tasks.sft import sft
from tasks.stage import Tables, rows_of
from tasks.training.grpo import GRPOSettings
from tasks.update import update, updated_policy
from warehouse.schemas import TASKS, PromptRow, Rollout, Schema
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
ONE_REPLY = Dialogue(max_turns=1)


def templates(cfg: Settings, prompts: str) -> Callable[[str], Template]:
    """The templates of a prompt set, by name.

    In the set "english", the template `solver` is the method's `prompts/english/solver.jinja`; a
    set may also be a folder anywhere. Worked examples come from `dialogues.examples`, or else from
    the set. Raises ValueError, naming the file, if a template is missing or is not valid Jinja.
    """
    folder = prompt_folder(home(type(cfg)), prompts)
    examples = getattr(getattr(cfg, "dialogues", None), "examples", None)
    return lambda name: load(folder, name, examples)


@dataclass(frozen=True)
class Role:
    """What a player is asked, and what its replies become.

    `variables` receives the rows of the tables that its positional parameters name and yields, for
    each prompt, ids and template values. Its keyword-only parameters are settings. `read` turns
    replies into rows of the table `into`, or says why a reply is malformed.

    Example: a role that solves tasks has `into=ANSWERS` and `variables=readable_tasks`. That
    function's parameter `tasks` makes `run.ask(step, solver, policy, tasks=...)` require a table of
    tasks.
    """

    name: str
    templates: tuple[Template, ...]
    variables: Callable[..., Iterator[Row]]
    sampling: Sampling
    into: Schema
    read: Reader
    dialogue: Dialogue = ONE_REPLY
    player: str = ""  # the player that speaks, if one player has several roles
    values: Mapping[str, Any] = field(default_factory=dict)  # template values set by the flow
    system: str = ""  # the system message
    on_judge_engine: bool = False  # sampled by the judges' engines
    # a reply that this finds malformed is sampled once more (see `generate`)
    ask_again: Callable[[Rollout, PromptRow], Any] | None = None

    def given(self, **settings: Any) -> Role:
        """The same role with these settings of `variables`."""
        return replace(self, variables=partial(self.variables, **settings))

    @property
    def reader(self) -> Reader:
        """`read`, made to also refuse text that only copies the templates' own words."""
        sources = [template.text for template in self.templates]
        return replace(self.read, instructions=Instructions.of(sources))

    @property
    def prompt(self) -> Prompt:
        """What prompts are made from: the speaker, the templates, their variables, and the system
        message."""
        return Prompt(self.player or self.name, self.templates, self.variables, self.system)


@dataclass(frozen=True)
class Player:
    """A policy that learns, its optimizer state, and the number of its updates so far."""

    name: str
    policy: Policy
    optimizer_state: str | None = None
    num_updates: int = 0

    def updated(self, table: Table) -> Player:
        """The player after the update that wrote `table`."""
        policy, optimizer_state = updated_policy(table)
        return replace(
            self,
            policy=policy,
            optimizer_state=optimizer_state,
            num_updates=self.num_updates + 1,
        )


@dataclass(frozen=True)
class Replies:
    """A role's prompts, its rollouts, and the rows read from them."""

    prompts: Table
    rollouts: Table
    rows: Table


Config = TypeVar("Config", bound=MethodSettings)


@dataclass(frozen=True)
class Run(Generic[Config]):
    """A run of a method: its configuration, its place in the store, the models that it starts
    from, and its machines."""

    cfg: Config
    place: Place
    models: Mapping[str, Policy] = field(default_factory=dict)
    _machines: Machines | None = None
    _drift: Drift = field(default_factory=Drift)

    @property
    def machines(self) -> Machines:
        """The run's engines and trainer; only a flow that trains models has them."""
        assert self._machines is not None, "this run trains no model"
        return self._machines

    @property
    def method(self) -> str:
        """The method's name, which is its folder's."""
        return home(type(self.cfg)).name

    @property
    def world(self) -> World | None:
        """The run's built-in world; None if it has none."""
        if self.cfg.world is None:
            return None
        return open_world(self.cfg.world)

    def model(self, name: str) -> Policy:
        """The model of a setting such as `models.grader`; the base model if it names none."""
        return self.models.get(name, self.models["base"])

    @property
    def start(self) -> Policy:
        """Where every player starts: the base model, or what another run has learnt."""
        return self.models.get("start", self.models["base"])

    def player(self, name: str) -> Player:
        """A player before its first update."""
        return Player(name, self.start)

    def player_after(self, name: str, iteration: int, run: str | None = None) -> Player:
        """A player as it was after an iteration of this run or of another one.

        A player that was never updated is as it started. Raises ValueError if there is no such run,
        or if it has not reached the iteration.
        """
        store = self.place.store
        if run is not None:
            if not store.folder(run).exists():
                raise ValueError(
                    f"there is no run {run!r} to take the {name} from; `selfplay status` lists the"
                    " runs"
                )
            reached = max((table.at.iteration or 0 for table in store.reached(run)), default=0)
            if reached < iteration:
                raise ValueError(
                    f"run {run!r} has reached iteration {reached}: there is no {name} of iteration"
                    f" {iteration}"
                )
        player = self.player(name)
        for table in store.updates(run or self.place.at.run, until=iteration):
            if table.rows()[-1]["role"] == name:
                player = player.updated(table)
        return player

    def iterations(self, first: int = 1) -> Iterator[tuple[int, Place]]:
        """Yield the number and place of each iteration from `first` on, and write a report after
        each.

        Raises Alarm before an iteration begins if the held-out scores of earlier iterations show
        that rewards are misleading.
        """
        last = self.cfg.iterations
        for t in range(first, last + 1):
            try:
                self._drift.before_iteration(self.watch, self.place, t, self.models["base"].id)
            finally:
                # The drift is measured on the previous iteration and shown in its report, so the
                # report is written only now, even if an alarm stops the run here.
                # An existing report is left as it is, even if a stage was rerun: drawing all of
                # them takes longer than many reruns do, and `selfplay report` redraws them.
                before = report_file(self.place.store, self.place.at.run, t - 1)
                if t > first and not before.exists():
                    report(self.place, iteration=t - 1, rules=(OWN_RULES,))
            yield t, self.place.iteration(t)
        if last >= first:
            note_orphaned(self.place.store, self.place.at.run)
            report(self.place, iteration=last, rules=(OWN_RULES,))

    def sample(
        self,
        at: Place,
        role: Role,
        policy: Policy,
        *,
        group_size: int = 1,
        label: str | None = None,
        index: Table | None = None,
        **tables: Tables,
    ) -> tuple[Table, Table]:
        """Make prompts in `role` from the tables, and sample `group_size` rollouts of each prompt.

        For example, 3 tasks and a `group_size` of 8 give 3 prompts and 24 rollouts; the rollouts of
        one prompt are a group. `index`: the documents to search, if the role's dialogue searches.
        `label` distinguishes tables of the same kind at the same place; it defaults to the role's
        name. Returns the prompts and the rollouts. Raises TypeError for tables other than those
        that `role.variables` names, and ValueError for a template variable without a value.
        """
        label = label or role.name
        with rendered(role.name, role.templates):
            prompts = ask(at, role.prompt, values=dict(role.values), label=label, **tables)
        rollouts = generate(
            at,
            prompts,
            policy=policy,
            sampling=role.sampling,
            dialogue=role.dialogue,
            fleet=self.machines.serving(policy, role.on_judge_engine),
            group_size=group_size,
            index=index if role.dialogue.search else None,
            seed=self.cfg.seed,
            ask_again=role.ask_again,
            label=label,
        )
        return prompts, rollouts

    def ask(
        self,
        at: Place,
        role: Role,
        policy: Policy,
        *,
        group_size: int = 1,
        label: str | None = None,
        attempt: int | None = None,
        index: Table | None = None,
        **tables: Tables,
    ) -> Replies:
        """Sample as `sample` does, and also read the rollouts into rows, as `role` says.

        `attempt`: as in `check_read`. Raises UnreadError or Alarm, as that does, if too many
        replies cannot be read.
        """
        prompts, rollouts = self.sample(
            at, role, policy, group_size=group_size, label=label, index=index, **tables
        )
        rows = read(role.into)(at, rollouts, prompts, reader=role.reader, label=label)
        check_read(at, rows, self.cfg, role=role.name, attempt=attempt)
        if role.into is TASKS:
            self._drift.after_writing(rows, at.at)
        return Replies(prompts, rollouts, rows)

    def watch(
        self, at: Place, measure: Measure, *, policy: str, benchmark: str, **measured: Any
    ) -> dict[str, float]:
        """Store the metrics that `measure` computes, and return the mean of each.

        `measured`: the tables and settings that `measure` takes, by name. Call this before the
        update that an alarm should prevent. Raises Alarm if a mean is beyond its limit in the
        configuration's `monitor`.
        """
        return watch(
            at, measure, limits=self.cfg.monitor, policy=policy, benchmark=benchmark, **measured
        )

    def watch_pool(
        self, iteration: Place, policy: str, chosen: Tables, passed: tuple[str, ...] = ()
    ) -> None:
        """Watch how strict a filter is, and how many tasks of an iteration are repeats.

        Strictness is the share of candidates that pass, compared with the first iteration. Repeats
        are tasks that are equal, word for word, to one of an earlier iteration. `passed`: the
        reasons of candidates that passed but were not needed. Raises Alarm as `watch` does.
        """
        self._drift.after_filter(self.watch, iteration, policy, chosen, passed)

    def learn(
        self,
        at: Place,
        player: Player,
        advantages: Tables,
        rollouts: Tables,
        settings: GRPOSettings,
        *,
        max_tokens: int | None = None,
        equal_tables: bool = False,
        rows_per_step: int | None = None,
    ) -> Player:
        """The player after one update on rewarded rollouts.

        It is unchanged if there is nothing to train on: no rollouts, or only advantages of 0. A
        place holds one update, so two players that learn in the same step need separate phases. The
        KL reference is the base model. Log-probabilities are compared at the rollouts' temperature.

        `max_tokens`: longer rollouts are left out. `equal_tables`: every table of advantages gets
        the same weight in a mean over tokens. `rows_per_step`: the number of rows per optimizer
        step, in random order; None takes `settings.optimizer_steps` steps, in order.

        Raises ValueError for rollouts with different temperatures or with constrained output.
        Raises Alarm if a monitor's limit is exceeded, if too many steps in a row have no advantage,
        or if there are at least `NUM_TO_JUDGE` rollouts and none could be rewarded.
        """
        shuffle_seed = f"{self.cfg.seed}-{at.at.iteration}-{at.at.phase}-{at.at.step}"
        rows = batch(
            at,
            advantages,
            rollouts,
            max_tokens=max_tokens,
            equal_tables=equal_tables,
            shuffle_seed=shuffle_seed if rows_per_step else None,
        )
        check_rollouts(at, rows, advantages, rollouts)
        is_trained = any(rows.arrow["advantage"].to_pylist())
        # A batch that is not trained on is not watched, except if no rollout could be rewarded:
        # watching then raises an alarm.
        if is_trained or has_no_reward(advantages):
            self._drift.before_update(
                self.watch,
                at,
                player.name,
                player.policy.id,
                advantages=advantages,
                rollouts=rollouts,
            )
        if not is_trained:
            log.warning("%s: no rollout has an advantage, so nothing is trained", at.path)
            self._drift.after_skip(self.watch, at, player.name, player.policy.id)
            return player
        changes: dict[str, Any] = {"temperature": sampled_at(rollouts)}
        if rows_per_step:
            num_steps = round(rows.num_rows / rows_per_step)
            if num_steps > 1:
                # from the second step on, the policy is no longer the one that sampled
                changes |= {"optimizer_steps": num_steps, "on_policy": False}
        updated = self._update(at, player, rows, settings.model_copy(update=changes))
        self._drift.after_update(player.name)
        return updated

    def sft(
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
        """The player after one supervised update on the rollouts of the kept groups.

        `chosen`: says which groups are kept; None keeps all. There is one optimizer step per
        `batch_size` rollouts. The player is unchanged if no group is kept. Raises ValueError as
        `fit` does.
        """
        rows = sft(at, rollouts, chosen, max_tokens=max_tokens)
        return self.fit(at, player, rows, settings, batch_size=batch_size)

    def fit(
        self, at: Place, player: Player, rows: Table, settings: GRPOSettings, *, batch_size: int
    ) -> Player:
        """The player after one supervised update on the tokens in the loss masks of a batch's rows.

        There is one optimizer step per `batch_size` rows. The player is unchanged without rows.
        Raises ValueError for settings that this objective refuses, such as a `beta` above 0.
        """
        if not rows.num_rows:
            log.warning("%s: nothing is kept, so nothing is trained", at.path)
            return player
        changes = {
            "objective": "likelihood",
            "optimizer_steps": max(1, rows.num_rows // batch_size),
        }
        return self._update(at, player, rows, settings.model_copy(update=changes))

    def prefer(
        self,
        at: Place,
        player: Player,
        pairs: Table,
        rollouts: Tables,
        settings: GRPOSettings,
        *,
        pairs_per_step: int,
    ) -> Player:
        """The player after one update (DPO) on the kept pairs that are not held out.

        The reference is the policy that players start from. There is one optimizer step per
        `pairs_per_step` pairs. The player is unchanged if there is no pair. Raises ValueError for
        settings that this objective refuses, such as an odd `micro_batch_size`.
        """
        rows = preference_batch(at, rollouts, pairs, held_out=False)
        if not rows.num_rows:
            log.warning("%s: there is no pair, so nothing is trained", at.path)
            return player
        num_steps = max(1, round(rows.num_rows / 2 / pairs_per_step))
        settings = settings.model_copy(
            update={"objective": "preference", "optimizer_steps": num_steps}
        )
        return self._update(at, player, rows, settings, reference=self.start)

    def distil(
        self,
        at: Place,
        player: Player,
        rollouts: Tables,
        settings: GRPOSettings,
        *,
        teacher: Policy,
        rows_per_step: int,
    ) -> Player:
        """The player after one update that brings it closer to `teacher` on its own rollouts.

        Engines score the rollouts under the teacher, which must have the player's vocabulary but
        not its architecture; both are compared at temperature 1. There is one optimizer step per
        `rows_per_step` rows. The player is unchanged without rollouts. Raises ValueError for a
        teacher behind an API or with a different vocabulary, and for settings that this objective
        refuses, such as a `beta` above 0.
        """
        fleet = teaching_fleet(self.machines, teacher, self.start)
        most = min(self.machines.engines.config.max_model_len, fleet.config.max_model_len)
        # an engine that scores a row needs room for one more token
        rows = sft(at, rollouts, None, max_tokens=most - 1)
        if not rows.num_rows:
            log.warning("%s: there is no rollout, so nothing is trained", at.path)
            return player
        taught = references(at, rows, policy=teacher, fleet=fleet)
        changes = {
            "objective": "distillation",
            "temperature": 1.0,
            "optimizer_steps": max(1, round(rows.num_rows / rows_per_step)),
        }
        settings = settings.model_copy(update=changes)
        return self._update(at, player, rows, settings, reference_logprobs=taught)

    def _update(
        self,
        at: Place,
        player: Player,
        rows: Table,
        settings: GRPOSettings,
        reference: Policy | None = None,
        reference_logprobs: Table | None = None,
    ) -> Player:
        reference = reference or self.models["base"]
        start = self.model(player.name)
        settings = settings.decayed(player.num_updates)
        if reference_logprobs is None:
            reference_logprobs = reference_logprobs_of(
                at, rows, reference, settings, cfg=self.cfg, machines=self.machines
            )
        self.machines.release_engines()
        table = update(
            at,
            rows,
            policy=player.policy,
            reference=reference,
            optimizer_state=player.optimizer_state,
            settings=settings,
            role=player.name,
            reference_logprobs=reference_logprobs,
            yarn=self.machines.serving_player(start).config.yarn,
            trainer=self.machines.trainer,
        )
        # other losses do not depend on the probabilities at sampling
        if settings.objective == "clipped":
            self.watch(
                at,
                sampler_mismatch,
                updates=table,
                policy=player.policy.id,
                benchmark=UPDATE,
                label="update",
            )
        player = player.updated(table)
        check_in_effect(at, rows, table, player.policy, start, cfg=self.cfg, machines=self.machines)
        self.machines.free_superseded(self.place.store, table)
        return player


def has_no_reward(advantages: Tables) -> bool:
    """Whether there are at least `NUM_TO_JUDGE` rollouts and none of them could be rewarded."""
    rewards = [row["reward"] for row in rows_of(advantages)]
    return len(rewards) >= NUM_TO_JUDGE and all(reward is None for reward in rewards)


def check_world(cfg: MethodSettings) -> None:
    """Raise ValueError, listing the valid names, if `world` does not name a built-in world."""
    if cfg.world is not None:
        open_world(cfg.world)
