"""Write an environment as files for another loader."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jinja2

from flows.environments.copied_code import CopiedCode
from flows.environments.environment import TASK_COLUMNS, Environment, Search
from warehouse.new_folder import new_folder
from warehouse.schemas import Row

FILES = Path(__file__).parent / "files"
Format = Literal["verifiers", "nemo-gym", "trl", "openrlhf"]
SPLITS = ("train", "test")
LETTERS_PER_TOKEN = 4  # roughly, in English: exported code has no tokenizer
NUM_EXAMPLES = 5  # number of tasks in the file that NeMo Gym tries first
# maps names of imported packages to names of distributions
DISTRIBUTIONS = {
    "math_verify": "math-verify",
    "latex2sympy2_extended": "latex2sympy2_extended",
    "jinja2": "jinja2",
    "openai": "openai",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
}
WITH_SEARCH: tuple[Format, ...] = ("verifiers", "trl")  # formats that get the search as a tool


def write_environment(
    environment: Environment, kind: Format, folder: Path, card: str
) -> dict[str, int]:
    """Write the environment as files of the format `kind`, with its card; return the number of
    tasks per split.

    Raises ValueError for a folder that is not empty, an empty training split, a search that this
    format does not support, or a scorer that cannot be copied.
    """
    if environment.search is not None and kind not in WITH_SEARCH:
        raise ValueError(
            f"the policy searches documents while it answers, and the search is not written for"
            f" {kind}: --without-search exports the tasks all the same; it is written for"
            f" {' and '.join(WITH_SEARCH)}"
        )
    counts = {split: len(_rows(environment, split)) for split in SPLITS}
    if not counts["train"]:
        raise ValueError(
            f"all {counts['test']} kept tasks fell into the test split: keep more tasks, of more"
            " documents"
        )
    with new_folder(folder) as partial:
        WRITERS[kind](environment, partial)
        (partial / "README.md").write_text(card, encoding="utf-8")
    return counts


def package_of(run: str) -> str:
    """The name of a run's Python package.

    >>> package_of("spice-micro.2")
    'selfplay_spice_micro_2'
    """
    return "selfplay_" + re.sub(r"[^a-z0-9]+", "_", run.lower()).strip("_")


def requirements_of(environment: Environment) -> list[str]:
    """The scorer's requirements, pinned to the versions that are installed here.

    Raises ValueError for a package whose distribution is not in `DISTRIBUTIONS`.
    """
    code = CopiedCode()
    _values(environment, code)
    needs = code.needs | ({"jinja2", "openai"} if environment.scorer.judge else set())
    unknown = needs - DISTRIBUTIONS.keys()
    if unknown:
        raise ValueError(
            f"the scorer imports {', '.join(sorted(unknown))}, whose distribution is not known:"
            " add it to DISTRIBUTIONS"
        )
    return sorted(f"{DISTRIBUTIONS[name]}=={version(DISTRIBUTIONS[name])}" for name in needs)


# ---- formats ----


def _write_verifiers(environment: Environment, folder: Path) -> None:
    package = package_of(environment.run)
    values = {
        "run": environment.run,
        "package": package,
        "requirements": requirements_of(environment),
        "searches": environment.search is not None,
    }
    _render("pyproject.toml", folder / "pyproject.toml", values)
    inside = folder / package
    write_scorer(environment, inside)
    _render("taskset.py", inside / "taskset.py", values)
    if environment.search is not None:
        _render("search_server.py", inside / "search_server.py", values)
    exports = 'from .taskset import SelfplayTaskset\n\n__all__ = ["SelfplayTaskset"]\n'
    (inside / "__init__.py").write_text(exports, encoding="utf-8")
    for split in SPLITS:
        rows = (
            {"prompt": row["messages"], "task": _task(row)} for row in _rows(environment, split)
        )
        _write_lines(inside / "data" / f"{split}.jsonl", rows)


def _write_nemo_gym(environment: Environment, folder: Path) -> None:
    package = package_of(environment.run)
    values = {"run": environment.run, "package": package}
    inside = folder / "resources_servers" / package
    write_scorer(environment, inside / f"{package}_scorer")
    _render("app.py", inside / "app.py", values)
    _render("gym.yaml", inside / "configs" / f"{package}.yaml", values)
    (inside / "__init__.py").write_text("", encoding="utf-8")
    requirements = ["-e nemo-gym[dev] @ ../../", *requirements_of(environment)]
    (inside / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    rows = {
        split: [
            {
                "responses_create_params": {"input": row["messages"]},
                "task": _task(row),
                "agent_ref": {"type": "responses_api_agents", "name": f"{package}_simple_agent"},
            }
            for row in _rows(environment, split)
        ]
        for split in SPLITS
    }
    _write_lines(inside / "data" / "train.jsonl", rows["train"])
    _write_lines(inside / "data" / "validation.jsonl", rows["test"])
    _write_lines(inside / "data" / "example.jsonl", rows["train"][:NUM_EXAMPLES])


def _write_trl(environment: Environment, folder: Path) -> None:
    package = package_of(environment.run)
    values = {
        "run": environment.run,
        "package": package,
        "searches": environment.search is not None,
    }
    write_scorer(environment, folder / package)
    _render("reward_trl.py", folder / "reward.py", values)
    _render("train.py", folder / "train.py", values)
    for split in SPLITS:
        rows = (
            # as text, since `datasets` would give every task the union of all keys
            {"prompt": row["messages"], "task": _as_json(_task(row))}
            for row in _rows(environment, split)
        )
        _write_lines(folder / f"{split}.jsonl", rows)
    _write_requirements(environment, folder, "trl", "datasets")  # for train.py


def _write_openrlhf(environment: Environment, folder: Path) -> None:
    package = package_of(environment.run)
    values = {"run": environment.run, "package": package}
    write_scorer(environment, folder / package)
    _render("reward_openrlhf.py", folder / "reward.py", values)
    for split in SPLITS:
        rows = (
            {"input": row["messages"], "label": _as_json(_task(row))}
            for row in _rows(environment, split)
        )
        _write_lines(folder / f"{split}.jsonl", rows)
    _write_requirements(environment, folder)


WRITERS: Mapping[Format, Callable[[Environment, Path], None]] = {
    "verifiers": _write_verifiers,
    "nemo-gym": _write_nemo_gym,
    "trl": _write_trl,
    "openrlhf": _write_openrlhf,
}


# ---- the scorer ----


def write_scorer(environment: Environment, folder: Path) -> None:
    """Write the package that reads and scores replies, including the code that it needs."""
    code = CopiedCode()
    values = _values(environment, code)
    if environment.search is not None:
        _write_search(environment.search, folder, environment.run)
    copied = folder / "copied"
    copied.mkdir(parents=True)
    for name, text in code.files().items():
        (copied / name).write_text(text, encoding="utf-8")
    for package in (folder, copied):
        (package / "__init__.py").write_text("", encoding="utf-8")
    _render("scoring.py", folder / "scoring.py", {**values, "imports": code.imports()})
    if environment.scorer.compare is not None:
        _render("isolated.py", folder / "isolated.py", values)


def _write_search(search: Search, folder: Path, run: str) -> None:
    """Write the search: a module, and a copy of the run's index."""
    values = {
        "run": run,
        "documents_per_query": search.documents_per_query,
        "result_letters": LETTERS_PER_TOKEN * search.result_tokens,
    }
    _render("search.py", folder / "search.py", values)
    shutil.copytree(search.index, folder / "index")


