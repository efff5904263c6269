"""The deployments of a site: one for each profile of each flow, or those of its own prefect.yaml if it has one."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import yaml

from flows import profile
from flows.service.site import Site

FLOW = re.compile(r"^@method\(\w+\)\ndef (\w+)\(", re.MULTILINE)


def declared(site: Site) -> list[dict[str, Any]]:
    """name, description, tags, entrypoint (where its method is written), parameters and work_pool of each."""
    if (own := own_file(site)).exists():
        return yaml.safe_load(own.read_text(encoding="utf-8"))["deployments"]
    flows = [folder for folder in sorted((site.root / "flows").iterdir()) if (folder / "flow.py").exists()]
    return [_deployment(folder, name) for folder in flows for name in profile.names(folder / "profiles")]


def own_file(site: Site) -> Path:
    """The file in which a site declares its own deployments, if it does."""
    return site.root / "prefect.yaml"


def prefect_file(site: Site) -> Path:
    """The file that `prefect deploy` reads: the site's own, or one written to its home."""
    if (own := own_file(site)).exists():
        return own
    path = site.home / "prefect.yaml"
    deployments = [{**d, "entrypoint": _flow_of_method(d["entrypoint"])} for d in declared(site)]
    path.write_text(yaml.safe_dump({"name": "selfplay", "deployments": deployments}, sort_keys=False))
    return path


def _flow_of_method(entrypoint: str) -> str:
    """Where Prefect finds the flow of a method. It is named as a module: for a file, Prefect would put the file's
    folder on Python's path, where our modules would shadow others.

    >>> _flow_of_method("flows/scope/flow.py:scope_iteration")
    'flows.scope.flow:scope_iteration.flow'
    """
    return f"{entrypoint.replace('.py:', ':').replace('/', '.')}.flow"


def _deployment(folder: Path, name: str) -> dict[str, Any]:
    file = folder / "flow.py"
    function, about = _method(file, file.stat().st_mtime_ns)
    settings = profile.read(folder / "profiles", name)
    engine, needs = settings.get("engine", {}), _needs(settings)
    model = (settings.get("models") or {}).get("base")
    return {
        "name": name,
        "description": f"{about}\n\nProfile `{name}`: {model or 'no model'}, on {needs}.",
        "tags": list(dict.fromkeys([folder.name, *([model.rsplit("/", 1)[-1]] if model else []), needs])),
        "entrypoint": f"flows/{folder.name}/flow.py:{function}",
        "parameters": {"profile": name},
        "work_pool": {"name": "gpu" if engine.get("device") == "cuda" else "cpu"},
    }


def _needs(settings: dict[str, Any]) -> str:
    """
    >>> _needs({}), _needs({"engine": {"device": "cuda", "tensor_parallel": 2}, "num_engines": 4})
    ('CPUs', '8 GPUs')
    """
    engine = settings.get("engine", {})
    if engine.get("device") != "cuda":
        return "CPUs"
    sampling = settings.get("num_engines", 1) * engine.get("tensor_parallel", 1)
    judging = (settings.get("judge_engine") or {}).get("tensor_parallel", 1) if settings.get("judge_engine") else 0
    num = max(sampling + judging, settings.get("trainer_processes", 1))
    return "1 GPU" if num == 1 else f"{num} GPUs"


@functools.cache
def _method(file: Path, changed_at: int) -> tuple[str, str]:
    """A method's function, and the first sentence of its module's documentation."""
    text = file.read_text(encoding="utf-8")
    try:
        about = ast.get_docstring(ast.parse(text)) or ""
    except SyntaxError as problem:
        raise ValueError(f"{file}, line {problem.lineno}: {problem.msg}") from None
    found = FLOW.search(text)
    if found is None:
        raise ValueError(f"{file} has no function under @method")
    return found[1], " ".join(about.split("\n\n")[0].split())
