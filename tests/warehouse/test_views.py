import itertools
import os
from pathlib import Path

import duckdb
import pytest

from tests.support.rows import publish, row, turn
from warehouse.address import Address
from warehouse.query import DATABASE, connect, out_of_core, query, snapshot, write_views
from warehouse.readonly import answer
from warehouse.schemas import TABLES
from warehouse.store import Place, Store

VIEWS = (
    *(
        "documents",
        "prompts",
        "rollouts",
        "tasks",
        "gates",
        "rubrics",
        "judgments",
        "advantages",
        "selections",
    ),
    *("batches", "updates", "policies", "evaluations"),
)


def make_run(store: Store, run: str, title: str) -> None:
    """One iteration: a task is written and trained on, kept, answered, and its answer trained on.
    Both runs use the same ids."""
    top = store.run(run)
    publish(
        top,
        "documents",
        row("documents", document_id="d", title=title),
        row("documents", document_id="other"),
    )
    publish(top, "policies", row("policies", policy="base", role="base", policy_hash="h0"))
    propose(top.iteration(1).phase("pool").step(3))
    learn_to_propose(top.iteration(1).phase("challenger").step(1))
    solve(top.iteration(1).phase("solver").step(2), run)


def propose(step) -> None:
    publish(step, "prompts", prompt("pc", "challenger", document_id="d"), label="challenger")
    asked = [prompt(i, "judge", task_id="t") for i in ("pg", "pr")]
    publish(step, "prompts", *asked, label="judge")
    publish(
        step,
        "rollouts",
        rollout("t", "pc", "challenger"),
        rollout("t2", "pc", "challenger"),
        label="challenger",
    )
    publish(
        step, "rollouts", rollout("g", "pg", "judge"), rollout("w", "pr", "judge"), label="judge"
    )
    unread = row(
        "tasks",
        task_id="t2",
        rollout_id="t2",
        prompt_id="pc",
        document_id="d",
        malformed="no task element",
    )
    publish(
        step,
        "tasks",
        row("tasks", task_id="t", rollout_id="t", prompt_id="pc", document_id="d", text="do it"),
        unread,
    )
    publish(
        step,
        "gates",
        row("gates", task_id="t", gate="entity", kind="model", passed=True, judge_rollout_id="g"),
    )
    publish(
        step,
        "gates",
        row("gates", task_id="t", gate="repeats", kind="rule", passed=True),
        label="rule",
    )
    written = [("t-1", 1, "Names b."), ("t-0", 0, "Names a.")]
    about = {"task_id": "t", "judge_rollout_id": "w"}
    publish(
        step,
        "rubrics",
        *[row("rubrics", criterion_id=i, position=p, criterion=c, **about) for i, p, c in written],
    )
    publish(step, "selections", row("selections", task_id="t", document_id="d", kept=True))


def learn_to_propose(step) -> None:
    publish(step, "prompts", prompt("pc2", "challenger", document_id="other"))
    publish(step, "rollouts", rollout("u", "pc2", "challenger"))
    publish(
        step,
        "tasks",
        row(
            "tasks",
            task_id="u",
            rollout_id="u",
            prompt_id="pc2",
            document_id="other",
            text="try it",
        ),
    )
    publish(
        step,
        "advantages",
        row("advantages", rollout_id="u", group_id="pc2", task_id="u", reward=1.5, advantage=-1.0),
    )
    publish(step, "batches", row("batches", rollout_id="u"))


def solve(step, run: str) -> None:
    publish(
        step,
        "prompts",
        prompt("ps", "solver", task_id="t", template="solver", template_version="v1"),
    )
    said = rollout("a", "ps", "solver", policy=f"{run}/solver-0", seed=11, sample=3)
    publish(step, "rollouts", said, rollout("a2", "ps", "solver"))
    publish(
        step, "rollouts", rollout("j", "pj", "judge"), rollout("j2", "pj", "judge"), label="grade"
    )
    unread = row("answers", rollout_id="a2", prompt_id="ps", task_id="t", malformed="out of turns")
    publish(
        step,
        "answers",
        row("answers", rollout_id="a", prompt_id="ps", task_id="t", answer="done"),
        unread,
    )
    judged = {"rollout_id": "a", "task_id": "t"}
    publish(
        step,
        "judgments",
        row("judgments", criterion_id="t-0", verdict=1, judge_rollout_id="j", **judged),
        row(
            "judgments",
            criterion_id="t-1",
            judge_rollout_id="j2",
            malformed="no score element",
            **judged,
        ),
    )
    paid = {"group_id": "ps", "task_id": "t", "components": {"g": 0.5}}
    publish(
        step, "advantages", row("advantages", rollout_id="a", reward=0.5, advantage=1.25, **paid)
    )
    publish(
        step,
        "batches",
        row("batches", rollout_id="a", datum=0),
        row("batches", rollout_id="a", datum=1),
    )
    about = {
        "policy": f"{run}/solver-1",
        "parent": f"{run}/solver-0",
        "role": "solver",
        "policy_hash": "h1",
    }
    publish(
        step,
        "updates",
        *[row("updates", optimizer_step=i, metrics={"loss": 0.1 * i}, **about) for i in range(2)],
    )
    publish(
        step,
        "evaluations",
        row("evaluations", policy=f"{run}/solver-1", benchmark="micro", metric="score", score=0.5),
    )


