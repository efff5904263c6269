"""What the viewer shows about judges, dropped candidates and single tokens."""

from __future__ import annotations

import math

import pytest
from tokenizers import Tokenizer

from flows.app.viewer.tokens import pieces_of
from tests.app.test_viewer import client_of, open_page
from tests.support.rows import publish, row, turn
from tests.support.scripted_play import any_text_model
from tests.support.store_to_view import lay


@pytest.fixture
def browser(store):
    """Adds to what `lay` writes: a gate that refuses and a malformed one, a group that is not
    trained on, a vote on an answer, and marks for an answer and for the task."""
    place = lay(store).iteration(1).phase("training").step(2)
    publish(
        place,
        "gates",
        row(
            "gates", task_id="t1", gate="safety", kind="model", passed=False, judge_rollout_id="j1"
        ),
        row("gates", task_id="t2", gate="safety", kind="model", malformed="no score"),
    )
    left = row(
        "groups",
        group_id="p-answer",
        task_id="t1",
        kept=False,
        reason="all alike",
        measures={"spread": 0.125},
    )
    publish(place, "groups", left, row("groups", group_id="p-task", task_id="t1", kept=True))
    publish(
        place, "votes", row("votes", rollout_id="a1", task_id="t1", judge_rollout_id="j1", vote=1)
    )
    marked = {"task_id": "t1", "judge_rollout_id": "j1", "prompt_id": "p-judge"}
    publish(
        place,
        "marks",
        row("marks", rollout_id="a1", position=0, mark=0.625, **marked),
        row("marks", **marked),
    )
    return client_of(store)


def test_the_reason_for_which_a_group_was_dropped_opens_it(browser):
    page = open_page(browser, "/run/mine/candidates?iteration=1")
    [link] = [link for link in page.links() if "reason=all%20alike" in link]
    rows = open_page(browser, link)
    assert "all alike" in rows.text and "spread 0.125" in rows.text
    assert (
        rows.links().count("/run/mine/group?id=p-answer") == 1
        and "/run/mine/group?id=p-task" not in rows.links()
    )


def test_what_a_gate_refused_and_what_could_not_be_read_opens_its_tasks(browser):
    page = open_page(browser, "/run/mine/candidates?iteration=1")
    links = [link for link in page.links() if "gate=safety" in link]
    refused, unread = (
        next(link for link in links if f"reason={reason}" in link)
        for reason in ("refused", "not%20")
    )
    assert "/run/mine/task?id=t1" in open_page(browser, refused).links()
    assert "no score" in open_page(browser, unread).text


def test_a_reason_for_which_replies_could_not_be_read_opens_them(browser, store):
    reading = row(
        "answers",
        rollout_id="a2",
        prompt_id="p-answer",
        task_id="t1",
        malformed="no answer element",
    )
    publish(store.run("mine").iteration(1).phase("training").step(3), "answers", reading)
    for reason, there in (
        ("no answer element", ["/run/mine/rollout?id=a2"]),
        ("something else", []),
    ):
        links = open_page(browser, f"/run/mine/rollouts?outcome=malformed&reason={reason}").links()
        assert [link for link in links if "rollout?" in link] == there


def test_a_task_shows_what_judges_said_by_criterion_vote_and_mark(browser):
    page = open_page(browser, "/run/mine/task?id=t1")
    said = [
        given for tag, given in page.found if tag == "details" and given.get("class") == "reply"
    ]
    # two gates, a criterion, a vote, a mark of the answer and one of the task
    assert len(said) == 6
    assert page.text.count("a plain text j1") >= len(said) and "0.625" in page.text
    judge = open_page(browser, "/run/mine/rollout?id=j1")
    assert "0.625" in judge.text and "vote" in judge.text
    assert "0.625" in open_page(browser, "/run/mine/rollout?id=a1").text


def test_a_label_that_cannot_be_kept_says_why_where_it_was_given(browser):
    said = {"kind": "task", "subject": "t1", "labeller": "a/b", "opinion": "good"}
    answer = browser.post("/run/mine/label", data=said, headers={"Origin": "http://127.0.0.1:4218"})
    assert answer.status_code == 422 and "<form" in answer.text and "a/b" in answer.text


