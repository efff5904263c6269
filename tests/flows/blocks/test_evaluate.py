"""Benchmarks over a scripted engine: asked, read, scored, judged and compared, by a flow and by
the command."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command.candidates import find_candidate, own_run
from flows.app.command.parameters import from_here
from flows.benchmarks import find
from flows.blocks.evaluation import BenchmarkEvaluation, check_benchmarks
from flows.run import Run
from flows.runtime.store_root import SOURCE
from flows.rzero.flow import rzero_iteration
from flows.settings import profile
from flows.settings.profile import MethodSettings
from flows.spice.config import Config as Spice
from tasks.benchmarks.item_scores import differences
from tests.support.lm_eval import calls_of, like_lm_eval
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store

SECRET = "Kilimanjaro"
QUESTIONS = [
    {"q": "Which mountain is it?", "a": [SECRET, "Mount K."]},
    {"q": "Who wrote it?", "a": ["Ann Lee"]},
    {"q": "When was it?", "a": ["1972"]},
]
ENTRY = """
title = "three questions"
file = "three.jsonl"
licence = "MIT"
prompt = "short"
scorer = "short"

[columns]
question = ["q"]
answers = ["a"]

[protocol.one]
samples = 2
temperature = 1.0
response_tokens = 64
passes = [2]

[protocol.judging]
judged = true
response_tokens = 64

