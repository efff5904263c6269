"""Findings of a run: their order, their SQL, rules of the user, and rules that cannot be read."""

import json

import pytest

from tasks.findings.find import findings
from tasks.findings.rules import Rule, Unreadable, read_rules
from tests.tasks.findings.given import RUN, at, found, rows
from warehouse.lake import Lake
from warehouse.query import query
from warehouse.stopped import STOPPED

OWN = """\
-- title:         short answers
-- severity:      note
-- sentence:      {number:%} of the answers of iteration {iteration} are "yes".
-- compared with: nothing
-- page:          rollouts
-- $least = 0.5:  the share from which on the rule speaks
-- grain:         an iteration, the worst first
-- inputs:        answers; $run
select iteration, avg((answer = 'yes')::int) as number, null as compared_with
from answers where run = $run group by iteration having number > $least order by number desc;

-- rows: the answers
select rollout_id from answers
where run = $run and iteration = $iteration and answer = 'yes' order by rollout_id;
"""


def test_a_run_without_a_problem_has_no_findings(store):
    rows(at(store, 1), "answers", {"rollout_id": "a", "answer": "no"})
    assert findings(Lake(store), RUN) == []


def test_every_shipped_rule_states_its_title_severity_sentence_and_comparison():
    rules = read_rules()
    assert len(rules) == 21
    assert [rule for rule in rules if not isinstance(rule, Rule)] == []


def test_a_rule_in_a_folder_of_the_users_own_speaks_and_its_sql_selects_its_rows(store, tmp_path):
    (tmp_path / "short_answers.sql").write_text(OWN)
    answers = [("a", "yes"), ("b", "yes"), ("c", "no")]
    rows(at(store, 2), "answers", *({"rollout_id": i, "answer": text} for i, text in answers))
    finding = found(store, "short_answers", folders=(tmp_path,))
    assert finding is not None
    assert finding.sentence == '67% of the answers of iteration 2 are "yes".'
    assert finding.rows == ({"rollout_id": "a"}, {"rollout_id": "b"})
    assert query(store.root, finding.sql) == list(finding.rows)


def test_a_users_file_with_the_name_of_a_rule_replaces_it(store, tmp_path):
    (tmp_path / "stopped.sql").write_text(OWN)
    named = [rule for rule in read_rules((tmp_path,)) if getattr(rule, "name", "") == "stopped"]
    assert [rule.title for rule in named if isinstance(rule, Rule)] == ["short answers"]


def test_a_rule_that_cannot_be_read_or_computed_says_so_and_the_others_still_speak(store, tmp_path):
    (tmp_path / "no_page.sql").write_text(OWN.replace("-- page:          rollouts\n", ""))
    (tmp_path / "wrong.sql").write_text(OWN.replace("avg((answer", "avg((anser"))
    (tmp_path / "short_answers.sql").write_text(OWN)
    rows(at(store, 1), "answers", {"rollout_id": "a", "answer": "yes"})
    sentences = [one.sentence for one in findings(Lake(store), RUN, folders=(tmp_path,))]
    assert len(sentences) == 3
    assert "its header has no line `-- page: ...`" in sentences[0]
    assert "the rule wrong cannot be computed" in sentences[2] and "anser" in sentences[2]


@pytest.mark.parametrize(
    "sentence", ["{compared_with:.2f}", "{}", "{number.x}", "{missing}", "{number:d}"]
)
def test_a_sentence_that_cannot_be_written_is_a_finding_of_its_own(store, tmp_path, sentence):
    (tmp_path / "own.sql").write_text(OWN.replace('are "yes".', sentence))
    rows(at(store, 1), "answers", {"rollout_id": "a", "answer": "yes"})
    [finding] = findings(Lake(store), RUN, folders=(tmp_path,))
    assert finding.sentence.startswith("the rule own cannot be computed")


def test_a_file_in_another_encoding_or_with_an_unknown_page_is_no_rule(store, tmp_path):
    (tmp_path / "latin.sql").write_bytes(OWN.replace("short", "kürzere").encode("latin-1"))
    (tmp_path / "search.sql").write_text(OWN.replace("rollouts\n--", "search\n--", 1))
    latin, page = [one for one in read_rules((tmp_path,)) if isinstance(one, Unreadable)]
    assert "latin.sql: 'utf-8' codec can't decode" in str(latin)
    assert "page 'search' is none of candidates, documents" in str(page)


def test_what_stopped_a_run_is_no_finding_of_an_earlier_iteration(store):
    for iteration in (1, 2):
        rows(at(store, iteration), "answers", {"rollout_id": f"a{iteration}", "answer": "no"})
    store.keep(RUN, STOPPED, {"kind": "Alarm", "why": "too few tasks", "at": "now"})
    lake = Lake(store)
    assert findings(lake, RUN, iteration=1) == []
    assert [one.rule for one in findings(lake, RUN, iteration=2)] == ["stopped"]


def test_the_error_that_stopped_a_run_stands_first(store, tmp_path):
    (tmp_path / "short_answers.sql").write_text(OWN)
    rows(at(store, 1), "answers", {"rollout_id": "a", "answer": "yes"})
    rows(at(store, 2), "answers", {"rollout_id": "b", "answer": "no"})
    store.keep(RUN, STOPPED, {"kind": "Alarm", "why": "too  few\ntasks", "at": "now"})
    first, second = findings(Lake(store), RUN, folders=(tmp_path,))
    assert first.sentence == (
        "The run stopped in iteration 2, after 2 tables, by Alarm: too few tasks"
    )
    assert second.rule == "short_answers"


def test_up_to_an_iteration_later_tables_are_not_read(store, tmp_path):
    (tmp_path / "short_answers.sql").write_text(OWN)
    rows(at(store, 2), "answers", {"rollout_id": "a", "answer": "yes"})
    lake = Lake(store)
    assert findings(lake, RUN, iteration=1, folders=(tmp_path,)) == []
    assert len(findings(lake, RUN, iteration=2, folders=(tmp_path,))) == 1
    assert json.dumps([one.iteration for one in findings(lake, RUN, folders=(tmp_path,))]) == "[2]"


def test_one_rule_can_be_asked_for_alone(store, tmp_path):
    rows(at(store, 1), "answers", *({"rollout_id": f"a{n}", "answer": "x"} for n in range(3)))
    for name in ("mine", "other"):
        (tmp_path / f"{name}.sql").write_text(
            "-- title: t\n-- severity: note\n-- sentence: {number} answers\n"
            "-- compared with: nothing\n-- page: rollouts\n"
            "select count(*) as number, null as compared_with from answers where run = $run;\n"
            "-- rows: the answers\nselect rollout_id from answers where run = $run;\n"
        )
    (tmp_path / "unreadable.sql").write_text("select 1;")
    spoken = findings(Lake(store), RUN, folders=(tmp_path,), only="other")
    assert [(one.rule, one.sentence) for one in spoken] == [("other", "3 answers")]
