"""`selfplay findings` and the top of `selfplay status`, over rows written by hand."""

import json

from click.testing import CliRunner

from flows.app.command.cli import SECTIONS, main
from flows.app.command.end import print_end
from tests.tasks.findings.given import at, rows, score
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
    assert shown.startswith("!! The judge is wrong on 20% of the verdicts that iteration 2's")
    assert "rule judge_errs_in_training" in shown
    (finding,) = json.loads("\n".join(lines("findings", "r", "--json")))
    assert len(finding["rows"]) == 16 and "$" not in finding["sql"]
    assert "t0" in "\n".join(lines("findings", "r", "--rows"))


def test_status_begins_with_the_findings_and_tells_how_to_see_their_rows(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    assert not lines("status", "r")[0].startswith("!!")
    store.keep("r", STOPPED, {"kind": "Alarm", "why": "too few tasks", "at": "now"})
    shown = lines("status", "r")
    assert shown[0].startswith("!! The run stopped in iteration 1, after 1 tables, by Alarm")
    assert shown[1] == "   (the rows of each: selfplay findings r --rows)"


def test_a_run_without_findings_says_so(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    assert lines("findings", "r") == ["no findings: no rule detected a problem in this run"]


def test_findings_of_an_unknown_run_name_the_way_out(store):
    rows(at(store, 1), "answers", {"rollout_id": "a"})
    result = CliRunner().invoke(main, ["findings", "other"])
    assert result.exit_code == 1 and "there is no run 'other'" in result.output


def test_status_fits_a_screen_and_all_lists_every_stage(store):
    for iteration in range(1, 12):
        rows(at(store, iteration, "solving"), "answers", {"rollout_id": f"a{iteration}"})
        rows(at(store, iteration, "writing"), "tasks", {"task_id": f"t{iteration}"})
        score(store.run("r").iteration(iteration), "held", "score", n=10, score=iteration / 20)
    shown = lines("status", "r")
    assert len(shown) <= 24
    assert "iterations, without the first 5" in shown
    last = next(line for line in shown if line.startswith("│ 11 "))
    # three tables of one row each
    assert [cell.strip() for cell in last.split("│")[1:-1]] == ["11", "3", "3", "0", "0.0", "0.550"]
    assert "iteration 11 by phase" in shown and "solving" in "".join(shown)
    whole = "\n".join(lines("status", "r", "--all"))
    assert "r/iter-001/writing/step-001/tasks" in whole


def test_every_command_has_a_section_in_the_help_and_no_sentence_is_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = lines("--help")
    assert "Other:" not in shown and "Look:" in shown
    assert not [line for line in shown[1:] if "..." in line or len(line) > 80]
    assert {name for names in SECTIONS.values() for name in names} == set(main.commands)


def test_the_end_of_a_run_has_its_findings_scores_and_next_commands(store, capsys):
    judged(store, 1, wrong=set())
    judged(store, 2, wrong=set(range(8)))
    for iteration in (0, 1, 2):
        score(store.run("r").iteration(iteration), "held", "score", n=10, score=iteration / 4)
    print_end("r")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("!! The judge is wrong on 20%")
    assert shown[-2] == "held-out score of r: 0.000 → 0.250 → 0.500"
    assert shown[-1] == "next: selfplay view r, selfplay status r, selfplay judge r"
    print_end("r", is_completed=False)
    assert capsys.readouterr().out.splitlines()[-1] == "next: selfplay status r, selfplay why r"


def test_the_end_of_a_run_without_held_out_scores_says_how_to_get_one(store, capsys):
    rows(at(store, 1), "tasks", {"task_id": "t"})
    print_end("r")
    assert capsys.readouterr().out.splitlines() == ["next: selfplay view r, selfplay status r"]
    rows(at(store, 1), "updates", {})
    print_end("r")
    assert capsys.readouterr().out.splitlines()[0] == (
        "no held-out score: `selfplay evaluate r --benchmark FILE` scores the policy on questions"
        " with answers"
    )


def test_the_judge_card_is_written_as_markdown_and_json(store, tmp_path):
    judged(store, 1, wrong={0, 1})
    shown = "\n".join(lines("judge", "r"))
    assert "4 wrong verdicts, those on the most reinforced answers first" in shown
    lines("judge", "r", "--export", str(tmp_path / "card"))
    trial = json.loads((tmp_path / "card" / "judge.json").read_text())
    # 20 tasks, 2 criteria, 2 answers: 80 verdicts, of which 4 are wrong
    assert (trial["overall"][0]["n"], trial["num_wrong"], len(trial["wrong"])) == (80, 4, 4)
    assert "# The judge of r" in (tmp_path / "card" / "judge.md").read_text()
