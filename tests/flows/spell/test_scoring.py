"""Rewards of the three roles from stored rows, with the paper's equations worked by hand."""

from typing import Any

import pytest

from flows.app.viewer.equations import show
from flows.spell import rewards
from flows.spell.config import QuestionerSettings
from flows.spell.rewards import questioner_rewards, responder_rewards, verifier_rewards
from tasks.benchmarks.item_scores import pass_at
from tasks.normalise import zscore
from tests.support.rows import row

YES8 = [1] * 8
NO8 = [0] * 8


def task(task_id: str = "q", malformed: str | None = None, **given: Any) -> dict:
    given = {"prompt_id": f"p-{task_id}", "task_type": "general_qa", **given}
    return row(
        "tasks", task_id=task_id, malformed=malformed, text=None if malformed else "Who?", **given
    )


def answers(
    *texts: str | None, task_id: str = "q", malformed: str = "no answer is stated"
) -> list[dict]:
    return [
        row(
            "answers",
            rollout_id=f"{task_id}-{i}",
            task_id=task_id,
            prompt_id=f"r-{task_id}",
            answer=text,
            malformed=None if text is not None else malformed,
        )
        for i, text in enumerate(texts)
    ]


def matches(*matched: bool | None, task_id: str = "q") -> list[dict]:
    return [
        row("matches", rollout_id=f"{task_id}-{i}", task_id=task_id, matched=m)
        for i, m in enumerate(matched)
    ]


def votes(answer: str, *given: int | None, **more: Any) -> list[dict]:
    malformed = [None if v is not None else "no verdict" for v in given]
    return [
        row(
            "votes",
            judge_rollout_id=f"{answer}-v{j}",
            rollout_id=answer,
            task_id="q",
            vote=v,
            malformed=m,
            **more,
        )
        for j, (v, m) in enumerate(zip(given, malformed, strict=True))
    ]


def reward_questions(tasks=None, closed_book=(), answered=(), matched=(), **settings):
    responded = list(responder_rewards(list(answered), list(matched), [], [], majority_vote=True))
    paid = questioner_rewards(
        tasks or [task()],
        list(closed_book),
        list(answered),
        responded,
        settings=QuestionerSettings(**settings),
    )
    return list(paid)


def reward_answers(answered, matched, voted, judged=(), majority_vote=True) -> list[float | None]:
    found = list(
        responder_rewards(answered, matched, list(voted), list(judged), majority_vote=majority_vote)
    )
    assert all(row["score"] == row["reward"] for row in found)
    return [row["reward"] for row in found]


def reward_votes(answered, matched, voted) -> list[dict]:
    return list(
        verifier_rewards(
            voted, list(responder_rewards(answered, matched, voted, [], majority_vote=True))
        )
    )


@pytest.mark.parametrize(
    ("right", "reward"),
    [
        (0, 0.0),
        (1, 0.0796),
        (2, 0.3247),
        (3, 0.7548),
        (4, 1.0),
        (5, 0.7548),
        (6, 0.3247),
        (7, 0.0796),
        (8, 0.0),
    ],
)
def test_a_question_is_paid_most_when_half_its_answers_are_right(right, reward):
    matched = matches(*[i < right for i in range(8)])
    (paid,) = reward_questions(answered=answers(*["x"] * 8), matched=matched)
    assert paid["reward"] == pytest.approx(reward, abs=5e-5)
    assert paid["components"] == {
        "well_formed": 1,
        "grounded": 1,
        "num_answers": 8,
        "num_right": right,
        "num_readable": 8,
        "r_bar": right / 8,
    }
    assert paid["score"] == right / 8


@pytest.mark.parametrize(
    ("sigma", "reward"),
    # exp(-(1/4)^2 / (2 sigma^2)): -1.125, -4.5, -0.5
    [(0.5 / 3, 0.3247), (0.5 / 6, 0.0111), (0.5 / 2, 0.6065)],
)
def test_sigma_widens_the_reward(sigma, reward):
    assert rewards.gaussian_reward(0.25, sigma) == pytest.approx(reward, abs=5e-5)


def test_the_four_ways_of_equation_7():
    tasks = [task("form", malformed="no JSON object"), task("known"), task("hard"), task("fair")]
    answered = [*answers("x", "x", task_id="hard"), *answers("x", "y", task_id="fair")]
    matched = [*matches(False, False, task_id="hard"), *matches(True, False, task_id="fair")]
    closed_book = [row("matches", rollout_id="c", task_id="known", matched=True)]
    paid = reward_questions(tasks, closed_book, answered, matched)
    assert [p["reward"] for p in paid] == [-1.0, -0.5, 0.0, 1.0]


