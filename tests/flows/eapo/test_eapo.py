"""EAPO's configuration compared with the paper's numbers; rewards, selection and measures worked
by hand."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from flows.blocks.long_context import answers_to_judge
from flows.eapo.agreement import FindScores, agreeing_marks
from flows.eapo.compare import (
    best_of_n,
    find_scores,
    find_scores_in_line,
    read_scores,
    true_marks,
)
from flows.eapo.config import Config, Rewards
from flows.eapo.evidence import answer_correctness, in_contexts, measure_answers, measure_quotes
from flows.eapo.evidence_tree import from_best, from_known
from flows.eapo.flow import CONSISTENT, open_questions
from flows.eapo.readers import read_answer
from flows.eapo.rewards import policy_rewards
from flows.eapo.roles import Roles
from flows.run import Run, templates
from flows.settings import profile
from flows.worlds.tables import haystack_mark
from tasks.keep import choose
from tasks.models.engine import Policy
from tasks.prompt import Malformed
from tasks.read import NOT_SAMPLED
from tasks.readers.quotes import longest_common
from tasks.rollouts.tokens import text_of
from tests.support.rows import publish, row, turn
from tests.support.scripted_play import any_text_model
from warehouse.schemas import Task
from warehouse.store import Place

LARGE = [
    name
    for name in profile.names(profile.home(Config) / "profiles")
    if not name.startswith(("micro", "smollm2"))
]


def load(name: str, **changed: Any) -> Config:
    return profile.load(
        Config, name, {key.replace("__", "."): value for key, value in changed.items()}
    )


# ---- configuration ----


def test_leading_questions_to_train_on_propose_the_true_answer_more_often(place: Place):
    cfg = load("micro-leading", in_world=400)
    questions = open_questions(Run(cfg, place))
    answers = [task["reference"] for task in questions.tasks.rows(Task)]
    assert answers.count("yes") / 400 == pytest.approx(0.7, abs=0.06)


@pytest.mark.parametrize("name", LARGE)
def test_large_profiles_hold_the_papers_numbers(name):
    """Sections 3 and 4, appendix A: 64 questions with 6 answers each, mini-batches of 32, 20
    steps per iteration."""
    cfg = load(name)
    assert (cfg.batch_size, cfg.group_size, cfg.steps, cfg.outcome) == (64, 6, 20, "judge")
    assert (cfg.rewards.format, cfg.rewards.evidence, cfg.dialogues.temperature) == (0.1, 0.3, 1.0)
    assert (cfg.update.epsilon_low, cfg.update.epsilon_high, cfg.update.beta) == (0.2, 0.28, 0.0)
    assert cfg.update.optimizer_steps == 2
    assert (cfg.update.lora is None, cfg.update.learning_rate) == (
        (True, 2e-6) if "gpu" not in name else (False, 2e-5)
    )


@pytest.mark.parametrize(
    "switch",
    [
        *({"rewards__evidence": beta} for beta in (0.0, 0.1, 0.2, 0.4, 0.5)),
        {"reward_model__trained": False},
        {"outcome": "judge"},
        {"reward_model__high": 5},
        {"evaluation__best_of_n": False},
    ],
    ids=str,
)
def test_every_ablation_is_a_switch(switch):
    assert load("micro", **switch) != load("micro")


@pytest.mark.parametrize("name", ["micro", *LARGE])
def test_every_role_of_a_profile_has_its_prompt(name):
    cfg = load(name)
    roles = Roles(cfg)
    asked = [
        roles.policy,
        roles.evaluated_policy,
        roles.reward_model,
        *([roles.judge] if cfg.outcome == "judge" else []),
    ]
    assert [role.templates[0].name for role in asked][:3] == ["answer", "answer", "compare"]


# ---- the reward ----


def answer(
    name: str, said: str | None = "7", why: str | None = None, verbatim: float = 1.0, **other: Any
) -> Any:
    quoted = {} if said is None else {"evidence": ["x y"], "verbatim": verbatim}
    malformed = why or (None if said else "no answer element")
    return row(
        "answers",
        **{"prompt_id": "p", "task_id": "q", **other},
        rollout_id=name,
        answer=said,
        malformed=malformed,
        **quoted,
    )


def mark(
    name: str | None, value: float | None, position: int | None = None, prompt: str = "c"
) -> Any:
    why = None if value is not None else "no JSON object"
    about = {"judge_rollout_id": "j", "prompt_id": prompt, "task_id": "q", "position": position}
    return row("marks", **about, rollout_id=name, mark=value, malformed=why)


def comparison(*values: float | None) -> list[Any]:
    """Marks of the answers a, b, ... in this order; None omits one."""
    return [
        mark(name, value, i)
        for i, (name, value) in enumerate(zip("abcd", values, strict=False))
        if value is not None
    ]


def match(name: str, right: bool | None) -> Any:
    return row(
        "matches",
        rollout_id=name,
        task_id="q",
        matched=right,
        reason=None if right is not None else "timed out",
    )


def paid(
    answers: list[Any], marks: list[Any], right: dict[str, bool | None], **weights: float
) -> list[Any]:
    matches: Any = [match(name, value) for name, value in right.items()]
    return list(policy_rewards(answers, marks, matches, [], weights=Rewards(**weights)))


GROUP = [answer(name) for name in "abc"]
RIGHT: dict[str, bool | None] = {"a": True, "b": False, "c": True}


@pytest.mark.parametrize(
    ("marks", "evidence"),
    [
        ([0.0, 0.5, 1.0], [0.0, 0.5, 1.0]),
        # relative to the group: 2, 3 and 4 of 5 are worth 0, 1/2 and 1
        ([0.25, 0.5, 0.75], [0.0, 0.5, 1.0]),
        ([0.75, 0.75, 0.75], [0.75, 0.75, 0.75]),  # all equal: the mark itself, (4 - 1) / 4
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([1.0, 1.0, 0.0], [1.0, 1.0, 0.0]),
    ],
)
def test_evidence_is_paid_relative_to_its_group(marks, evidence):
    rows = paid(GROUP, comparison(*marks), RIGHT)
    assert [r["components"]["evidence"] for r in rows] == evidence
    totals = [0.1 + 0.3 * e + 0.6 * right for e, right in zip(evidence, (1, 0, 1), strict=True)]
    assert [r["reward"] for r in rows] == pytest.approx(totals, abs=1e-12)
    assert [r["score"] for r in rows] == [1.0, 0.0, 1.0]


def test_the_answers_weight_is_what_format_and_evidence_leave():
    """With beta = 0.5, 0.4 is left: 0.1 + 0.5 * 1 + 0 for b, 0.1 + 0 + 0.4 for a."""
    marks = comparison(0.0, 1.0, 0.0)
    assert [r["reward"] for r in paid(GROUP, marks, RIGHT, evidence=0.5)] == pytest.approx(
        [0.5, 0.6, 0.5]
    )
    assert [r["reward"] for r in paid(GROUP, [], RIGHT, evidence=0.0)] == pytest.approx(
        [1.0, 0.1, 1.0]
    )


def test_a_comparison_that_cannot_be_read_pays_nothing_for_evidence_and_the_rest_all_the_same():
    rows = paid(GROUP, [mark(None, None)], RIGHT)
    assert [r["reward"] for r in rows] == pytest.approx([0.7, 0.1, 0.7])
    assert all("mark" not in r["components"] for r in rows)


def test_where_a_comparison_was_asked_for_again_the_second_counts():
    marks = [mark(None, None), *comparison(0.0, 0.5, 1.0)]
    assert [r["components"]["evidence"] for r in paid(GROUP, marks, RIGHT)] == [0.0, 0.5, 1.0]


def test_a_reply_without_the_four_parts_earns_nothing_and_one_never_sampled_is_left_out():
    """The others are compared with each other: 0.5 and 0.75 are the extremes of their group."""
    answers = [answer("a"), answer("b"), answer("x", None), answer("y", None, "engine error")]
    rows = paid(answers, comparison(0.5, 0.75), {"a": True, "b": True})
    told = [(r["reward"], r["unscorable"]) for r in rows]
    assert told == [(pytest.approx(0.7), None), (1.0, None), (0.0, None), (None, "engine error")]
    assert rows[2]["components"] == {"format": 0.0}


def test_an_outcome_that_nobody_can_tell_leaves_no_reward():
    rows = paid([answer("a")], comparison(1.0), {"a": None})
    assert (rows[0]["reward"], rows[0]["unscorable"]) == (
        None,
        "nobody can tell whether the answer is right",
    )


def test_of_a_judges_votes_the_last_counts_and_an_unreadable_one_leaves_no_reward():
    votes: Any = [
        row("votes", rollout_id=name, vote=vote)
        for name, vote in (("a", None), ("b", None), ("a", 1))
    ]
    rows = list(
        policy_rewards(
            [answer("a"), answer("b"), answer("x", None)], [], [], votes, weights=Rewards()
        )
    )
    assert [r["reward"] for r in rows] == [pytest.approx(0.7), None, 0.0]


# ---- what the reward model learns from ----

HIGH_WRONG = "a high mark for a wrong answer"
LOW_RIGHT = "a low mark for a right answer"
NEUTRAL = "a mark between high and low"


def decided(place: Place, marks: Any, right: Any) -> dict[str, str | None]:
    """The decision on each answer's mark: its reason, None if it is kept."""
    rows = [mark(None, None), *comparison(*marks)]  # its first reply could not be read
    scores = [
        row("rewards", rollout_id=name, group_id="p", task_id="q", score=r)
        for name, r in zip("abcdef", right, strict=False)
    ]
    given = {"marks": publish(place, "marks", *rows), "rewards": publish(place, "rewards", *scores)}
    chosen = choose(place, CONSISTENT, **given, high=0.75, low=0.25).rows()
    assert all(group["kept"] == (group["reason"] is None) for group in chosen)
    return {group["group_id"]: group["reason"] for group in chosen}


