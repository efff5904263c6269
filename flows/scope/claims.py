"""SCOPE's claims in the micro-world: `python -m flows.claims scope`."""

from __future__ import annotations

import math
from itertools import pairwise

from flows import profile
from flows.claims import Claim, Seed, Study, raises
from flows.scope.config import Config
from tasks.monitor import Alarm

SCOPE, FROZEN, UNGATED, UNBOUNDED, HACKABLE = (
    "co-evolving",
    "frozen Challenger",
    "no quality gates",
    "no length penalty",
    "hackable judge",
)
POOL = """
    select avg(mean_score) as mean_score, avg((mean_score between 0.2 and 0.8)::int) as surviving
    from selections where run = $run group by iteration order by iteration
"""
GENERIC = """
    select avg((text like '%about towns like %' or text like '%about places near %')::int) as generic
    from tasks where run = $run and phase = 'pool' and text is not null group by iteration order by iteration
"""


def drift(seed: Seed) -> float:
    means = [row["mean_score"] for row in seed.rows(FROZEN, POOL)]
    return means[-1] - means[0]


def survivors(seed: Seed) -> float:
    shares = [row["surviving"] for row in seed.rows(FROZEN, POOL)]
    return shares[-1] / shares[0] if shares[0] else math.nan


def late_lead(seed: Seed) -> float:
    (_, early, *_, last), (_, frozen_early, *_, frozen_last) = seed.series(SCOPE), seed.series(FROZEN)
    return (last - early) - (frozen_last - frozen_early)


def generic_ratio(seed: Seed) -> float:
    ungated, gated = (seed.rows(variant, GENERIC)[-1]["generic"] for variant in (UNGATED, SCOPE))
    return ungated / gated if gated else math.inf


def extra_tokens(seed: Seed) -> float:
    unbounded, bounded = (seed.series(variant, "answer_tokens") for variant in (UNBOUNDED, SCOPE))
    return unbounded[-1] - bounded[-1]


def alarm_before_fall(seed: Seed) -> float:
    """1 when the monitor stopped the run and no held-out score before that fell below the one before it."""
    scores = seed.series(HACKABLE)
    finished = len(scores) == profile.load(Config, "micro").iterations + 1
    fell = any(after < before for before, after in pairwise(scores))
    return float(not finished and not fell)


STUDY = Study(
    method="scope",
    variants={
        SCOPE: {},
        FROZEN: {"challenger.frozen_after": 0},
        UNGATED: {"judge.quality_gates": False},
        UNBOUNDED: {"solver.reward.length_penalty": False},
        HACKABLE: {"models.grader": "data/micro/base"},
    },
    claims=(
        raises(SCOPE, at_least=0.10),
        Claim(
            "a frozen Challenger's tasks drift easy",
            "mean score of candidates, last iteration minus first",
            (FROZEN,),
            drift,
        ),
        Claim(
            "and fewer of them survive the window",
            "share surviving, last over first iteration",
            (FROZEN,),
            survivors,
            lambda value: value < 0.6,
        ),
        Claim(
            "and the held-out score stalls",
            "gain after iteration 1, co-evolving minus frozen",
            (SCOPE, FROZEN),
            late_lead,
        ),
        Claim(
            "without quality gates tasks turn generic",
            "generic share, ungated over gated",
            (SCOPE, UNGATED),
            generic_ratio,
            lambda value: value >= 3,
        ),
        Claim(
            "without the length penalty answers grow",
            "tokens, without minus with",
            (SCOPE, UNBOUNDED),
            extra_tokens,
            lambda value: value >= 6,
        ),
        Claim(
            "a hackable judge is caught in time",
            "alarm before the held-out score falls",
            (HACKABLE,),
            alarm_before_fall,
            lambda value: value == 1,
        ),
    ),
    metrics={"held-out": ("micro", "score"), "answer tokens": ("micro", "answer_tokens")},
    stops=(Alarm,),
)
