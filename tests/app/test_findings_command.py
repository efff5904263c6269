"""`selfplay findings` and the top of `selfplay status`, over rows written by hand."""

import json

from click.testing import CliRunner

from flows.app.command.cli import main
from tests.tasks.findings.given import at, rows
from tests.tasks.findings.test_judge_rules import judged
from warehouse.stopped import STOPPED


def lines(*command: str) -> list[str]:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_findings_print_a_sentence_and_its_rule_and_json_holds_sql_and_rows(store):
    judged(store, 1, wrong=set())
    judged(store, 2, wrong=set(range(8)))
    shown = " ".join(line.strip() for line in lines("findings", "r"))
    assert shown.startswith("!! The judge is wrong on 20.0% of the verdicts that iteration 2's")
    assert "rule judge_errs_in_training" in shown
    (finding,) = json.loads("\n".join(lines("findings", "r", "--json")))
    assert len(finding["rows"]) == 16 and "$" not in finding["sql"]
    assert "t0" in "\n".join(lines("findings", "r", "--rows"))


def test_status_begins_with_the_findings_and_tells_how_to_see_their_rows(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    assert not lines("status", "r")[0].startswith("!!")
    store.keep("r", STOPPED, {"kind": "Alarm", "why": "too few tasks", "at": "now"})
    shown = lines("status", "r")
    assert shown[0].startswith("!! The run stopped after 1 tables, in iteration 1, by Alarm")
    assert shown[1] == "   (the rows of each: selfplay findings r --rows)"


def test_a_run_without_findings_says_so(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    assert lines("findings", "r") == ["no findings: no rule speaks for this run"]


def test_findings_of_an_unknown_run_name_the_way_out(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    result = CliRunner().invoke(main, ["findings", "other"])
    assert result.exit_code == 1 and "there is no run 'other'" in result.output
