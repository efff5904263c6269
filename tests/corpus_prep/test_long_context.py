"""Material for long contexts: tables separated from prose, sets from one cluster, contexts
filled to a length."""

import re
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from corpus_prep.clusters.document_sets import Padding, SetSettings, SizedDocument, sets_of
from corpus_prep.clusters.segments import Splitting, segments
from corpus_prep.workers import Workers
from tasks.corpus.long_context import (
    count_document_tokens,
    make_document_sets,
    pad_document_sets,
    split_documents,
)
from tasks.rollouts.tokens import count_tokens
from tasks.stage import Rows, stage
from warehouse.schemas.corpus import DOCUMENTS, MEMBERSHIPS

MICRO = Path(__file__).parents[2] / "data" / "micro" / "base"


def count(text: str) -> int:
    return len(text.split())


ARTICLE = """Sales grew in all
regions.

| Region | 2019 | 2018 |
|---|---:|:--|
| North | 7 | 6 |
| South | 9 | 8 |
The South | was | best | said no dash row, but it is a row.

After it, prose | with a bar.
<H1> More </H1> <Table> <Tr> <Td> a <Table> <Tr> <Td> b </Td> </Tr> </Table> </Td> </Tr> </Table> <P> The end."""  # noqa: E501


def test_tables_of_both_kinds_are_told_from_prose():
    found = list(segments(ARTICLE, 1_000, count))
    assert [s.kind for s in found] == ["prose", "table", "prose", "table", "prose"]
    assert found[0].text == "Sales grew in all\nregions."
    assert found[1].text.startswith("| Region") and found[1].text.endswith("it is a row.")
    assert found[2].text == "After it, prose | with a bar.\n<H1> More </H1>"
    assert found[3].text.startswith("<Table>") and found[3].text.count("</Table>") == 2
    assert found[4].text == "<P> The end."


def test_a_table_that_is_never_closed_and_a_lonely_bar_are_prose():
    assert [
        s.kind
        for s in segments(
            "before <table> <tr> a </tr> and | so on\n-- not dashes | at all", 99, count
        )
    ] == ["prose"]


def test_a_row_of_bars_that_is_no_row_of_dashes_is_read_at_once():
    """A pattern that can read a blank in two ways would try 7 ** 60 of them."""
    text = "| a | b |\n| - |" + "      |" * 60 + " 1,234 |\n"
    assert [s.kind for s in segments(text, 1_000, count)] == ["prose"]


@pytest.mark.parametrize("limit", [1, 2, 7, 30])
def test_nothing_but_blanks_is_lost_and_no_stretch_is_too_long(limit):
    found = list(segments(ARTICLE, limit, count))
    assert re.sub(r"\s", "", "".join(s.text for s in found)) == re.sub(r"\s", "", ARTICLE)
    assert all(s.num_tokens == count(s.text) <= limit for s in found)


def test_prose_is_cut_between_paragraphs_before_sentences_before_words():
    text = "One two three. Four five.\n\nSix seven.\n\nEight nine ten eleven. Twelve."
    assert [s.text for s in segments(text, 7, count)] == [
        "One two three. Four five.\n\nSix seven.",
        "Eight nine ten eleven. Twelve.",
    ]
    assert [s.text for s in segments(text, 4, count)] == [
        "One two three.",
        "Four five.",
        "Six seven.",
        "Eight nine ten eleven.",
        "Twelve.",
    ]
    assert [s.text for s in segments("aa bb cc", 2, count)] == ["aa bb", "cc"]
    assert [s.text for s in segments("abcdef", 4, len)] == ["abcd", "ef"]


def sized(*lengths: int, cluster: int = 0) -> list[SizedDocument]:
    return [SizedDocument(f"c{cluster}-{n}", cluster, length) for n, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("num_documents", "sizes"),
    [
        (9, []),
        (10, [10]),
        (20, [20]),
        (29, [20]),
        (31, [16, 15]),
        (40, [20, 20]),
        (55, [19, 18, 18]),
    ],
)
def test_a_cluster_gives_sets_of_about_the_size_and_never_more(num_documents, sizes):
    assert [len(chosen) for chosen in sets_of(sized(*[5] * num_documents), SetSettings())] == sizes


def test_a_whole_cluster_is_a_set_or_gives_none():
    whole = SetSettings(whole=True, smallest=2, size=2, max_tokens=100)
    assert [[d.num_tokens for d in one] for one in sets_of(sized(40, 30, 20), whole)] == [
        [40, 30, 20]
    ]
    assert list(sets_of(sized(40, 40, 21), whole)) == list(sets_of(sized(40), whole)) == []