def _values(environment: Environment, code: CopiedCode) -> dict[str, Any]:
    """The values for the scorer's template; adds all code that the scorer needs to `code`."""
    from tasks.rollouts.neutral import neutralise
    from tasks.scorers.rubric import share_met

    scorer = environment.scorer
    code.reach("tasks.readers.copies", "COPIED")
    code.reach("tasks.readers.copies", "Instructions")
    code.reach("tasks.readers.malformed", "Malformed")
    values: dict[str, Any] = {
        "run": environment.run,
        "read": code.expression(scorer.read),
        "whole": scorer.whole,
        "instructions": repr(scorer.instructions),
        "compare": None,
        "judge": None,
    }
    if environment.search is not None:
        code.reach("corpus_prep.search.index", "Retriever")
        code.reach("corpus_prep.search.bm25", "Bm25Ranker")
        code.reach("corpus_prep.search.index_files", "open_documents")
        code.reach("tasks.rollouts.neutral", "neutralise")
    if scorer.compare is not None:
        values["compare"] = code.expression(scorer.compare)
    if scorer.judge is not None:
        code.expression(neutralise)
        code.expression(share_met)
        values["judge"] = {
            "read": code.expression(scorer.judge.read),
            "template": repr(scorer.judge.template),
            "judge_values": repr(dict(scorer.judge.values)),
            "sampling": repr(scorer.judge.sampling.model_dump(mode="json")),
            "model": repr(scorer.judge.model),
            "min_coverage": scorer.judge.min_coverage,
        }
    return values


# ---- files ----


def _rows(environment: Environment, split: str) -> list[Row]:
    return [row for row in environment.tasks if row["split"] == split]


def _task(row: Row) -> Row:
    """A task in the form that scorers take."""
    task = {name: row.get(name) for name in ("task_id", *TASK_COLUMNS, "document_id")}
    if row.get("criteria"):
        task["criteria"] = row["criteria"]
    return task


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_lines(file: Path, rows: Iterable[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{_as_json(row)}\n" for row in rows), encoding="utf-8")


def _write_requirements(environment: Environment, folder: Path, *more: str) -> None:
    """Write the scorer's requirements, and those of `more` distributions."""
    lines = [*requirements_of(environment), *(f"{name}=={version(name)}" for name in more)]
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _render(template: str, file: Path, values: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FILES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template(f"{template}.jinja").render(values)
    file.write_text(text, encoding="utf-8")
