"""Turn a command line into a deployment and its parameters; make all checks that need no model."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus_prep.read.suffixes import ROW_FILES
from flows.app.service.site import Site
from flows.app.service.waiting import waiting
from flows.runtime.store_root import (
    WORKSPACE,
    in_workspace,
    open_store,
    open_workspace,
    store_root,
)

if TYPE_CHECKING:
    from flows.method import Method
    from flows.runtime.request import Request
    from flows.settings.profile import MethodSettings

PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "RAY_ADDRESS",
)
PROMPTS = "dialogues.prompts"
AS_WRITTEN = {"None": "null", "True": "true", "False": "false"}  # what to write instead


def make_parameters(
    profile: str,
    name: str,
    corpus: str | None = None,
    overrides: dict[str, Any] | None = None,
    start: str | None = None,
) -> dict[str, Any]:
    """The flow's parameters. `start` is the setting `models.start`.

    Paths are made absolute, because a worker has another working directory. Raises ValueError for
    a name that no run can have.
    """
    from warehouse.address import check_run_name

    parameters: dict[str, Any] = {
        "profile": profile,
        "run": check_run_name(name),
        "overrides": overrides or {},
    }
    if start is not None:
        parameters["overrides"] = {**parameters["overrides"], "models.start": from_here(start)}
    if corpus is not None:
        parameters["corpus"] = str(Path(corpus).resolve()) if Path(corpus).exists() else corpus
    return parameters


def make_request(deployment: dict[str, Any], flow: str, parameters: dict[str, Any]) -> Request:
    """The request that a flow run of `deployment` with these parameters fulfils."""
    from flows.app.service.deployments import folder_outside
    from flows.runtime.request import Request

    folder = folder_outside(deployment["entrypoint"])
    return Request(
        flow=flow,
        profile=parameters["profile"],
        run=parameters["run"],
        overrides=parameters.get("overrides"),
        corpus=parameters.get("corpus"),
        folder=str(folder) if folder else None,
    )


def from_here(path: str) -> str:
    """Make a path absolute if it exists in the caller's folder; leave any other text unchanged."""
    if Path.cwd() == WORKSPACE or not Path(path).exists():
        return path
    return str(Path(path).resolve())


def environment() -> dict[str, str]:
    """Environment variables with the caller's store, GPUs and model cache.

    Otherwise a worker would use those of `selfplay up`.
    """
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"SELFPLAY_STORE": str(store_root()), **passed_on}


def find_flow(flow: str, site: Site | None = None) -> str:
    """The name of a flow, given by its name or by a path to its method's folder.

    From then on, a folder outside the project is known by its flow's name. Raises ValueError if a
    path does not lead to a method.
    """
    from flows.app.service.deployments import flow_in

    if os.sep not in flow and flow not in (".", ".."):
        return flow
    return flow_in(site or Site.here(), Path(flow))


def method_of(request: Request) -> Method:
    """The method of a run's request, even if its folder is outside the project."""
    return find_method(find_flow(request.folder or request.flow))


def find_method(flow: str) -> Method:
    """The method of a flow. Raises ValueError if there is no such flow."""
    deployment = next(iter(deployments_of(flow).values()))
    return getattr(flow_module(deployment), deployment["entrypoint"].rpartition(":")[2])


def find_method_config(flow: str) -> type[Any]:
    """The configuration class of a flow."""
    return method_module(next(iter(deployments_of(flow).values())), "config").Config


def flow_module(deployment: dict[str, Any]) -> Any:
    """The module `flow` of a deployment's method. Loads the flow's libraries, which takes
    seconds."""
    with waiting("the flow's libraries to load"):
        return method_module(deployment, "flow")


def method_module(deployment: dict[str, Any], name: str) -> Any:
    """A module of a method's package. A folder outside the project is a package of its own name."""
    from flows.app.service.deployments import folder_outside, module_of

    folder = folder_outside(deployment["entrypoint"])
    if folder is not None and str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    package = module_of(deployment["entrypoint"]).rpartition(".")[0]
    return importlib.import_module(f"{package}.{name}")


