"""A run that is pushed into a mirror and pulled from it is the same run; a mirror shows only what
is complete, gives a name to one run, and can do no harm to the store that pulls from it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import obstore
import pytest
from click.testing import CliRunner
from obstore.store import LocalStore, MemoryStore, ObjectStore

from flows.app.command import cli
from flows.runtime.store_root import SOURCE
from tests.support.rows import row
from tests.warehouse.test_fork import play
from warehouse import clean
from warehouse.draft import RECIPE, seal_of, write_recipe
from warehouse.mirror import OPTIMIZER, ROWS, WEIGHTS, create, object_key, open_mirror, recipe_key
from warehouse.pull import pull
from warehouse.push import push
from warehouse.query import query
from warehouse.schemas import SAMPLES
from warehouse.stopped import remembered, stopped
from warehouse.store import Store
from warehouse.table import Damaged

ALL = (ROWS, WEIGHTS, OPTIMIZER)
KILLED = """
import os, signal, sys
import obstore
from obstore.store import LocalStore
from warehouse.push import push
from warehouse.mirror import OPTIMIZER, ROWS, WEIGHTS
from warehouse.stopped import remembered, stopped
from warehouse.store import Store

put, puts = obstore.put, []

def put_or_die(bucket, key, *rest, **more):
    puts.append(key)
    if len(puts) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(bucket, key, *rest, **more)