def test_a_set_with_a_limit_leaves_out_what_does_not_fit():
    [chosen] = sets_of(sized(50, 60, 30, 30, 20), SetSettings(size=5, smallest=2, max_tokens=110))
    assert [document.num_tokens for document in chosen] == [50, 60]
    [chosen] = sets_of(sized(50, 70, 30, 30, 20), SetSettings(size=5, smallest=2, max_tokens=110))
    assert [document.num_tokens for document in chosen] == [50, 30, 30]


@stage(DOCUMENTS)
def documents(*, num_clusters: int = 12) -> Rows:
    for cluster in range(num_clusters):
        for number in range(12):
            text = " ".join(["word"] * (10 + (7 * cluster + 3 * number) % 40))
            yield {"document_id": f"c{cluster}-{number}", "text": text, "source": "test"}


@stage(MEMBERSHIPS)
def memberships() -> Rows:
    for cluster in range(12):
        for number in range(12):
            own = {"document_id": f"c{cluster}-{number}", "cluster": cluster}
            yield {**own, "parent": 0, "similarity": 1 - number / 100}


PADDING = Padding(budgets=(600, 1_200))


@pytest.fixture
def material(place):
    lengths = count_document_tokens(place, documents(place), count=count)
    members = memberships(place)
    return (
        members,
        lengths,
        make_document_sets(place, members, lengths, settings=SetSettings(size=10)),
    )


def by_set(table) -> dict[str, list[dict]]:
    return {key: list(rows) for key, rows in groupby(table.rows(), key=lambda row: row["set_id"])}


def test_sets_hold_the_most_similar_documents_of_one_cluster(material):
    _, _, sets = material
    found = by_set(sets)
    assert list(found) == [f"{cluster}-0" for cluster in range(12)]
    assert [row["document_id"] for row in found["3-0"]] == [f"c3-{number}" for number in range(10)]
    assert found["3-0"][4]["num_tokens"] == 10 + (21 + 12) % 40


def test_a_padded_set_is_full_holds_its_members_and_distractors_from_elsewhere(place, material):
    members, lengths, sets = material
    padded = by_set(
        pad_document_sets(place, sets, members, lengths, padding=PADDING, label="padded")
    )
    assert len(padded) == 12
    assert {name.split("-")[-1] for name in padded} == {"600", "1200"}
    for name, rows in padded.items():
        cluster, _, budget = map(int, name.split("-"))
        total = sum(row["num_tokens"] for row in rows)
        assert 0.98 * budget <= total <= budget
        own = [row for row in rows if row["kind"] == "member"]
        assert {row["document_id"] for row in own} == {f"c{cluster}-{n}" for n in range(10)}
        assert all(row["cluster"] != cluster for row in rows if row["kind"] == "distractor")
        assert len({row["document_id"] for row in rows}) == len(rows)
        assert [row["position"] for row in rows] == list(range(len(rows)))
    orders = [[row["kind"] for row in rows] for rows in padded.values()]
    assert any(kinds[:10] != ["member"] * 10 for kinds in orders)


def test_padding_depends_on_the_seed_alone(place, material):
    members, lengths, sets = material
    made = [
        pad_document_sets(
            place,
            sets,
            members,
            lengths,
            padding=PADDING.model_copy(update={"seed": seed}),
            label=label,
        ).rows()
        for label, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert made[0] == made[1] != made[2]


def test_a_set_longer_than_its_budget_stays_as_it_is(place, material):
    members, lengths, sets = material
    padded = pad_document_sets(
        place, sets, members, lengths, padding=Padding(budgets=(50,)), label="short"
    )
    assert {row["kind"] for row in padded.rows()} == {"member"}


def test_documents_are_split_with_the_tokens_of_a_model(place):
    tokens = partial(count_tokens, model=str(MICRO))
    table = split_documents(
        place, documents(place), splitting=Splitting(max_tokens=16), count=tokens
    )
    rows = table.rows()
    assert all(row["num_tokens"] == tokens(row["text"]) <= 16 for row in rows)
    assert [row["position"] for row in rows if row["document_id"] == "c1-1"] == list(
        range(len([r for r in rows if r["document_id"] == "c1-1"]))
    )


def test_worker_processes_make_the_same_segments_and_lengths(place, monkeypatch):
    monkeypatch.setattr("corpus_prep.corpus.SHARD_DOCUMENTS", 1)  # one per row group
    table = documents(place, num_clusters=100, label="many")
    tokens = partial(count_tokens, model=str(MICRO))
    made = []
    for count, label in ((1, "here"), (2, "pool")):
        given = {"count": tokens, "workers": Workers(count=count)}
        made.append(
            [
                split_documents(
                    place, table, splitting=Splitting(max_tokens=16), label=f"{label}-s", **given
                ).rows(),
                count_document_tokens(place, table, label=f"{label}-l", **given).rows(),
            ]
        )
    assert made[0] == made[1] and len(made[0][1]) == table.num_rows > 1_000
