"""Absolute Zero's Algorithm 1 once over a scripted engine, with programs that really run.

Every number is worked out by hand from the script: one round of seeding and one step, two proposals
and two answers of every type.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flows.app.viewer.equations import show
from flows.azr.config import Config
from flows.azr.flow import azr_iteration
from flows.azr.programs import is_same_output
from flows.environments.environment import environment_of
from flows.environments.recorded import Recording
from flows.pilot.play import play_pilot
from flows.pilot.signals import measure
from flows.runtime.record import last_request
from flows.runtime.request import Request
from flows.settings import profile
from tests.support.scripted_play import (
    Asked,
    Script,
    any_text_model,
    changed_if,
    first_stale_in_fork,
    perform,
)
from warehouse.query import query
from warehouse.schemas import REWARDS, UPDATES
from warehouse.store import Store

SETTINGS = {
    "num_engines": 1,
    "iterations": 1,
    "steps": 1,
    "batch_size": 2,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.chat_template": "model",
    "dialogues.stop": [],
    "dialogues.response_tokens": 512,
    "seeding.rounds": 1,
    "proposer.references": 2,
    "proposer.attempts": 4,
    "proposer.num_inputs": 4,
    "sandbox.cpu_s": 2,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "monitor.max_copy": None,
    "evaluation.benchmarks": [],
    "evaluation.benchmark": "none",
}
DOUBLE = "def f(a):\n    return a * 2"
LENGTHS = "def f(a, b):\n    return [len(a), len(b)]"
BROKEN = "def f(a):\n    return a / 0"
CHANCE = "def f(a):\n    return hash(a)"
SQUARE = "def f(a):\n    return a * a"


def fence(name: str, text: str) -> str:
    return f"```{name}\n{text}\n```\n"


def formed(*fences: str) -> str:
    return f"<think>Well.</think>\n<answer>\n{''.join(fences)}</answer>"


def program(source: str, text: str) -> str:
    return formed(fence("python", source), fence("input", text))


INPUTS = [fence("input", text) for text in ("1", "2", "3", "'x'")]
OTHERS = [fence("input", text) for text in ("4", "5", "3", "'x'")]
HINT = fence("message", "It grows.")
PROPOSALS = {  # of the seeding, then of the step
    "propose_deduction": [
        program(DOUBLE, "21"),
        program(BROKEN, "1"),
        program(LENGTHS, "'ab', []"),
        "no tags, no program",
    ],
    "propose_abduction": [
        program(CHANCE, "'text'"),
        program("import os\n" + DOUBLE, "1"),
        program(SQUARE, "3"),
        fence("python", DOUBLE) + fence("input", "(1, 2)"),  # valid, but without tags
    ],
    "propose_induction": [
        formed(*INPUTS, HINT),
        formed(*INPUTS[:3], HINT),
        formed(*OTHERS, HINT),
        formed(*OTHERS),
    ],
}


def say():
    left = {name: list(replies) for name, replies in PROPOSALS.items()}

    def reply(asked: Asked) -> str:
        if asked.template.startswith("propose"):
            return left[asked.template].pop(0)
        if asked.template == "solve_deduction":
            return deduce(asked)
        if asked.template == "solve_abduction":
            return abduce(asked)
        return induce(asked)

    return reply


def deduce(asked: Asked) -> str:
    if "len(b)" in asked.text:  # of four attempts one is right, one of them in another notation
        answers = ["[2,0]", "[2, 1]", "2, 0", "print('[2, 0]')"]
        return formed(fence("output", answers[asked.sample]))
    return formed(fence("output", "'Hello World'"))


def abduce(asked: Asked) -> str:
    if "a * a" in asked.text:  # -3 is another input for 9; 9 / 3 is an expression
        return formed(fence("input", ["-3", "3", "9 / 3", "2"][asked.sample]))
    if "a * 2" in asked.text:
        return "<answer>no fence</answer>"
    return formed(fence("input", "'Hello World'"))


def induce(asked: Asked) -> str:
    """Two right programs, for whichever program was drawn, and two wrong ones."""
    hostile = 'import posix\ndef f(a):\n    posix.write(3, b\'{"output": "6"}\')\n    return a'
    doubled = fence("output", "2") in asked.text or fence("output", "8") in asked.text
    right = DOUBLE if doubled else "def f(a):\n    return a"
    sources = [right, right + " if True else 0", SQUARE, hostile]
    return formed(fence("python", sources[asked.sample]))


def play(folder: Path, **changed: object) -> tuple[Store, Script]:
    script = Script(say())
    store = Store(folder / "store")
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(script, patch)
        azr_iteration("smollm2", "r", {**SETTINGS, "models.base": model, **changed})
    return store, script


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Script]:
    return play(tmp_path_factory.mktemp("azr"))


def rows(played: tuple[Store, Script], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(played[0].root, sql)]


def test_a_task_is_what_its_program_made_of_its_input(played) -> None:
    """Three proposals run; the others have the reason why nobody is asked about them."""
    tasks = rows(
        played,
        """
        select regexp_extract(text, 'return (.*)', 1), reference, malformed
        from tasks where label in ('deduction', 'abduction') and step = 1
        order by label desc, iteration, malformed, reference
        """,
    )
    assert Counter(tasks) == Counter(
        [
            ("a * 2", "42", None),
            (None, None, "the program: raised ZeroDivisionError"),
            ("[len(a), len(b)]", "[2, 0]", None),
            (None, None, "no python block"),
            (None, None, "the program uses os"),
            (None, None, "the program: two runs differ"),
            ("a * 2", "(1, 2, 1, 2)", None),
            ("a * a", "9", None),
        ]
    )


def test_proposals_are_rewarded_for_the_attempts_that_fail(played) -> None:
    """LENGTHS: one of four attempts is right. SQUARE: 3 and -3 are. The third has no tags."""
    paid = rows(
        played,
        "select label, score, reward from advantages where label like 'propose%' order by all",
    )
    assert paid == [
        ("propose_abduction", 0.0, -1.0),
        ("propose_abduction", 0.5, 0.5),
        ("propose_deduction", 0.25, 0.75),
        ("propose_deduction", None, -1.0),
        ("propose_induction", 0.5, 0.5),
        ("propose_induction", None, -1.0),
    ]


def test_an_induction_is_solved_by_what_gives_the_hidden_values(played) -> None:
    """Two programs do; squaring fails on text; the one that reports another value than
    it returns has none."""
    matches = rows(
        played,
        """
        select matched, count(*) from matches
        where label = 'try_induction' group by all order by 1
        """,
    )
    assert matches == [(False, 2), (True, 2)]
    reasons = rows(
        played,
        """
        select distinct reason from executions
        where label = 'try_induction' and program like '%posix%'
        """,
    )
    assert reasons == [("it ended without a result",)]


def test_the_solver_gets_this_step_s_tasks_first(played) -> None:
    drawn = rows(
        played,
        """
        select regexp_extract(text, 'return (.*)', 1) from draws
        where label = 'solve_deduction'
        """,
    )
    assert drawn[0] == ("[len(a), len(b)]",) and len(drawn) == 2


def test_every_role_and_type_has_a_baseline_of_its_own(played) -> None:
    """Two rewards that differ are one standard deviation from their mean each; two equal ones teach
    nothing."""
    advantages = rows(
        played,
        """
        select label, list(round(advantage, 3) order by advantage) from advantages
        group by 1 order by 1
        """,
    )
    assert advantages == [
        ("propose_abduction", [-1.0, 1.0]),
        ("propose_deduction", [-1.0, 1.0]),
        ("propose_induction", [-1.0, 1.0]),
        ("solve_abduction", [-1.0, 1.0]),
        ("solve_deduction", [0.0, 0.0]),
        ("solve_induction", [0.0, 0.0]),
    ]
    trained = rows(played, "select count(distinct rollout_id) from batches")
    assert trained == [(12,)]


def test_buffers_grow_by_what_ran(played) -> None:
    sizes = rows(
        played,
        """
        select label, count(*) filter (kept), count(*) filter (not kept) from pools
        where iteration = 1 group by 1 order by 1
        """,
    )
    assert sizes == [("abduction", 3, 0), ("deduction", 3, 0), ("induction", 3, 0)]


def test_proposers_see_what_the_model_proposed_before(played) -> None:
    texts = [asked.text for asked in played[1].asked if asked.template == "propose_deduction"]
    assert "a * 2" not in texts[0] and "return a" in texts[0]
    assert any("return a * 2" in text and "42" in text for text in texts[2:])


def test_tasks_that_are_too_long_are_never_asked_nor_kept(tmp_path: Path) -> None:
    """Neither references nor programs fit a prompt of one token."""
    played = play(tmp_path, **{"dialogues.content_tokens": 1})
    paid = rows(
        played, "select label, reward from rewards where label like 'propose%' order by all"
    )
    assert paid == [
        ("propose_abduction", -1.0),  # without tags
        ("propose_abduction", -0.5),
        ("propose_deduction", -1.0),  # no program
        ("propose_deduction", -0.5),
    ]
    reasons = rows(played, "select malformed from tasks where label = 'abduction' and step = 1")
    assert ("its Solver's prompt is too long",) in reasons
    kept = rows(played, "select count(*) from pools where kept group by label, iteration, step")
    assert set(kept) == {(1,)}  # the first task
    assert not any("Earlier puzzles" in asked.text for asked in played[1].asked)


def test_an_update_is_one_optimizer_step(played) -> None:
    (update,) = played[0].tables("r", UPDATES)
    assert update.recipe["params"]["settings"]["optimizer_steps"] == 1


def test_the_viewer_shows_an_equation_that_gives_every_reward(played) -> None:
    equations = Counter()
    for table in played[0].tables("r", REWARDS):
        for reward in table.rows():
            shown = show(table.recipe["params"], reward["components"], reward["reward"], [])
            assert shown is not None, reward
            equations[shown.general] += 1
    assert equations == {"right": 5, "learnability": 3, "malformed": 4}


def test_a_rerun_makes_equal_tables(played, tmp_path: Path) -> None:
    assert changed_if(azr_iteration, played[0], tmp_path) == set()


def test_a_fork_continues_without_making_anything_again(played, tmp_path: Path) -> None:
    stale = first_stale_in_fork(azr_iteration, played[0], tmp_path)
    assert stale is None


def test_a_penalty_changes_rewards_and_nothing_before_them(played, tmp_path: Path) -> None:
    changed = changed_if(azr_iteration, played[0], tmp_path, **{"penalties.malformed": -0.8})
    assert {name.partition(".")[0] for name in changed} == {"rewards", "advantages"}


def test_the_deductions_can_be_exported_with_their_rule(played) -> None:
    """The other types are judged by running programs, which no other loader does."""
    store = played[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        recording = azr_iteration.play_by(Recording(), last_request(store, "r"), {})
    environment = environment_of(recording, "r")
    assert {row["task_type"] for row in environment.tasks} == {"deduction"}
    assert environment.scorer.compare is is_same_output
    # two abductions and two inductions were answered, and one of three deductions
    assert environment.left_out == {
        "its answers have another scorer, which is not exported": 4,
        "it was never answered, so its prompt is not known": 4,
    }


def test_a_pilot_goes_through_every_role_and_trains_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = str(any_text_model(tmp_path / "model"))
    settings = {**SETTINGS, "models.base": model}
    request = Request(flow="azr-iteration", profile="smollm2", run="r", overrides=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(say()), patch)
        notes = play_pilot(azr_iteration, request)
        cfg = profile.load(Config, "smollm2", request.settings)
        signals = measure(store, "r", cfg, notes)
    assert notes.stopped is None and len(notes.updates) == 1
    parts = {"deduction", "abduction", "induction"}
    assert {role.name for role in signals.roles} == {
        f"{verb}_{part}" for verb in ("propose", "solve") for part in parts
    }
    assert not list(store.tables("r", UPDATES))