@pytest.mark.parametrize(
    "malformed",
    [
        "cut off inside its thinking",
        "answer too long",
        "answer is no single non-zero number",
        "prompt over the limit",
    ],
)
def test_what_is_dropped_without_penalty_has_no_reward_and_says_why(malformed):
    (paid,) = reward_questions([task(malformed=malformed)])
    assert (paid["reward"], paid["unscorable"]) == (None, malformed)


def test_without_format_penalty_a_malformed_question_is_left_out():
    (paid,) = reward_questions([task(malformed="no JSON object")], format_penalty=False)
    assert (paid["reward"], paid["unscorable"]) == (None, "no JSON object")


def test_a_question_whose_answers_were_not_sampled_has_no_reward():
    given = answers(None, None, malformed="prompt over the limit")
    (paid,) = reward_questions(answered=given, matched=matches(None, None))
    assert (paid["reward"], paid["unscorable"]) == (None, "prompt over the limit")


def test_an_answer_that_was_not_sampled_does_not_count_and_one_that_states_nothing_is_wrong():
    given = [*answers("x", "x", None), *answers(None, malformed="engine error")[:1]]
    given[-1]["rollout_id"] = "q-3"
    (paid,) = reward_questions(answered=given, matched=matches(True, False, None, None))
    assert (paid["components"]["num_answers"], paid["components"]["num_right"]) == (3, 1)


@pytest.mark.parametrize(
    ("reward", "expected"), [("absolute_zero", [0.75, 0.0]), ("r_zero", [0.5, 0.0])]
)
def test_rival_rewards_of_the_questioner(reward, expected):
    for matched, paid in zip(([True, False, False, False], [True] * 4), expected, strict=True):
        (found,) = reward_questions(
            answered=answers(*"xxxx"), matched=matches(*matched), reward=reward
        )
        assert found["reward"] == paid


@pytest.mark.parametrize(
    ("given", "decided"),
    [
        (YES8, 1),
        (NO8, 0),
        ([1] * 5 + [0] * 3, 1),
        ([1] * 4 + [0] * 4, 0),  # a tie counts as no
        ([1] * 4 + [0] * 3 + [None], 0),  # an unreadable vote is not a yes
        ([1] * 5 + [None] * 3, 1),
        ([1] * 4 + [None] * 4, 0),
        ([None] * 8, None),
        ([1], 1),
        ([1, 0], 0),
        ([1, 0, 1], 1),
    ],
)
def test_the_majority_is_strict(given, decided):
    assert rewards.majority(given) == decided


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ([1] * 5 + [0] * 3, 0.625),
        ([1] * 4 + [0] * 4, 0.5),
        # four of eight are no majority, so the share is that of the one no
        ([1] * 4 + [0] * 1 + [None] * 3, 0.2),
        ([1] * 8, 1.0),
    ],
)
def test_the_majoritys_share_is_of_readable_votes(given, share):
    assert rewards.majority_share(given) == share


def test_the_responder_is_paid_by_the_rule_or_by_the_majority():
    answered = answers("x", "x", "x", "x", None)
    voted = [
        *votes("q-0", *YES8),
        *votes("q-1", *NO8),
        *votes("q-2", *NO8),
        *votes("q-3", 1, 1, 0, 0),
    ]
    assert reward_answers(answered, matches(False, True, False, False, None), voted) == [
        1.0,
        1.0,
        0.0,
        0.0,
        0.0,
    ]


def test_an_answer_that_was_compared_with_nothing_is_not_right_by_the_rule():
    assert reward_answers(answers("x"), [], []) == [0.0]


def test_where_no_vote_can_be_read_the_rule_alone_decides():
    voted = [*votes("q-0", None, None), *votes("q-1", None, None)]
    assert reward_answers(answers("x", "x"), matches(True, False), voted) == [1.0, 0.0]


def test_without_majority_voting_the_first_vote_decides():
    voted = votes("q-0", 1, 0, 0, 0)
    assert reward_answers(answers("x"), matches(False), voted, majority_vote=False) == [1.0]
    assert reward_answers(answers("x"), matches(False), voted) == [0.0]


def test_an_external_judge_stands_in_for_the_rule():
    judged = votes("q-0", 1)
    assert reward_answers(
        answers("x", "y"), matches(False, True), [], [*judged, *votes("q-1", 0)]
    ) == [1.0, 0.0]


def test_an_external_judge_that_cannot_be_read_does_not_say_yes():
    assert reward_answers(answers("x"), matches(True), [], votes("q-0", None)) == [0.0]


