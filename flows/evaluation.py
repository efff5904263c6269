"""How a policy is evaluated on benchmarks: ask the items, read and score the replies, one row an answer; then compute
metrics, and the differences from the base policy, item by item.

The benchmarks and every paper's protocol are in `flows.benchmarks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.benchmarks import Benchmark, Protocol, find
from flows.benchmarks.asking import JUDGES, READERS, pose, read_answer, read_tagged, templates
from flows.hub import check_reachable
from flows.profile import home
from flows.run import Player, Role, Run
from tasks.engines.base import Policy, Sampling
from tasks.evaluate import evaluate
from tasks.harness import ask_harness, harness_items, harness_scores
from tasks.item_scores import compare, measure_items, score_items
from tasks.items import Columns, read_items
from tasks.read import Reader
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.search_syntax import EXAMPLES, Syntax, stop_strings
from warehouse.schemas import ANSWERS, ITEM_SCORES, ITEMS, Row
from warehouse.store import Place, Table

HARNESS = "0.4.13"  # of lm-eval, as requirements/harness.txt has it
INSISTED = 5  # how often a searching policy is told to answer now
NO_HUB = (
    "`selfplay evaluate ... --file FILE` reads the benchmark from a file (.jsonl, .parquet, .csv or .json) instead; "
    "a run skips what evaluation.benchmarks leaves out"
)
MESSAGES = ("results", "searched", "searched_out", "format_error", "insist")


@dataclass(frozen=True)
class Exam:
    """A benchmark as one run's policies take it. `file` replaces the entry's own file; `index` holds the documents to
    be searched."""

    run: Run[Any]
    benchmark: Benchmark
    protocol: Protocol
    items: Table
    source: str
    label: str
    index: Table | None = None

    @classmethod
    def open(
        cls, run: Run[Any], name: str, index: Table | None = None, file: str | None = None, label: str | None = None
    ) -> Exam:
        """Open a benchmark. Raises ValueError if it is unknown, not available, or not possible in this run."""
        cfg, benchmark = run.cfg.evaluation, find(name)
        name, protocol = label or benchmark.name, benchmark.of_paper(cfg.paper, run.method)
        if protocol.searches and index is None:
            way_out = "name documents by --corpus, or another --paper"
            raise ValueError(f"the protocol of {benchmark.name} searches: {way_out}")
        benchmark.metric(protocol, run.models.get("examiner") is not None)
        source, identity = benchmark.located(Path(cfg.folder), file)
        most = min(filter(None, (protocol.items, cfg.items)), default=None)
        about = {"benchmark": benchmark.name, "columns": benchmark.columns, "most": most}
        place = run.place.iteration(0).phase("benchmark")
        check_reachable(source, NO_HUB, place.store.find(place.address(ITEMS.name, name)))
        items = read_items(place, source, identity=identity, label=name, **about)
        return cls(run, benchmark, protocol, items, identity, name, index)

    def take(self, iteration: Place, policy: Policy) -> Table:
        """Ask, read, score and measure; returns the scores of every answer."""
        place, name, role = iteration.phase("evaluation"), self.label, self.examinee
        how = {"n": self.protocol.samples, "label": name, "index": self.index}
        said = self.run.ask(place, role, policy, items=self.items, **how)
        judged = self._judged(place, said.rows)
        metric = self.benchmark.metric(self.protocol, bool(judged))
        about = {"items": self.items, "answers": said.rows, "rollouts": said.rollouts, "judged": judged}
        protocol = self.described(role)
        scores = score_items(place, **about, scorer=self.benchmark.scorer, metric=metric, protocol=protocol, label=name)
        passes = partial(measure_items, passes=self.protocol.passes)
        told = {"policy": policy.id, "benchmark": name, "protocol": protocol, "label": name}
        evaluate(place, passes, items=self.items, scores=scores, **told)
        return scores

    def described(self, role: Role) -> Row:
        """What two scores must share to be comparable."""
        examiner = self.run.models.get("examiner") if self.protocol.judged else None
        judge = examiner and [examiner.id, examiner.content_hash, self.examiner.prompt.templates[0].version]
        return {
            "revision": self.source,
            "items": self.items.content_hash,
            "prompt": [f"{template.name} {template.version}" for template in role.templates],
            "judge": judge,
            "sampling": role.sampling.model_dump(mode="json"),
            "samples": self.protocol.samples,
            "searches": self.protocol.searches,
            "index": self.index and self.index.content_hash,
        }

    @property
    def examinee(self) -> Role:
        """The role that answers, with the protocol's token budgets, capped by the engine's context."""
        cfg, protocol, room = self.run.cfg.evaluation, self.protocol, self.run.cfg.engine.max_model_len
        searching = bool(protocol.searches)
        template = templates(cfg.prompts, "search" if searching else self.benchmark.prompt)
        most = min(cfg.response_tokens or protocol.response_tokens, room * 3 // 4)
        limit = min(filter(None, (protocol.input_tokens, room - most)))
        temperature = protocol.temperature if cfg.benchmark_temperature is None else cfg.benchmark_temperature
        syntax: Syntax = getattr(self._dialogues, "search_syntax", "tags")
        stop = (*stop_strings(syntax), "</answer>") if searching else ("\n",) if cfg.prompts.startswith("lines") else ()
        read = read_tagged if searching else READERS[cfg.prompts][self.benchmark.prompt]
        return Role(
            "examinee",
            (template,),
            partial(pose, template=template, model=self.run.cfg.models.base, limit=limit),
            Sampling(temperature=temperature, top_p=protocol.top_p, max_tokens=most, stop=stop),
            ANSWERS,
            Reader(partial(read_answer, read=read)),
            self._searching(syntax) if searching else Dialogue(max_turns=1, **self._said_as),
            values={"search_example": EXAMPLES[syntax], "max_searches": protocol.searches},
        )

    @property
    def examiner(self) -> Role:
        """The role that judges: temperature 0, one verdict; an unreadable one is requested once more."""
        name = "pair" if self.columns.against else "criterion" if self.columns.criteria else "judge"
        about, into, read, again = JUDGES[name]
        sampling = Sampling(temperature=0, max_tokens=self.run.cfg.evaluation.judge_tokens)
        template = templates("english", name)
        return Role("examiner", (template,), about, sampling, into, Reader(read), judge=True, ask_again=again)

    @property
    def columns(self) -> Columns:
        assert self.benchmark.columns is not None, "the harness asks it"
        return self.benchmark.columns

    def _judged(self, place: Place, answers: Table) -> tuple[Table, ...]:
        examiner = self.run.models.get("examiner")
        if not self.protocol.judged or examiner is None:
            return ()
        label = f"judge-{self.label}"
        return (self.run.ask(place, self.examiner, examiner, label=label, items=self.items, answers=answers).rows,)

    def _searching(self, syntax: Syntax) -> Dialogue:
        says: dict[str, Any] = {name: templates("english", name).text for name in MESSAGES}
        return Dialogue(
            search=syntax,
            final="answer",
            max_turns=self.protocol.searches + 1,
            insist_times=INSISTED,
            **says,
            **self._said_as,
        )

    @property
    def _dialogues(self) -> Any:
        return getattr(self.run.cfg, "dialogues", None)

    @property
    def _said_as(self) -> dict[str, Any]:
        """The run's own settings for rendering messages with the model's template."""
        found = {name: getattr(self._dialogues, name, None) for name in ("reasoning", "chat_template")}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class HarnessExam:
    """A benchmark that lm-evaluation-harness asks and scores; its log of every sample becomes the same tables."""

    run: Run[Any]
    benchmark: Benchmark
    protocol: Protocol
    label: str

    def take(self, iteration: Place, policy: Policy) -> Table:
        """Returns the scores of every sample."""
        cfg, place, task = self.run.cfg.evaluation, iteration.phase("evaluation"), self.benchmark.harness
        assert task is not None
        self.run.machines.release_engines()
        harness = cfg.harness.on(self.run.cfg.engine.device)
        told = {"harness": harness, "version": HARNESS, "label": self.label}
        answers = ask_harness(place, policy=policy, task=task, limit=cfg.items, **told)
        protocol = {"revision": f"lm-eval {HARNESS}, {task}", "items": cfg.items, "backend": harness.backend}
        items = harness_items(place, answers, label=self.label)
        scores = harness_scores(place, answers, metric=self.protocol.metric, protocol=protocol, label=self.label)
        named = {"policy": policy.id, "benchmark": self.label, "protocol": protocol, "label": self.label}
        evaluate(place, measure_items, items=items, scores=scores, **named)
        return scores


def open_exam(
    run: Run[Any], name: str, index: Table | None = None, file: str | None = None, label: str | None = None
) -> Exam | HarnessExam:
    """A benchmark for a run's policies: asked here, or by lm-evaluation-harness if its entry has no columns."""
    benchmark = find(name)
    if benchmark.columns is not None:
        return Exam.open(run, name, index, file, label)
    protocol = benchmark.of_paper(run.cfg.evaluation.paper, run.method)
    return HarnessExam(run, benchmark, protocol, label or benchmark.name)


