"""A report opens with what to know first and what the run is; steps stand where they were in time;
what is not needed at first sight is folded."""

from __future__ import annotations

import json
import re

import pytest

from tasks.report import redraw, report
from tasks.reports.data import placed
from tests.support.rows import publish, row
from tests.support.store_to_view import lay

RULE = """-- title:         answers say plain
-- severity:      warning
-- sentence:      {number} answers of iteration {iteration} say "plain" & <more>.
-- compared with: nothing
-- page:          rollouts
-- grain:         an iteration
-- inputs:        answers; $run
select iteration, count(*) as number, null as compared_with
from answers where run = $run and answer ilike '%plain%' group by iteration;

-- rows: the answers
select rollout_id, task_id from answers where run = $run and iteration = $iteration;
"""


@pytest.fixture
def rules(tmp_path):
    folder = tmp_path / "findings"
    folder.mkdir()
    (folder / "says_plain.sql").write_text(RULE)
    return (folder,)


def test_a_report_opens_with_findings_that_lead_to_their_rows(store, rules):
    place = lay(store)
    page = report(place, 1, rules).read_text(encoding="utf-8")
    before_tiles = page.partition('class="tiles"')[0]
    assert "1 answers of iteration 1 say &#34;plain&#34; &amp; &lt;more&gt;." in before_tiles
    assert "/run/mine/finding?rule=says_plain&amp;iteration=1" in before_tiles
    assert "<td>a1</td>" in before_tiles and "from answers where run = 'mine'" not in page[:200]
    assert "warning" in report(place, 1, rules).with_suffix(".md").read_text(encoding="utf-8")


def test_a_report_without_findings_says_nothing_of_them(store):
    place = store.run("quiet")
    publish(place.iteration(1), "evaluations", row("evaluations", benchmark="b", metric="score"))
    assert "What to know first" not in report(place, 1).read_text(encoding="utf-8")


def test_a_report_names_model_corpus_seed_and_the_settings_that_were_given(store):
    place = lay(store)
    config = {"models": {"base": "tiny", "start": None}, "world": "ledgers", "seed": 7}
    store.keep("mine", "config.json", config)
    given = {"seed": 7, "models.base": "tiny", "solver.steps": 3}
    store.keep("mine", "request.json", {"flow": "scope-iteration", "overrides": given})
    page = report(place, 1).read_text(encoding="utf-8")
    said = re.sub(r"<[^>]+>", "", page.partition('class="about"')[2].partition("</p>")[0])
    for words in (
        "model tiny",
        "corpus built-in world ledgers",
        "seed 7",
        "set by the last command solver.steps=3",
    ):
        assert words in said, said
    assert "seed=7" not in said and "models.base" not in said  # said once


def test_most_figures_examples_and_numbers_are_folded(store):
    page = report(lay(store), 1).read_text(encoding="utf-8")
    assert page.count('<details class="section">') == 5
    assert 'details class="section" open' not in page


def test_a_rule_that_is_changed_makes_the_report_stale_and_it_is_redrawn_on_request(store, rules):
    path = report(lay(store), 1, rules)
    [file] = rules[0].glob("*.sql")
    file.write_text(RULE.replace("answers of iteration", "replies of iteration"))
    redraw(store, "mine", rules)
    assert "1 replies of iteration 1" in path.read_text(encoding="utf-8")


def test_a_step_stands_where_it_was_in_the_time_of_its_iteration():
    """Iteration 2 works for 40 s, with a pause of 100 s: 10 s write, 30 s train."""
    made = [
        {"iteration": 2, "phase": "write", "step": 1, "started_at": 0.0, "seconds": 10.0},
        {"iteration": 2, "phase": "train", "step": 1, "started_at": 110.0, "seconds": 30.0},
    ]
    steps = [{"iteration": 2, "phase": phase, "step": 1} for phase in ("write", "train")]
    of_run = {"iteration": 2, "phase": "train", "step": None}
    rows = placed({"scores": [*steps, of_run]}, json.dumps(made))["scores"]
    assert [row.get("span") for row in rows] == [(1.0, 1.25), (1.25, 2.0), None]