def is_flow(name: str) -> bool:
    """Whether a flow of this name is deployed."""
    try:
        return bool(deployments_of(name))
    except ValueError:
        return False


def find_deployment(flow: str, profile: str, site: Site | None = None) -> dict[str, Any]:
    """The deployment of a profile. Raises ValueError if there is no such flow or profile, or if the
    profile cannot be read."""
    unreadable: dict[Path, ValueError] = {}
    by_profile = deployments_of(flow, site, unreadable)
    for file, problem in unreadable.items():
        if file.stem == profile:
            raise problem
    if profile not in by_profile:
        raise ValueError(f"{flow} has no profile {profile!r}; there are {', '.join(by_profile)}")
    return by_profile[profile]


def deployments_of(
    flow: str, site: Site | None = None, unreadable: dict[Path, ValueError] | None = None
) -> dict[str, dict[str, Any]]:
    """A flow's deployments by profile.

    Profiles that cannot be read are left out, and their errors are added to `unreadable`. Raises
    ValueError if there is no such flow.
    """
    from flows.app.service.deployments import declared, flow_names

    site = site or Site.here()
    unreadable = {} if unreadable is None else unreadable
    found = {each["name"]: each for each in declared(site, flow, unreadable)}
    if not found and not unreadable:
        raise ValueError(f"no flow {flow!r}; there are {', '.join(flow_names(site))}")
    return found


def read_settings(texts: Iterable[str]) -> dict[str, Any]:
    """The settings from several `--set KEY=VALUE`; a later one wins.

    A path to prompts, and any other path that exists there, is taken relative to the caller's
    folder and made absolute, because a worker has another working directory.
    """
    settings = dict(map(read_setting, texts))
    for key, value in settings.items():
        if isinstance(value, str) and (os.sep in value or value.endswith(ROW_FILES)):
            settings[key] = from_here(value)
    prompts = settings.get(PROMPTS)
    if isinstance(prompts, str) and os.sep in prompts:
        settings[PROMPTS] = str(Path(prompts).expanduser().resolve())
    return settings


def read_setting(text: str) -> tuple[str, Any]:
    """Parse `solver.steps=4` to ("solver.steps", 4): the value is TOML, JSON, or else a string.

    Raises ValueError for text that is not KEY=VALUE, and for the values None, True and False, which
    would be taken as strings.

    >>> read_setting("solver.steps=4"), read_setting("corpus=a/b")
    (('solver.steps', 4), ('corpus', 'a/b'))
    >>> read_setting("quality.min_score=null")
    ('quality.min_score', None)
    >>> read_setting('judge_engine={"model": "a/b", "max_logprobs": null}')
    ('judge_engine', {'model': 'a/b', 'max_logprobs': None})
    """
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text}: write KEY=VALUE, for instance solver.steps=4")
    if right := AS_WRITTEN.get(value.strip()):
        raise ValueError(f"--set {text}: write {key.strip()}={right}")
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        try:
            return key.strip(), json.loads(value)
        except ValueError:
            return key.strip(), value
    is_one_value = document.keys() == {"value"}  # text with several lines may set other keys
    return key.strip(), document["value"] if is_one_value else value