@pytest.mark.parametrize(
    ("marks", "right", "reasons"),
    [
        ((1.0, 0.75, 0.25, 0.0), (1, 1, 0, 0), [None] * 4),  # marks of 5, 4, 2 and 1
        ((1.0, 0.5, 0.5, 0.0), (1, 0, 1, 0), [None, NEUTRAL, NEUTRAL, None]),
        # a trajectory that disagrees is dropped alone
        ((1.0, 0.75, 0.25, 0.0), (1, 0, 0, 0), [None, HIGH_WRONG, None, None]),
        ((1.0, 0.75, 0.25, 0.0), (1, 1, 1, 0), [None, None, LOW_RIGHT, None]),
        # a group needs no answers of both kinds: all right, then all wrong
        ((1.0, 1.0, 0.75, 0.5), (1, 1, 1, 1), [None, None, None, NEUTRAL]),
        ((0.25, 0.0, 0.0, 0.25), (0, 0, 0, 0), [None] * 4),
        ((1.0, 0.0, 0.5, 0.5), (1, 0, None, 0), [None, None, "the outcome is not known", NEUTRAL]),
    ],
)
def test_marks_that_agree_with_the_outcomes_are_learnt_one_by_one(place, marks, right, reasons):
    assert decided(place, marks, right) == dict(zip("abcd", reasons, strict=True))


