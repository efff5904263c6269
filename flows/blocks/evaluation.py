"""Evaluation of a policy on benchmarks.

Ask the items, read and score the replies (one row per answer), then compute metrics and the
item-by-item differences from the base policy. The benchmarks and every paper's protocol are in
`flows.benchmarks`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from flows.benchmarks import Benchmark, Protocol, find
from flows.benchmarks.averages import averages_of
from flows.benchmarks.item_prompts import benchmark_template, pose, tokens_around
from flows.benchmarks.judges import JUDGES
from flows.benchmarks.readers import PROTOCOL_READERS, READERS, read_answer
from flows.blocks.corpora import documents_of_run
from flows.blocks.harness_evaluation import HarnessEvaluation
from flows.run import Player, Replies, Role, Run
from flows.runtime.hub import check_reachable
from flows.settings.profile import home
from flows.settings.prompts import PAPER
from tasks.benchmarks.averages import average
from tasks.benchmarks.contexts import fit_contexts
from tasks.benchmarks.item_scores import compare, measure_items, score_items
from tasks.benchmarks.items import Columns, read_items
from tasks.benchmarks.own_file import is_file_of_rows
from tasks.corpus.passages import with_passages
from tasks.evaluate import evaluate as store_metrics
from tasks.models.engine import Policy, Sampling
from tasks.prompt import Template
from tasks.read import Reader
from tasks.rollouts.dialogue import ChatTemplate, Dialogue
from tasks.rollouts.search_syntax import EXAMPLES, Syntax, stop_strings
from tasks.stage import Tables
from warehouse.schemas import (
    ANSWERS,
    EVALUATIONS,
    ITEM_SCORES,
    ITEMS,
    ItemContext,
    PromptRow,
    Rollout,
    Row,
)
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
INSISTED = 5  # how often a searching policy is told to answer now
NO_HUB = (
    "`selfplay evaluate ... --file FILE` reads the benchmark from a file (.jsonl, .parquet, .csv or"
    " .json) instead; a run skips what evaluation.benchmarks leaves out"
)


@dataclass(frozen=True)
class Room:
    """The tokens of an engine's context, of a reply and of a prompt, and how many the protocol
    allows for the latter two (None: as many as fit)."""

    context: int
    reply: int
    prompt: int
    reply_wanted: int
    prompt_wanted: int | None

    @property
    def shortage(self) -> str | None:
        """A message saying what the context has no room for and how to make room; None if
        everything fits."""
        prompt_wanted = self.prompt_wanted or 0
        if self.reply >= self.reply_wanted and self.prompt >= prompt_wanted:
            return None
        cut = f"{self.reply:,} of {self.reply_wanted:,} tokens for a reply"
        if self.prompt < prompt_wanted:
            cut += f" and {self.prompt:,} of {prompt_wanted:,} for a prompt"
        enough = max(self.reply_wanted + prompt_wanted, math.ceil(self.reply_wanted * 4 / 3))
        return (
            f"the engine's context of {self.context:,} tokens leaves {cut}: --set"
            f" engine.max_model_len={enough:_} has room for the protocol's, and --profile takes a"
            " method's own settings"
        )


@dataclass(frozen=True)
class TrainingDialogues:
    """The part of a run's dialogue settings that evaluations use, with defaults for settings that
    its method does not have."""

    prompts: str = PAPER
    search_syntax: Syntax = "tags"
    stop: tuple[str, ...] = ()
    system: str = ""
    reasoning: bool = False
    chat_template: ChatTemplate = "model"
    template_arguments: Mapping[str, bool | str] = field(default_factory=dict)
    response_tokens: int = 0

    @classmethod
    def of(cls, cfg: Any) -> TrainingDialogues:
        """The settings of a method's configuration."""
        dialogues = getattr(cfg, "dialogues", None)
        settings = {
            known.name: getattr(dialogues, known.name)
            for known in fields(cls)
            if hasattr(dialogues, known.name)
        }
        return cls(**settings)


