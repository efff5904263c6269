"""What an engine's process leaves out, and what ends with it."""

import os
import secrets
import socket
import subprocess
import sys
import time
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from tasks.engines import child, node_host
from tasks.engines.fleet import Fleet
from tasks.engines.node_folders import send_folders
from tasks.models.engine import EngineConfig
from tests.support.scripted import model_folder

SERVED = """
from multiprocessing import Pipe
from tasks.engines import fleet_child

def look(*_):
    try:
        import scipy.sparse, sklearn.metrics
        print("there")
    except ImportError:
        print("missing")

ours, theirs = Pipe()
ours.send(None)
fleet_child.open_engine = lambda config: look() or object()
fleet_child.serve_calls = look
fleet_child.serve(theirs)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


def config(folder):
    return EngineConfig(model=str(folder), max_model_len=64)


@pytest.mark.parametrize(("answer", "closed"), [("done", []), ("failed", [0]), ("died", [0])])
def test_an_engine_that_fails_to_sleep_is_gone_before_an_update_begins(
    tmp_path, folder, answer, closed
):
    fleet, ended, (ours, theirs) = Fleet(config(folder), 1, tmp_path), [], Pipe()
    fleet._pool.children[0] = SimpleNamespace(pipe=ours, close=lambda: ended.append(0))  # type: ignore[assignment]
    theirs.send((answer,))
    fleet.sleep()
    assert (
        theirs.recv() == ("sleep",)
        and ended == closed
        and bool(fleet._pool.children) == (not closed)
    )


def test_an_embedding_model_finds_the_libraries_that_an_engine_was_loaded_without():
    """A search loads it in the engine's process; sentence-transformers imports scipy and
    sklearn."""
    project = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", SERVED], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["missing", "there"]


def test_what_an_engines_process_started_ends_with_it(tmp_path, folder, monkeypatch):
    """As a tensor-parallel worker that still loads when its engine is closed."""
    started = tmp_path / "started"
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nsleep 3600 &\necho $! > {started}\n")
    program.chmod(0o700)
    monkeypatch.setattr(child.sys, "executable", str(program))
    engine = child.Child(config(folder), 0, tmp_path)
    engine.process.wait()
    left = psutil.Process(int(started.read_text()))
    engine.close()
    while left.is_running() and left.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_an_engine_on_another_machine_answers_over_a_connection_with_a_key(tmp_path, monkeypatch):
    """The process that a node starts, on this machine: it asks for its model, which the flow does
    not have, and it says so."""
    key = secrets.token_hex(32)
    wrong = os.environ | {child.KEY: secrets.token_hex(32)}
    with Listener(("127.0.0.1", 0), authkey=bytes.fromhex(key)) as listener:
        port = str(listener.address[1])  # type: ignore[index]
        command = [sys.executable, "-m", "tasks.engines.fleet_child", "127.0.0.1", port]
        with subprocess.Popen(command, env=wrong, stderr=subprocess.DEVNULL) as refused:
            with pytest.raises(AuthenticationError):
                listener.accept()
            assert refused.wait() != 0
        with subprocess.Popen(command, env=os.environ | {child.KEY: key}) as started:
            with listener.accept() as pipe:
                pipe.send(EngineConfig(model=str(tmp_path / "none"), max_model_len=64))
                pipe.send((child.SLEEP,))
                send_folders(cast(Connection, listener.accept()))
                kind, error = pipe.recv()
                assert kind == child.FAILED
                assert f"the flow cannot read {tmp_path / 'none'}" in str(error)
            assert started.wait() == 0


def test_a_node_that_cannot_reach_the_fleet_says_so(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert node_host._reachable(["127.0.0.1"], port) == "127.0.0.1"
    with pytest.raises(ConnectionError, match=r"cannot reach the flow .*open the ports"):
        node_host._reachable(["127.0.0.1"], port)