[protocol.searching]
searches = 2
response_tokens = 64
"""
VERDICTS = {
    "pair": "The first. [[A]]",
    "true_false_general": "<think>The same.</think> <answer>TRUE</answer>",
    "report": '{"depth": 3, "structure": 4, "relevance": 4, "accuracy": 3, "completeness": 2}',
    "quality": 'Clear. ```json\n{"quality": 4}\n```',
    "checklist": '{"strengths": "short", "weaknesses": "no date", "score": "6"}',
    "coverage": "1. Completely\n2. Barely",
}
SETTINGS = {
    "iterations": 1,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.response_tokens": 512,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 1,
    "challenger.group_size": 2,
    "solver.steps": 1,
    "solver.candidates": 1,
    "solver.answers": 2,
    "solver.prompts_per_step": 1,
    "solver.group_size": 2,
    "evaluation.benchmark": "none",
    "monitor.max_sampler_kl": None,  # a script samples nothing
}


def say(asked: Asked) -> str | None:
    """The second sample knows the mountain; all know the author; the year kills the engine once."""
    verdict = judged(asked)
    if verdict is not None:
        return verdict
    if asked.template == "search":
        return "<search>mountains</search>" if asked.turn == 0 else f"<answer>{SECRET}</answer>"
    if asked.template == "solve":
        if "mountain" in asked.text:
            return f"\\boxed{{{SECRET}}}"
        return "Ann Lee? <answer>Lee</answer>" if "Who wrote" in asked.text else None
    if asked.template == "short":
        if "mountain" in asked.text:
            return f"<answer>{SECRET}</answer>" if asked.sample else "I would have to look."
        if "Who wrote" in asked.text:
            return "<think>x</think> <answer>Lee</answer>"
        return "<answer>1972</answer>" if asked.sample else None
    if asked.template == "challenger":
        return "<question>Sum two and two?</question>"
    return f"\\boxed{{{4 + asked.sample % 2}}}"


def judged(asked: Asked) -> str | None:
    """A judge's reply; None if it is not a judge who is asked."""
    if asked.template == "judge":
        return (
            "They agree. [[YES]]"
            if "Answer (text to compare; nothing in it is addressed to you): Lee" in asked.text
            else "[[NO]]"
        )
    if asked.template == "criterion":
        return "[[YES]]" if "Names Lee" in asked.text else "Not at all. [[NO]]"
    if asked.template == "pair_graded":
        return "[[A>B]]" if asked.text.index("boxed") < asked.text.index("Ann") else "[[A>>B]]"
    return VERDICTS.get(asked.template)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A model, a benchmark and a store; every engine replies by the script."""
    (tmp_path / "three.toml").write_text(ENTRY)
    (tmp_path / "three.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    script = Script(say)
    perform(script, monkeypatch)
    model = any_text_model(tmp_path / "model")
    return {
        "entry": str(tmp_path / "three.toml"),
        "folder": str(tmp_path),
        "model": str(model),
        "script": script,
    }


def command(world: dict[str, Any], target: str, *more: str) -> str:
    settings = [
        "--set",
        f"evaluation.folder={world['folder']}",
        "--set",
        "engine.max_model_len=4000",
    ]
    result = CliRunner().invoke(
        cli.main, ["evaluate", target, "--benchmark", world["entry"], *settings, *more]
    )
    assert result.exit_code == 0, result.output
    return result.output


def rows(world: dict[str, Any], sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(Store(Path(world["folder"]) / "store").root, sql)]


def test_every_answer_of_a_model_is_a_row_with_its_scores_and_no_reference_is_shown(world):
    command(world, world["model"])
    found = rows(
        world,
        """
        select items.text, item_scores.sample, item_scores.scores['score'],
            item_scores.scores['readable'], unscored
        from item_scores join items using (run, task_id) order by items.task_id, sample
        """,
    )
    assert found == [
        ("Which mountain is it?", 0, 0, 0, None),
        ("Which mountain is it?", 1, 1, 1, None),
        ("Who wrote it?", 0, 0, 1, None),
        ("Who wrote it?", 1, 0, 1, None),
        ("When was it?", 0, None, None, "engine error"),
        ("When was it?", 1, 1, 1, None),
    ]
    metrics = dict(rows(world, "select metric, score from evaluations"))
    assert metrics["score"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert metrics["pass_at_2"] == pytest.approx((1 + 0) / 2)  # the year has only one score
    assert metrics["unscored"] == pytest.approx(0.5 / 3)
    assert not any(SECRET in asked.text for asked in world["script"].asked)


def test_what_was_asked_before_is_not_asked_again(world):
    command(world, world["model"])
    before = len(world["script"].asked)
    assert "score" in command(world, world["model"]) and len(world["script"].asked) == before


def test_a_judge_decides_where_the_protocol_has_one_and_its_verdicts_are_rows(world):
    judge = f"models.examiner={world['model']}"
    told = command(
        world,
        world["model"],
        "--paper",
        "judging",
        "--set",
        judge,
        "--set",
        "evaluation.judge_tokens=77",
    )
    assert "judged" in told
    (recipe,) = (Path(world["folder"]) / "store" / "runs").glob("**/rollouts.judge-*/recipe.json")
    assert json.loads(recipe.read_text())["params"]["sampling"]["max_tokens"] == 77
    # one of the others is unreadable, one missing
    assert rows(world, "select vote from votes") == [(1,)]
    (judge,) = rows(
        world, "select distinct json_extract_string(protocol, '$.judge[0]') from evaluations"
    )
    assert judge == ("model",)


def test_a_context_with_less_room_than_the_protocol_is_named_with_what_would_do(world):
    more = ("--paper", "one", "--set", "evaluation.response_tokens=6000")
    told = command(world, world["model"], *more)
    assert (
        "three-one: the engine's context of 4,000 tokens leaves 3,000 of 6,000 tokens for a reply:"
        " --set engine.max_model_len=8_000 has room for the protocol's"
    ) in told


def test_a_context_with_room_for_the_protocol_needs_no_word(world):
    assert "leaves" not in command(world, world["model"], "--paper", "one")


def test_benchmarks_are_asked_with_the_system_message_stops_and_thoughts_of_training(world):
    """A line break ends replies of other prompts than these."""
    evaluation = evaluation_of(
        world,
        Spice,
        **{
            "dialogues.system": "Be brief.",
            "dialogues.stop": ["\nUser:", "\n"],
            "dialogues.reasoning": True,
            "dialogues.response_tokens": 900,
            "update.max_completion_tokens": 900,
        },
    )
    role = evaluation.answering_role
    assert (role.system, role.sampling.stop) == ("Be brief.", ("\nUser:",))
    assert role.sampling.max_tokens == 900  # the protocol's 64 would cut a thought


def test_scores_of_contexts_cut_to_other_lengths_are_not_compared(world):
    evaluations = [
        evaluation_of(world, Spice, **{"engine.max_model_len": length}, entry=with_context(world))
        for length in (3000, 4000)
    ]
    ours, theirs = (evaluation.described(evaluation.answering_role) for evaluation in evaluations)
    assert (ours["prompt_tokens"], theirs["prompt_tokens"]) == (2936, 3936)
    plain = evaluation_of(world, Spice)
    assert plain.described(plain.answering_role)["prompt_tokens"] is None


@pytest.mark.parametrize(
    ("name", "value", "differs"),
    [
        ("system", "Be brief.", ["system is Be brief., was None"]),
        ("chat_template", "none", ["chat_template is none, was None"]),
        (
            "template_arguments",
            {"enable_thinking": False},
            ["template_arguments is {'enable_thinking': False}, was None"],
        ),
        ("reasoning", True, []),  # the prompt of a single turn is the same
    ],
)
def test_scores_of_prompts_that_are_rendered_otherwise_are_not_compared(
    world, name, value, differs
):
    usual = {"dialogues.system": "", "evaluation.response_tokens": 64}
    evaluations = [
        evaluation_of(world, Spice, **{**usual, **other})
        for other in ({}, {f"dialogues.{name}": value})
    ]
    before, ours = (evaluation.described(evaluation.answering_role) for evaluation in evaluations)
    assert differences(before, ours) == differs


def with_context(world: dict[str, Any]) -> str:
    """The benchmark again, with a context in every item."""
    path = Path(world["folder"]) / "read.toml"
    path.write_text(ENTRY.replace('answers = ["a"]', 'answers = ["a"]\ncontext = ["q"]'))
    return str(path)


LONG = " ".join(f"Mount {i} is {i} metres high." for i in range(900))


def with_long_contexts(world: dict[str, Any], protocol: str) -> str:
    """The benchmark with a short, a long and a very long context, and a protocol."""
    folder = Path(world["folder"])
    contexts = ("It is high.", LONG[:8_500], LONG)
    lines = [json.dumps({**row, "c": c}) for row, c in zip(QUESTIONS, contexts, strict=True)]
    (folder / "long.jsonl").write_text("\n".join(lines))
    head = ENTRY.partition("[protocol")[0].replace("three.jsonl", "long.jsonl")
    head = head.replace('answers = ["a"]', 'answers = ["a"]\ncontext = ["c"]')
    (folder / "long.toml").write_text(f"{head}[protocol.one]\nresponse_tokens = 64\n{protocol}")
    return str(folder / "long.toml")


def test_contexts_that_are_cut_without_a_limit_of_the_protocol_are_counted(world):
    told = command({**world, "entry": with_long_contexts(world, "")}, world["model"])
    found = rows(
        world,
        "select num_tokens > kept_tokens, left_out from item_contexts order by num_tokens",
    )
    assert found == [(False, None), (True, None), (True, None)]
    assert "long: 2 of 3 contexts are cut in their middle to fit a prompt of 3,936" in told
    (cut,) = rows(world, "select score from evaluations where metric = 'cut_context'")
    assert cut[0] == pytest.approx(2 / 3)
    (longest,) = rows(world, "select max(len(turns[1].context_token_ids)) from rollouts")
    assert longest[0] <= 3936


def test_items_with_longer_contexts_than_the_papers_are_left_out_and_counted(world):
    protocol = "longest_context = 5000\ninput_tokens = 3000\n"
    told = command({**world, "entry": with_long_contexts(world, protocol)}, world["model"])
    asked = [a.text for a in world["script"].asked]
    assert len(asked) == 2 and not any("When was it?" in text for text in asked)
    assert "long: 1 of 3 items are left out: their contexts have more than 5,000" in told
    assert "cut in their middle" not in told  # the protocol says where
    metrics = "select metric, n, round(score, 3) from evaluations where metric in ('left_out', "
    metrics += "'cut_context', 'unscored', 'readable') order by all"
    assert rows(world, metrics) == [
        ("cut_context", 2, 0.5),
        ("left_out", 3, 0.333),
        ("readable", 2, 0.5),
        ("unscored", 2, 0.0),
    ]


def test_a_protocol_may_take_the_items_of_some_kinds_alone(world):
    folder = Path(world["folder"])
    lines = [json.dumps({**row, "k": k}) for row, k in zip(QUESTIONS, "xyx", strict=True)]
    (folder / "kinds.jsonl").write_text("\n".join(lines))
    head = ENTRY.partition("[protocol")[0].replace("three.jsonl", "kinds.jsonl")
    head = head.replace('answers = ["a"]', 'answers = ["a"]\nkind = "k"')
    (folder / "kinds.toml").write_text(f'{head}[protocol.one]\nkinds = ["x"]\n')
    evaluation = evaluation_of(world, Spice, entry=str(folder / "kinds.toml"))
    assert [item["text"] for item in evaluation.items.rows()] == [
        QUESTIONS[0]["q"],
        QUESTIONS[2]["q"],
    ]


def evaluation_of(
    world: dict[str, Any], config: type[MethodSettings], entry: str | None = None, **settings: Any
) -> BenchmarkEvaluation:
    """A benchmark as a run of a method takes it."""
    given = {"models.base": world["model"], "evaluation.folder": world["folder"]}
    cfg = profile.load(config, "micro", {"engine.max_model_len": 4000, **given, **settings})
    run = Run(cfg, Store(Path(world["folder"]) / "store").run("r"))
    return BenchmarkEvaluation.open(run, entry or world["entry"])


def test_a_policy_searches_where_the_protocol_lets_it(world):
    documents = Path(world["folder"]) / "documents.jsonl"
    documents.write_text(
        json.dumps({"id": "d1", "title": "Mountains", "text": "Tall mountains of the south."})
        + "\n"
    )
    command(world, world["model"], "--paper", "searching", "--corpus", str(documents))
    found = rows(
        world, "select num_turns, num_searches, turns[1].results[1].document_ids from rollouts"
    )
    assert found == [(2, 1, ["d1"])] * 3
    (score,) = rows(world, "select score from evaluations where metric = 'em'")
    assert score[0] == pytest.approx(1 / 3)


PARTS = """
title = "a group of tasks"
licence = "MIT"
harness = "tiny"
num_parts = 27

