"""Turn a command line into a flow run's deployment and parameters, with all checks that need no model."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.service.site import SOURCE, Site, open_store, store_root
from flows.service.waiting import waiting

PASSED_ON = ("CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE")
ROWS = (".jsonl", ".json", ".jsonl.gz", ".csv", ".tsv", ".parquet")  # suffixes of files of rows


def make_parameters(
    profile: str, name: str, corpus: str | None = None, overrides: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The flow's parameters. A corpus path is made absolute, because a worker has another working directory.

    Raises ValueError for a name that no run can have.
    """
    from warehouse.address import check_run_name

    parameters: dict[str, Any] = {"profile": profile, "run": check_run_name(name), "overrides": overrides or {}}
    if corpus is not None:
        parameters["corpus"] = str(Path(corpus).resolve()) if Path(corpus).exists() else corpus
    return parameters


def from_here(path: str) -> str:
    """A path that exists in the caller's folder, as an absolute path; any other text unchanged."""
    return str(Path(path).resolve()) if Path(path).exists() and Path.cwd() != SOURCE else path


def environment() -> dict[str, str]:
    """The caller's store, GPUs and cache of models: a worker would otherwise have those of `selfplay up`."""
    return {"SELFPLAY_STORE": str(store_root()), **{name: os.environ[name] for name in PASSED_ON if name in os.environ}}


def flow_module(deployment: dict[str, Any]) -> Any:
    with waiting("the flow's libraries to load"):
        return importlib.import_module(deployment["entrypoint"].split(".py:")[0].replace("/", "."))


def find_method(flow: str) -> Any:
    """The `flows.method.Method` of a flow."""
    deployment = next(iter(deployments_of(flow).values()))
    return getattr(flow_module(deployment), deployment["entrypoint"].split(":")[1])


def is_flow(name: str) -> bool:
    try:
        return bool(deployments_of(name))
    except ValueError:
        return False


def find_deployment(flow: str, profile: str, site: Site | None = None) -> dict[str, Any]:
    found = deployments_of(flow, site)
    if profile not in found:
        raise ValueError(f"{flow} has no profile {profile!r}; there are {', '.join(found)}")
    return found[profile]


def deployments_of(flow: str, site: Site | None = None) -> dict[str, dict[str, Any]]:
    """A flow's deployments by profile. Raises ValueError if there is no such flow."""
    from flows.service.deployments import declared

    by_flow: dict[str, dict[str, dict[str, Any]]] = {}
    for deployment in declared(site or Site.here()):
        function = deployment["entrypoint"].rsplit(":", 1)[1].replace("_", "-")
        by_flow.setdefault(function, {})[deployment["name"]] = deployment
    if flow not in by_flow:
        raise ValueError(f"no flow {flow!r}; there are {', '.join(sorted(by_flow))}")
    return by_flow[flow]


def read_setting(text: str) -> tuple[str, Any]:
    """`solver.steps=4` as ("solver.steps", 4): a TOML value, `null` for no value, or else a string.

    >>> read_setting("solver.steps=4"), read_setting("corpus=a/b"), read_setting("quality.min_score=null")
    (('solver.steps', 4), ('corpus', 'a/b'), ('quality.min_score', None))
    """
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text}: write KEY=VALUE, for instance solver.steps=4")
    if value.strip() == "null":
        return key.strip(), None
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key.strip(), value
    return key.strip(), found["value"] if found.keys() == {"value"} else value  # more than one line is no value


def files_of(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each setting that names a file of rows, and the file.

    >>> list(files_of({"steps": 4, "pool": {"given": [{"file": "tasks.jsonl"}, {"file": "hf:owner/tasks.json"}]}}))
    [('pool.given.0.file', 'tasks.jsonl')]
    """
    if isinstance(values, dict | list | tuple):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        for name, value in pairs:
            yield from files_of(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, str) and values.endswith(ROWS) and not values.startswith("hf:"):
        yield key, values


def check_settings(deployment: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """The configuration. Raises ValueError for a wrong setting, missing model or corpus here, not in a worker's log."""
    from flows import profile
    from flows.corpora import check_corpora, check_documents, check_language
    from flows.evaluation import check_benchmarks
    from tasks.engines.base import check_model
    from tasks.engines.endpoint import API

    package = deployment["entrypoint"].rsplit("/", 1)[0].replace("/", ".")
    config = importlib.import_module(f"{package}.config").Config
    given = dict(parameters["overrides"] or {})
    if parameters.get("corpus"):
        if "corpus" not in config.model_fields:
            raise ValueError("this method learns from no corpus: leave out --corpus")
        given["corpus"] = parameters["corpus"]
    field = config.model_fields.get("corpus")
    known = profile.read(profile.home(config) / "profiles", parameters["profile"]) | given
    if field is not None and field.is_required() and "corpus" not in known:
        raise ValueError("name the documents: --corpus PATH")
    cfg = profile.load(config, parameters["profile"], given)
    if not isinstance(cfg, profile.MethodSettings):
        check_documents(getattr(cfg, "corpus", None), SOURCE)
    else:
        check_corpora(cfg, open_store(), SOURCE)
        check_language(cfg)
        check_benchmarks(cfg, SOURCE)
        for model in filter(lambda model: model and not model.startswith(API), cfg.models.model_dump().values()):
            check_model(str(SOURCE / model) if (SOURCE / model).exists() else model)  # flows run in SOURCE
    if absent := [f"{key} names {file}" for key, file in files_of(cfg.model_dump()) if not (SOURCE / file).exists()]:
        raise ValueError(f"{'; '.join(absent)}: there is no such file; in settings, paths are relative to {SOURCE}")
    return cfg
