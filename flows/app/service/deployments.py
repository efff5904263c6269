"""The deployments of a site: one for each profile of each flow.

If a site has its own prefect.yaml, its deployments are those declared there.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows.app.service.site import Site
from flows.settings import profile

FLOW = re.compile(r"^@method\(\w+\)\ndef (\w+)\(", re.MULTILINE)
OUTSIDE = "methods.json"  # in a site's home: the folders of methods outside its project


def declared(
    site: Site, flow: str | None = None, unreadable: dict[Path, ValueError] | None = None
) -> list[dict[str, Any]]:
    """The name, description, tags, entrypoint, parameters and work_pool of each deployment, or of
    each deployment of `flow`.

    The entrypoint gives the method's file and function: "flows/scope/flow.py:scope_iteration", with
    an absolute path for a method outside the project.

    A profile that cannot be read is left out, and its error is added to `unreadable` under the path
    of the profile. Without `unreadable`, raises that ValueError.
    """
    if (own := own_file(site)).exists():
        deployments = yaml.safe_load(own.read_text(encoding="utf-8"))["deployments"]
        return [d for d in deployments if flow is None or flow_of(d) == flow]
    deployments: list[dict[str, Any]] = []
    for folder in _methods(site):
        if flow is not None and _read_method(folder).flow != flow:
            continue
        for name in profile.names(folder / "profiles"):
            try:
                deployments.append(_deployment(site, folder, name))
            except ValueError as problem:
                if unreadable is None:
                    raise
                unreadable[folder / "profiles" / f"{name}.toml"] = problem
    return deployments


def flow_names(site: Site) -> list[str]:
    """The names of a site's flows, sorted."""
    if own_file(site).exists():
        return sorted(set(map(flow_of, declared(site))))
    return sorted(_read_method(folder).flow for folder in _methods(site))


def _methods(site: Site) -> list[Path]:
    """The folders of all methods: the project's, and those outside it that have been run."""
    built_in = filter(_is_method, sorted((site.code / "flows").iterdir()))
    return [*built_in, *outside_folders(site)]


def flow_of(deployment: dict[str, Any]) -> str:
    """The name of a deployment's flow: the name of its function, with hyphens."""
    return _flow_name(deployment["entrypoint"].rpartition(":")[2])


def outside_folders(site: Site) -> list[Path]:
    """The folders of methods outside the project that have been run and still exist."""
    path = site.home / OUTSIDE
    if not path.exists():
        return []
    folders = map(Path, json.loads(path.read_text(encoding="utf-8")))
    return list(filter(_is_method, folders))


def flow_in(site: Site, folder: Path) -> str:
    """The flow of the method in a folder; adds the method to the site's deployments.

    The folder is imported as a package of the same name. Raises ValueError if it is not a method,
    or if the name of its package or flow is taken.
    """
    folder = folder.expanduser().resolve()
    for part in ("config.py", "flow.py", "profiles"):
        if not (folder / part).exists():
            raise ValueError(f"{folder} is no method: it has no {part}")
    flow = _read_method(folder).flow
    if _is_built_in(site, folder):
        return flow
    check_package(folder)
    built_in = filter(_is_method, (site.code / "flows").iterdir())
    if flow in [_read_method(path).flow for path in built_in]:
        raise ValueError(
            f"{folder / 'flow.py'}: {flow} is a flow of this project: rename the function"
        )
    before = outside_folders(site)
    others = [
        path for path in before if path.name != folder.name and _read_method(path).flow != flow
    ]
    now = sorted([*others, folder])
    if now != before:
        site.home.mkdir(parents=True, exist_ok=True)
        (site.home / OUTSIDE).write_text(json.dumps([str(path) for path in now], indent=1))
    return flow


def _is_method(folder: Path) -> bool:
    return (folder / "flow.py").exists()


def _is_built_in(site: Site, folder: Path) -> bool:
    return folder.resolve().parent == (site.code / "flows").resolve()


def check_package(folder: Path) -> None:
    """Raise ValueError if Python cannot import a folder, or would import something else instead."""
    name = folder.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"{folder} cannot be imported as {name!r}: name it by letters, digits and _"
        )
    other = importlib.util.find_spec(name)
    if other is not None and str(folder) not in (other.submodule_search_locations or ()):
        raise ValueError(
            f"{folder} cannot be imported as {name!r}, which is {other.origin}: rename the folder"
        )


def own_file(site: Site) -> Path:
    """The file in which a site may declare its own deployments; it need not exist."""
    return site.root / "prefect.yaml"