obstore.put = put_or_die
push(Store(sys.argv[1]), "r", LocalStore(sys.argv[2], mkdir=True), (ROWS, WEIGHTS, OPTIMIZER))
"""


@pytest.fixture(params=["folder", "memory"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    return open_mirror(str(tmp_path / "mirror"))


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "other")


def content(store: Store, run: str = "r") -> dict[str, Any]:
    """Every table of a run: its recipe without the marks of this place, and its rows."""
    return {
        table.address: (table.content_hash, table.recipe["key"], table.rows())
        for table in store.tables(run)
    }


def keys(bucket: ObjectStore, prefix: str = "") -> list[str]:
    return [found["path"] for page in obstore.list(bucket, prefix) for found in page]


def published(bucket: ObjectStore) -> list[str]:
    return [key for key in keys(bucket, "runs/") if key.endswith(f"/{RECIPE}")]


def test_a_pulled_run_has_the_same_tables_and_files(store, other, bucket) -> None:
    play(store, "r")
    pushed = push(store, "r", bucket, ALL)
    pulled = pull(other, "r", bucket, ALL)
    assert content(other) == content(store)
    assert (pushed.num_tables, pulled.num_tables) == (9, 9)  # 1 and 2 x 2 x 2
    for table in other.tables("r"):
        assert list(table.problems(thorough=True)) == []
        assert table.recipe == store.get(table.address).recipe
    assert play(other, "r") == []  # everything is fresh there
    sql = "select rollout_id, policy from rollouts order by all"
    assert query(other.root, sql) == query(store.root, sql) != []


def test_a_second_push_or_pull_sends_nothing(store, other, bucket) -> None:
    play(store, "r")
    push(store, "r", bucket, ALL)
    again = push(store, "r", bucket, ALL)
    assert (again.num_tables, again.num_there, again.num_files) == (0, 9, 0)
    pull(other, "r", bucket, ALL)
    again = pull(other, "r", bucket, ALL)
    assert (again.num_tables, again.num_there, again.num_files) == (0, 9, 0)


def test_weights_and_optimizer_states_stay_out_unless_asked_for(store, other, bucket) -> None:
    play(store, "r")
    push(store, "r", bucket)
    # samples, 4 rollouts, 4 updates: their parts alone
    assert len(keys(bucket, "objects/")) == len(
        {table.contents[part]["hash"] for table in store.tables("r") for part in table.parts}
    )
    pull(other, "r", bucket)
    update = other.get("r/iter-001/solver/step-001/updates")
    assert update.rows() == store.get(update.address).rows()
    assert list(update.problems(thorough=True)) == []
    assert not update.files.exists()
    left_out = {name for name, entry in update.contents.items() if entry.get("cleaned")}
    assert left_out == {
        "files/update/policy/model.safetensors",
        "files/update/optimizer/optimizer.bin",
    }
    assert pull(other, "r", bucket, ALL).absent == {WEIGHTS: 4, OPTIMIZER: 4}


def test_they_come_later_when_they_were_pushed_later(store, other, bucket) -> None:
    play(store, "r")
    push(store, "r", bucket)
    pull(other, "r", bucket)
    assert push(store, "r", bucket, (WEIGHTS,)).num_files == 4
    assert pull(other, "r", bucket, (WEIGHTS,)).num_files == 4
    assert push(store, "r", bucket, ALL).num_files == 4
    pull(other, "r", bucket, ALL)
    assert [t.recipe for t in other.tables("r")] == [t.recipe for t in store.tables("r")]


def test_what_the_run_keeps_beside_its_tables_goes_with_it(store, other, bucket) -> None:
    play(store, "r", iterations=1)
    store.keep("r", "request.json", {"flow": "f", "iterations": 1})
    push(store, "r", bucket)
    pull(other, "r", bucket)
    assert other.kept("r", "request.json") == {"flow": "f", "iterations": 1}
    store.keep("r", "request.json", {"flow": "f", "iterations": 2})
    push(store, "r", bucket)
    assert pull(other, "r", bucket).changed == []
    assert other.kept("r", "request.json") == {"flow": "f", "iterations": 2}
    other.keep("r", "request.json", {"flow": "f", "iterations": 3})  # continued there
    assert pull(other, "r", bucket).changed == ["request.json"]
    assert other.kept("r", "request.json") == {"flow": "f", "iterations": 3}


def stop(store: Store, why: str) -> None:
    with pytest.raises(RuntimeError), remembered(store, "r"):
        raise RuntimeError(why)


def go_on(store: Store) -> None:
    with remembered(store, "r"):
        pass


def test_a_run_that_was_continued_is_not_pulled_as_one_that_stopped(store, other, bucket) -> None:
    play(store, "r", iterations=1)
    stop(store, "too few replies")
    push(store, "r", bucket)
    pull(other, "r", bucket)
    assert str(stopped(other, "r")).endswith("by RuntimeError: too few replies")
    go_on(store)
    assert pull(store, "r", bucket).changed == [] and stopped(store, "r") is None
    push(store, "r", bucket)
    assert pull(other, "r", bucket).changed == [] and stopped(other, "r") is None
    stop(store, "too few replies again")
    push(store, "r", bucket)
    pull(other, "r", bucket)
    assert str(stopped(other, "r")).endswith("again")


def test_a_push_leaves_what_stopped_the_run_in_another_store(store, other, bucket) -> None:
    play(store, "r", iterations=1)
    stop(store, "here")
    push(store, "r", bucket)
    pull(other, "r", bucket)
    stop(other, "there")
    push(other, "r", bucket)
    go_on(store)
    push(store, "r", bucket)
    pull(other, "r", bucket)
    assert str(stopped(other, "r")).endswith("there")
    assert pull(store, "r", bucket).changed == [] and stopped(store, "r") == stopped(other, "r")


def test_a_run_goes_back_and_forth(store, other, bucket) -> None:
    play(store, "r", iterations=1)
    push(store, "r", bucket, ALL)
    pull(other, "r", bucket, ALL)
    assert len(play(other, "r", iterations=2)) == 4
    push(other, "r", bucket, ALL)
    assert pull(store, "r", bucket, ALL).num_tables == 4
    assert content(store) == content(other)


@pytest.mark.slow
def test_a_half_pushed_run_shows_what_is_complete_in_the_order_in_which_it_was_made(
    store, other, tmp_path
) -> None:
    made = ["r/samples", *play(store, "r")[1:]]
    mirror = tmp_path / "mirror"
    bucket = LocalStore(mirror, mkdir=True)
    seen = set()
    for _ in range(20):
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(store.root), str(mirror)],
            cwd=SOURCE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            check=False,
        )
        assert ended.returncode in (-9, 0)
        there = {key.removeprefix("runs/").removesuffix(f"/{RECIPE}") for key in published(bucket)}
        assert there == set(made[: len(there)])
        seen.add(len(there))
        if ended.returncode == 0:
            break
        pull(other, "r", bucket, ALL)
        assert content(other) == {a: c for a, c in content(store).items() if a in there}
    assert len(seen) > 5
    push(store, "r", bucket, ALL)
    pull(other, "r", bucket, ALL)
    assert content(other) == content(store)


def test_a_pull_continues_inside_a_file(store, other, bucket, monkeypatch) -> None:
    monkeypatch.setattr("warehouse.pull.RANGE_BYTES", 1000)
    place = store.run("r")
    with store.draft(SAMPLES) as draft:
        draft.write([row("samples", sample_id="1")])
        (draft.files / "large.bin").write_bytes(os.urandom(10_000))
        recipe = {"key": "given", "stage": "tests.given", "started_at": 0.0}
        table = store.publish(draft, place.address("samples"), recipe)
    push(store, "r", bucket)
    # what an interrupted pull left: 2,500 of 10,000 bytes
    entry = table.contents["files/large.bin"]
    arriving = other.root / "unfinished" / "mirror" / "r" / f"{entry['hash']}.partial"
    arriving.parent.mkdir(parents=True)
    data = (table.files / "large.bin").read_bytes()
    arriving.write_bytes(data[:2500])
    part = table.contents["part-00000.parquet"]["bytes"]
    assert pull(other, "r", bucket).num_bytes == part + 7500
    assert (other.get("r/samples").files / "large.bin").read_bytes() == data
    assert not arriving.parent.exists()


def test_two_runs_that_are_pulled_at_once_do_not_touch_each_other_s_files(
    store, other, bucket, monkeypatch
) -> None:
    """Both have the file of the samples, and one pull ends while the other fetches it."""
    for run in "rs":
        play(store, run, iterations=1)
        push(store, run, bucket, ALL)
    get_range = obstore.get_range
    num_asked = itertools.count()

    def pull_the_other_run(*given: Any, **named: Any) -> Any:
        if next(num_asked) == 0:
            pull(other, "s", bucket, ALL)
        return get_range(*given, **named)

    monkeypatch.setattr(obstore, "get_range", pull_the_other_run)
    pull(other, "r", bucket, ALL)
    for run in "rs":
        assert content(other, run) == content(store, run)
        assert not [p for table in other.tables(run) for p in table.problems(thorough=True)]


def test_files_that_the_first_push_marked_as_cleaned_are_pulled_once_they_are_sent(
    store, other, bucket, tmp_path
) -> None:
    play(store, "r")
    push(store, "r", bucket)
    pull(other, "r", bucket)  # without weights
    rollouts = other.get("r/iter-001/solver/step-001/rollouts")
    clean.remove(other, [clean.Removal(rollouts, clean.ROLLOUTS, rollouts.parts)])
    second = MemoryStore()
    push(other, "r", second, ALL)
    third = Store(tmp_path / "third")
    pull(third, "r", second, ALL)
    assert not third.get(rollouts.address).has_rows
    pushed = push(store, "r", second, ALL)
    # the weights and optimizer states of four updates, and the rows of one table
    assert (pushed.num_tables, pushed.num_there, pushed.num_files) == (0, 9, 9)
    assert pull(third, "r", second, ALL).num_files == 9
    assert [t.recipe for t in third.tables("r")] == [t.recipe for t in store.tables("r")]
    assert not [p for table in third.tables("r") for p in table.problems(thorough=True)]
    assert push(store, "r", second, ALL).num_files == 0


def test_marks_of_files_that_were_not_sent_stay(store, other, bucket, tmp_path) -> None:
    play(store, "r", iterations=1)
    push(store, "r", bucket)
    pull(other, "r", bucket)
    second = MemoryStore()
    push(other, "r", second, ALL)
    push(store, "r", second, (WEIGHTS,))
    third = Store(tmp_path / "third")
    pulled = pull(third, "r", second, ALL)
    assert pulled.absent == {}
    update = third.get("r/iter-001/solver/step-001/updates")
    assert {name for name, entry in update.contents.items() if entry.get("cleaned")} == {
        "files/update/optimizer/optimizer.bin"
    }


def test_a_name_belongs_to_the_run_that_had_it_first(store, other, bucket) -> None:
    play(store, "r", iterations=1)
    play(other, "r", iterations=1)
    push(store, "r", bucket)
    with pytest.raises(ValueError, match="another run is called 'r' in the mirror"):
        push(other, "r", bucket)
    with pytest.raises(ValueError, match="this store has another run called 'r'"):
        pull(other, "r", bucket)


def test_of_racing_pushes_of_different_runs_one_wins_whole(tmp_path, bucket) -> None:
    stores = [Store(tmp_path / f"racer-{number}") for number in range(4)]
    for number, store in enumerate(stores):
        play(store, "r", iterations=1, rate=number)
    start = Barrier(len(stores))
    ended: dict[int, Exception | None] = {}

    def race(number: int) -> None:
        start.wait()
        try:
            push(stores[number], "r", bucket)
            ended[number] = None
        except ValueError as problem:
            ended[number] = problem

    racers = [Thread(target=race, args=(number,)) for number in range(len(stores))]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    winners = [number for number, problem in ended.items() if problem is None]
    assert len(ended) == 4 and len(winners) == 1
    assert all("another run is called" in str(p) for p in ended.values() if p)
    puller = Store(tmp_path / "puller")
    pull(puller, "r", bucket)
    assert content(puller) == content(stores[winners[0]])


def test_of_sixteen_racing_creators_of_one_key_one_wins(bucket) -> None:
    start = Barrier(16)
    won = []

    def race(number: int) -> None:
        start.wait()
        if create(bucket, "runs/r/samples/recipe.json", str(number).encode()):
            won.append(str(number).encode())

    racers = [Thread(target=race, args=(number,)) for number in range(16)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(won) == 1
    assert bytes(obstore.get(bucket, "runs/r/samples/recipe.json").bytes()) == won[0]


def test_a_rebuilt_table_replaces_the_old_one_only_on_request(store, other, bucket) -> None:
    play(store, "r", iterations=1, temperature=1.0)
    push(store, "r", bucket)
    pull(other, "r", bucket)
    old = content(store)
    play(store, "r", iterations=1, temperature=0.5)
    new = content(store)
    with pytest.raises(ValueError, match=r"4 table\(s\) of 'r' are not those .*--replace"):
        push(store, "r", bucket)
    pull(other, "r", bucket)
    assert content(other) == old != new
    push(store, "r", bucket, replace_rebuilt=True)
    with pytest.raises(ValueError, match=r"4 table\(s\) of 'r' differ .*--replace"):
        pull(other, "r", bucket)
    pull(other, "r", bucket, replace_rebuilt=True)
    assert content(other) == new


def test_a_run_that_is_not_there_is_named(store, bucket) -> None:
    play(store, "r", iterations=1)
    with pytest.raises(ValueError, match="there is no run 'nobody' in the mirror"):
        pull(store, "nobody", bucket)
    with pytest.raises(ValueError, match="there is no run 'nobody'"):
        push(store, "nobody", bucket)
    assert not store.folder("nobody").exists()


def test_a_damaged_table_is_not_pushed(store, bucket) -> None:
    play(store, "r", iterations=1)
    part = store.folder("r/samples") / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(Damaged, match=r"r/samples/part-00000.parquet is not what was published"):
        push(store, "r", bucket)
    assert published(bucket) == []


def test_a_push_lacks_no_table_unsaid(store, bucket) -> None:
    play(store, "r", iterations=1)
    (store.folder("r/samples") / "recipe.json").write_text("{")
    with pytest.raises(Damaged, match=r"r/samples/recipe.json is lost, truncated or changed"):
        push(store, "r", bucket)
    assert published(bucket) == []


@pytest.fixture
def pushed(store: Store, bucket: ObjectStore) -> ObjectStore:
    play(store, "r", iterations=1)
    push(store, "r", bucket)
    return bucket


@pytest.mark.parametrize("damage", ["shorter", "changed", "lost"])
def test_a_damaged_object_is_refused_and_its_table_not_published(
    store, other, pushed, damage
) -> None:
    entry = store.get("r/samples").contents["part-00000.parquet"]
    key = object_key(entry["hash"])
    data = bytes(obstore.get(pushed, key).bytes())
    obstore.delete(pushed, key)
    if damage == "shorter":
        obstore.put(pushed, key, data[:-1])
    elif damage == "changed":
        obstore.put(pushed, key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Damaged, match=f"{key} (in the mirror is not what was|is lost from)"):
        pull(other, "r", pushed)
    assert other.find("r/samples") is None
    # as the message says: remove it and the recipe, push again
    if damage != "lost":
        obstore.delete(pushed, key)
    obstore.delete(pushed, recipe_key("r/samples"))
    push(store, "r", pushed)
    pull(other, "r", pushed)
    assert content(other) == content(store)


def hostile(recipe: dict[str, Any], **changes: Any) -> bytes:
    """A recipe with changes, sealed as its writer could."""
    made = {**recipe, **changes}
    return json.dumps({**made, "recipe_hash": seal_of(made)}).encode()


NAMES = [
    "../../../escaped",
    "/etc/escaped",
    "files/../../escaped",
    "files//escaped",
    "files/./escaped",
    "files\\escaped",
    "files/new\nline",
    "recipe.json",
    "part-1.parquet.exe",
    "",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_that_names_a_file_outside_its_table_is_refused(
    store, other, pushed, name
) -> None:
    recipe = store.get("r/samples").recipe
    contents = {**recipe["contents"], name: recipe["contents"]["part-00000.parquet"]}
    obstore.put(pushed, recipe_key("r/samples"), hostile(recipe, contents=contents))
    with pytest.raises(Damaged, match="which no table has"):
        pull(other, "r", pushed)
    assert list(other.tables()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"contents": []},
        {"contents": {"part-00000.parquet": {"bytes": -1, "hash": "0" * 32, "mtime_ns": 0}}},
        {"contents": {"part-00000.parquet": {"bytes": 1, "hash": "../../x", "mtime_ns": 0}}},
        {"contents": {"part-00000.parquet": "x"}},
        {"num_rows": "many"},
        {"num_rows": 99},
        {"table": "rollouts"},
        {"table": "unknown"},
        {"started_at": "yesterday"},
    ],
    ids=str,
)
def test_a_recipe_that_says_nonsense_is_refused(store, other, pushed, changes) -> None:
    recipe = store.get("r/samples").recipe
    obstore.put(pushed, recipe_key("r/samples"), hostile(recipe, **changes))
    with pytest.raises(Damaged, match="in the mirror"):
        pull(other, "r", pushed)
    assert other.find("r/samples") is None


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b"[" * 100_000, b"\xff\xfe"])
def test_a_recipe_that_is_no_recipe_is_refused(other, pushed, data) -> None:
    obstore.put(pushed, recipe_key("r/samples"), data)
    with pytest.raises(Damaged, match=r"runs/r/samples/recipe\.json in the mirror is damaged"):
        pull(other, "r", pushed)


def test_a_recipe_whose_bytes_changed_is_refused(store, other, pushed) -> None:
    recipe = {**store.get("r/samples").recipe, "seconds": 1e9}
    obstore.put(pushed, recipe_key("r/samples"), json.dumps(recipe).encode())
    with pytest.raises(Damaged, match="is not what was pushed: its bytes changed"):
        pull(other, "r", pushed)


@pytest.mark.parametrize(
    "key",
    [
        "runs/r/iter-1/solver/samples/recipe.json",
        "runs/r/unknown/recipe.json",
        "runs/r/samples/part-00000.parquet",
        "runs/r/samples/deeper/recipe.json",
        "runs/r/notes.txt",
    ],
)
def test_a_key_that_no_push_writes_is_refused(other, pushed, key) -> None:
    obstore.put(pushed, key, b"{}")
    with pytest.raises(Damaged, match="no push writes such a key"):
        pull(other, "r", pushed)


def test_a_part_with_other_columns_is_refused(store, other, bucket, tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    play(store, "r", iterations=1)
    table = store.get("r/samples")
    part = table.folder / "part-00000.parquet"
    pq.write_table(pa.table({"sample_id": [1]}), part)
    from warehouse.draft import hash_file

    entry = {"bytes": part.stat().st_size, "hash": hash_file(part), "mtime_ns": 0}
    write_recipe(table.folder / RECIPE, {**table.recipe, "contents": {part.name: entry}})
    push(store, "r", bucket)
    with pytest.raises(Damaged, match="has a column sample_id of type int64"):
        pull(other, "r", bucket)


def test_sql_reads_a_run_that_the_command_pulled(store, tmp_path, monkeypatch) -> None:
    play(store, "r", iterations=1)
    mirror = str(tmp_path / "mirror")

    def command(root: Path, *words: str) -> str:
        monkeypatch.setenv("SELFPLAY_STORE", str(root))
        ended = CliRunner().invoke(cli.main, list(words))
        assert ended.exit_code == 0, ended.output
        return ended.output

    assert "pushed 5 tables of r" in command(store.root, "push", "r", mirror, "--weights")
    pulled = command(tmp_path / "other", "pull", "r", mirror, "--weights", "--optimizer")
    assert "pulled 5 tables of r, 0 were here" in pulled
    assert "2 file(s) of optimizer state are not in the mirror: push with --optimizer" in pulled
    counted = "select count(*) as n from rollouts where run = 'r'"
    assert command(tmp_path / "other", "sql", counted, "--format", "csv") == "n\n2\n"


def test_a_file_in_place_of_a_folder_and_an_unknown_scheme_are_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file: a mirror is a folder"):
        open_mirror(str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"foo://x cannot be opened: .* A mirror is s3://"):
        open_mirror("foo://x")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket of moto's S3 server, in this process."""
    server_of = pytest.importorskip("moto.server", reason="moto is in a full install")
    server = server_of.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    import boto3

    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="runs")
    yield "s3://runs/team"
    server.stop()