def test_a_character_of_several_tokens_is_one_piece_with_their_joint_probability(store, tmp_path):
    model = any_text_model(tmp_path / "model")
    ids = (
        Tokenizer.from_file(f"{model}/tokenizer.json")
        .encode("task 🌙", add_special_tokens=False)
        .ids
    )
    logprobs = [math.log(0.5)] * len(ids)
    store.keep("r", "config.json", {"engine": {"model": str(model)}})
    rollout = {
        "run": "r",
        "policy": "r/none",
        "turns": [turn("", sampled_token_ids=ids, logprobs=logprobs), turn("")],
    }
    rollout["turns"][1] |= {"sampled_token_ids": [], "logprobs": []}
    pieces, unknown = pieces_of(store, rollout)
    assert "".join(piece["text"] for piece in pieces).strip() == "task 🌙" and unknown == []
    moon = next(piece for piece in pieces if "🌙" in piece["text"])
    assert (
        round(math.exp(moon["logprob"]), 4) == 0.5 ** (len(ids) - len(pieces) + 1)
        and moon["heat"] >= 2
    )


def test_an_update_has_a_histogram_of_its_advantages_whose_bars_lead_to_their_rows(store):
    """30 datums with advantages of -1, 20 of 0, 10 of +1: three bars, at the ends and the middle
    of 24."""
    place = lay(store).iteration(1).phase("solving").step(1)
    advantages = [-1.0] * 30 + [0.0] * 20 + [1.0] * 10
    publish(
        place,
        "batches",
        *(
            row("batches", rollout_id=f"b{n}", advantage=value, loss_mask=[1])
            for n, value in enumerate(advantages)
        ),
    )
    publish(place, "updates", row("updates", role="answerer", policy="p2", parent="p1"))
    browser = client_of(store)
    address = "/run/mine/update?iteration=1&phase=solving&step=1"
    bars = [link for link in open_page(browser, address).links() if "low=" in link]
    assert [link.partition("low=")[2] for link in bars] == [
        "-1.0&high=-1.0#batch",
        "0.0&high=0.0#batch",
        "1.0&high=1.0#batch",
    ]
    shown = open_page(browser, bars[1]).links()
    assert {link for link in shown if "rollout?id=b" in link} == {
        f"/run/mine/rollout?id=b{n}" for n in range(30, 50)
    }


def test_rollouts_of_a_role_can_be_searched_with_and_without_a_text(browser):
    def found(query: str) -> set[str]:
        links = open_page(browser, f"/search/rollouts?run=mine&{query}").links()
        return {link for link in links if "rollout?id=" in link}

    answers = found("role=answerer")
    assert "/run/mine/rollout?id=a1" in answers
    assert "/run/mine/rollout?id=j1" not in answers and found("role=judge")
    assert not found("role=nobody")
    assert not found("role=answerer&text=no+such+words")


def test_the_list_of_rollouts_opens_on_what_was_trained_and_says_how_many_there_are(browser):
    opened = open_page(browser, "/run/mine/rollouts")
    links = [link for link in opened.links() if "rollout?id=" in link]
    assert links == ["/run/mine/rollout?id=a1", "/run/mine/rollout?id=a2"]
    assert "1 to 2 of 2" in opened.text

    everything = open_page(browser, "/run/mine/rollouts?iteration=&role=")
    links = [link for link in everything.links() if "rollout?id=" in link]
    assert "/run/mine/rollout?id=j1" in links
    assert f"1 to {len(links)} of {len(links)}" in everything.text


@pytest.mark.parametrize("outcome", ["rewarded", "unscorable", "malformed", "error"])
def test_the_number_of_rollouts_of_an_outcome_is_that_of_the_list(browser, outcome):
    listed = open_page(browser, f"/run/mine/rollouts?outcome={outcome}")
    links = [link for link in listed.links() if "rollout?id=" in link]
    assert f"{len(links)} of {len(links)}" in listed.text or (
        not links and "Rollouts 0" in listed.text
    )
