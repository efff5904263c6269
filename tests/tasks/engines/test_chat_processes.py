"""Models behind an API, asked by processes that are killed or interrupted, or by several at
once."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.chat_server import serving
from tests.tasks.engines.test_chat import KEY, ask, prompts, yes
from warehouse.replies import PaidReplies, PaidReply

KILLED = """
import signal
import sys
from pathlib import Path
from tasks.engines.chat import ChatFleet
from tasks.rollouts.dialogue import Dialogue
from tests.tasks.engines.test_chat import GREEDY, endpoint, prompts
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it does not wait for deaf to it
api = endpoint(sys.argv[1], max_concurrency=4, timeout_s=3600)
for row in ChatFleet(api, Path(sys.argv[2]), "r").roll_out(prompts(60), api.policy("api:m"), GREEDY, Dialogue()):
    print(row["prompt_id"], flush=True)
"""  # noqa: E501


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)


def test_a_kill_costs_only_what_was_under_way(place):
    with serving(yes) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, server.url, str(place.store.root)],
            stdout=subprocess.PIPE,
            env={**os.environ},
        )
        assert process.stdout is not None
        told = [process.stdout.readline().decode().strip() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert all(told), "it ended before it was killed"
        rows = ask(place, server.url, prompts(60))
    assert len({r["prompt_id"] for r in rows}) == 60
    assert {r["usage"]["cached"] for r in rows} == {False}, "the run paid for all of them"
    assert {server.asked[f"judge {name[1:]}"] for name in told} == {1}


def test_an_interrupted_process_waits_for_no_reply(place):
    with serving(lambda prompt, n: "slow") as server:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, server.url, str(place.store.root)], env={**os.environ}
        )
        while not server.requests:
            assert process.poll() is None
            threading.Event().wait(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) != 0  # a request may take six times as long


STORES = """
import sys
from pathlib import Path
from warehouse.replies import PaidReplies, PaidReply
store = PaidReplies(Path(sys.argv[1]))
name = sys.argv[2]
reply = PaidReply(name, "stop", 1, 1, 1.0, None, "r", "row")
for i in range(50):
    store.put({f"all-{i}": reply, f"{name}-{i}": reply})
"""


def test_several_processes_keep_replies_at_once(place):
    """Each of four processes stores 50 replies of its own and 50 that all store. The first of the
    latter stays; the others were paid for, too."""
    store = PaidReplies(place.store.root)
    store.put({"all-0": PaidReply("first", "stop", 1, 1, 1.0, None, "r", "row")})
    started = [
        subprocess.Popen([sys.executable, "-c", STORES, str(place.store.root), n]) for n in "abcd"
    ]
    assert [process.wait() for process in started] == [0] * 4
    assert (store.spent("r"), store.lost("r")) == (401, 151)
    assert store.find(["all-0", "d-49"])["all-0"].text == "first"
    assert len(store.find([f"b-{i}" for i in range(50)])) == 50