def test_a_comparison_that_cannot_be_read_teaches_nothing(place):
    assert decided(place, (), (1, 1)) == {"c": "the comparison cannot be read"}


REPLY = 'Set 1 is vague. {"reason": "set 0", "scores": [5, 2, 3], "best_choice": 0}'


LINE = " 5 2 3\n"  # the same marks, in the set `lines`


def learnt_text(
    place: Place,
    folder: Path,
    reasons: dict[str, str | None],
    reply: str = REPLY,
    find_scores: FindScores = find_scores,
) -> list[str]:
    """What is learnt of a reply, whose marks are of the answers a, b and c, in pieces."""
    weights = str(any_text_model(folder / "model"))
    ids = (
        Tokenizer.from_file(f"{weights}/tokenizer.json").encode(reply, add_special_tokens=False).ids
    )
    rollout = row(
        "rollouts",
        rollout_id="j",
        prompt_id="c",
        turns=[turn(reply, sampled_token_ids=ids, logprobs=[-0.5] * len(ids))],
        reply=reply,
    )
    chosen = [
        row("groups", group_id=name, task_id="q", kept=reason is None, reason=reason)
        for name, reason in reasons.items()
    ]
    batch = agreeing_marks(
        place,
        publish(place, "rollouts", rollout),
        publish(place, "marks", mark(None, None), *comparison(1.0, 0.25, 0.5)),
        publish(place, "groups", *chosen),
        model=Policy(id="m", weights=weights, content_hash="h"),
        find_scores=find_scores,
    )
    pieces = []
    for datum in batch.rows():
        stored = [-0.5 * counts for counts in datum["loss_mask"]]
        assert datum["logprobs"] == stored
        tokens = zip(datum["completion_token_ids"], datum["loss_mask"], strict=True)
        for counts, some in itertools.groupby(tokens, key=lambda token: token[1]):
            if counts:
                pieces.append(text_of([token for token, _ in some], weights))
    return pieces