def prompt(prompt_id: str, role: str, **given) -> dict:
    return row("prompts", prompt_id=prompt_id, role=role, **given)


def rollout(rollout_id: str, prompt_id: str, role: str, **given) -> dict:
    return row(
        "rollouts",
        rollout_id=rollout_id,
        prompt_id=prompt_id,
        role=role,
        turns=[turn("x")],
        **given,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store with two runs of the same ids, under a path that looks like a run itself."""
    store = Store(tmp_path_factory.mktemp("runs") / "runs" / "iter-007")
    write_views(store)
    make_run(store, "one", "Moon")
    make_run(store, "two", "Sun")
    return store.root


def test_every_view_exists_on_an_empty_store_and_says_where_its_rows_stand(tmp_path):
    root = Store(tmp_path / "empty").root
    with connect(root) as connection:
        for view in [*VIEWS, "answers", "samples", "rewards", "lineage"]:
            found = connection.execute(f"from {view}")
            names = [column[0] for column in found.description]
            assert {"run", "iteration", "phase", "step"} <= set(names), view
            assert found.fetchall() == [], view


@pytest.mark.parametrize("view", VIEWS)
def test_rows_of_every_view_stand_in_their_run(made, view):
    found = query(made, f"select distinct run from {view} order by run")
    assert found == [{"run": "one"}, {"run": "two"}]


def test_where_a_row_stands_is_read_from_its_address(made):
    found = query(
        made,
        "select run, iteration, phase, step, label from gates where run = 'one' order by label",
    )
    place = {"run": "one", "iteration": 1, "phase": "pool", "step": 3}
    assert found == [{**place, "label": "rule"}, {**place, "label": None}]
    (found,) = query(made, "select distinct iteration, phase, step, label from documents")
    assert set(found.values()) == {None}


def test_a_table_right_under_an_iteration_has_no_phase(tmp_path):
    store = Store(tmp_path)
    publish(store.run("r").iteration(2), "samples", row("samples"))
    assert query(tmp_path, "select iteration, phase, step from samples") == [
        {"iteration": 2, "phase": None, "step": None}
    ]


def test_a_row_stands_where_the_address_of_its_table_says(tmp_path):
    """Every combination of a phase, a step and a label, each in a table of its own."""
    store = Store(tmp_path)
    phases = ("fine-tuning", "probe_2", "Phase.2", None)
    labels = ("grade", "a.b-1", None)
    expected = set()
    for phase, step, label in itertools.product(phases, (7, None), labels):
        place = Place(store, Address("r", iteration=2, phase=phase, step=step))
        sample_id = f"{phase} {step} {label}"
        publish(place, "samples", row("samples", sample_id=sample_id), label=label)
        expected.add((sample_id, "r", 2, phase, step, label))
    places = "select sample_id, run, iteration, phase, step, label from samples"
    rows = [tuple(found.values()) for found in query(tmp_path, places)]
    assert len(rows) == 24 and set(rows) == expected
    with connect(tmp_path) as searching:
        rows = searching.sql(places).fetchall()
    assert len(rows) == 24 and set(rows) == expected


def test_views_see_what_is_published_after_them_and_nothing_unpublished(tmp_path):
    store = Store(tmp_path)
    count = "select count(*) as n from samples"
    assert query(tmp_path, count) == [{"n": 0}]
    table = publish(store.run("r"), "samples", row("samples"), row("samples"))
    with store.draft(table.schema) as draft:
        draft.write([row("samples")])
        assert query(tmp_path, count) == [{"n": 2}]


def test_one_statement_leads_from_a_training_row_of_the_solver_to_its_document(made):
    rows = query(
        made, "from lineage where run = $run and rollout_id = 'a' order by datum", {"run": "one"}
    )
    expected = {
        "run": "one",
        "iteration": 1,
        "phase": "solver",
        "step": 2,
        "advantage": 0.0,
        "reward": 0.5,
        "role": "solver",
        "policy": "one/solver-0",
        "seed": 11,
        "sample": 3,
        "prompt_id": "ps",
        "template": "solver",
        "template_version": "v1",
        "task_id": "t",
        "task": "do it",
        "document_id": "d",
        "document_title": "Moon",
    }
    assert [{k: r[k] for k in expected} for r in rows] == [expected] * 2
    assert [r["datum"] for r in rows] == [0, 1]


def test_one_statement_leads_from_a_training_row_of_the_challenger_to_its_document(made):
    (found,) = query(made, "from lineage where run = 'one' and rollout_id = 'u'")
    expected = {
        "phase": "challenger",
        "task_id": "u",
        "task": "try it",
        "document_id": "other",
        "reward": 1.5,
    }
    assert {k: found[k] for k in expected} == expected


def test_every_training_row_leads_to_exactly_one_document_of_its_own_run(made):
    assert query(made, "select run, count(*) as n from lineage group by run order by run") == [
        {"run": "one", "n": 3},
        {"run": "two", "n": 3},
    ]
    (found,) = query(
        made, "select distinct document_title from lineage where run = 'two' and rollout_id = 'a'"
    )
    assert found == {"document_title": "Sun"}


def test_rollouts_show_what_was_read_of_them_or_why_nothing_could_be(made):
    rows = query(made, "select rollout_id, parsed, malformed from rollouts where run = 'two'")
    assert {r["rollout_id"]: (r["parsed"], r["malformed"]) for r in rows} == {
        "t": ("do it", None),
        "t2": (None, "no task element"),
        "g": ("true", None),
        "w": ("Names a.\nNames b.", None),
        "u": ("try it", None),
        "a": ("done", None),
        "a2": (None, "out of turns"),
        "j": ("1", None),
        "j2": (None, "no score element"),
    }
    assert len(rows) == 9


def test_policies_are_those_a_run_starts_from_and_one_for_every_update(made):
    rows = query(
        made,
        "select policy, parent, role, policy_hash from policies where run = 'one' order by policy",
    )
    assert [tuple(r.values()) for r in rows] == [
        ("base", None, "base", "h0"),
        ("one/solver-1", "one/solver-0", "solver", "h1"),
    ]


def test_turns_searches_and_reward_components_can_be_asked_for_in_sql(made):
    (found,) = query(
        made,
        """
        select turns[1].sampled_token_ids as ids, turns[1].logprobs as logprobs, components['g'] as g
        from rollouts join advantages using (run, rollout_id)
        where run = 'one' and rollout_id = 'a'
        """,  # noqa: E501
    )
    assert found == {"ids": [2], "logprobs": [-0.5], "g": 0.5}


@pytest.mark.parametrize("view", [*VIEWS, "replies", "lineage", "quotes", "scores", "spending"])
def test_a_named_view_has_the_rows_of_the_views_that_search_for_files(made, view):
    everything = f"from {view} order by all"
    with connect(made) as searching, connect(made, view) as listing:
        assert listing.sql(everything).fetchall() == searching.sql(everything).fetchall()
        assert (
            listing.sql(f"describe {view}").fetchall()
            == searching.sql(f"describe {view}").fetchall()
        )


def test_a_statement_reads_no_file_of_a_table_that_it_does_not_name(tmp_path):
    """The view of a damaged table could not even be made."""
    store = Store(tmp_path)
    for run in ("one", "two"):
        publish(store.run(run), "evaluations", row("evaluations", score=0.5))
        damaged = publish(store.run(run), "tasks", row("tasks", task_id="t"))
        (damaged.folder / "part-00000.parquet").write_bytes(b"damaged")
    assert query(store.root, "select sum(score) as s from Evaluations") == [{"s": 1.0}]
    assert query(store.root, "from answers") == []
    assert not (store.root / DATABASE).exists()
    with pytest.raises(duckdb.Error):
        query(store.root, "select * from tasks")


def test_a_statement_that_lists_views_lists_each_once(made):
    found = query(made, "select table_name as n from information_schema.tables where n = 'tasks'")
    assert found == [{"n": "tasks"}]
    assert [r["name"] for r in query(made, "show tables")].count("tasks") == 1


def test_views_know_the_files_of_published_tables_only(tmp_path):
    store = Store(tmp_path)
    publish(store.run("r"), "samples", row("samples", sample_id="a"))
    gone = publish(store.run("r").iteration(1), "samples", row("samples", sample_id="b"))
    (gone.folder / "recipe.json").unlink()
    assert query(store.root, "select sample_id from samples") == [{"sample_id": "a"}]


def test_the_connection_is_read_only(made):
    with connect(made) as connection, pytest.raises(duckdb.Error, match="read-only"):
        connection.execute("drop view tasks")


def test_no_column_has_a_name_that_the_views_give():
    given = {"run", "iteration", "phase", "step", "label", "filename"}
    assert [
        (name, c.name) for name, schema in TABLES.items() for c in schema.columns if c.name in given
    ] == []


def test_a_process_whose_views_another_makes_at_the_same_time_sees_them(tmp_path, monkeypatch):
    rename = os.rename

    def late(source, target):
        monkeypatch.undo()
        write_views(Store(tmp_path))
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert query(tmp_path, "select count(*) as n from tasks") == [{"n": 0}]


def test_what_spills_to_disk_is_shared_with_no_other_process_or_user():
    asked = "select current_setting('temp_directory')"
    with out_of_core() as one, out_of_core() as other:
        assert one.execute(asked).fetchall() != other.execute(asked).fetchall()


@pytest.mark.parametrize("damage", [b"", b"no database"])
def test_a_damaged_database_is_made_again_for_it_holds_only_views(tmp_path, damage):
    publish(Store(tmp_path).run("r"), "samples", row("samples"))
    assert query(tmp_path, "select run from samples") == [{"run": "r"}]
    (tmp_path / DATABASE).write_bytes(damage)
    assert query(tmp_path, "select run from samples") == [{"run": "r"}]


@pytest.mark.parametrize("name", ["a[1]", "c*{x,y}", "it's", "w?x", "*'\"[", "two\nlines"])
def test_the_name_of_a_store_is_no_pattern(tmp_path, name):
    publish(Store(tmp_path / name).run("r"), "samples", row("samples"))
    assert query(tmp_path / name, "select run from samples") == [{"run": "r"}]
    with answer(tmp_path / name, "select run from samples") as rows:
        assert rows.read_all().to_pylist() == [{"run": "r"}]


def test_a_snapshot_has_the_rows_of_some_runs_and_does_not_read_the_store_again(tmp_path):
    store = Store(tmp_path)
    for run in ("one", "two", "three"):
        publish(
            store.run(run).iteration(2),
            "evaluations",
            row("evaluations", benchmark="b", metric="m", score=0.5),
        )
        publish(store.run(run), "documents", row("documents", document_id=run))
    rows = "select run, iteration, score from evaluations where score < $most order by run"
    with snapshot(tmp_path, ["evaluations"], ["one", "three"]) as ask:
        expected = [{"run": run, "iteration": 2, "score": 0.5} for run in ("one", "three")]
        assert ask(rows, {"most": 1}) == expected
        (store.runs / "one").rename(tmp_path / "elsewhere")
        assert ask(rows, {"most": 1}) == expected
        with pytest.raises(duckdb.CatalogException, match="documents does not exist"):
            ask("select * from documents", {})
    assert [found["run"] for found in query(tmp_path, rows, {"most": 1})] == ["three", "two"]


def test_an_answer_is_scored_by_a_rule_a_benchmark_or_the_share_of_its_rubric(tmp_path):
    place = Store(tmp_path).run("one").iteration(1).phase("evaluation")
    publish(
        place,
        "matches",
        row("matches", rollout_id="ruled", matched=True),
        row("matches", rollout_id="not-compared", matched=None, reason="took too long"),
    )
    scored = row("item_scores", rollout_id="benchmarked", scores={"score": 0.25, "recall": 1.0})
    publish(place, "item_scores", scored)
    verdicts = [
        row("judgments", rollout_id="judged", criterion_id=f"c{i}", verdict=verdict)
        for i, verdict in enumerate([1, 1, 0, None])
    ]
    canary = row("judgments", rollout_id="canary", criterion_id="c0", verdict=1, expected=1)
    publish(place, "judgments", *verdicts, canary)
    found = query(
        tmp_path, "select rollout_id, scored_by, score, unscored from scores order by rollout_id"
    )
    assert [tuple(score.values()) for score in found] == [
        ("benchmarked", "benchmark", 0.25, None),
        ("judged", "rubric", pytest.approx(2 / 3), None),
        ("not-compared", "rule", None, "took too long"),
        ("ruled", "rule", 1.0, None),
    ]
