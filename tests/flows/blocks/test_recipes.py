"""The papers' data: pinned, sized before anything is downloaded, and read from rows of the released
shape. Rows here are written for the test; their columns are those of the sources."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from flows.app.command import cli
from flows.benchmarks import find
from flows.blocks.long_context import QuestionSet
from flows.blocks.recipes import recipe as module
from flows.blocks.recipes.pages import read_pages
from flows.blocks.recipes.readers import Reading
from flows.blocks.recipes.recipe import Recipe, find_recipe, make, names
from flows.corpus.config import Config
from flows.corpus.flow import prepare
from flows.eapo.config import TASK_TYPES
from flows.settings import profile
from tasks.benchmarks.items import items_of
from tasks.given import GivenTasks, given_rubrics, given_tasks
from tests.support.scripted import model_folder
from warehouse.query import query

ANYWHERE = ("dr-tulu", "rar-medicine", "rar-science")  # no commit of these is known


def fetch(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli.main, ["corpus", "fetch", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def unhashed(name: str) -> Recipe:
    """A recipe whose files may be those of a test."""
    recipe = find_recipe(name)
    files = tuple(each.model_copy(update={"sha256": "", "blob": ""}) for each in recipe.files)
    return recipe.model_copy(update={"files": files})


def made(recipe: Recipe, folder: Path, out: Path, **reading: Any) -> list[dict[str, Any]]:
    given = Reading(text=recipe.text, source=recipe.source, columns=recipe.columns, **reading)
    path = make(recipe, recipe.rows_of(folder, folder, gated=False), given, out).path
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_every_recipe_is_pinned_and_says_licence_size_and_what_comes_then(name):
    recipe = find_recipe(name)
    assert bool(recipe.revision) == (name not in ANYWHERE)
    assert (
        recipe.licence
        and recipe.then
        and recipe.paper in ("scope", "spell", "spice", "eapo", "mae")
    )
    told = fetch(name, "--dry-run")
    assert recipe.revision in told and recipe.licence in told and "free on this disk:" in told


def test_a_dry_run_says_what_wikipedia_takes():
    """21,015,324 passages of 768 numbers of two bytes are 32.3 GB; an IVF index of one byte each is
    half."""
    told = " ".join(fetch("wikipedia-2018", "--dry-run").split())
    assert "download retrieval-corpus/wiki-18.jsonl.gz │ 5.12" in told
    assert "vectors, exact search │ 32.3" in told and "IVF-SQ8 index instead │ 16.1" in told
    assert "rows: 21,015,324" in told


@pytest.mark.parametrize(
    "name", ["wikipedia-2018", "spice-natural-reasoning", "frames", "spell-web"]
)
def test_without_a_network_the_way_out_is_named(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(module, "RAW", "http://127.0.0.1:9")
    (tmp_path / "pages.jsonl").write_text('{"url": "u", "text": "t"}\n')
    told = fetch(name, "--pages", "pages.jsonl", code=1)
    assert "cannot be read" in told and "then give that folder: --from FOLDER" in told
    assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.rglob("*.draft"))


def test_a_source_without_a_known_commit_or_with_terms_asks_for_both():
    assert "no revision of hf:rl-research/dr-tulu-rl-data is pinned: --revision" in fetch(
        "dr-tulu", code=1
    )
    assert "gated: accept the terms of hf:nvidia" in fetch("spice-mathematics", code=1)
    assert "--tokenizer MODEL" in fetch("eapo-musique", code=1)
    assert "--pages FILE" in fetch("seal-0", code=1)


def test_another_file_than_the_pinned_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "data/fixed_fusionbench_1000.json", [{"examples": []}])
    told = fetch("mae-released", "--from", str(tmp_path), code=1)
    assert "is not the file that the recipe names" in told and "not 9d4a0d1570" in told


def test_a_file_of_a_commit_is_told_by_gits_own_hash(tmp_path):
    """`git hash-object` of "hello\\n" is ce0136..."""
    (tmp_path / "a").write_bytes(b"hello\n")
    named = module.SourceFile(path="a", blob="ce013625030ba8dba906f756967f9e9ca394464a")
    module.check_content(tmp_path / "a", named)
    sha256 = hashlib.sha256(b"hello\n").hexdigest()
    module.check_content(tmp_path / "a", named.model_copy(update={"sha256": sha256}))
    (tmp_path / "a").write_bytes(b"hallo\n")
    with pytest.raises(ValueError, match="is not the file that the recipe names"):
        module.check_content(tmp_path / "a", named)


def test_wikipedias_passages_have_their_title_in_their_first_line(tmp_path):
    rows = [
        {"id": "0", "contents": '"Aaron"\nAaron is a prophet.'},
        {"id": "1", "contents": '"The "Who""\nA band.'},
        {"id": "2", "contents": "no title"},
    ]
    path = tmp_path / "retrieval-corpus" / "wiki-18.jsonl.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    found = made(unhashed("wikipedia-2018"), tmp_path, tmp_path / "out" / "documents.parquet")
    assert [(row["document_id"], row["title"], row["text"]) for row in found] == [
        ("0", "Aaron", "Aaron is a prophet."),
        ("1", 'The "Who"', "A band."),
        ("2", "", "no title"),
    ]
    assert {row["licence"] for row in found} == {"CC BY-SA 3.0"}


def test_spices_documents_are_the_first_ones_of_compressed_lines(tmp_path):
    recipe = find_recipe("spice-general").model_copy(update={"take": 2})
    path = tmp_path / recipe.files[0].path
    path.parent.mkdir(parents=True)
    rows = [{"text": f"text {i}", "url": f"https://host/{i}"} for i in range(3)]
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    found = made(recipe, tmp_path, tmp_path / "documents.parquet")
    assert [(row["text"], row["source"]) for row in found] == [
        ("text 0", "https://host/0"),
        ("text 1", "https://host/1"),
    ]


def test_natural_reasonings_questions_are_documents_with_their_answers(tmp_path):
    answered = {
        "question": "Why?",
        "reference_answer": "Because.",
        "responses": [{"response_model": "m", "response": "At length."}],
    }
    unanswered = {**answered, "reference_answer": "", "responses": []}
    write_lines(tmp_path / "full.jsonl", [answered, unanswered])
    found = made(find_recipe("spice-natural-reasoning"), tmp_path, tmp_path / "d.parquet")
    assert [row["text"] for row in found] == ["Why?\n\nBecause.\n\nAt length.", "Why?"]


def test_released_clusters_stay_clusters_when_they_are_prepared(tmp_path, monkeypatch, store):
    """Two clusters of two and three paragraphs: five documents, two sets, each whole."""
    rows = [
        {
            "question_id": 7,
            "data_source": "ultrafineweb",
            "paragraphs": ["the red moon", "a blue sun"],
        },
        {"question_id": 9, "data_source": "ultrafineweb", "paragraphs": ["one", "two", "three"]},
    ]
    path = tmp_path / "source" / "SPELL/dataset/ultra_fineweb/train.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    out = tmp_path / "corpus" / "documents.parquet"
    found = made(unhashed("spell-web"), tmp_path / "source", out)
    assert [(row["document_id"], row["source"]) for row in found] == [
        ("7-0", "7"),
        ("7-1", "7"),
        ("9-0", "9"),
        ("9-1", "9"),
        ("9-2", "9"),
    ]
    changes = {
        "corpus": str(out.parent),
        "long_context.tokenizer": str(model_folder(tmp_path / "model")),
        "duplicates.near": None,
        "duplicates.contained": None,
    }
    prepared = prepare(profile.load(Config, "spell-released", changes), store.run("general"))
    assert prepared.num_rows == 5
    sizes = query(
        store.root,
        "select cluster, count(*) as size from document_sets group by cluster order by size",
    )
    assert [row["size"] for row in sizes] == [2, 3]


def test_rubrics_of_both_shapes_are_tasks_that_scope_trains_on(tmp_path, store):
    """DR Tulu writes JSON in a column; Rubrics as Rewards has columns, and pitfalls of negative
    weight. A task without anything to earn is left out."""
    item = {"description": "Names the cause.", "title": "Cause", "weight": 3}
    pitfall = {"description": "Guesses.", "title": "Pitfall", "weight": -2}
    tulu = {
        "source": "rl_rag_train_sqa",
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        "ground_truth": json.dumps({"query": "Why is the sky blue?", "rubrics": [item]}),
    }
    rar = {"question": "What is heat?", "reference_answer": "x", "rubric": [item, pitfall]}
    useless = {"question": "What else?", "reference_answer": "x", "rubric": [pitfall]}
    write_lines(tmp_path / "one" / "train.jsonl", [tulu])
    write_lines(tmp_path / "two" / "train.jsonl", [rar, useless])
    made(find_recipe("dr-tulu"), tmp_path / "one", tmp_path / "a.jsonl")
    made(find_recipe("rar-science"), tmp_path / "two", tmp_path / "b.jsonl")
    both = tmp_path / "both.jsonl"
    both.write_text((tmp_path / "a.jsonl").read_text() + (tmp_path / "b.jsonl").read_text())
    place = store.run("mine")
    items = GivenTasks(file=str(both)).items(place, seed=0)
    tasks = given_tasks(place, items, number=0, count=2, seed=0)
    assert {row["text"] for row in tasks.rows()} == {"Why is the sky blue?", "What is heat?"}
    criteria = given_rubrics(place, items, tasks=tasks).rows()
    assert sorted(row["weight"] for row in criteria) == [-2, 3, 3]


def paragraph(title: str, text: str, supports: bool = False) -> dict[str, Any]:
    return {"idx": 0, "title": title, "paragraph_text": text, "is_supporting": supports}


def test_musiques_questions_get_contexts_of_the_wanted_length(tmp_path, store):
    """Lengths are in words here. A context keeps all own paragraphs, ends within its budget, and no
    added paragraph names the answer or has the title of an own one."""
    rows = []
    for number in range(12):
        own = [
            paragraph(f"City {number}", f"It lies at river {number} of the land.", supports=True),
            paragraph(f"River {number}", "Water runs there day and night."),
        ]
        row = {
            "id": f"2hop__{number}",
            "paragraphs": own,
            "question": f"Where is city {number}?",
            "answer": f"river {number} of",
            "answer_aliases": [f"stream {number}"],
            "answerable": True,
        }
        rows.append(row)
    rows[1]["paragraphs"].append(paragraph("Lake", "Not far from river 0 of the north."))
    rows[2]["paragraphs"].append(paragraph("River 0", "Another one."))
    rows.append({**rows[0], "id": "2hop__no", "answerable": False})
    write_lines(tmp_path / "musique_ans_v1.0_train.jsonl", rows)
    recipe = unhashed("eapo-musique")
    reading = {"count": lambda text: len(text.split()), "budgets": (40, 60), "seed": 3}
    found = made(recipe, tmp_path, tmp_path / "q.jsonl", **reading)
    assert [row["id"] for row in found] == [row["id"] for row in rows[:12]]
    for row, question in zip(rows, found, strict=False):
        shown = question["context"].split("\n\n")
        assert 30 <= sum(len(text.split()) for text in shown) <= 60
        assert len(set(shown)) == len(shown)
        for each in row["paragraphs"]:
            assert f"{each['title']}\n{each['paragraph_text']}" in shown
        assert question["answers"] == [row["answer"], *row["answer_aliases"]]
    assert found[0]["evidence"] == ["It lies at river 0 of the land."]
    assert "Lake" not in found[0]["context"] and "Another one." not in found[0]["context"]
    assert len({row["context"] for row in found}) == 12
    again = made(recipe, tmp_path, tmp_path / "again.jsonl", **reading)
    assert again == found
    drawn = made(recipe, tmp_path, tmp_path / "drawn.jsonl", **reading, draw=4)
    assert len(drawn) == 4 and all(row in found for row in drawn)
    questions = QuestionSet.open(store.run("mine"), str(tmp_path / "q.jsonl"), TASK_TYPES)
    assert questions.tasks.num_rows == questions.contexts.num_rows == 12 and questions.evidence


def test_linked_pages_are_the_context_of_a_question(tmp_path, caplog):
    """SEAL has a list of addresses, FRAMES a list written as text. Without any page there is no
    question."""
    seal = [
        {
            "question": "How many?",
            "answer": "2",
            "urls": ["https://a/1", "https://b/2"],
            "topic": "t",
        },
        {"question": "Who?", "answer": "she", "urls": ["https://c/3"], "topic": "t"},
    ]
    frames = [{"Prompt": "When?", "Answer": "1999", "wiki_links": "['https://a/1', 'https://x/9']"}]
    write_lines(tmp_path / "seal" / "test.jsonl", seal)
    write_lines(tmp_path / "frames" / "test.jsonl", frames)
    pages = {"https://a/1": "Page one.", "https://b/2": "Page two."}
    found = made(find_recipe("seal-0"), tmp_path / "seal", tmp_path / "s.jsonl", pages=pages)
    columns = find("seal-0").columns
    assert columns is not None
    [item] = items_of(found, "seal-0", columns)
    assert (item["text"], item["context"]) == ("How many?", "Page one.\n\nPage two.")
    found = made(find_recipe("frames"), tmp_path / "frames", tmp_path / "f.jsonl", pages=pages)
    columns = find("frames").columns
    assert columns is not None
    [item] = items_of(found, "frames", columns)
    assert (item["context"], item["references"]) == ("Page one.", ["1999"])
    assert "questions with only some of their pages as context: 1" in caplog.text


def test_pages_are_read_from_rows_by_their_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "pages.jsonl", [{"url": "https://a/1", "text": "Page one."}])
    row = {"question": "How many?", "answer": "2", "urls": ["https://a/1"]}
    write_lines(tmp_path / "source" / "test.jsonl", [row])
    told = fetch("seal-0", "--from", "source", "--pages", "pages.jsonl")
    assert "data/questions/seal-0.jsonl: 1 questions of 1 rows" in told
    assert "The recipe expects 111 rows" in told
    [line] = (tmp_path / "data/questions/seal-0.jsonl").read_text().splitlines()
    assert json.loads(line)["context"] == "Page one."
    assert json.loads(line)["origin"].startswith("hf:vtllms/sealqa@b2ecadf")
    assert "exists: remove it" in fetch(
        "seal-0", "--from", "source", "--pages", "pages.jsonl", code=1
    )


@pytest.fixture
def reading_service() -> Iterator[str]:
    """Answers with the text of a page; one page is not there."""

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = "gone" not in self.path
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(f"Text of {self.path}.".encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_pages_are_read_by_a_service_and_kept(tmp_path, monkeypatch, reading_service):
    monkeypatch.chdir(tmp_path)
    row = {"question": "How many?", "answer": "2", "urls": ["https://a/1", "https://gone/2"]}
    write_lines(tmp_path / "source" / "test.jsonl", [row])
    told = fetch("seal-0", "--from", "source", "--page-reader", reading_service)
    assert (
        "https://gone/2 cannot be read: HTTPStatusError" in told and "1 pages are missing" in told
    )
    [line] = (tmp_path / "data/questions/seal-0.jsonl").read_text().splitlines()
    assert json.loads(line)["context"] == "Text of /https://a/1."
    [page] = (tmp_path / "data/questions/pages.jsonl").read_text().splitlines()
    assert json.loads(page)["url"] == "https://a/1"
    (tmp_path / "data/questions/seal-0.jsonl").unlink()
    monkeypatch.setattr("httpx.Client.get", None)  # what is kept is not asked for again
    write_lines(tmp_path / "source" / "test.jsonl", [{**row, "urls": ["https://a/1"]}])
    fetch("seal-0", "--from", "source", "--page-reader", reading_service)


def test_maes_released_questions_come_once_and_without_those_that_are_evaluated(tmp_path):
    def example(question: str, answer: str) -> dict[str, Any]:
        truth = {"style": "rule", "ground_truth": answer}
        return {"data_source": "gen_general", "question": question, "reward_model": truth}

    humaneval = " You are an expert Python programmer. Complete the following function."
    gpqa = (
        "Answer the following multiple-choice question by selecting the correct option (A, B, C,"
        " or D). You Must put it in a parenthesis. ## Question: x"
    )
    examples = [
        example("   Use the   context.\n Q? (A) a (B) b  ", "A"),
        example("Use the context. Q? (A) a (B) b", "A"),
        example(humaneval, "code"),
        example(gpqa, "B"),
    ]
    path = tmp_path / "data" / "fixed_fusionbench_1000.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"metadata": {}, "examples": examples, "example_pairs": []}))
    recipe = unhashed("mae-released")
    [found] = made(recipe, tmp_path, tmp_path / "q.jsonl")
    assert (found["question"], found["answer"]) == ("Use the context. Q? (A) a (B) b", "A")
    assert len(made(recipe, tmp_path, tmp_path / "all.jsonl", everything=True)) == 3


def test_a_saved_page_may_hold_any_kind_of_line_break(tmp_path):
    pages = tmp_path / "pages.jsonl"
    row = {"url": "https://one", "text": "first\u2028second\u0085third"}
    pages.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_pages(["https://one"], "http://127.0.0.1:9/", pages) == {}


def test_a_page_whose_line_was_cut_off_is_read_again(tmp_path, reading_service):
    pages = tmp_path / "pages.jsonl"
    pages.write_text('{"url": "https://a/1", "text": "One."}\n{"url": "https://a/2", "te')
    assert read_pages(["https://a/1", "https://a/2"], reading_service, pages) == {}
    saved = [json.loads(line) for line in pages.read_text().splitlines()]
    assert [row["text"] for row in saved] == ["One.", "Text of /https://a/2."]