@dataclass(frozen=True)
class BenchmarkEvaluation:
    """A benchmark on which one run's policies are evaluated. `source` identifies its items; `index`
    holds the documents to be searched."""

    run: Run[Any]
    benchmark: Benchmark
    protocol: Protocol
    items: Table
    source: str
    label: str
    dialogues: TrainingDialogues
    index: Table | None = None

    @classmethod
    def open(
        cls,
        run: Run[Any],
        name: str,
        index: Table | None = None,
        file: str | None = None,
        label: str | None = None,
    ) -> BenchmarkEvaluation:
        """Open a benchmark under `label` or its own name. `file` replaces the entry's own file.

        Raises ValueError if the benchmark is unknown, not available, or impossible in this run.
        """
        cfg = run.cfg.evaluation
        benchmark = find(name)
        label = label or benchmark.name
        protocol = benchmark.of_paper(cfg.paper, run.method)
        if protocol.searches and index is None:
            way_out = "name documents by --corpus, or another --paper"
            raise ValueError(f"the protocol of {benchmark.name} searches: {way_out}")
        benchmark.metric(protocol, run.models.get("examiner") is not None)
        source, identity = benchmark.located(Path(cfg.folder), file)
        place = run.place.iteration(0).phase("benchmark")
        check_reachable(source, NO_HUB, place.store.find(place.address(ITEMS.name, label)))
        assert benchmark.columns is not None, "the harness asks it"
        items = read_items(
            place,
            source,
            identity=identity,
            benchmark=benchmark.name,
            columns=benchmark.columns,
            kinds=protocol.kinds,
            most=min(filter(None, (protocol.items, cfg.items)), default=None),
            label=label,
        )
        num_passages = getattr(cfg, "passages", None)  # only for methods that answer from documents
        if is_file_of_rows(name) and not benchmark.columns.context and num_passages:
            documents = documents_of_run(run, place)
            if documents is not None:
                items = with_passages(
                    place, items, documents, k=num_passages, label=f"{label}-passages"
                )
        return cls(
            run,
            benchmark,
            protocol,
            items,
            source=identity,
            label=label,
            dialogues=TrainingDialogues.of(run.cfg),
            index=index,
        )

    def evaluate(self, iteration: Place, policy: Policy) -> Table:
        """Ask a policy the items; read, judge and score its answers; and store the benchmark's
        metrics.

        The tables are in the phase `evaluation` of `iteration`. Returns the scores, one row per
        answer. Logs a warning if the engine's context is too small for the protocol's budgets.
        """
        place = iteration.phase("evaluation")
        if shortage := self.room.shortage:
            log.warning("%s: %s", self.label, shortage)
        role = self.answering_role
        contexts = self._fit_contexts(role.templates[0])
        replies = self.run.ask(
            place,
            role,
            policy,
            group_size=self.protocol.samples,
            index=self.index,
            label=self.label,
            items=self.items,
            contexts=contexts,
        )
        return self._scored(place, policy, role, replies, contexts, self.label)

    def evaluate_after(
        self,
        place: Place,
        policy: Policy,
        role: Role,
        *,
        prompts: Table,
        rollouts: Table,
        name: str,
    ) -> Table:
        """As `evaluate`, in a role that continues the conversations of others: `rollouts` of
        `prompts`. Tables are stored at `place`, and scores under the benchmark name `name`.
        Contexts are not fitted, since they are part of the conversations."""
        if shortage := self.room.shortage:
            log.warning("%s: %s", self.label, shortage)
        replies = self.run.ask(
            place,
            role,
            policy,
            group_size=self.protocol.samples,
            index=self.index,
            label=self.label,
            prompts=prompts,
            rollouts=rollouts,
        )
        return self._scored(place, policy, role, replies, (), name)

    def _scored(
        self,
        place: Place,
        policy: Policy,
        role: Role,
        replies: Replies,
        contexts: Tables,
        name: str,
    ) -> Table:
        judged = self._judged(place, replies.rows)
        protocol = self.described(role)
        scores = score_items(
            place,
            items=self.items,
            answers=replies.rows,
            rollouts=replies.rollouts,
            judged=judged,
            scorer=self.benchmark.scorer,
            metric=self.benchmark.metric(self.protocol, bool(judged)),
            protocol=protocol,
            label=self.label,
        )
        store_metrics(
            place,
            partial(measure_items, passes=self.protocol.passes),
            policy=policy.id,
            benchmark=name,
            protocol=protocol,
            items=self.items,
            scores=scores,
            contexts=contexts,
            label=self.label,
        )
        return scores

    def _fit_contexts(self, template: Template) -> Tables:
        """How much of each context fits into a prompt; no table for items without contexts."""
        if not self.columns.context:
            return ()
        model = self.run.cfg.models.base
        table = fit_contexts(
            self.run.place.iteration(0).phase("benchmark"),
            self.items,
            model=model,
            limit=self.room.prompt,
            longest=self.protocol.longest_context,
            around=partial(tokens_around, template=template, model=model),
            label=self.label,
        )
        rows = table.rows(ItemContext)
        num_left_out = sum(row["left_out"] is not None for row in rows)
        if num_left_out:
            log.warning(
                "%s: %s of %s items are left out: their contexts have more than %s tokens",
                self.label,
                num_left_out,
                len(rows),
                f"{self.protocol.longest_context:,}",
            )
        num_cut = sum(
            row["left_out"] is None and row["kept_tokens"] < row["num_tokens"] for row in rows
        )
        if num_cut and self.protocol.input_tokens is None:
            log.warning(
                "%s: %s of %s contexts are cut in their middle to fit a prompt of %s tokens, though"
                " the protocol names no limit: raise engine.max_model_len",
                self.label,
                num_cut,
                len(rows),
                f"{self.room.prompt:,}",
            )
        return (table,)

    def described(self, role: Role) -> Row:
        """What two scores must share to be comparable, for answers in `role`: revision, items,
        prompts and their rendering, judge, sampling, budgets, and the searched index."""
        judge = None
        if self._examiner is not None:
            judging = self.judging_role
            judge = [
                self._examiner.id,
                self._examiner.content_hash,
                judging.prompt.templates[0].version,
                judging.sampling.model_dump(mode="json"),
            ]
        return {
            "revision": self.source,
            "items": self.items.content_hash,
            "prompt": [f"{template.name} {template.version}" for template in role.templates],
            "judge": judge,
            "sampling": role.sampling.model_dump(mode="json"),
            "samples": self.protocol.samples,
            # contexts are truncated to fit
            "prompt_tokens": self.room.prompt if self.columns.context else None,
            "longest_context": self.protocol.longest_context,
            "searches": self.protocol.searches,
            "index": self.index and self.index.content_hash,
            **_rendered_otherwise(role),
        }

    @property
    def differs(self) -> list[str]:
        """How this evaluation differs from the paper's, as far as the entry and the settings
        show."""
        cfg = self.run.cfg.evaluation
        reasons = list(self.protocol.differs)
        if self.protocol.judged and self._examiner is None:
            reasons.append("no judge")
        complete = (self.protocol.items, self.benchmark.num_items)
        if cfg.items == self.items.num_rows and cfg.items not in complete:
            reasons.append(f"{cfg.items} items")
        if cfg.prompts != "english":
            reasons.append(f"prompts {cfg.prompts}")
        elif self._trained_with(self.protocol.prompt or "") != PAPER:
            reasons.append(f"prompts {self.dialogues.prompts}, as in training")
        if cfg.benchmark_temperature not in (None, self._temperature):
            reasons.append(f"temperature {cfg.benchmark_temperature}")
        if self.room.shortage:
            reasons.append("a context with less room")
        return reasons

    @property
    def answering_role(self) -> Role:
        """The role that is evaluated, with the protocol's token budgets as far as they fit into the
        engine's context."""
        cfg = self.run.cfg.evaluation
        protocol = self.protocol
        room = self.room
        temperature = cfg.benchmark_temperature
        if temperature is None:
            temperature = self._temperature
        dialogues = self.dialogues
        # A line break ends replies to prompts that expect one line, but these prompts may not.
        stop = tuple(text for text in dialogues.stop if text.strip())
        prompt, read = self._prompt_and_reader
        template = benchmark_template(cfg.prompts, prompt, self._trained_with(prompt))
        if protocol.searches:
            dialogue = self._searching()
            stop = (*stop, *stop_strings(dialogues.search_syntax), "</answer>")
        else:
            dialogue = Dialogue(
                max_turns=1,
                reasoning=dialogues.reasoning,
                chat_template=dialogues.chat_template,
                template_arguments=dialogues.template_arguments,
            )
            if cfg.prompts.startswith("lines"):
                stop = (*stop, "\n")
        return Role(
            "examinee",
            (template,),
            partial(pose, template=template, model=self.run.cfg.models.base),
            Sampling(
                temperature=temperature, top_p=protocol.top_p, max_tokens=room.reply, stop=stop
            ),
            ANSWERS,
            Reader(read),
            dialogue,
            values={
                "search_example": EXAMPLES[dialogues.search_syntax],
                "max_searches": protocol.searches,
            },
            system=dialogues.system,
        )

    def _trained_with(self, prompt: str) -> str:
        """The set from which to take a method's own prompt: the set that this run trains with, if
        the run is of that method and its replies are read as the paper's are; else `paper`."""
        method = prompt.rpartition("/")[0]
        if method != self.run.method or self.run.cfg.reads_lines or self.run.cfg.world:
            return PAPER
        return self.dialogues.prompts

    @property
    def _prompt_and_reader(self) -> tuple[str, Callable[[Rollout, PromptRow], Row]]:
        """The template's name and the reader of replies to it: as the protocol says or, for prompt
        sets other than `english`, as the entry says."""
        prompts = self.run.cfg.evaluation.prompts
        protocol = self.protocol
        if protocol.prompt is not None and protocol.reader is not None and prompts == "english":
            return protocol.prompt, PROTOCOL_READERS[protocol.reader]
        if protocol.searches:
            return "search", PROTOCOL_READERS["tagged"]
        prompt = self.benchmark.prompt
        return prompt, partial(read_answer, read=READERS[prompts][prompt])

    @property
    def room(self) -> Room:
        """The tokens of a reply and of a prompt.

        A reasoning model gets at least the reply length that it is trained with. A reply gets at
        most three quarters of the engine's context.
        """
        cfg = self.run.cfg.evaluation
        wanted = cfg.response_tokens or self.protocol.response_tokens
        if cfg.response_tokens is None and self.dialogues.reasoning:
            wanted = max(wanted, self.dialogues.response_tokens)
        context = self.run.cfg.engine.max_model_len
        reply = min(wanted, context * 3 // 4)
        prompt = context - reply
        if self.protocol.input_tokens:
            prompt = min(prompt, self.protocol.input_tokens)
        return Room(context, reply, prompt, wanted, self.protocol.input_tokens)

    @property
    def judging_role(self) -> Role:
        """The role that judges answers as the protocol says; an unreadable verdict is requested
        once more (see `generate`)."""
        judging = self.protocol.judge
        name = judging.prompt or self._judge_by_columns
        judge = JUDGES[name]
        return Role(
            "examiner",
            (benchmark_template("english", name),),
            judge.variables,
            Sampling(
                temperature=judging.temperature,
                top_p=judging.top_p,
                max_tokens=judging.tokens or self.run.cfg.evaluation.judge_tokens,
            ),
            judge.into,
            Reader(judge.read),
            on_judge_engine=True,
            ask_again=judge.ask_again,
        )

    @property
    def _judge_by_columns(self) -> str:
        """The judge's prompt for a protocol that names none."""
        if self.columns.against:
            return "pair"
        if self.columns.criteria:
            return "criterion"
        return "judge"

    @property
    def columns(self) -> Columns:
        """What the columns of the benchmark's rows hold; a benchmark that only the harness runs has
        no columns."""
        assert self.benchmark.columns is not None, "the harness asks it"
        return self.benchmark.columns

    @property
    def _examiner(self) -> Policy | None:
        """The model that judges answers; None if the protocol has no judge, or the run no model."""
        if not self.protocol.judged:
            return None
        return self.run.models.get("examiner")

    def _judged(self, place: Place, answers: Table) -> tuple[Table, ...]:
        """The verdicts on the answers; no table without a judge."""
        if self._examiner is None:
            return ()
        verdicts = self.run.ask(
            place,
            self.judging_role,
            self._examiner,
            label=f"judge-{self.label}",
            items=self.items,
            answers=answers,
        )
        return (verdicts.rows,)

    def _searching(self) -> Dialogue:
        """A conversation that may search; its messages are templates beside those of benchmarks."""
        return Dialogue(
            search=self.dialogues.search_syntax,
            final="answer",
            max_turns=self.protocol.searches + 1,
            insist_times=INSISTED,
            results=benchmark_template("english", "results").text,
            searched=benchmark_template("english", "searched").text,
            searched_out=benchmark_template("english", "searched_out").text,
            format_error=benchmark_template("english", "format_error").text,
            insist=benchmark_template("english", "insist").text,
            reasoning=self.dialogues.reasoning,
            chat_template=self.dialogues.chat_template,
            template_arguments=self.dialogues.template_arguments,
        )

    @property
    def _temperature(self) -> float:
        """The protocol's temperature for the policy."""
        for_reasoning = self.protocol.reasoning_temperature
        if for_reasoning is not None and self.dialogues.reasoning:
            return for_reasoning
        return self.protocol.temperature


def _rendered_otherwise(role: Role) -> Row:
    """How the rendering of a role's prompts differs from a model's default; empty if it does not.

    Differences are a system message, a chat template other than the model's, template arguments,
    and, from the second turn on, omitted thoughts.
    """
    dialogue = role.dialogue
    rendered: Row = {}
    if role.system:
        rendered["system"] = role.system
    if dialogue.chat_template != "model":
        rendered["chat_template"] = dialogue.chat_template
    if dialogue.template_arguments:
        rendered["template_arguments"] = dict(dialogue.template_arguments)
    if dialogue.reasoning and dialogue.max_turns > 1:
        rendered["reasoning"] = True
    return rendered


def open_evaluation(
    run: Run[Any],
    name: str,
    index: Table | None = None,
    file: str | None = None,
    label: str | None = None,
) -> BenchmarkEvaluation | HarnessEvaluation:
    """The evaluation of a run's policies on a benchmark: here, or by lm-evaluation-harness if the
    benchmark's entry has no columns."""
    benchmark = find(name)
    if benchmark.columns is not None:
        return BenchmarkEvaluation.open(run, name, index, file, label)
    protocol = benchmark.of_paper(run.cfg.evaluation.paper, run.method)
    return HarnessEvaluation(run, benchmark, protocol, label or benchmark.name)


def compare_with_base(
    evaluation: BenchmarkEvaluation | HarnessEvaluation,
    iteration: Place,
    scores: Table,
    policy: Policy,
    base_scores: Table,
    base: Policy,
) -> Table:
    """The table of differences between a policy's scores and a base policy's, one row per metric,
    over the items on which both have a score.

    It is stored in the phase `evaluation` of `iteration`. Raises ValueError if the two were not
    evaluated in the same way (`BenchmarkEvaluation.described`).
    """
    return compare(
        iteration.phase("evaluation"),
        scores,
        base_scores,
        policy=policy.id,
        base=base.id,
        benchmark=evaluation.label,
        label=evaluation.label,
    )


def average_scores(
    iteration: Place,
    evaluations: Sequence[BenchmarkEvaluation | HarnessEvaluation],
    policy: Policy,
    suffix: str = "",
) -> Table | None:
    """The averages that the paper reports over several benchmarks, for those that were evaluated.

    `suffix`: appended to the table's label. None for a single benchmark, and for a paper without
    averages.
    """
    run = evaluations[0].run
    paper = run.cfg.evaluation.paper or run.method
    averages = averages_of(paper)
    if len(evaluations) < 2 or not averages:
        return None
    place = iteration.phase("evaluation")
    tables = [
        table
        for evaluation in evaluations
        if (table := place.store.find(place.address(EVALUATIONS.name, evaluation.label)))
        is not None
    ]
    label = f"averages-{paper}{suffix}"
    return average(
        place,
        tables,
        policy=policy.id,
        benchmark=label,
        averages={name: entry.of for name, entry in averages.items()},
        names={evaluation.label: evaluation.benchmark.name for evaluation in evaluations},
        label=label,
    )


def check_benchmarks(cfg: Any, folder: Path) -> None:
    """Raise ValueError if a configuration names a benchmark that is unknown or not available. Paths
    are relative to `folder`."""
    for name in cfg.evaluation.benchmarks:
        benchmark = find(name, folder)
        protocol = benchmark.of_paper(cfg.evaluation.paper, home(type(cfg)).name)
        if benchmark.columns is not None:
            benchmark.metric(protocol, cfg.models.examiner is not None)
            benchmark.located(folder / cfg.evaluation.folder)


def score_benchmarks(
    run: Run[Any], iteration: Place, player: Player, index: Table | None = None
) -> None:
    """Evaluate a player on the benchmarks of a run's configuration, compare it with the policy that
    the run started from, and average the scores as the paper does."""
    first = run.place.iteration(0).phase("evaluation")
    evaluations = [open_evaluation(run, name, index) for name in run.cfg.evaluation.benchmarks]
    for evaluation in evaluations:
        scores = evaluation.evaluate(iteration, player.policy)
        base = run.place.store.find(first.address(ITEM_SCORES.name, evaluation.label))
        if base is not None and player.policy != run.start:
            compare_with_base(evaluation, iteration, scores, player.policy, base, run.start)
    if evaluations:
        average_scores(iteration, evaluations, player.policy)