def subtract(
    exam: Exam | HarnessExam, iteration: Place, scores: Table, policy: Policy, base_scores: Table, base: Policy
) -> Table:
    """The differences of a policy's scores from a base policy's."""
    told = {"policy": policy.id, "base": base.id, "benchmark": exam.label, "label": exam.label}
    return compare(iteration.phase("evaluation"), scores, base_scores, **told)


def check_benchmarks(cfg: Any, folder: Path) -> None:
    """Raise ValueError if a configuration names a benchmark that is unknown or not available. Paths are relative to
    `folder`."""
    for name in cfg.evaluation.benchmarks:
        benchmark = find(name, folder)
        protocol = benchmark.of_paper(cfg.evaluation.paper, home(type(cfg)).name)
        if benchmark.columns is not None:
            benchmark.metric(protocol, cfg.models.examiner is not None)
            benchmark.located(folder / cfg.evaluation.folder)


def score_benchmarks(run: Run[Any], iteration: Place, player: Player, index: Table | None = None) -> None:
    """Evaluate a player on the benchmarks of a run's configuration, and compare it with the base policy."""
    first = run.place.iteration(0).phase("evaluation")
    for name in run.cfg.evaluation.benchmarks:
        exam = open_exam(run, name, index)
        scores, base = (
            exam.take(iteration, player.policy),
            run.place.store.find(first.address(ITEM_SCORES.name, exam.label)),
        )
        if base is not None and player.policy != run.model("base"):
            subtract(exam, iteration, scores, player.policy, base, run.model("base"))
