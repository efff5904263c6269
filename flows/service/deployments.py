"""The deployments of a site: one for each profile of each flow, or those of its own prefect.yaml where it has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from flows import profile
from flows.service.site import Site

FLOW = re.compile(r"^@method\(\w+\)\ndef (\w+)\(", re.MULTILINE)


def declared(site: Site) -> list[dict[str, Any]]:
    """name, entrypoint (where its method is written), parameters and work_pool of each."""
    own = site.root / "prefect.yaml"
    if own.exists():
        return yaml.safe_load(own.read_text(encoding="utf-8"))["deployments"]
    flows = [folder for folder in sorted((site.root / "flows").iterdir()) if (folder / "flow.py").exists()]
    return [_deployment(folder, name) for folder in flows for name in profile.names(folder / "profiles")]


def prefect_file(site: Site) -> Path:
    """What `prefect deploy` reads: the site's own file, or one that is written in its home."""
    own = site.root / "prefect.yaml"
    if own.exists():
        return own
    path = site.home / "prefect.yaml"
    deployments = [{**d, "entrypoint": _flow_of_method(d["entrypoint"])} for d in declared(site)]
    path.write_text(yaml.safe_dump({"name": "selfplay", "deployments": deployments}, sort_keys=False))
    return path


def _flow_of_method(entrypoint: str) -> str:
    """Where Prefect finds the flow of a method. As a module: for a file it puts the file's folder on Python's path,
    where our modules take the place of others.

    >>> _flow_of_method("flows/scope/flow.py:scope_iteration")
    'flows.scope.flow:scope_iteration.flow'
    """
    return f"{entrypoint.replace('.py:', ':').replace('/', '.')}.flow"


def _deployment(folder: Path, name: str) -> dict[str, Any]:
    file = folder / "flow.py"
    found = FLOW.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{file} has no function under @method")
    engine = profile.read(folder / "profiles", name).get("engine", {})
    return {
        "name": name,
        "entrypoint": f"flows/{folder.name}/flow.py:{found[1]}",
        "parameters": {"profile": name},
        "work_pool": {"name": "gpu" if engine.get("device") == "cuda" else "cpu"},
    }
