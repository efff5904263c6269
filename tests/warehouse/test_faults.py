"""The faults of `make chaos` other than kills, one by one."""

import itertools
import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from tests.end_to_end import faults
from tests.end_to_end.faults import damage, occupy, pause, silence, step_clock

COUNT = """
import time
while True:
    print("on", flush=True)
    time.sleep(0.05)
"""


def test_a_process_stands_still_and_goes_on(monkeypatch):
    with subprocess.Popen(
        [sys.executable, "-c", COUNT], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = psutil.Process(child.pid)
        paused_s = list[float]()

        def wait(seconds):
            paused_s.append(seconds)
            wait_until_stopped(process)

        monkeypatch.setattr(faults, "PAUSE_S", (0.5, 0.5))
        monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=wait))
        try:
            assert pause([process], random.Random(0))
            assert paused_s == [0.5]
            assert child.stdout.readline()
        finally:
            child.kill()
    monkeypatch.undo()
    assert not pause([process], random.Random(0))


def wait_until_stopped(process):
    """A signal stops a process only when the process has a turn."""
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


@pytest.fixture
def sleeping():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        yield psutil.Process(child.pid)
        child.kill()


@pytest.mark.parametrize(("given_up", "comes_back"), [(True, {True, False}), (False, {True})])
def test_a_flow_stands_still_until_it_is_given_up_and_comes_back_or_not(
    monkeypatch, sleeping, given_up, comes_back
):
    monkeypatch.setattr(faults, "BACK_S", (0.0, 0.0))
    found = set()

    def asked() -> bool:
        wait_until_stopped(sleeping)
        return given_up

    for seed in range(3):
        # a clock of which every look takes a second: two polls are within the limit
        clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=lambda _: None)
        monkeypatch.setattr(faults, "time", clock)
        assert silence([sleeping], asked, 2.5, random.Random(seed)) == given_up
        found.add(sleeping.status() != psutil.STATUS_STOPPED)
        sleeping.resume()
    assert found == comes_back


def test_there_is_no_silence_without_a_flow():
    assert not silence([], lambda: True, 1.0, random.Random(0))


@pytest.mark.parametrize("seed", range(8))
def test_one_file_is_cut(tmp_path, seed):
    folder = tmp_path / "runs" / "chaos" / "iter-001" / "samples"
    folder.mkdir(parents=True)
    files = [folder / "part-00000.parquet", folder / "recipe.json", tmp_path / "warehouse.duckdb"]
    for file in files:
        file.write_bytes(b"12345678")
    assert damage(tmp_path, tmp_path / "pids", random.Random(seed))
    assert sorted(file.stat().st_size for file in files) in ([0, 8, 8], [4, 8, 8])


def test_nothing_is_cut_where_nothing_is(tmp_path):
    assert not damage(tmp_path, tmp_path, random.Random(0))


def test_files_are_an_hour_older_or_younger(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (10_000, 10_000))
    assert step_clock([tmp_path], random.Random(0))
    assert {(tmp_path / name).stat().st_mtime for name in "ab"} in ({6_400.0}, {13_600.0})


def test_what_prefect_would_make_is_there_and_no_folder(tmp_path):
    occupy(tmp_path / "tmp")
    with pytest.raises(FileExistsError):
        (tmp_path / "tmp" / "runner_storage").mkdir()
