"""Prepare documents that are given by a path, as a method needs them, before its run."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.app.command.corpus import FLOW, show_corpus
from flows.app.command.parameters import (
    check_models,
    check_settings,
    find_deployment,
    find_method_config,
    load_config,
    make_parameters,
    make_request,
)
from flows.app.command.start import run_flow
from flows.app.command.worked_examples import show_examples_of
from flows.app.service.site import Site
from flows.app.service.waiting import say
from flows.runtime.store_root import WORKSPACE, in_workspace

if TYPE_CHECKING:
    from flows.runtime.request import Request
    from flows.settings.profile import MethodSettings

MOST_LETTERS = 40  # maximum length of the part of a corpus's name that comes from its path


def request_with_documents(
    site: Site, flow: str, parameters: dict[str, Any]
) -> tuple[Request, MethodSettings]:
    """Prepare the documents of a run in this process; return its request and its configuration.

    Exits if the preparation fails. Raises ValueError for a wrong setting, or a missing model or
    corpus.
    """
    parameters = with_prepared_documents(site, flow, parameters, in_process=True)
    deployment = find_deployment(flow, parameters["profile"], site)
    cfg = check_settings(deployment, parameters)
    with in_workspace():
        show_examples_of(cfg)
    return make_request(deployment, flow, parameters), cfg


def with_prepared_documents(
    site: Site, flow: str, parameters: dict[str, Any], in_process: bool
) -> dict[str, Any]:
    """The flow's parameters, after preparing their corpus if it is a path and the profile says how.

    The corpus is named after its path and its preparation, so the same command finds it again: a
    finished corpus is not prepared twice, and a changed file is noticed. Exits if the preparation
    fails. Raises ValueError, before any work, for a wrong setting or a missing model.
    """
    from flows.blocks.corpora import check_language, is_path_or_dataset
    from flows.settings.profile import MethodSettings

    corpus = parameters.get("corpus")
    if corpus is None or not is_path_or_dataset(corpus, WORKSPACE):
        return parameters
    cfg = load_config(find_deployment(flow, parameters["profile"], site), parameters)
    if not isinstance(cfg, MethodSettings) or cfg.corpus_profile is None:
        return parameters
    check_language(cfg)
    check_models(cfg)
    settings = settings_of_preparation(cfg)
    name = name_of_corpus(corpus, cfg.corpus_profile, settings)
    preparing = f"prepare-corpus/{cfg.corpus_profile}"
    say(f"preparing the documents {corpus} as the corpus {name} ({preparing})")
    preparation = make_parameters(cfg.corpus_profile, name, corpus, settings)
    if not run_flow(site, FLOW, preparation, in_process):
        sys.exit(1)
    show_corpus(name)
    # drop other corpora that only the profile names, which the check would require next
    overrides = {**dict.fromkeys(cfg.other_corpora), **(parameters["overrides"] or {})}
    return parameters | {"corpus": name, "overrides": overrides}


def settings_of_preparation(cfg: MethodSettings) -> dict[str, Any]:
    """Settings of prepare-corpus that drop documents containing a passage of a held-out question,
    and that drop none because it lacks a quality score.

    Held-out questions are those in the files and the registered benchmarks that `evaluation` names,
    except benchmarks that only a harness reads. Raises ValueError for a benchmark that does not
    exist.
    """
    from flows.benchmarks import find
    from tasks.benchmarks.own_file import is_file_of_rows

    settings: dict[str, Any] = {}
    if cfg.corpus_profile is not None and _wants_scores(cfg.corpus_profile):
        settings["quality.min_score"] = None
    names = cfg.evaluation.benchmarks
    files = [Path(name) for name in cfg.evaluation.held_out_sets if (WORKSPACE / name).is_file()]
    files += [Path(name) for name in names if is_file_of_rows(name)]
    registered = [
        name
        for name in names
        if not is_file_of_rows(name) and find(name, WORKSPACE).columns is not None
    ]
    if files:
        settings["contamination.benchmarks"] = [
            {"name": file.stem, "path": str(file)} for file in dict.fromkeys(files)
        ]
    if registered:
        settings["contamination.registry"] = registered
        settings["contamination.folder"] = cfg.evaluation.folder
    return settings


def _wants_scores(preparation: str) -> bool:
    """Whether a profile of prepare-corpus drops documents without a quality score."""
    from flows.settings.profile import home, read

    folder = home(find_method_config(FLOW)) / "profiles"
    return read(folder, preparation).get("quality", {}).get("min_score") is not None


def name_of_corpus(corpus: str, profile: str, settings: dict[str, Any]) -> str:
    """The last part of the corpus's path, and a hash of the whole path, the profile and the
    settings.

    >>> name_of_corpus("/home/me/My docs", "passages", {})
    'my-docs-f42187'
    """
    identity = json.dumps([corpus, profile, settings], sort_keys=True)
    number = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return f"{last_part(corpus)}-{number}"


def last_part(corpus: str) -> str:
    """The last part of a corpus's path, in a form that a run's name may contain.

    >>> last_part("/home/me/My docs"), last_part("hf:owner/Some_Data?revision=1"), last_part("..")
    ('my-docs', 'some-data', 'documents')
    """
    path = corpus.removeprefix("hf:").partition("?")[0].rstrip("/")
    words = re.findall(r"[a-z0-9]+", path.rpartition("/")[2].lower())
    return "-".join(words)[:MOST_LETTERS].strip("-") or "documents"
