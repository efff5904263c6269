"""Verdicts of a judge behind an API that fails: `python -m tests.bench.judges [N]`.

Asks for N verdicts (10,000) through a server that fails every fifth request, then for the same
again; and for 1,000 through one that serves twelve requests at once, 50 ms each, and answers 429 to
any more. Exits with 1 if a verdict is lost, doubled, or paid for twice.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.chat_server import FAULTS, ChatServer, serving
from tests.support.rows import publish
from tests.tasks.engines.test_chat import prompts, stage
from warehouse.store import Store

AT_ONCE = 12
SERVICE_S = 0.05


def failing(num: int) -> bool:
    chance = random.Random(7)

    def say(prompt: str, n: int) -> str:
        return (
            chance.choice(FAULTS)
            if chance.random() < 0.2
            else f"<score>{int(prompt[6:]) % 2}</score>"
        )

    wanted = [(f"p{i}", f"<score>{i % 2}</score>") for i in range(num)]
    right = True
    with tempfile.TemporaryDirectory() as folder, serving(say) as server:
        store = Store(Path(folder))
        table = publish(store.run("r"), "prompts", *prompts(num))
        for run in ("first", "again"):
            before = len(server.requests)
            began = time.monotonic()
            rows = stage(store.run(run), server.url, table).rows()
            sent = len(server.requests) - before
            seconds = time.monotonic() - began
            print(f"{run}: {len(rows)} verdicts, {sent} requests, {seconds:.1f} s")
            right &= [(row["prompt_id"], row["reply"]) for row in rows] == wanted and (
                run == "first" or not sent
            )
    return right


class Busy(ChatServer):
    """Serves `AT_ONCE` requests at a time and refuses any more."""

    num_now = 0
    num_refused = 0
    counting = threading.Lock()

    def answer(self, handler, request):
        with self.counting:
            refused = self.num_now >= AT_ONCE
            self.num_now += not refused
            self.num_refused += refused
        if refused:
            self.send(handler, 429, {"error": "slow down"})
            return
        time.sleep(SERVICE_S)
        with self.counting:
            self.num_now -= 1
        super().answer(handler, request)


def busy(num: int = 1000) -> bool:
    with tempfile.TemporaryDirectory() as folder, serving(lambda prompt, n: "yes", Busy) as server:
        place = Store(Path(folder)).run("r")
        began = time.monotonic()
        rows = stage(
            place, server.url, publish(place, "prompts", *prompts(num)), max_concurrency=64
        ).rows()
        rate = num / (time.monotonic() - began)
    print(
        f"busy: {num} verdicts at {rate:.0f}/s of {AT_ONCE / SERVICE_S:.0f}, {server.num_refused}"
        " refused by 429"
    )
    return all(row["reply"] == "yes" for row in rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verdicts", type=int, nargs="?", default=10_000)
    os.environ["JUDGE_KEY"] = "sk-not-a-key"
    sys.exit(not (failing(parser.parse_args().verdicts) & busy()))