def files_of(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each setting that names a file of rows, and the file.

    >>> files = [{"file": "tasks.jsonl"}, {"file": "hf:owner/tasks.json"}]
    >>> list(files_of({"steps": 4, "pool": {"given": files}}))
    [('pool.given.0.file', 'tasks.jsonl')]
    """
    if isinstance(values, dict | list | tuple):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        for name, value in pairs:
            yield from files_of(value, f"{key}.{name}".lstrip("."))
    elif isinstance(values, str) and values.endswith(ROW_FILES) and not values.startswith("hf:"):
        yield key, values


def check_settings(deployment: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """The configuration of a flow run, checked.

    Raises ValueError for a wrong setting, or a missing model, corpus or file, so the error appears
    here rather than in a worker's log.
    """
    from flows.blocks.corpora import check_corpora, check_documents, check_language
    from flows.run import check_world
    from flows.settings.profile import MethodSettings

    cfg = load_config(deployment, parameters)
    if isinstance(cfg, MethodSettings):
        check_world(cfg)
        check_corpora(cfg, open_store(), WORKSPACE)
        check_language(cfg)
        check_models(cfg)
        check_prompts(cfg)
    else:
        check_documents(getattr(cfg, "corpus", None), WORKSPACE)
    absent = [
        f"{key} names {file}"
        for key, file in files_of(cfg.model_dump())
        if not (WORKSPACE / file).exists()
    ]
    if absent:
        raise ValueError(
            f"{'; '.join(absent)}: there is no such file; in settings, paths are relative to"
            f" {WORKSPACE}"
        )
    return cfg


def load_config(deployment: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """The configuration that results from a flow run's parameters.

    Raises ValueError for a wrong setting, a missing corpus, or a corpus for a flow that takes none.
    """
    from flows.settings import profile

    open_workspace()
    config = method_module(deployment, "config").Config
    settings = dict(parameters["overrides"] or {})
    if parameters.get("corpus"):
        if "corpus" not in config.model_fields:
            instead = _instead(config)
            raise ValueError(f"this method learns from no corpus: leave out --corpus{instead}")
        settings["corpus"] = parameters["corpus"]
    field = config.model_fields.get("corpus")
    values = profile.read(profile.home(config) / "profiles", parameters["profile"]) | settings
    if field is not None and field.is_required() and "corpus" not in values:
        raise ValueError("give the documents: --corpus PATH")
    return profile.load(config, parameters["profile"], settings)


def _instead(config: type[Any]) -> str:
    """For an error message: what a method that learns from questions takes instead of documents."""
    setting = getattr(config, "learns_from_questions", None)
    if setting is None:
        return ""
    return (
        ". It learns from questions: `selfplay ask DOCS --with MODEL -o questions.jsonl` writes"
        f" some about documents, then --set {setting}=questions.jsonl"
    )


def check_models(cfg: MethodSettings) -> None:
    """Raise ValueError for a missing benchmark or model, or for a start or teacher that does not
    fit the base model."""
    from flows.blocks.evaluation import check_benchmarks
    from flows.runtime.machines import open_model
    from flows.runtime.start import open_start, open_teacher
    from tasks.engines.endpoint import API
    from tasks.models.engine import check_files, check_model

    check_benchmarks(cfg, WORKSPACE)
    models = [*cfg.models.model_dump(exclude={"start"}).values()]
    models += [each.model for each in (cfg.engine, cfg.judge_engine) if each]
    for model in dict.fromkeys(models):
        if model and not model.startswith(API):
            there = WORKSPACE / model  # flows run in the workspace
            check_model(str(there) if there.exists() else model)
            if there.exists():
                check_files(there)
    with in_workspace():
        if cfg.models.start:
            open_start(cfg.models.start, open_model(cfg.models.base), cfg, open_store())
        if teacher := getattr(cfg, "teacher", None):  # a distillation has one
            open_teacher(teacher, open_model(cfg.models.base), cfg, open_store())


def check_prompts(cfg: MethodSettings) -> None:
    """Raise ValueError, with file and line, for an invalid `set.toml`, for a template of the prompt
    set that is not valid text or Jinja, and for a worked example that is held out."""
    from flows.runtime.templates import load, refuse_held_out
    from flows.settings.profile import home
    from flows.settings.prompts import prompt_folder, read_set

    dialogues = getattr(cfg, "dialogues", None)
    prompts = getattr(dialogues, "prompts", None)
    examples = getattr(dialogues, "examples", None)
    if prompts is not None:
        folder = prompt_folder(home(type(cfg)), prompts)
        read_set(folder)
        for file in sorted(folder.glob("*.jinja")):
            load(folder, file.stem, examples)
    if examples is None:
        return
    with in_workspace():
        for name in cfg.evaluation.held_out_sets:
            if Path(name).is_file():
                refuse_held_out(Path(examples), Path(name))