def as_prefect_stores_it(deployment: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The flow name of a declared deployment, and the deployment's fields on Prefect's server."""
    values = {
        **deployment,
        "entrypoint": _flow_of_method(deployment["entrypoint"]),
        "work_pool_name": deployment["work_pool"]["name"],
    }
    del values["work_pool"]
    return flow_of(deployment), values


def parameters_of_methods() -> dict[str, Any]:
    """The JSON schema of the parameters of every method, for Prefect's forms and validation."""
    from prefect.utilities.callables import parameter_schema  # takes seconds to import

    from flows.method import Method

    called = Method("", profile.Settings, lambda run: None).__call__
    return parameter_schema(called).model_dump()


def module_of(entrypoint: str) -> str:
    """The module of an entrypoint.

    >>> module_of("flows/scope/flow.py:scope_iteration"), module_of("/home/me/mine/flow.py:mine")
    ('flows.scope.flow', 'mine.flow')
    """
    path = Path(entrypoint.rpartition(":")[0]).with_suffix("")
    parts = path.parts[-2:] if path.is_absolute() else path.parts
    return ".".join(parts)


def folder_outside(entrypoint: str) -> Path | None:
    """The folder of a method outside the project; None for a method of the project."""
    folder = Path(entrypoint.rpartition(":")[0]).parent
    if folder.is_absolute():
        return folder
    return None


def _flow_of_method(entrypoint: str) -> str:
    """Where Prefect finds the flow of a method.

    It is given as a module: for a file, Prefect would add the file's folder to Python's path, where
    our modules would shadow others.

    >>> _flow_of_method("flows/scope/flow.py:scope_iteration")
    'flows.scope.flow:scope_iteration.flow'
    """
    return f"{module_of(entrypoint)}:{entrypoint.rpartition(':')[2]}.flow"


def _deployment(site: Site, folder: Path, name: str) -> dict[str, Any]:
    method = _read_method(folder)
    settings = profile.read(folder / "profiles", name)
    needs = _needs(settings)
    model = _section(settings, "models").get("base")
    tags = [folder.name]
    if isinstance(model, str):
        tags.append(model.rsplit("/", 1)[-1])
    tags.append(needs)
    file = f"flows/{folder.name}/flow.py" if _is_built_in(site, folder) else str(folder / "flow.py")
    return {
        "name": name,
        "description": f"{method.summary}\n\nProfile `{name}`: {model or 'no model'}, on {needs}.",
        "tags": list(dict.fromkeys(tags)),
        "entrypoint": f"{file}:{method.function}",
        "parameters": {"profile": name},
        "work_pool": {"name": "gpu" if _is_on_gpus(settings) else "cpu"},
    }


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The settings in a section; empty if the value is not a section, which a run of the profile
    will refuse."""
    section = settings.get(name)
    return section if isinstance(section, dict) else {}


def _is_on_gpus(settings: dict[str, Any]) -> bool:
    return _section(settings, "engine").get("device") == "cuda"


def _needs(settings: dict[str, Any]) -> str:
    """
    >>> _needs({}), _needs({"engine": {"device": "cuda", "tensor_parallel": 2}, "num_engines": 4})
    ('CPUs', '8 GPUs')
    """
    if not _is_on_gpus(settings):
        return "CPUs"
    engine = _section(settings, "engine")
    sampling = settings.get("num_engines", 1) * engine.get("tensor_parallel", 1)
    judging = 0
    if judge_engine := _section(settings, "judge_engine"):
        judging = judge_engine.get("tensor_parallel", 1)
    num = max(sampling + judging, settings.get("trainer_processes", 1))
    if num == 1:
        return "1 GPU"
    return f"{num} GPUs"


@dataclass(frozen=True)
class MethodFile:
    """What a method's flow.py contains, read without importing it.

    `summary` is the first paragraph of its docstring.
    """

    function: str
    summary: str

    @property
    def flow(self) -> str:
        return _flow_name(self.function)


def _flow_name(function: str) -> str:
    return function.replace("_", "-")


def _read_method(folder: Path) -> MethodFile:
    file = folder / "flow.py"
    return _parse_method(file, file.stat().st_mtime_ns)


@functools.cache
def _parse_method(file: Path, changed_at: int) -> MethodFile:
    text = file.read_text(encoding="utf-8")
    try:
        documentation = ast.get_docstring(ast.parse(text)) or ""
    except SyntaxError as problem:
        raise ValueError(f"{file}, line {problem.lineno}: {problem.msg}") from None
    function = FLOW.search(text)
    if function is None:
        raise ValueError(f"{file} has no function under @method")
    return MethodFile(function[1], " ".join(documentation.split("\n\n")[0].split()))
