"""What `--corpus` may name is the same for every method; anything else is refused before
anything starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command.parameters import check_settings, find_deployment, make_parameters
from flows.app.service import services
from flows.blocks.corpora import check_corpora, check_distinct, find_prepared
from flows.run import Run
from flows.runtime.store_root import SOURCE
from flows.rzero.config import Config as RZero
from flows.scope.config import Config as Scope
from flows.settings import profile
from flows.spell.config import Config as Spell
from flows.spice.config import Config as Spice
from flows.spice.steps import open_corpora
from tests.support.rows import publish, row
from warehouse.store import Store, Table

METHODS = {"scope-iteration": Scope, "spice-iteration": Spice, "spell-iteration": Spell}
OWN_WORLD = {"evaluation.benchmark": "micro", "world_seed": 1, "evaluation.seed": 2}


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """A store with two prepared corpora: `wiki` with clusters, `plain` without. No service runs
    on it."""
    monkeypatch.setattr(services, "up", lambda site, say: pytest.fail("started"))
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    store = Store(tmp_path / "store")
    for name in ("wiki", "plain"):
        publish(
            store.run(name),
            "documents",
            row("documents", document_id=f"{name} 1"),
            label="prepared",
        )
    publish(store.run("wiki"), "memberships", row("memberships", document_id="wiki 1"))
    return store


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("some text")
    return tmp_path / "a.txt"


def checked(method: type, corpus: str, store: Store) -> str | None:
    """The error with which the corpus is refused, or None."""
    try:
        check_corpora(profile.load(method, "micro", {"corpus": corpus}), store, Path())
    except ValueError as refused:
        return str(refused)
    return None


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 1
    return result.output


@pytest.mark.parametrize("method", [Scope, Spice])
def test_a_method_takes_a_path_a_dataset_a_prepared_corpus_and_a_built_in_world(
    method, store, text
):
    for corpus in (
        str(text),
        str(text.parent),
        "hf:owner/name?revision=1",
        "wiki",
        "plain",
        "micro",
    ):
        assert checked(method, corpus, store) is None, corpus


def test_a_method_of_clusters_takes_a_prepared_corpus_that_has_them_and_its_world(store, text):
    assert [checked(Spell, corpus, store) for corpus in ("wiki", "micro")] == [None, None]
    assert "corpus plain has no clusters: prepare it with" in str(checked(Spell, "plain", store))
    for corpus in (str(text), "hf:owner/name?revision=1"):
        said = str(checked(Spell, corpus, store))
        assert (
            f"corpus {corpus} is not prepared, and this method needs clusters of documents" in said
        )
        assert f"`selfplay corpus prepare {corpus} --run NAME`, then give NAME" in said


@pytest.mark.parametrize("corpus", ["nowhere", "no/where", "../wiki"])
@pytest.mark.parametrize("flow", METHODS)
def test_a_corpus_that_there_is_not_is_refused_at_the_prompt_with_all_that_is_allowed(flow, corpus):
    said = refused("run", flow, "--corpus", corpus)
    assert f"there is no corpus {corpus!r}: give " in said
    assert "the name of a finished run of prepare-corpus" in said
    assert [f"the built-in {world!r}" in said for world in METHODS[flow].worlds] == [True] * len(
        METHODS[flow].worlds
    )
    assert "a file or folder, hf:owner/name?revision=..., " in said


def test_a_deployment_refuses_a_path_if_its_method_needs_clusters(text, store):
    """`selfplay run` prepares it first; `prefect deployment run` does not."""
    cfg = profile.load(Spell, "smollm2", {"corpus": str(text)})
    with pytest.raises(ValueError, match="is not prepared, and this method needs clusters"):
        check_corpora(cfg, store, SOURCE)


@pytest.mark.parametrize("flow", ["scope-iteration", "spice-iteration"])
def test_real_documents_are_refused_for_models_that_know_only_built_in_worlds(flow, text):
    said = refused("run", flow, "--corpus", str(text))
    assert f"know only the built-in worlds, not corpus {text}: add --profile NAME, one of " in said
    assert "-1gpu" in said and "micro" not in said.partition("one of ")[2]


def test_a_built_in_world_of_another_method_is_no_corpus_of_this_one():
    said = refused("run", "scope-iteration", "--corpus", "micro-mathematics")
    assert "there is no corpus 'micro-mathematics'" in said
    assert "`selfplay corpus prepare PATH --run micro-mathematics` makes it" in said


def test_a_method_that_learns_from_no_corpus_refuses_one():
    assert RZero.model_fields.keys().isdisjoint({"corpus"})
    assert "learns from no corpus: leave out --corpus" in refused(
        "run", "rzero-iteration", "--corpus", "wiki"
    )
    assert "--set questions.file=questions.jsonl" in refused(
        "run", "mae-iteration", "--corpus", "wiki"
    )
    as_setting = refused("run", "rzero-iteration", "--set", "corpus=wiki")
    assert "corpus: there is no such setting; settings here are " in as_setting


def test_each_of_several_corpora_is_checked():
    said = refused("run", "spice-iteration", "--set", "corpora={wiki = 0.5, nowhere = 0.5}")
    assert "there is no corpus 'nowhere'" in said
    said = refused(
        "run", "spell-iteration", "--corpus", "wiki", "--set", "clusters.finance_corpus=plain"
    )
    assert "corpus plain has no clusters" in said


def test_the_world_that_is_held_out_is_not_learnt_from():
    same = {**OWN_WORLD, "evaluation.seed": 1}
    for method in METHODS.values():
        profile.load(method, "micro", {**OWN_WORLD, "corpus": "micro"})
        profile.load(method, "micro", {**same, "corpus": "wiki"})
        with pytest.raises(
            ValueError, match=r"world_seed and evaluation\.seed are both 1: the bench"
        ):
            profile.load(method, "micro", {**same, "corpus": "micro"})


def test_a_prepared_corpus_is_found_by_its_name_alone(store):
    assert find_prepared(store, "wiki").address == "wiki/documents.prepared"
    for other in ("runs/wiki", "../wiki", "wiki/", "my documents"):
        with pytest.raises(
            ValueError,
            match=rf"there is no corpus '{other}': give a file or folder, hf:.* or a finished",
        ):
            find_prepared(store, other)


def corpora(store: Store, **ids: str) -> Mapping[str, Table]:
    """One corpus per name; each letter of its value is a document id."""
    rows = {
        name: [row("documents", document_id=letter) for letter in letters]
        for name, letters in ids.items()
    }
    return {name: publish(store.run(name), "documents", *some) for name, some in rows.items()}


def test_corpora_that_share_ids_are_refused_and_named(store):
    check_distinct(corpora(store, one="ab", two="c", three=""))
    with pytest.raises(
        ValueError,
        match="corpora two and three share 2 document ids, such as c: prepare them as one",
    ):
        check_distinct(corpora(store, one="ab", two="edc", three="dc"))


def test_two_corpora_of_one_run_that_share_ids_do_not_merge(store, tmp_path):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("seas", "moons")}
    for name, path in files.items():
        lines = [json.dumps({"id": str(i), "text": f"{name} {i}"}) for i in range(3)]
        path.write_text("\n".join(lines))
    shares = {str(path): 0.5 for path in files.values()}
    run: Run[Spice] = Run(profile.load(Spice, "micro", {"corpora": shares}), store.run("r"))
    with pytest.raises(
        ValueError, match=r"seas\.jsonl and .*moons\.jsonl share 3 document ids, such as 0"
    ):
        open_corpora(run)
    only: Run[Spice] = Run(
        profile.load(Spice, "micro", {"corpus": str(files["seas"]), "probes.checkpoints": []}),
        store.run("r"),
    )
    assert [[r["text"] for r in table.rows()] for table in open_corpora(only)] == [
        ["seas 0", "seas 1", "seas 2"]
    ]


def test_a_corpus_that_is_too_small_for_the_probe_is_refused_before_anything_is_asked(
    store, tmp_path
):
    (tmp_path / "seas.jsonl").write_text("\n".join(json.dumps({"text": f"{i}"}) for i in range(3)))
    own: dict[str, Any] = {"corpus": str(tmp_path / "seas.jsonl"), "probes.num_documents": 4}
    run: Run[Spice] = Run(profile.load(Spice, "micro", own), store.run("r"))
    with pytest.raises(
        ValueError, match=r"has 3 documents, the probe needs 4 of them: lower probes\.num_documents"
    ):
        open_corpora(run)
    own["probes.num_documents"] = 3
    assert len(open_corpora(Run(profile.load(Spice, "micro", own), store.run("r")))) == 1


def test_a_command_about_a_prepared_corpus_says_how_to_make_it() -> None:
    for command in (["show", "wiki2"], ["clusters", "wiki2"], ["search", "wiki2", "what?"]):
        assert "no prepared corpus 'wiki2'" in refused("corpus", *command)


@pytest.mark.parametrize(
    ("flow", "setting", "key"),
    [
        (
            "prepare-corpus/text",
            'contamination.benchmarks=[{name="m", path="no.json"}]',
            "contamination.benchmarks.0.path",
        ),
        ("spell-iteration/micro", "evaluation.benchmark=no.jsonl", "evaluation.benchmark"),
        ("mae-iteration/micro", "questions.file=no.csv", "questions.file"),
    ],
)
def test_a_setting_that_names_a_file_that_is_not_there_is_refused_at_once(
    flow, setting, key, text
) -> None:
    flow, profile = flow.split("/")
    corpus = ["--corpus", str(text)] if flow == "prepare-corpus" else []
    said = refused("run", flow, "--profile", profile, "--run", "new", *corpus, "--set", setting)
    assert (
        f"{key} names no." in said
        and "there is no such file; in settings, paths are relative to " in said
    )


def test_documents_to_prepare_have_to_be_named_unless_the_profile_names_them() -> None:
    assert "give the documents: --corpus PATH" in refused(
        "run", "prepare-corpus", "--profile", "text", "--run", "wiki"
    )
    asked = make_parameters("english", "mine")
    cfg = check_settings(find_deployment("prepare-corpus", "english"), asked)
    assert cfg.corpus == "data/english/passages.jsonl"
