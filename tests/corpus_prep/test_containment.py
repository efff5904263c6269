"""Documents that are contained in longer ones: which, in which, and compared with plain Python
sets."""

import json
import random

from corpus_prep.dedup import containment
from corpus_prep.dedup.containment import Containment
from corpus_prep.dedup.prefixes import count_shingles
from tasks.corpus.containment import COUNTS, find_contained, measure_containment, screen_contained
from tests.corpus_prep.test_dedup import stored
from tests.support.corpora import documents, generated
from tests.support.rows import publish, row
from tests.support.truth import defined_shingles


def found(place, texts, screened=(), **settings):
    table = stored(place, documents(texts))
    containments = find_contained(place, table, screened=screened, settings=Containment(**settings))
    return (
        table,
        containments,
        {r["document_id"]: (r["holder_id"], r["share"]) for r in containments.rows()},
    )


def test_what_stands_in_another_document_to_nine_tenths_is_found_in_it(place):
    rng = random.Random(0)
    texts = list(generated(300, seed=5))
    pages = list(generated(60, seed=6, words=(60, 90)))
    for n, page in enumerate(pages):
        words = page.split()
        words[len(words) // 2] = "changed"  # 5 shingles of it
        quoted = (
            page if n < 30 else " ".join(words) if n < 50 else " ".join(words[: len(words) // 2])
        )
        texts[n] = f"{texts[n]} {quoted} {next(generated(1, seed=100 + n))}"
    texts += pages
    rng.shuffle(texts)
    _, _, held = found(place, texts)
    sets = [defined_shingles(text) for text in texts]
    shares = {
        (a, b): len(x & y) / len(x)
        for a, x in enumerate(sets)
        for b, y in enumerate(sets)
        if len(y) > len(x)
    }
    due = {
        f"d{a}": (f"d{b}", share)
        for (a, b), share in shares.items()
        if share >= 0.9 and len(sets[a]) >= 20
    }
    assert held == due
    assert len(held) == 50


def test_a_document_goes_only_for_one_that_stays_and_short_ones_stay(place):
    inner, middle, outer = (
        next(generated(1, seed, (n, n + 1))) for seed, n in ((1, 40), (2, 40), (3, 40))
    )
    short = " ".join(inner.split()[:20])  # 16 shingles
    texts = [inner, f"{inner} {middle}", f"{outer} {inner} {middle} {outer}", short]
    table, containments, held = found(place, texts)
    assert held == {"d0": ("d2", 1.0), "d1": ("d2", 1.0)}
    screening = screen_contained(place, table, containments, label="contained")
    assert [(r["document_id"], r["reason"], r["instead"]) for r in screening.rows()] == [
        ("d0", "contained", "d2"),
        ("d1", "contained", "d2"),
        ("d2", None, None),
        ("d3", None, None),
    ]
    earlier = publish(
        place, "screenings", row("screenings", document_id="d2", kept=False, reason="x"), label="l"
    )
    again = find_contained(place, table, screened=[earlier], settings=Containment(), label="again")
    assert [(r["document_id"], r["holder_id"]) for r in again.rows()] == [("d0", "d1")]


def test_documents_that_share_a_template_are_counted_and_cost_no_pairs_of_all(place):
    template = next(generated(1, 9, (100, 101)))
    texts = (
        [f"{template} {text}" for text in generated(200, 4, (50, 60))]
        + list(generated(50, 5))
        + [template]
    )
    table, containments, held = found(place, texts, max_holders=8)
    assert held.keys() == {"d250"} and held["d250"][1] == 1.0
    counts = json.loads((containments.files / COUNTS).read_text())
    assert counts == {
        "documents with boilerplate": 201,
        "documents of which half is boilerplate": 201,
    }
    screening = screen_contained(place, table, containments, label="contained")
    rows = measure_containment(place, containments, screening).rows()
    measured = {(r["part"], r["metric"]): r["value"] for r in rows}
    assert measured["contained", "dropped: contained"] == 1
    assert measured["containments", "documents with boilerplate"] == 201


def test_shingles_of_other_documents_in_every_slot_are_no_boilerplate(place, monkeypatch):
    def as_in_a_large_corpus(folders, chosen):
        return count_shingles(folders, chosen) + 150

    monkeypatch.setattr(containment, "count_shingles", as_in_a_large_corpus)
    _, containments, _ = found(place, list(generated(10, 5)))
    counts = json.loads((containments.files / COUNTS).read_text())
    assert counts == {
        "documents with boilerplate": 0,
        "documents of which half is boilerplate": 0,
    }