def test_s3_takes_a_run_and_gives_it_back(store, other, s3) -> None:
    bucket = open_mirror(s3)
    play(store, "r")
    push(store, "r", bucket, ALL)
    pull(other, "r", bucket, ALL)
    assert [t.recipe for t in other.tables("r")] == [t.recipe for t in store.tables("r")]
    assert content(other) == content(store)
    assert push(store, "r", bucket, ALL).num_files == 0


def test_s3_replaces_a_recipe_only_if_nobody_did_meanwhile(store, s3) -> None:
    from warehouse.mirror import read, replace

    bucket = open_mirror(s3)
    assert create(bucket, "runs/r/a.json", b"1")
    assert not create(bucket, "runs/r/a.json", b"2")
    found = read(bucket, "runs/r/a.json")
    assert found is not None
    assert replace(bucket, "runs/r/a.json", b"3", found[1])
    assert not replace(bucket, "runs/r/a.json", b"4", found[1])
    assert bytes(obstore.get(bucket, "runs/r/a.json").bytes()) == b"3"


def test_a_bucket_that_is_not_there_is_an_error_in_words(store, s3) -> None:
    play(store, "r", iterations=1)
    with pytest.raises(RuntimeError, match=r"run 'r' cannot be pushed: .+"):
        push(store, "r", open_mirror("s3://nobody/x"))