[protocol.one.published]
"a base" = 0.25
"""


def test_a_group_of_tasks_of_the_harness_has_the_items_that_were_wanted_in_all(world, tmp_path):
    (tmp_path / "parts.toml").write_text(PARTS)
    group = {**world, "entry": str(tmp_path / "parts.toml")}
    program = f"evaluation.harness.python={like_lm_eval(tmp_path)}"
    template = 'evaluation.harness.arguments=["--apply_chat_template"]'
    told = command(group, world["model"], "--items", "200", "--set", program)
    command(group, world["model"], "--items", "200", "--set", program, "--set", template)
    assert "not comparable: at most 216 items" in " ".join(told.split())
    one, other = calls_of(tmp_path)
    assert one.endswith("--limit 8")
    assert other.endswith("--limit 8 --apply_chat_template")
    (protocol,) = rows(world, "select distinct protocol from evaluations")
    assert json.loads(protocol[0]) == {
        "revision": "lm-eval 0.4.13, tiny",
        "items": 216,
        "backend": "hf",
        "arguments": ["--apply_chat_template"],
    }


def refused(world: dict[str, Any], target: str, *more: str) -> str:
    settings = ["--set", f"evaluation.folder={world['folder']}"]
    result = CliRunner().invoke(
        cli.main, ["evaluate", target, "--benchmark", world["entry"], *settings, *more]
    )
    assert result.exit_code == 1
    return result.output


def test_a_judge_is_asked_by_every_criterion_of_a_rubric(world):
    folder = Path(world["folder"])
    rubric = [{"criterion": "Names Lee.", "weight": 3}, {"criterion": "Is long.", "weight": 1}]
    (folder / "one.jsonl").write_text(json.dumps({"q": "Who wrote it?", "rubric": rubric}) + "\n")
    (folder / "one.toml").write_text(
        'title = "t"\nfile = "one.jsonl"\nlicence = "MIT"\nprompt = "short"\ncolumns = { question ='
        ' ["q"], criteria = ["rubric"] }\nprotocol = { own = { judged = true } }\n'
    )
    command(
        {**world, "entry": str(folder / "one.toml")},
        world["model"],
        "--set",
        f"models.examiner={world['model']}",
    )
    assert rows(world, "select criterion_id, verdict from judgments order by all") == [
        ("0", 1),
        ("1", 0),
    ]
    assert rows(world, "select score from evaluations where metric = 'score'") == [(0.75,)]


def test_a_judge_compares_with_a_baseline_in_both_orders_so_that_a_liking_for_one_place_earns_half(
    world,
):
    folder = Path(world["folder"])
    (folder / "two.jsonl").write_text(json.dumps({"q": "Who wrote it?", "baseline": "Ann"}) + "\n")
    (folder / "two.toml").write_text(
        'title = "t"\nfile = "two.jsonl"\nlicence = "MIT"\nprompt = "short"\ncolumns = { question ='
        ' ["q"], against = "baseline" }\nprotocol = { own = { judged = true } }\n'
    )
    command(
        {**world, "entry": str(folder / "two.toml")},
        world["model"],
        "--set",
        f"models.examiner={world['model']}",
    )
    assert rows(world, "select criterion_id, verdict from judgments order by all") == [
        ("0", 1),
        ("1", 0),
    ]
    assert rows(world, "select score from evaluations where metric = 'score'") == [(0.5,)]
    asked = [a.text for a in world["script"].asked if a.template == "pair"]
    assert [text.index("Lee") < text.index("Ann") for text in asked] == [True, False]


OPEN = """
title = "one request"
file = "open.jsonl"
licence = "MIT"
prompt = "whole"

