"""Questions about tables in long articles: how articles are split, and which questions of a
script are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from corpus_prep.read.tables import table_rows
from flows.blocks.long_context import QuestionSet
from flows.table_questions.flow import SOUND, table_questions
from flows.table_questions.grounded import check_evidence
from flows.table_questions.readers import read_evidence
from tasks.corpus.parts import TASK_TYPES, draw_parts, join_parts, part_articles
from tasks.keep import keep
from tasks.readers.malformed import Malformed
from tests.support.rows import publish, row
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Place, Store, Table

PROSE = "The harbour of Ulm was dug by Ott. " * 8
HTML = (
    '<Table> <Tr> <Th_scope="col"> Port </Th> <Th> Year </Th> </Tr> <Tr> <Td> Ulm </Td> <Td> 1904'
    " </Td> </Tr> <Tr> <Td> Bonn </Td> <Td> 1908 </Td> </Tr> <Tr> <Td> Köln </Td> <Td> 1911 </Td>"
    " </Tr> </Table>"
)
MARKDOWN = "| Port | Goods |\n|---|---:|\n| Ulm | 310 |\n| Bonn | 290 |\n| Köln | 870 |"
BOX = "<table> <tr> <td> Part of a series on ports </td> </tr> </table>"
ARTICLE = f"<P> {PROSE} </P> {HTML} <P> {PROSE} </P> {BOX}\n\n{MARKDOWN}\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (HTML, [["Port", "Year"], ["Ulm", "1904"], ["Bonn", "1908"], ["Köln", "1911"]]),
        ("<TABLE><TR><TD>a<TD>b<TR><TD>c</TABLE>", [["a", "b"], ["c"]]),  # only the table is closed
        ("<table><tr><td>a <table><tr><td>x</td></tr></table> b</td></tr></table>", [["a b"]]),
        ("a | b\n--|--\n`x\\|y` | 2", [["a", "b"], ["`x\\|y`", "2"]]),
        ("<table> no rows </table>", [["no rows"]]),
    ],
)
def test_cells_are_read_from_tables_as_they_are_found(text: str, rows: list[list[str]]) -> None:
    assert table_rows(text) == rows


def segments(place: Place, *texts: str) -> Table:
    kinds = ["table" if "|" in text or "<T" in text or "<t" in text else "prose" for text in texts]
    rows = [
        row("segments", document_id="d", position=i, kind=kind, text=text)
        for i, (kind, text) in enumerate(zip(kinds, texts, strict=True))
    ]
    return publish(place, "segments", *rows)


def test_parts_say_why_no_question_is_asked_about_them(place: Place) -> None:
    empty = "| a | | |\n|---|---|---|" + "\n| 1 | | |" * 4
    framed = (
        f"| a | b |\n|---|---|\n| {PROSE} | {PROSE} |\n| {PROSE} | {PROSE} |\n| {PROSE} | {PROSE} |"
    )
    narrow = "| a |\n|---|\n| 1 |\n| 2 |\n| 3 |"
    made = segments(place, PROSE, "Short.", MARKDOWN, BOX, empty, framed, narrow)
    parts = part_articles(place, made).rows()
    assert [part["dropped_reason"] for part in parts] == [
        None,
        "too little prose",
        None,
        "too few rows",
        "mostly empty",
        "prose in a frame",
        "too few columns",
    ]
    assert {part["piece_of"] for part in parts} == {"d"}


def test_the_pieces_of_a_table_that_was_cut_have_the_names_of_its_columns(place: Place) -> None:
    first, second = MARKDOWN.rsplit("\n", 1)
    parts = part_articles(place, segments(place, first, f"{second}\n| Mainz | 95 |")).rows()
    assert parts[1]["text"].splitlines() == [
        "| Port | Goods |",
        "| --- | --- |",
        "| Köln | 870 |",
        "| Mainz | 95 |",
    ]


def test_every_type_is_drawn_from_what_it_takes(place: Place) -> None:
    """The prose nearest to the first table is the passage before it."""
    made = segments(place, PROSE, HTML, PROSE, BOX, MARKDOWN)
    parts = part_articles(place, made, label="parts")
    samples = draw_parts(place, parts, task_types=TASK_TYPES, count=6, seed=0).rows()
    drawn = {(s["task_type"], tuple(int(name[2:6]) for name in s["document_ids"])) for s in samples}
    assert all(len(places) == (1 if kind == "single_table" else 2) for kind, places in drawn)
    assert {places for kind, places in drawn if kind == "multi_table"} == {(1, 4)}
    assert {places for kind, places in drawn if kind == "text_and_table"} <= {(0, 1), (2, 4)}
    (whole,) = join_parts(place, parts, label="joined").rows()
    assert "| Ulm | 1904 |" in whole["text"] and "Part of a series on ports" in whole["text"]


def test_articles_without_a_second_table_are_refused_where_one_is_needed(place: Place) -> None:
    parts = part_articles(place, segments(place, PROSE, HTML), label="parts")
    with pytest.raises(ValueError, match="no article has the tables that multi_table takes"):
        draw_parts(place, parts, task_types=TASK_TYPES, count=3, seed=0)


# ---- which are kept ----


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"text": None, "malformed": "no answer"}, "malformed: no answer"),
        ({"verbatim": False, "covered": False}, "a quote is not in the parts"),
        ({"covered": False}, "a part is not quoted"),
        ({"not_given_away": False}, "the question gives the answer away"),
        ({"seen": (True, False)}, "another answer where the parts are seen"),
        ({"seen": (True, None)}, "another answer where the parts are seen"),
        ({"seen": ()}, "another answer where the parts are seen"),
        ({"unseen": (False, True)}, "answered without the parts"),
    ],
    ids=str,
)
def test_a_question_is_kept_or_has_its_first_reason_why_not(
    place: Place, changed: dict[str, Any], reason
) -> None:
    said = {
        "text": "Why?",
        "malformed": None,
        "seen": (True, True),
        "unseen": (False, None),
        **changed,
    }
    task = row("tasks", task_id="t", text=said["text"], malformed=said["malformed"])
    passed = {name: said.get(name, True) for name in ("verbatim", "covered", "not_given_away")}
    gates = [
        row("gates", task_id="t", gate=name, kind="rule", passed=value)
        for name, value in passed.items()
    ]
    compared = {
        who: publish(
            place,
            "matches",
            *(
                row("matches", rollout_id=f"{who}{i}", task_id="t", matched=m)
                for i, m in enumerate(said[who])
            ),
            label=who,
        )
        for who in ("seen", "unseen")
    }
    tables = {"tasks": publish(place, "tasks", task), "gates": publish(place, "gates", *gates)}
    (found,) = keep(place, SOUND, **tables, **compared).rows()
    assert (found["kept"], found["reason"]) == (reason is None, reason)


def test_an_answer_of_one_word_that_the_question_has_is_given_away(place: Place) -> None:
    parts = publish(
        place, "documents", row("documents", document_id="p", text="Ulm was first."), label="parts"
    )
    samples = publish(
        place, "samples", row("samples", sample_id="s", document_id="d", document_ids=["p"])
    )
    prompts = publish(place, "prompts", row("prompts", prompt_id="q", sample_id="s"))
    asked = {"a": ("Was Ulm first?", "Ulm"), "b": ("Which was first?", "Ulm")}
    tasks = [
        row("tasks", task_id=n, prompt_id="q", text=text, reference=answer)
        for n, (text, answer) in asked.items()
    ]
    evidence = [
        row("rubrics", task_id=name, criterion_id=name, criterion="Ulm was first") for name in "ab"
    ]
    given = publish(place, "tasks", *tasks), publish(place, "rubrics", *evidence)
    checks = check_evidence(place, *given, prompts, samples, parts).rows()
    assert [(c["task_id"], c["gate"]) for c in checks if not c["passed"]] == [
        ("a", "not_given_away")
    ]


def test_quotes_cut_no_word_and_are_of_what_the_writer_was_shown(place: Place) -> None:
    """Brackets like [[Ulm]] are shown as look-alikes, which the writer may write as brackets."""
    text = "| Port | Year |\n| [[Ulm]] | 1904 |"
    parts = publish(place, "documents", row("documents", document_id="p", text=text), label="parts")
    samples = publish(
        place, "samples", row("samples", sample_id="s", document_id="d", document_ids=["p"])
    )
    prompts = publish(place, "prompts", row("prompts", prompt_id="q", sample_id="s"))
    quotes = {"shown": "| ⟦⟦Ulm⟧⟧ | 1904 |", "raw": "| [[Ulm]] | 1904 |", "a": "9", "b": "lm"}
    tasks = [
        row("tasks", task_id=name, prompt_id="q", text="When?", reference="1904") for name in quotes
    ]
    evidence = [
        row("rubrics", task_id=name, criterion_id=name, criterion=quote)
        for name, quote in quotes.items()
    ]
    given = publish(place, "tasks", *tasks), publish(place, "rubrics", *evidence)
    checks = check_evidence(place, *given, prompts, samples, parts).rows()
    passed = {(check["task_id"], check["gate"]) for check in checks if check["passed"]}
    for gate in ("verbatim", "covered"):
        assert {name for name in quotes if (name, gate) in passed} == {"shown", "raw"}


# ---- a run ----

ANSWERS = {
    "Which port is the last of the list?": "Köln",
    "Who dug it?": "Ott",
    "Which has 290?": "Bonn",
}


def say(asked: Asked) -> str:
    """The question about prose and table quotes only the table. That about one table is first cut
    off at its end."""
    if asked.template == "write":
        kind = 0 if asked.text.count("<part>") == 1 else 1 if "Ott" in asked.text else 2
        question, answer = list(ANSWERS.items())[kind]
        quotes = re.findall(
            r"^\| (?:Köln|Ulm|Bonn) \| .*$",
            asked.text.partition("The question takes")[0],
            re.MULTILINE,
        )
        evidence = [quote for quote in quotes if ("Köln", "Ulm", "Bonn")[kind] in quote]
        reply = json.dumps({"question": question, "answer": answer, "evidence": evidence})
        return f"{reply}..." if kind == 0 and asked.attempt == 0 else reply
    found = next(answer for question, answer in ANSWERS.items() if question in asked.text)
    return f"<answer>{found if asked.template == 'answer' else 'nobody knows'}</answer>"


def test_sound_questions_are_kept_with_article_and_evidence(
    tmp_path: Path, place: Place, monkeypatch
) -> None:
    store = Store(tmp_path / "store")
    model = str(any_text_model(tmp_path / "model"))
    (tmp_path / "articles.jsonl").write_text(json.dumps({"id": "ports", "text": ARTICLE}) + "\n")
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    perform(Script(say), monkeypatch)
    small = {
        "splitting": {"min_chars": 100, "max_tokens": 600},
        "count": 3,
        "answers": 1,
        "engine.max_model_len": 4096,
    }
    machine = {
        "engine.device": "cpu",
        "preflight": False,
        "dialogues.response_tokens": 256,
        "models.base": model,
    }
    table_questions(
        "qwen3-30b-a3b-instruct",
        "q",
        {**machine, **small, "corpus": str(tmp_path / "articles.jsonl")},
    )
    sql = (
        "select distinct task_type, reason from selections join tasks using (run, task_id) order"
        " by all"
    )
    assert [tuple(found.values()) for found in query(store.root, sql)] == [
        ("multi_table", None),
        ("single_table", "malformed: cut off at the token limit"),
        ("single_table", None),
        ("text_and_table", "a part is not quoted"),
    ]
    (file,) = store.root.rglob("questions.jsonl")
    lines = {line["task_type"]: line for line in map(json.loads, file.read_text().splitlines())}
    assert {kind: line["answer"] for kind, line in lines.items()} == {
        "multi_table": "Bonn",
        "single_table": "Köln",
    }
    assert all(quote in line["context"] for line in lines.values() for quote in line["evidence"])
    benchmark: Any = QuestionSet.open(place, str(file), TASK_TYPES)  # as another method reads it
    assert (benchmark.tasks.num_rows, benchmark.evidence.num_rows) == (2, 3)


def test_a_writer_who_quotes_hundreds_of_times_is_not_read():
    reply = {"question": "Who?", "answer": "Ada", "evidence": ["Ada"] * 201}
    rollout: Any = {"rollout_id": "a", "reply": json.dumps(reply)}
    prompt: Any = {}
    with pytest.raises(Malformed, match="more than 200 quotes"):
        read_evidence(rollout, prompt)