def test_of_a_comparison_with_a_wrong_mark_the_right_marks_alone_are_learnt(place, tmp_path):
    learnt = learnt_text(place, tmp_path, {"a": None, "b": LOW_RIGHT, "c": None})
    assert [piece.strip() for piece in learnt] == ["5", "3"]


def test_scores_in_a_line_are_learnt_alike(place, tmp_path):
    learnt = partial(learnt_text, place, tmp_path, reply=LINE, find_scores=find_scores_in_line)
    pieces = learnt({"a": None, "b": LOW_RIGHT, "c": None})
    assert [piece.strip() for piece in pieces] == ["5", "3"]


def test_a_comparison_without_wrong_marks_is_learnt_but_for_neutral_ones(place, tmp_path):
    before, after = learnt_text(place, tmp_path, {"a": None, "b": None, "c": NEUTRAL})
    assert (before.strip()[-6:], after.strip()) == ("[5, 2,", '], "best_choice": 0}')


def test_a_comparison_without_a_mark_to_keep_is_no_row(place, tmp_path):
    assert learnt_text(place, tmp_path, {"a": NEUTRAL, "b": LOW_RIGHT, "c": NEUTRAL}) == []


# ---- readers and measures ----

PARTS = "<analysis>a</analysis><evidence>{}</evidence><reasoning>r</reasoning><answer>7</answer>"


@pytest.mark.parametrize(
    ("evidence", "share"),
    [
        ("Ada lived in Ulm.", 1.0),
        ("Ada lived\n   in Ulm.", 1.0),  # two quotes, both there
        ("Ada lived in Ulm. She died in Bonn.", 0.5),
        ("“Ada lived in Ulm.” ... it was cold", 1.0),
        ("Ada lived in ulm.", 0.0),
        ("Ada is said to have lived in Ulm", 0.0),
    ],
)
def test_quotes_are_looked_for_in_the_prompt_word_for_word(evidence, share):
    prompt: Any = {"messages": [{"content": "Ada lived in  Ulm. And\nit was cold."}]}
    said: Any = {"reply": PARTS.format(evidence)}
    assert read_answer(said, prompt)["verbatim"] == share


@pytest.mark.parametrize(
    ("evidence", "num_quotes"),
    [("", 0), ("-", 0), ("Ada. " * 201, 200), ("a" * 30_001, 1)],
    ids=["none", "a dash", "201 quotes", "30,001 characters"],
)
def test_four_parts_are_the_whole_of_the_format_whatever_the_evidence_holds(evidence, num_quotes):
    """R_f is 1 if the delimiters stand in order. Of very much evidence the first 200 quotes and
    30,000 characters are read: each quote is a search of the whole prompt."""
    prompt: Any = {"messages": [{"content": "Ada lived in Ulm."}]}
    said: Any = {"reply": PARTS.format(evidence)}
    read = read_answer(said, prompt)
    assert (read["answer"], len(read["evidence"])) == ("7", num_quotes)


def test_30_000_blanks_within_a_line_are_read_at_once():
    prompt: Any = {"messages": [{"content": "Ada lived in Ulm."}]}
    said: Any = {"reply": PARTS.format(f"Ada{' ' * 29_000}lived in Ulm.")}
    assert read_answer(said, prompt)["verbatim"] == 1