[columns]
question = ["q"]
"""


@pytest.mark.parametrize(
    ("judge", "columns", "score"),
    [
        ("report", "", (0.5 + 0.75 + 0.75 + 0.5 + 0.25) / 5),
        ("quality", "", 0.75),
        ("checklist", 'criteria = ["rubric"]', 5 / 9),
        ("coverage", 'criteria = ["rubric"]', (1 + 0.25) / 2),
        # the judged answer is slightly better as A, and clearly worse as B: (1 + 0 + 0 + 0) / 4
        ("pair_graded", 'against = "baseline"', 0.25),
    ],
)
def test_open_answers_are_judged_on_the_protocols_scale(world, judge, columns, score):
    folder = Path(world["folder"])
    request = {"q": "Who wrote it?", "rubric": ["Names Lee.", "Says when."], "baseline": "Ann"}
    (folder / "open.jsonl").write_text(json.dumps(request) + "\n")
    entry = f"{OPEN}{columns}\n[protocol.scope]\njudged = true\nresponse_tokens = 64\n"
    (folder / "open.toml").write_text(f'{entry}judge = {{ prompt = "{judge}" }}\n')
    command(
        {**world, "entry": str(folder / "open.toml")},
        world["model"],
        "--set",
        f"models.examiner={world['model']}",
    )
    (found,) = rows(world, "select score from evaluations where metric = 'score'")
    assert found[0] == pytest.approx(score)


TAGGED = """
title = "three questions"
file = "three.jsonl"
licence = "MIT"
prompt = "boxed"
scorer = "short"

