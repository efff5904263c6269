"""EAPO's two iterations over a scripted engine: one step of two questions, three answers each.

Every number is worked out by hand from the script.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.eapo.flow import eapo_iteration
from tasks.monitors.monitor import Alarm
from tests.support.scripted_play import Asked, Script, any_text_model, first_stale_in_fork, perform
from warehouse.query import query
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "iterations": 2,
    "steps": 1,
    "batch_size": 2,
    "group_size": 3,
    "outcome": "judge",
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.input_tokens": 3000,
    "dialogues.response_tokens": 512,
    "update.shared_prompt_tokens": 4096,
    "evaluation.benchmark": "none",
    "monitor.max_sampler_kl": None,  # a script samples nothing
}
MILL = "Where did the founder of the mill come from?"
BRIDGE = "When did the bridge fall?"
FOUNDED = "The mill was founded by Ott."
ORIGIN = "Ott came from Ulm."
FELL = "The bridge fell in 1902."
QUESTIONS = [
    {
        "id": "mill",
        "question": MILL,
        "answer": "Ulm-Donau",
        "context": f"{FOUNDED} It rained. {ORIGIN}",
    },
    {"id": "bridge", "question": BRIDGE, "answer": "anno 1902", "context": f"It was cold. {FELL}"},
]
PARTS = (
    "<analysis>a</analysis>\n<evidence>\n{}\n</evidence>\n"
    "<reasoning>r</reasoning>\n<answer>{}</answer>"
)
ANSWERS = {
    MILL: [
        PARTS.format(f"{FOUNDED}\n{ORIGIN}", "Ulm"),
        PARTS.format("Ott was a Swede.", "Bonn"),
        "Ulm, I think",
    ],
    BRIDGE: [PARTS.format(FELL, "1902"), PARTS.format(f"{FELL} It was cold.", "1902"), None],
}
COMPARED = {
    MILL: ['{"scores": [5, 1], "best_choice": 0}'],
    BRIDGE: ["no object", '{"scores": [5, 4, 3]}'],
}


def say(compared: dict[str, list[str]]):
    def reply(asked: Asked) -> str | None:
        question = next(text for text in (MILL, BRIDGE) if text in asked.text)
        if asked.template == "answer":
            return ANSWERS[question][asked.sample]
        if asked.template == "compare":
            return compared[question][min(asked.attempt, len(compared[question]) - 1)]
        return (
            "[[INCORRECT]]" if "Bonn" in asked.text else "<think>[[INCORRECT]]</think> [[CORRECT]]"
        )

    return reply


def play(
    folder: Path, compared: dict[str, list[str]] = COMPARED, **changed: object
) -> tuple[Store, Script]:
    script = Script(say(compared))
    store = Store(folder / "store")
    file = folder / "questions.jsonl"
    file.write_text(
        "".join(json.dumps({**one, "task_type": "multi_hop"}) + "\n" for one in QUESTIONS)
    )
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        eapo_iteration(
            "micro", "r", {**SETTINGS, "models.base": model, "questions": str(file), **changed}
        )
    return store, script


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("eapo"))


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_the_policy_is_paid_for_format_evidence_and_answer(played) -> None:
    """MILL: marks of 5 and 1 out of 5 are 1 and 0 within the group; BRIDGE: the comparison fails
    twice, so evidence pays nothing."""
    paid = rows(
        played,
        """
        select
            advantages.task_id, round(reward, 6), components['evidence'], components['verbatim'],
            unscorable
        from advantages join rollouts using (run, iteration, rollout_id)
        where iteration = 1
        order by task_id, sample
        """,
    )
    assert paid == [
        ("bridge", 0.7, 0.0, 1.0, None),
        ("bridge", 0.7, 0.0, 1.0, None),
        ("bridge", None, None, None, "engine error"),
        ("mill", 1.0, 1.0, 1.0, None),
        ("mill", 0.1, 0.0, 0.0, None),
        ("mill", 0.0, None, None, None),
    ]


def test_a_comparison_is_asked_for_once_more_and_each_reply_says_why_it_was_not_read(
    played,
) -> None:
    told = rows(
        played,
        "select malformed from marks where iteration = 1 and task_id = 'bridge' order by all",
    )
    assert told == [("another number of scores than of sets",), ("no JSON object",)]
    assert rows(
        played,
        "select position, mark from marks where task_id = 'mill' and iteration = 1 order by all",
    ) == [
        (0, 1.0),
        (1, 0.0),
    ]


def test_the_reward_model_learns_from_the_comparison_that_agrees_with_the_outcomes(played) -> None:
    chosen = rows(
        played,
        "select task_id, kept, reason from groups where iteration = 1 order by task_id",
    )
    unread = ("bridge", False, "the comparison cannot be read")
    # the marks of 5 for the right answer and of 1 for the wrong one, each a trajectory
    assert chosen == [unread, ("mill", True, None), ("mill", True, None)]
    learnt = rows(
        played,
        """
        select rollouts.role, reply, advantage from batches join rollouts using (run, rollout_id)
        where batches.phase = 'reward_model' and batches.iteration = 1
        """,
    )
    assert learnt == [("reward_model", COMPARED[MILL][0], 1.0)]


def test_both_players_are_updated_and_the_next_iteration_compares_with_the_new_reward_model(
    played,
) -> None:
    updates = rows(played, "select role, policy, parent from updates order by iteration, role")
    assert [role for role, *_ in updates] == ["policy", "reward_model"] * 2
    assert [parent for *_, parent in updates[2:]] == [policy for _, policy, _ in updates[:2]]
    used = rows(
        played, "select distinct role, policy from rollouts where iteration = 2 order by role"
    )
    assert dict(used) == {"judge": "model", "policy": updates[0][1], "reward_model": updates[1][1]}
    assert len(rows(played, "select policy from policies")) == 5


def test_nobody_sees_what_it_should_not(played) -> None:
    """The policy sees no reference; the reward model no context, answer or reference; the judge
    no context."""
    seen = {
        name: [a.text for a in played[1].asked if a.template == name]
        for name in ("answer", "compare", "judge")
    }
    assert all(seen.values())
    assert not any(word in text for text in seen["answer"] for word in ("Donau", "anno"))
    assert not any(
        word in text for text in seen["compare"] for word in ("Donau", "anno", "Bonn", "It rained")
    )
    assert not any(word in text for text in seen["judge"] for word in ("It rained", "founded"))


def test_quotes_are_watched_against_the_context(played) -> None:
    """Three of four readable answers quote word for word, with 2, 1, 1 and 2 quotes; one of two
    comparisons failed."""
    found = rows(
        played,
        "select metric, score from evaluations where benchmark = 'quote monitor' and iteration = 1"
        " order by metric",
    )
    assert found == [("mark", 0.5), ("not_compared", 0.5), ("quotes", 1.5), ("verbatim", 0.75)]


def test_too_little_that_is_quoted_from_the_context_stops_the_run_before_its_update(
    tmp_path,
) -> None:
    with pytest.raises(Alarm, match=r"verbatim is 0\.75, the limit is 0\.8"):
        play(tmp_path, COMPARED, **{"monitor.min_verbatim": 0.8})
    assert query(tmp_path / "store", "select * from updates") == []


def test_comparisons_that_nobody_can_read_stop_the_run_before_its_update(tmp_path) -> None:
    with pytest.raises(Alarm, match=r"not_compared is 1, the limit is 0\.5"):
        play(tmp_path, {MILL: ["none"], BRIDGE: ["none"]}, unread="warn")
    assert query(tmp_path / "store", "select * from updates") == []


def test_outcome_only_compares_nothing_and_trains_no_reward_model(tmp_path) -> None:
    done = play(tmp_path, COMPARED, **{"rewards.evidence": 0.0, "iterations": 1})
    assert {asked.template for asked in done[1].asked} == {"answer", "judge"}
    assert rows(done, "select distinct role from updates") == [("policy",)]
    assert rows(
        done, "select round(reward, 6) from advantages where task_id = 'mill' order by reward desc"
    ) == [
        (1.0,),
        (0.1,),
        (0.0,),
    ]


def test_outcome_only_can_have_its_evidence_marked_by_a_model_that_is_never_trained(
    tmp_path,
) -> None:
    done = play(
        tmp_path, COMPARED, **{"rewards.evidence": 0.0, "always_compare": True, "iterations": 1}
    )
    assert rows(done, "select distinct role from updates") == [("policy",)]
    assert rows(
        done, "select distinct policy from rollouts where role = 'reward_model' and iteration = 1"
    ) == [("model",)]
    # the marks are measured and earn nothing
    [(mark,)] = rows(
        done,
        "select score from evaluations where benchmark = 'quote monitor' and metric = 'mark'",
    )
    assert mark == 0.5
    paid = "select distinct round(reward, 6) from advantages where task_id = 'mill' order by all"
    assert rows(done, paid) == [(0.0,), (0.1,), (1.0,)]


def test_a_frozen_reward_model_compares_and_is_not_updated(tmp_path) -> None:
    done = play(tmp_path, COMPARED, **{"reward_model.trained": False})
    assert rows(done, "select distinct role from updates") == [("policy",)]
    assert rows(done, "select distinct policy from rollouts where role = 'reward_model'") == [
        ("model",)
    ]


def test_held_out_questions_are_scored_and_the_reward_model_chooses_among_the_first_answers(
    tmp_path,
) -> None:
    """Three of five answers are right, and three quote everything required; one is wrong, one
    cannot be read, and a sixth was never sampled. MILL's marks could be read: the better of its two
    sets of quotes is marked higher."""
    held = tmp_path / "held.jsonl"
    evidence = {"mill": [FOUNDED, ORIGIN], "bridge": [FELL]}
    lines = (
        {**one, "task_type": "multi_hop", "evidence": evidence[one["id"]]} for one in QUESTIONS
    )
    held.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = play(
        tmp_path,
        COMPARED,
        **{"evaluation.benchmark": str(held), "evaluation.samples": 3, "iterations": 1},
    )
    sql = (
        "select metric, round(score, 4) from evaluations where phase = 'evaluation' and iteration ="
        " {} order by all"
    )
    assert rows(done, sql.format(0)) == rows(done, sql.format(1))
    assert rows(done, sql.format(1)) == [
        ("best_of_n", 1.0),
        ("best_of_n_by_chance", 0.5),
        ("evidence_error", 0.2),
        ("evidence_recall", 0.6),
        ("not_sampled", 0.1667),
        ("reasoning_error", 0.0),
        ("score", 0.6),
        ("score_multi_hop", 0.6),
        ("unanswered", 0.2),
        ("unfounded", 0.0),
        ("verbatim", 0.75),
    ]


def test_a_fork_shares_the_iteration_and_builds_the_next(played, tmp_path) -> None:
    stale = first_stale_in_fork(eapo_iteration, played[0], tmp_path, seed=5, iterations=3)
    assert stale and stale.startswith("f/iter-002/")