def test_scores_belong_to_the_answers_in_the_order_shown():
    prompt: Any = {"rollout_ids": ["b", "a"]}
    assert read_scores({"reply": '{"scores": [5, 2]}'}, prompt, highest=5) == [  # pyright: ignore[reportArgumentType]
        {"rollout_id": "b", "position": 0, "mark": 1.0, "is_best": None},
        {"rollout_id": "a", "position": 1, "mark": 0.25, "is_best": None},
    ]
    for choice, best in (("1", [False, True]), ('"0"', [True, False]), ("2", [None, None])):
        said: Any = {"reply": f'{{"scores": [5, 5], "best_choice": {choice}}}'}
        assert [r["is_best"] for r in read_scores(said, prompt, highest=5)] == best
    with pytest.raises(Malformed, match="another number of scores"):
        read_scores({"reply": '{"scores": [5, 2, 1]}'}, prompt, highest=5)  # pyright: ignore[reportArgumentType]


def measured(pairs: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def test_a_group_counts_as_not_compared_where_no_reply_can_be_read():
    marks = [
        mark(None, None),
        mark("a", 1.0, 0),
        mark(None, None, prompt="d"),
        mark(None, None, prompt="d"),
    ]
    found = measured(measure_quotes([answer("a", verbatim=0.5), answer("b", None)], marks))
    assert found == {
        "verbatim": [0.5],
        "quotes": [1.0],
        "mark": [1.0],
        "not_compared": [0.0, 1.0],
    }


def gold(*sentences: str) -> Any:
    return [
        row("rubrics", task_id="q", criterion_id=str(i), position=i, criterion=s)
        for i, s in enumerate(sentences)
    ]


def test_held_out_recall_counts_the_sentences_that_are_quoted_whole():
    """a quotes one of two sentences and is right; b quotes both and is wrong; c is malformed."""
    answers: Any = [
        {**answer("a"), "evidence": ["Ott built it."]},
        {**answer("b"), "evidence": ["Ott built it.", "Ott is of Ulm."]},
        answer("c", None),
    ]
    tasks: Any = [row("tasks", task_id="q", text="?", task_type="multi_hop", difficulty=2)]
    about = (
        tasks,
        answers,
        [match("a", True), match("b", False)],
        [],
        gold("Ott built it.", "Ott is of Ulm."),
    )
    found = measured(measure_answers(*about))
    assert (found["score"], found["score_2_sentences"]) == ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    assert (found["evidence_recall"], found["unfounded"]) == ([0.5, 1.0, 0.0], [1.0])


def test_a_wrong_answer_errs_in_its_evidence_or_in_its_reasoning():
    """a is right. b quotes one of two sentences and is wrong, c quotes both and is wrong, d cannot
    be read, which is neither."""
    both = ["Ott built it.", "Ott is of Ulm."]
    answers: Any = [
        {**answer("a"), "evidence": both},
        {**answer("b"), "evidence": both[:1]},
        {**answer("c"), "evidence": both},
        answer("d", None),
    ]
    tasks: Any = [row("tasks", task_id="q", text="?", task_type="multi_hop")]
    matches = [match("a", True), match("b", False), match("c", False)]
    found = measured(measure_answers(tasks, answers, matches, [], gold(*both)))
    assert found["evidence_error"] == [0.0, 1.0, 0.0, 0.0]
    assert found["reasoning_error"] == [0.0, 0.0, 1.0, 0.0]


def test_best_of_n_is_the_share_of_highest_marks_whose_evidence_is_the_best():
    """a quotes all four words, b two, c none. The reward model marks a and b highest: half
    right; chance is 1/3."""
    evidence = {"a": ["Ott built the mill"], "b": ["Ott built"], "c": ["Rain fell"]}
    answers: Any = [{**answer(name), "evidence": quotes} for name, quotes in evidence.items()]
    marks = comparison(1.0, 1.0, 0.5)
    found = measured(best_of_n(marks, answers, gold("Ott built the old mill")))
    assert found == {"best_of_n": [0.5], "best_of_n_by_chance": [pytest.approx(1 / 3)]}
    for best, score in (("a", 1.0), ("b", 0.0)):  # of equal marks, its `best_choice` decides
        chosen = [{**given, "is_best": given["rollout_id"] == best} for given in marks]
        found = measured(best_of_n(chosen, answers, gold("Ott built the old mill")))
        assert found["best_of_n"] == [score]
    alike: Any = [{**given, "evidence": ["Ott built"]} for given in answers]
    assert measured(best_of_n(marks, alike, gold("Ott built the old mill"))) == {}
    assert longest_common([], ["a"]) == 0


def test_marks_are_compared_with_what_the_quotes_deserve():
    question = "what is the craft of the ruler of Ba ?"
    quotes = {
        "a": ["Ba has ruler Ce .", "Ce has craft mito ."],
        "b": ["Ce has craft mito ."],
        "c": ["Ba has ruler Ce ."],
    }
    answers: Any = [{**answer(name), "evidence": said} for name, said in quotes.items()]
    marks = comparison(1.0, 0.5, 0.5)
    tasks: Any = [row("tasks", task_id="q", text=question)]
    found = measured(true_marks(marks, answers, tasks, oracle=haystack_mark))
    assert found == {
        "mark_error": [0.0, 1.0, 0.0],
        "mark_minus_truth": [0.0, 0.5, 0.0],
        "true_mark": [1.0, 0.0, 0.5],
    }


def test_a_judge_is_shown_every_right_answer_and_may_pass_what_the_question_does_not_ask():
    cfg = profile.load(Config, "micro", {"outcome": "judge", "dialogues.prompts": "english"})
    judge = Roles(cfg).judge
    assert judge is not None
    shown = judge.templates[0].render(
        question="Who wrote it?",
        options=[],
        answer="Clemens",
        references=["Mark Twain", "Samuel Clemens"],
    )
    assert "- Mark Twain\n- Samuel Clemens\n" in shown
    assert "may hold more than the question asks" in shown


def test_answers_that_were_never_sampled_enter_no_score():
    tasks: Any = [row("tasks", task_id="q", text="?", task_type="multi_hop")]
    lost = [answer("b", None, NOT_SAMPLED[0]), answer("c", None, NOT_SAMPLED[1])]
    votes: Any = [row("votes", rollout_id="a", vote=1)]
    found = measured(measure_answers(tasks, [answer("a"), *lost], [match("a", True)], [], []))
    assert (found["score"], found["not_sampled"]) == ([1.0], [0.0, 1.0, 1.0])
    assert answer_correctness(lost, [], votes) == {"b": None, "c": None}


# ---- choices, and settings of held-out scores ----


def test_a_choice_has_all_its_options_in_every_prompt():
    options = [f"option {number}" for number in range(6)]
    tasks: Any = [
        row("tasks", task_id="q", document_id="d", text="?", reference="F", options=options)
    ]
    shown: list[Any] = [
        *in_contexts(tasks, [row("documents", document_id="d", text="Text.")]),  # pyright: ignore[reportArgumentType]
        *from_best([row("nodes", node_id="n", task_id="q", text="Text.", best=True)], tasks),  # pyright: ignore[reportArgumentType]
        *from_known(tasks, gold("Text.")),
    ]
    cfg = profile.load(Config, LARGE[0])
    asked_by = (("answer", "direct"), ("grounded",), ("grounded",))
    for about, names in zip(shown, asked_by, strict=True):
        for name, prompts in itertools.product(names, ("english", "paper")):
            text = templates(cfg, prompts)(name).render(**about)
            assert "A) option 0" in text and "F) option 5" in text
    (about,) = answers_to_judge([{**answer("a"), "answer": "F"}], tasks)  # pyright: ignore[reportArgumentType]
    for prompts in ("english", "paper"):
        text = templates(cfg, prompts)("judge").render(**about)
        assert "- F) option 5" in text and "A) option 0" in text


def test_known_evidence_is_asked_about_where_it_is_known():
    tasks: Any = [row("tasks", task_id=name, text="?") for name in ("q", "other")]
    assert [about["task_id"] for about in from_known(tasks, gold("Text."))] == ["q"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"evaluation.trees.modes": ["direct"]}, "need held-out questions"),
        ({"evaluation.needles": {"lengths": [1000]}}, "need held-out questions"),
        (
            {"evaluation.needles": {"lengths": [448]}, "evaluation.benchmark": "micro"},
            "a haystack of 448 tokens does not fit",
        ),
    ],
)
def test_needles_and_trees_that_could_not_be_scored_are_refused(settings, problem):
    own = {"evaluation.benchmark": "none", **settings}
    with pytest.raises(ValueError, match=problem):
        profile.load(Config, "micro", own)