def test_where_an_external_judge_was_never_sampled_the_rule_stands():
    judged = votes("q-0", None)
    judged[0]["malformed"] = "engine error"
    assert reward_answers(answers("x"), matches(True), [], judged) == [1.0]


def test_votes_that_were_never_sampled_do_not_count():
    """Four of the five votes that exist say yes."""
    voted = votes("q-0", 1, 1, 1, 1, 0, None, None, None)
    for vote in voted[5:]:
        vote["malformed"] = "engine error"
    assert reward_answers(answers("x"), matches(False), voted) == [1.0]
    paid = reward_votes(answers("x"), matches(False), voted)
    assert [p["reward"] for p in paid] == [1.0] * 4 + [0.0] + [None] * 3
    assert paid[0]["components"] == {
        "rule": 0,
        "num_votes": 8,
        "majority": 1,
        "majority_share": 0.8,
    }


@pytest.mark.parametrize(
    ("num_votes", "because"),
    [(0, "nobody votes on this answer"), (4, "no vote could be read")],
)
def test_the_viewer_says_why_the_rule_alone_decides(num_votes, because):
    code = f"{responder_rewards.__module__}.{responder_rewards.__name__}"
    filled = show({"reward": {"code": {code: "x"}}}, {"rule": 1, "num_votes": num_votes}, 1.0, [])
    assert filled is not None and filled.because == because


def test_a_malformed_question_is_not_grounded_and_neither_is_one_answered_without_documents():
    known = [row("matches", rollout_id="c", task_id="q", matched=True)]
    for asked, closed_book, parts in (
        (task(), (), (1, 1)),
        (task(), known, (1, 0)),
        (task(malformed="no JSON object"), (), (0, 0)),
    ):
        (paid,) = reward_questions([asked], closed_book)
        assert (paid["components"]["well_formed"], paid["components"]["grounded"]) == parts


def test_a_vote_is_paid_for_agreeing_with_the_majority():
    given = [*votes("q-0", 1, 1, 1, 0, None), *votes("q-1", None, None)]
    paid = reward_votes(answers("x", "y"), matches(True, False), given)
    assert [p["reward"] for p in paid] == [1.0, 1.0, 1.0, 0.0, -1.0, None, None]
    assert {p["group_id"] for p in paid} == {"q-0", "q-1"}
    assert paid[0]["components"] == {
        "rule": 1,
        "num_votes": 5,
        "majority": 1,
        "majority_share": 0.75,
    }
    assert paid[5]["unscorable"] == "no vote on this answer could be read"


def test_a_vote_that_was_not_sampled_has_no_reward():
    given = votes("q-0", 1, 1, None)
    given[2]["malformed"] = "engine error"
    paid = reward_votes(answers("x"), matches(True), given)
    assert [(p["reward"], p["unscorable"]) for p in paid] == [
        (1.0, None),
        (1.0, None),
        (None, "engine error"),
    ]


def test_advantages_of_a_group_of_eight():
    # 3 right of 8: mean 3/8, population std sqrt(15)/8; (1 - 3/8) / (sqrt(15)/8) = 5/sqrt(15) =
    # 1.29099
    found = zscore([1, 1, 1, 0, 0, 0, 0, 0])
    assert found[:3] == pytest.approx([1.29099] * 3, abs=1e-4)
    assert found[3:] == pytest.approx([-0.774597] * 5, abs=1e-4)
    assert zscore([1, 0, 0, 0, 0, 0, 0, 0], "sample")[0] / zscore([1, 0, 0, 0, 0, 0, 0, 0])[
        0
    ] == pytest.approx(0.93541, abs=1e-4)


@pytest.mark.parametrize(
    ("k", "right", "expected"),
    # 1 - C(n-c, k)/C(n, k)
    [(1, 0, 0.0), (1, 2, 0.25), (4, 2, 0.785714), (8, 1, 1.0), (4, 8, 1.0), (2, 1, 0.25)],
)
def test_pass_at_k_of_eight_samples(k, right, expected):
    assert pass_at(k, 8, right) == pytest.approx(expected, abs=1e-5)


def test_questions_are_compared_within_their_type_where_that_is_asked():
    tasks = [task("a", task_type="finance_math"), task("b")]
    given = {"answered": [*answers("x", task_id="a"), *answers("x", task_id="b")]}
    assert [p["group_id"] for p in reward_questions(tasks, **given)] == ["p-a", "p-b"]
    assert [p["group_id"] for p in reward_questions(tasks, **given, advantage_per_type=True)] == [
        "finance_math",
        "general_qa",
    ]
