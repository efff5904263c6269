"""Replies in the style of real models, each read as a careful person would; and replies made to
break the readers."""

import pytest

from tests.bench import fuzz
from tests.support.replies import REPLIES, cases, play

FILES = sorted(REPLIES.glob("*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_reply_is_read_as_a_careful_reader_takes_it(path):
    outcomes = [play(case) for case in cases([path])]
    assert len(outcomes) > 50
    assert [(outcome.case["case"], outcome.read) for outcome in outcomes if not outcome.right] == []


def test_fuzzed_replies_crash_no_reader_and_inject_no_verdict():
    report = fuzz.fuzzed(seed=0, num=333)  # from 334 on it includes long ones
    assert report.num_replies == 333
    assert (report.crashes, report.injected) == ({}, {})


def test_long_hostile_replies_crash_no_reader_and_inject_no_verdict():
    report = fuzz.stretched(fuzz.PATTERNS, length=4_000)
    assert report.num_replies == 2 * len(fuzz.PATTERNS)
    assert (report.crashes, report.injected) == ({}, {})
