"""Ten jobs of a researcher in the viewer: `python -m tests.bench.jobs RUN`.

Does each job in a real Chromium, in the run of the store that SELFPLAY_STORE names, and counts what
a person would do (clicks, choices, keys, a typed text as one) and the seconds that the pages took.
The run needs three iterations of SCOPE, such as the demo's. It gets ten labels, so give a copy of
the store. Appends a line per job to data/bench/jobs.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from flows.runtime.store_root import open_store
from tests.support.chromium import Tab, chromium
from tests.support.viewer import Viewer

BENCH = Path(__file__).parents[2] / "data" / "bench" / "jobs.jsonl"
NUM_LABELS = 10
STATEMENT = (
    "select iteration, avg(reward) as mean_reward from rewards join rollouts_table"
    " using (run, rollout_id, iteration) where run = '{run}' and role = 'solver'"
    " group by all order by all"
)
CONTENT = "document.readyState === 'complete' && !document.querySelector('.htmx-request')"


class Researcher:
    """A person before a tab: acts, waits for what the act brings, and counts."""

    def __init__(self, viewer: Viewer, run: str) -> None:
        self.viewer = viewer
        self.tab: Tab = viewer.tab
        self.run = run
        self.num_actions = 0
        self.seconds = 0.0

    def begin(self, path: str) -> None:
        """Start a job on a page, which does not count as an action."""
        self.viewer.open(path)
        self.tab.wait(CONTENT)
        self.num_actions = 0
        self.seconds = 0.0

    def act(self, doing: Callable[[], None], brings: str) -> None:
        """Do something, and wait until `brings` holds on a page that has loaded."""
        started = time.monotonic()
        doing()
        self.tab.wait(f"{CONTENT} && ({brings})")
        self.seconds += time.monotonic() - started
        self.num_actions += 1

    def click(self, selector: str, brings: str) -> None:
        self.tab.wait(f"document.querySelector({selector!r})")
        self.act(lambda: self.tab.eval(f"document.querySelector({selector!r}).click()"), brings)

    def choose(self, name: str, value: str) -> None:
        """Choose a value in a list of the filters, which takes effect at once."""
        script = (
            f"(box => {{ box.value = {value!r};"
            " box.dispatchEvent(new Event('change', {bubbles: true})) })"
            f"(document.querySelector('form.filters [name={name}]'))"
        )
        self.act(
            lambda: self.tab.eval(script),
            f"new URLSearchParams(location.search).get({name!r}) === {value!r}",
        )

    def press(self, key: str, brings: str) -> None:
        self.act(lambda: self.tab.press(key), brings)

    def type(self, selector: str, text: str) -> None:
        """Type a text at once."""
        box = f"document.querySelector({selector!r})"
        self.act(lambda: self.tab.eval(f"{box}.value = {text!r}"), f"{box}.value === {text!r}")

    def at(self, page: str) -> str:
        return f"location.pathname.endsWith('/{page}')"


def ten_worst(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/rollouts']", one.at("rollouts"))
    one.choose("iteration", "2")
    one.choose("role", "solver")
    one.choose("order", "worst")
    assert one.tab.eval("document.querySelectorAll('[data-list] tbody tr').length") >= 10


def why_dropped(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/candidates']", one.at("candidates"))
    one.click(".funnel a[href*='reason=too']", "location.search.includes('reason=')")
    one.click("[data-list] tbody a", one.at("task"))
    assert one.tab.eval("document.body.textContent.includes('Where it went')")


def compare_a_group(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click(".findings a[href*='reinforced'][href*='go=1']", one.at("group"))
    assert one.tab.eval("document.body.textContent.includes('differ from the truth')")


def is_the_judge_right(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/judge']", one.at("judge"))
    assert one.tab.eval("document.body.textContent.includes('3 solver')")


def what_an_update_trained_on(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/updates']", one.at("updates"))
    one.click("[data-list] tbody a", one.at("update"))
    assert one.tab.eval("document.querySelectorAll('.histogram a').length") > 1


def one_document(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/documents']", one.at("documents"))
    one.click("[data-list] tbody a", one.at("document"))
    iterations = "new Set([...document.querySelectorAll('.place')].map(p => p.textContent[0])).size"
    assert one.tab.eval(iterations) >= 2


def label_ten(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav a[href$='/labels']", one.at("labels"))
    one.click("form.filters button", one.at("read"))
    one.press("j", "document.querySelector('tr.at')")
    one.press("o", "document.querySelector('form.labels')")
    for _ in range(NUM_LABELS):
        here = one.tab.eval("location.href")
        one.press("1", f"location.href !== {here!r}")


def plot_by_sql(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.click("nav[aria-label=tools] a", one.at("sql"))
    one.type("textarea", STATEMENT.format(run=one.run))
    one.click("#ask button", "document.querySelector('[data-figure]')")
    one.click("details.card summary", "document.querySelector('#drawn svg')")
    one.click("#result [data-save=png]", "true")


def search(one: Researcher) -> None:
    one.begin(f"/run/{one.run}")
    one.press("/", "document.activeElement.id === 'find'")
    one.type("#find", "quahicr")
    one.press("Enter", f"{one.at('search')} && document.querySelector('[data-list] tbody a')")


def share_a_row(one: Researcher) -> None:
    """The address of a row opens it in another tab of the same person."""
    one.begin(f"/run/{one.run}/rollouts")
    one.click("[data-list] tbody a", one.at("rollout"))
    address = one.tab.eval("location.href")
    title = one.tab.eval("document.querySelector('h1').textContent")
    one.act(
        lambda: one.tab.open(address),
        f"document.querySelector('h1').textContent === {title!r}",
    )


JOBS: dict[str, Callable[[Researcher], None]] = {
    "the ten worst answers of iteration 2": ten_worst,
    "why a candidate was dropped": why_dropped,
    "compare one group, with its verdicts": compare_a_group,
    "is the judge right, and where not": is_the_judge_right,
    "what an update trained on": what_an_update_trained_on,
    "one document over the iterations": one_document,
    f"label {NUM_LABELS} by keyboard": label_ten,
    "plot by SQL, and save it": plot_by_sql,
    "search for a word": search,
    "share a row": share_a_row,
}


def main(run: str) -> None:
    """Do all jobs and print their actions and seconds."""
    code = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    with chromium() as tab:
        tab.resize(1400, 900)
        viewer = Viewer(open_store(), tab)
        try:
            one = Researcher(viewer, quote(run))
            with BENCH.open("a", encoding="utf-8") as file:
                for name, job in JOBS.items():
                    job(one)
                    row = {
                        "job": name,
                        "actions": one.num_actions,
                        "seconds": round(one.seconds, 1),
                        "load": round(os.getloadavg()[0], 1),
                        "code": code,
                        "day": time.strftime("%Y-%m-%d"),
                    }
                    print(f"{name:40}{row['actions']:4}{row['seconds']:8}", flush=True)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
        finally:
            viewer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a finished run of SCOPE over three iterations")
    main(parser.parse_args().run)
