"""Settings that every method has, and profiles: TOML files with departures from the defaults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from flows.settings.defaults import completed
from flows.settings.errors import explain, read_toml
from flows.settings.prompts import PromptSet as PromptSet
from flows.settings.prompts import is_read_by_lines, is_read_by_words, prompt_folder
from tasks.engines.endpoint import API, ChatEndpoint
from tasks.engines.harness import Harness
from tasks.models.engine import EngineConfig, Sampling
from tasks.models.gguf import SUFFIX, ConversionError, as_folder
from tasks.monitors.limits import Limits
from tasks.rollouts.dialogue import ChatTemplate, Dialogue

if TYPE_CHECKING:
    from flows.settings.workload import Workload

Config = TypeVar("Config", bound=BaseModel)
Sink = Literal["none", "trackio", "wandb"]
NUM_TO_JUDGE = 16  # fewer unreadable replies may be chance
# what Parquet can hold; one larger number in a run's parameters keeps Prefect's server from listing
# any runs
MAX_BITS = 63


def _in_order(interval: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= interval[0] <= interval[1] <= 1:
        raise ValueError(f"must be 0 <= low <= high <= 1, not {interval}")
    return interval


def _as_number(key: Any) -> Any:
    if isinstance(key, str) and key.isdecimal():
        return int(key)
    return key


def _allotting(shares: dict[Any, float]) -> dict[Any, float]:
    if min(shares.values(), default=0) < 0 or not sum(shares.values()):
        raise ValueError(f"needs shares, at least one above 0 and none below, not {shares}")
    return shares


Interval = Annotated[tuple[float, float], AfterValidator(_in_order)]  # shares; both ends inclusive
Key = TypeVar("Key")
# a number as the key of a TOML table, which is text
NumberKey = Annotated[PositiveInt, BeforeValidator(_as_number)]
Shares = Annotated[dict[Key, float], AfterValidator(_allotting)]


class Settings(BaseModel):
    """A part of a configuration; unknown settings are refused.

    A profile that sets some values of a group keeps the method's defaults for the others: if the
    method has `update = GRPOSettings(beta=0.0)`, a profile may set only the learning rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _rest_by_default(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        completed_values = dict(values)
        for name in values:
            if name in cls.model_fields:
                default = cls.model_fields[name].default
                completed_values[name] = completed(values[name], default)
        return completed_values


class Models(Settings):
    """Model folders or hub names. A method adds the models that it uses but does not train."""

    base: str = Field(description="starting point of every player, and the KL reference")
    start: str | None = Field(
        default=None,
        description=(
            "starting point of every player instead of the base: a run, for its last policy;"
            " RUN/PLAYER, if it trains several; or the folder of a LoRA adapter"
        ),
    )
    examiner: str | None = Field(
        default=None, description="judges answers to benchmarks whose protocol has a judge"
    )
    auditor: str | None = Field(
        default=None, description="a second judge of tasks that passed the gates; null: no audit"
    )


class Dialogues(Settings):
    """Prompts, and how replies are sampled."""

    prompts: PromptSet = Field(
        default="english",
        description=(
            'a folder in the method\'s prompts, or a path to one; "lines": worked examples that a'
            " small or base model continues, one line per reply"
        ),
    )
    examples: str | None = Field(
        default=None,
        description=(
            "a file of questions with contexts and answers, the first of which become worked"
            " examples; null: those of the prompts"
        ),
    )
    chat_template: ChatTemplate = Field(
        default="model",
        description=(
            '"none": the bare prompt, which a base model continues; "conversation": turns of User'
            " and Assistant"
        ),
    )
    template_arguments: dict[str, bool | str] = Field(
        default={},
        description=(
            "arguments of the model's chat template, such as {enable_thinking = false} for hybrid"
            " Qwen3 models"
        ),
    )
    reasoning: bool = Field(
        default=False, description="whether the model reasons before it replies"
    )
    stop: tuple[str, ...] = Field(
        default=(), description="strings that end a reply, besides the model's own end token"
    )
    response_tokens: int = Field(
        default=4096, ge=1, description="maximum number of tokens to sample per reply"
    )
    temperature: float = Field(default=1.0, gt=0, description="sampling temperature in training")
    top_p: float = Field(default=1.0, gt=0, le=1, description="top-p of sampling in training")

    @property
    def sampling(self) -> Sampling:
        """How replies are sampled in training."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.response_tokens,
            stop=self.stop,
        )

    @property
    def one_reply(self) -> Dialogue:
        """A prompt and its reply."""
        return Dialogue(
            max_turns=1,
            reasoning=self.reasoning,
            chat_template=self.chat_template,
            template_arguments=self.template_arguments,
        )


class Evaluation(Settings):
    """The held-out score after every iteration."""

    benchmarks: tuple[str, ...] = Field(
        default=(),
        description="names of benchmarks in flows/benchmarks, or files in the same format",
    )
    items: int | None = Field(
        default=200,
        ge=1,
        description=(
            "items to draw from each of `evaluation.benchmarks`, the same at every iteration;"
            " null: all"
        ),
    )
    paper: str | None = Field(
        default=None, description="paper whose protocol is used; null: the method's own paper"
    )
    prompts: Literal["english", "lines", "lines-2-shot", "lines-4-shot", "lines-5-shot"] = Field(
        default="english",
        description=(
            'how benchmarks are asked: "english"; or "lines..." after worked examples, which a'
            " small or base model continues"
        ),
    )
    folder: str = Field(default="data/benchmarks", description="where benchmark files are")
    response_tokens: int | None = Field(
        default=None,
        ge=1,
        description=(
            "maximum number of tokens per benchmark answer; null: the protocol's, if they fit the"
            " context"
        ),
    )
    judge_tokens: int = Field(
        default=8192,
        ge=1,
        description=(
            "maximum number of tokens of an examiner's verdict, including its reasoning; SPELL's"
            " released value is the default"
        ),
    )
    harness: Harness = Field(
        default=Harness(), description="lm-evaluation-harness, for the benchmarks that it runs"
    )
    benchmark_temperature: float | None = Field(
        default=None, ge=0, description="sampling temperature on benchmarks; null: the protocol's"
    )
    benchmark: Literal["micro", "none"] = Field(
        default="none",
        description='"micro": held-out tasks of the built-in world, after every iteration',
    )
    num_tasks: int = Field(default=480, ge=1, description="held-out tasks of the built-in world")
    temperature: float = Field(
        default=1.0, ge=0, description="sampling temperature of answers to these tasks"
    )
    seed: int = Field(default=7, ge=0, lt=1000, description="seed of the built-in world")

    @property
    def held_out_sets(self) -> tuple[str, ...]:
        """Sets of held-out questions besides `benchmarks`: the built-in world's, or files."""
        return () if self.benchmark == "none" else (self.benchmark,)


class Audit(Settings):
    """The audit of tasks that passed the method's gates, by `models.auditor` before an update."""

    tasks: int = Field(
        default=32, ge=1, description="number of passed tasks to audit, drawn at random"
    )
    document_tokens: int = Field(
        default=8192,
        ge=0,
        description="maximum number of tokens of the documents shown with a task",
    )
    response_tokens: int = Field(
        default=2048, ge=1, description="maximum number of tokens per verdict"
    )


class Comparing(Settings):
    """Comparison of answers with references, in processes that can be killed."""

    time_limit_s: float = Field(
        default=10.0,
        gt=0,
        description="time limit of one comparison, after which it counts as timed out",
    )
    processes: int = Field(default=1, ge=1, description="number of processes that compare")


class MethodSettings(Settings):
    """Settings that every method has: models, iterations, evaluation, monitors, engines and
    trainer.

    `engine.model`, the model that engines load first, defaults to `models.base`.
    """

    worlds: ClassVar[tuple[str, ...]] = ()  # built-in corpora that its `corpus` may name
    needs_clusters: ClassVar[bool] = False  # whether its corpora must be prepared with clusters
    # settings besides `corpus` that name corpora: a folder of documents replaces these, too
    other_corpora: ClassVar[tuple[str, ...]] = ()
    # the setting that names a file of questions, for a method that learns from questions alone
    learns_from_questions: ClassVar[str | None] = None
    examined: ClassVar[str] = "policy"  # the player that is evaluated

    models: Models
    world: str | None = Field(
        default=None,
        description=(
            "the built-in world that provides tasks and the truth about them; null for real data"
        ),
    )
    iterations: int = Field(
        default=3,
        ge=1,
        description="iterations of the method; each ends with a held-out score and a report",
    )
    seed: int = Field(
        default=0, ge=0, description="seed of sampling, draws and the order of training rows"
    )
    corpus_profile: str | None = Field(
        default=None,
        description=(
            "the profile of prepare-corpus with which `selfplay run --corpus PATH` first prepares"
            " documents; null: the method reads files as they are"
        ),
    )
    evaluation: Evaluation = Evaluation()
    monitor: Limits = Field(default=Limits(), description="what stops the run before an update")
    audit: Audit = Audit()
    structured: tuple[str, ...] = Field(
        default=(),
        description=(
            "roles whose output format vLLM enforces; only roles that the run does not train and"
            " whose replies are a word or a line"
        ),
    )
    unread: Literal["stop", "warn"] = Field(
        default="stop",
        description=(
            f"what to do if, in training, not one of {NUM_TO_JUDGE} or more replies can be read"
        ),
    )
    engine: EngineConfig
    judge_engine: EngineConfig | None = Field(
        default=None,
        description=(
            "engine settings for models that are not trained, one engine per architecture; null:"
            " `engine` serves them too"
        ),
    )
    api: ChatEndpoint | None = Field(
        default=None, description="serves the models named api:NAME, which are not trained"
    )
    num_engines: int = Field(
        default=1, ge=1, description="number of engines in parallel, one process each"
    )
    trainer_processes: int = Field(
        default=1, ge=1, description="number of processes of an update, one GPU each"
    )
    trainer_place: Literal["local", "ray"] = Field(
        default="local",
        description=(
            '"ray": its processes run on nodes of the Ray cluster, taking turns with the engines'
            " there; rows change only by the order of floating-point sums"
        ),
    )
    resident_trainer: bool = Field(
        default=True,
        description=(
            "keep the trainer's processes between updates, with what they train in host memory"
            " while there is room"
        ),
    )
    reference_by: Literal["trainer", "engine"] = Field(
        default="trainer",
        description=(
            '"engine": engines score every batch under the KL reference, so no trainer has to hold'
            " it"
        ),
    )
    check_updates: bool | None = Field(
        default=None,
        description="whether the engine scores trained rows after every update; null: only on GPUs",
    )
    preflight: bool = Field(
        default=True,
        description=(
            "check before the run that this machine or cluster can run the profile; false skips"
            " the check"
        ),
    )
    tracking: Sink = Field(
        default="none",
        exclude=True,
        description="where else to send updates, evaluations and alarms",
    )
    keep_checkpoints: Literal["all", "last"] = Field(
        default="all",
        description=(
            '"last": an update frees the previous optimizer state, and all but the last weights of'
            " an iteration"
        ),
    )

    def workload(self) -> Workload | None:
        """What an iteration samples and trains, for `selfplay plan`; None if it is not known."""
        return None

    def trained_model(self, update: str) -> str:
        """The model that an update starts from, for a plan; `update` is its dotted name."""
        return self.models.base

    def row_tokens(self, update: str) -> int | None:
        """The most tokens in a row that an update trains on; None: as many as a context has."""
        return None

    @property
    def caution(self) -> str | None:
        """A caution for pilots if earlier runs with such settings learnt little; else None."""
        return None

    @property
    def structured_roles(self) -> tuple[str, ...]:
        """Roles that `structured` may name: no update trains them, and a grammar describes their
        replies."""
        return ()

    def form_of(self, role: str, form: str) -> str | None:
        """The grammar that constrains a role's replies: `form` if `structured` names the role, else
        None."""
        if role in self.structured:
            return form
        return None

    @property
    def checks_updates(self) -> bool:
        """Whether engines score trained rows after every update, to check that it took effect."""
        if self.check_updates is not None:
            return self.check_updates
        return self.engine.kind == "vllm" and self.engine.device == "cuda"

    @property
    def reads_lines(self) -> bool:
        """Whether replies are read as lines, as the prompt set says."""
        assert self._prompts is not None, "this method has no dialogues"
        return is_read_by_lines(prompt_folder(home(type(self)), self._prompts))

    @property
    def reads_words(self) -> bool:
        """Whether the words of replies stand alone, as the prompt set says."""
        assert self._prompts is not None, "this method has no dialogues"
        return is_read_by_words(prompt_folder(home(type(self)), self._prompts))

    @property
    def _prompts(self) -> str | None:
        return getattr(getattr(self, "dialogues", None), "prompts", None)

    @property
    def learns_from(self) -> tuple[str, ...]:
        """The corpora that the method learns from."""
        corpus = getattr(self, "corpus", None)
        if corpus:
            return (corpus,)
        return ()

    @model_validator(mode="before")
    @classmethod
    def _engines_load_the_base_model(cls, values: Any) -> Any:
        engine = values.get("engine")
        models = values.get("models")
        if isinstance(engine, dict) and isinstance(models, dict) and "base" in models:
            return values | {"engine": {"model": models["base"]} | engine}
        return values

    @model_validator(mode="after")
    def _prompts_are_there(self) -> Self:
        prompts = self._prompts
        if prompts is None or prompt_folder(home(type(self)), prompts).is_dir():
            return self
        if "/" in prompts:
            raise ValueError(f"dialogues.prompts is {prompts!r}, which is not a folder")
        folder = home(type(self)) / "prompts"
        there = ", ".join(sorted(path.name for path in folder.glob("*/")))
        raise ValueError(f"dialogues.prompts is {prompts!r}, but {folder} has only {there}")

    @model_validator(mode="after")
    def _only_roles_that_never_learn_are_structured(self) -> Self:
        others = [name for name in self.structured if name not in self.structured_roles]
        if others:
            allowed = ", ".join(self.structured_roles) or "none with these settings"
            raise ValueError(
                f"structured names {others[0]!r}, which this run trains or whose replies have no"
                f" fixed format: allowed are {allowed}"
            )
        return self

    @model_validator(mode="after")
    def _models_behind_an_api_are_not_trained(self) -> Self:
        served = [
            name
            for name, model in self.models.model_dump().items()
            if (model or "").startswith(API)
        ]
        if "base" in served:
            raise ValueError("models.base is trained: an API serves only models that are not")
        if served and self.api is None:
            raise ValueError(
                f"models.{served[0]} is behind an API: say where, api.url=https://HOST/v1"
            )
        return self

    @model_validator(mode="after")
    def _trainer_on_nodes_has_gpus_of_engines(self) -> Self:
        if self.trainer_place == "local" or self.engine.place == "local":
            return self
        gpus = self.num_engines * self.engine.tensor_parallel
        if self.engine.device == "cuda" and self.trainer_processes > gpus:
            raise ValueError(
                f"trainer_processes={self.trainer_processes} take turns with the engines on their"
                f" GPUs, and these have {gpus}: raise num_engines, or lower trainer_processes"
            )
        return self

    @model_validator(mode="after")
    def _held_out_world_is_another(self) -> Self:
        in_world = set(self.learns_from) & set(self.worlds)
        seed = getattr(self, "world_seed", None)
        if in_world and self.evaluation.benchmark in self.worlds and seed == self.evaluation.seed:
            raise ValueError(
                f"world_seed and evaluation.seed are both {seed}: the benchmark would be trained on"
            )
        return self


def home(model: type) -> Path:
    """The folder of the method to which a configuration class belongs."""
    return Path(sys.modules[model.__module__].__file__ or "").parent


def names(folder: Path) -> list[str]:
    """The profiles in a folder; a file whose name begins with `_` exists only to be extended."""
    return sorted(p.stem for p in folder.glob("*.toml") if not p.stem.startswith("_"))


def load(model: type[Config], name: str, overrides: dict[str, Any] | None = None) -> Config:
    """The configuration of a profile, a file in `profiles` beside `model`, with overrides.

    An override maps a dotted name such as `a.b` to a value. A profile may name others that it
    `extends`; later ones win. Raises ValueError naming the wrong profile or key and what is
    allowed.
    """
    return resolve(model, read(home(model) / "profiles", name), overrides, name)


def resolve(
    model: type[Config], values: dict[str, Any], overrides: dict[str, Any] | None, name: str
) -> Config:
    """The configuration made of `values` with overrides; error messages call it `name`.

    Raises ValueError for an unknown setting, a wrong value, or a part of a single setting.
    """
    for path, value in (overrides or {}).items():
        if _has_huge_number(value):
            raise ValueError(f"{path}: {value} is too large a number")
        *parents, last = path.split(".")
        target = values
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise ValueError(
                    f"{path}: {parent} is a single setting, there is nothing inside it"
                )
        target[last] = value
    try:
        # strict: neither `true` nor text is a number
        return model.model_validate(_with_tuples(_with_folders(values)), strict=True)
    except ValidationError as problem:
        raise ValueError(explain(model, name, problem)) from None


def read(folder: Path, name: str, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a profile and of those it extends. `extended_by`: the files that extend it.

    Raises ValueError for an unknown profile, for one that extends itself, and for an `extends` that
    is not a name or a list of names.
    """
    path = folder / f"{name}.toml"
    if not path.exists():
        where = f"{extended_by[-1]} extends {name!r}: " if extended_by else ""
        raise ValueError(f"{where}no profile {name!r}; there are {', '.join(names(folder))}")
    if path in extended_by:
        raise ValueError(f"{path} extends itself")
    values = read_toml(path)
    parents = values.pop("extends", [])
    if isinstance(parents, str):
        parents = [parents]
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise ValueError(f"{path}: `extends` is the name of a profile, or a list of names")
    merged = {}
    for parent in parents:
        merged = _merge(merged, read(folder, parent, (*extended_by, path)))
    return _merge(merged, values)


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _with_folders(values: dict[str, Any]) -> dict[str, Any]:
    """The values with every GGUF file replaced by a model folder, converted if necessary.

    Raises ValueError, naming the setting, for a file that cannot be converted.
    """
    changed = dict(values)
    for part in ("models", "engine", "judge_engine"):
        if not isinstance(values.get(part), dict):
            continue
        changed[part] = dict(values[part])
        for name, value in values[part].items():
            if isinstance(value, str) and value.endswith(SUFFIX):
                try:
                    changed[part][name] = str(as_folder(Path(value)))
                except ConversionError as problem:
                    raise ValueError(f"{part}.{name}: {problem}") from None
    return changed


def _with_tuples(value: Any) -> Any:
    """The value with TOML's arrays as tuples, since pydantic's strict mode does not convert them.

    >>> _with_tuples({"pool": {"window": [0, 1]}})
    {'pool': {'window': (0, 1)}}
    """
    if isinstance(value, dict):
        return {name: _with_tuples(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map(_with_tuples, value))
    return value


def _has_huge_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_huge_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_huge_number, value))
    return isinstance(value, int) and value.bit_length() > MAX_BITS