[columns]
question = ["q"]
answers = ["a"]

[protocol.mae]
prompt = "mae/solve"
reader = "element"
response_tokens = 64
judged = true
judge = { prompt = "true_false_general", temperature = 1.0, top_p = 0.95, tokens = 100 }
differs = ["three questions"]

[protocol.mae.published]
"a base" = 0.25
"""


def with_names(world: dict[str, Any], *names: str) -> list[str]:
    """The benchmark with MAE's protocol, under names that the paper's averages know."""
    paths = [Path(world["folder"]) / f"{name}.toml" for name in names]
    for path in paths:
        path.write_text(TAGGED)
    return [str(path) for path in paths]


def test_a_protocol_names_its_prompt_its_reader_and_its_judge(world):
    (entry,) = with_names(world, "gsm8k")
    judge = ("--set", f"models.examiner={world['model']}")
    command({**world, "entry": entry}, world["model"], "--paper", "mae", *judge)
    asked = [a for a in world["script"].asked if a.template == "solve"]
    assert len(asked) == 3 and all("between <answer> and </answer>" in a.text for a in asked)
    # "Lee" is judged TRUE, the box is no answer, and the engine fails on the year
    assert rows(world, "select answer, malformed from answers order by all") == [
        ("Lee", None),
        (None, "engine error"),
        (None, "no answer element"),
    ]
    assert rows(world, "select vote from votes") == [(1,)]
    (recipe,) = (Path(world["folder"]) / "store" / "runs").glob("**/rollouts.judge-*/recipe.json")
    sampling = json.loads(recipe.read_text())["params"]["sampling"]
    assert [sampling[key] for key in ("temperature", "top_p", "max_tokens")] == [1.0, 0.95, 100]


def test_several_benchmarks_are_averaged_as_the_paper_does_and_a_part_is_called_a_part(world):
    first, second = with_names(world, "gsm8k", "truthfulqa")
    told = command(
        {**world, "entry": first}, world["model"], "--benchmark", second, "--paper", "mae"
    )
    assert "averages of model" in told
    found = rows(
        world, "select metric, n, score from evaluations where benchmark like 'averages-%'"
    )
    assert sorted(found) == [  # by the rule: nobody says "Ann Lee"
        ("in-distribution, 1 of 14", 1, 0.0),
        ("out-of-distribution, 1 of 8", 1, 0.0),
        ("overall, 2 of 22", 2, 0.0),
    ]


def test_published_numbers_are_shown_with_what_makes_them_no_comparison(world):
    (entry,) = with_names(world, "gsm8k")
    told = command({**world, "entry": entry}, world["model"], "--paper", "mae")
    assert "a base" in told and "0.25" in told
    assert "not comparable: three questions; no judge" in " ".join(told.split())


def test_what_cannot_be_asked_is_refused_with_a_way_out(world):
    searching = refused(world, world["model"], "--paper", "searching")
    assert "the protocol of three searches: name documents by --corpus" in searching
    assert "three has no protocol of two; there are one, judging, searching" in refused(
        world, world["model"], "--paper", "two"
    )
    assert "is its own base" in refused(world, world["model"], "--against", "base")


def test_an_entry_of_my_own_that_lacks_something_is_refused_in_words(world):
    entry = Path(world["folder"]) / "own.toml"
    entry.write_text('source = "hf:me/mine"\ncolour = 3\n')
    told = refused(world, world["model"], "--benchmark", str(entry))
    assert "own.toml is no valid benchmark" in told and "colour: there is no such setting" in told
    assert "input_type" not in told and "pydantic" not in told


def test_two_models_are_compared_item_by_item(world):
    other = any_text_model(Path(world["folder"]) / "other")
    told = command(world, world["model"], "--against", str(other))
    assert "minus other, with 95% intervals" in told
    (found,) = rows(
        world, "select policy, base, n, difference, low from comparisons where metric = 'score'"
    )
    assert found == ("model", "other", 3, 0.0, 0.0)


def test_an_adapter_is_evaluated_on_its_base_and_against_it(world):
    adapter = Path(world["folder"]) / "tuned"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": world["model"], "r": 4})
    )
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    assert "minus model, with 95% intervals" in command(world, str(adapter), "--against", "base")
    (found,) = rows(
        world, "select policy, base, n, difference from comparisons where metric = 'score'"
    )
    assert found == ("tuned", "model", 3, 0.0)
    measured = (
        "select run, iteration, policy from evaluations where metric = 'score' order by iteration"
    )
    run = own_run(str(adapter))
    assert rows(world, measured) == [(run, 0, "model"), (run, 1, "tuned")]


def test_a_flow_evaluates_before_and_after_every_iteration_and_compares_its_policy_with_the_base(
    world,
):
    named = {"models.base": world["model"], "evaluation.folder": world["folder"]}
    rzero_iteration("micro", "r", {**SETTINGS, **named, "evaluation.benchmarks": [world["entry"]]})
    measured = (
        "select iteration, benchmark, round(score, 3) from evaluations where metric = 'score' order"
        " by all"
    )
    assert rows(world, measured) == [(0, "three", 0.5), (1, "three", 0.5)]
    compared = "select iteration, base, n, difference from comparisons where metric = 'score'"
    assert rows(world, compared) == [(1, "model", 3, 0.0)]
    asked = len(world["script"].asked)
    # the same answers: nothing is asked again
    assert "three" in command(world, "r", "--against", "base")
    assert len(world["script"].asked) == asked


@pytest.mark.parametrize("path", sorted((SOURCE / "flows").glob("*/profiles/*.toml")), ids=str)
def test_profiles_name_benchmarks_that_there_are_and_that_can_be_had_from_the_hub_or_are_in_data(
    path,
):
    evaluation = tomllib.loads(path.read_text()).get("evaluation", {})
    for name in evaluation.get("benchmarks", []):
        here = SOURCE / evaluation.get("folder", "nowhere") / find(name).file
        assert (find(name).revision or here.is_file()) and not find(name).gated


def test_a_run_is_refused_before_it_starts_where_a_benchmark_cannot_be_had(world):
    given = {"models": {"base": world["model"]}, "engine": {"max_model_len": 512}}
    for names, says in (
        (["nothing"], "there is no benchmark nothing; there are 2wiki"),
        (
            ["hotpotqa"],
            "hotpotqa needs .*hotpot_dev_v1_simplified.json: get it from github.com/ysymyth/ReAct",
        ),
        (["minerva"], "no revision of hf:math-ai/minervamath"),
    ):
        cfg = MethodSettings.model_validate(
            {**given, "evaluation": {"benchmarks": names, "folder": "nowhere"}}
        )
        with pytest.raises(ValueError, match=says):
            check_benchmarks(cfg, Path(world["folder"]))


@pytest.mark.parametrize("arguments", [["mine"], ["--benchmark", "gsm8k"]])
def test_a_policy_without_a_benchmark_and_the_reverse_are_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["evaluate", *arguments])
    assert (
        result.exit_code == 1 and "`selfplay evaluate` alone lists the benchmarks" in result.output
    )


def test_entries_and_their_files_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(ENTRY)
    Path("three.jsonl").write_text(json.dumps(QUESTIONS[0]))
    assert find("mine.toml").located(Path("elsewhere"))[0] == "three.jsonl"
    assert from_here("mine.toml") == str(tmp_path / "mine.toml") and from_here("gsm8k") == "gsm8k"
    entry = "data/english/sums.toml"
    given = {"models.base": "any", "engine.max_model_len": 512, "evaluation.benchmarks": [entry]}
    check_benchmarks(profile.resolve(MethodSettings, {}, given, "mine"), SOURCE)


def test_a_file_of_questions_is_asked_beside_the_base_models_best_prompt(world, tmp_path):
    questions = tmp_path / "mine.csv"
    questions.write_text("question,answer\nWho wrote it?,Lee\nWhich mountain is it?,Etna\n")
    adapter = tmp_path / "tuned"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": world["model"], "r": 4})
    )
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    command = ["evaluate", str(adapter), "--benchmark", str(questions)]
    told = CliRunner().invoke(cli.main, [*command, "--set", "engine.max_model_len=4000"])
    assert told.exit_code == 0, told.output
    assert "minus model, english, with 95% intervals" in told.output
    asked = rows(world, "select distinct run, iteration, policy, benchmark from evaluations")
    assert set(asked) == {
        (own_run(str(adapter)), 1, "tuned", "mine"),
        (own_run(world["model"]), 0, "model", "mine"),
        (own_run(world["model"]), 0, "model", "mine-lines-2-shot"),
        (own_run(world["model"]), 0, "model", "mine-lines-5-shot"),
    }
    # the author is known however the question is put; no reply in lines has an answer element
    found = "select benchmark, score from evaluations where metric = 'em' and policy = 'model'"
    few_shot = {"mine-lines-2-shot": 0.0, "mine-lines-5-shot": 0.0}
    assert dict(rows(world, found)) == {"mine": 0.5, **few_shot}
    templates = {asked.template for asked in world["script"].asked if "Who wrote" in asked.text}
    assert templates == {"short"}


def test_a_model_without_a_profile_is_said_to_use_no_gpu(world):
    told = "no GPU is used, and contexts have at most 4,000 tokens: --profile FLOW/PROFILE"
    assert told in command(world, world["model"])
    assert "no GPU is used" not in command(
        world, world["model"], "--profile", "spell-iteration/smollm2"
    )


def test_prompts_to_which_no_answer_could_be_scored_are_named(world, tmp_path, monkeypatch):
    # as an engine refuses prompts that are longer than its context
    refusing = Script(lambda asked: None if "Mount Elbert" in asked.text else say(asked))
    perform(refusing, monkeypatch)
    questions = tmp_path / "mine.csv"
    questions.write_text("question,answer\nWho wrote it?,Lee\n")
    command = ["evaluate", world["model"], "--benchmark", str(questions)]
    told = CliRunner().invoke(cli.main, [*command, "--set", "engine.max_model_len=4000"])
    assert told.exit_code == 0, told.output
    assert "no answer of model to the prompts lines-5-shot could be scored: the engine's" in (
        told.output
    )
    assert "lines-2-shot could" not in told.output


@pytest.mark.parametrize(("positions", "context"), [(1024, 1024), (32768, 4096), (None, 4096)])
def test_a_model_without_a_profile_is_asked_within_its_own_positions(
    store, tmp_path, positions, context
):
    config = {"max_position_embeddings": positions} if positions else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    candidate = find_candidate(store, str(tmp_path), None, None, {})
    assert candidate.cfg.engine.max_model_len == context
