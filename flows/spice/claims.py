"""SPICE's ablations over ledgers, and what the paper says of each: `python -m flows.claims spice`."""

from __future__ import annotations

from functools import partial
from typing import Any

from flows.claims import Claim, Seed, Study, beats, raises

SPICE = "SPICE"
ABLATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "Challenger fixed": ({"challenger.fixed": True}, "training the Challenger helps (figure 4a)"),
    "no document": ({"challenger.grounded": False}, "documents help (figure 4b)"),
    "reward Absolute Zero": ({"challenger.reward": "absolute_zero"}, "variance beats Absolute Zero's reward (table 4)"),
    "reward threshold": ({"challenger.reward": "threshold"}, "variance beats the threshold reward (table 4)"),
    "reward R-Zero": ({"challenger.reward": "r_zero"}, "variance beats R-Zero's reward (table 4)"),
    "multiple choice only": (
        {"challenger.formats": ["multiple_choice"]},
        "both formats beat multiple choice alone (table 3)",
    ),
    "free form only": ({"challenger.formats": ["free_form"]}, "both formats beat free form alone (table 3)"),
    "mathematics only": ({"corpora": {"micro-mathematics": 1.0}}, "both corpora beat mathematics alone (table 2)"),
    "general only": ({"corpora": {"micro-general": 1.0}}, "both corpora beat general alone (table 2)"),
}
NO_PROBES: dict[str, Any] = {"probes.checkpoints": []}


def moved(seed: Seed, opponent: str) -> float:
    """How a pass rate against a fixed opponent changed from the first checkpoint to the last."""
    rates = seed.series(SPICE, benchmark=opponent)
    return rates[-1] - rates[0]


PROBES = (
    Claim(
        "a fixed Reasoner succeeds less and less (figure 3)",
        "pass rate, last checkpoint minus first",
        (SPICE,),
        partial(moved, opponent="fixed Reasoner"),
        lambda value: value < 0,
    ),
    Claim(
        "the Reasoner succeeds more and more against a fixed Challenger (figure 3)",
        "pass rate, last checkpoint minus first",
        (SPICE,),
        partial(moved, opponent="fixed Challenger"),
    ),
)
STUDY = Study(
    method="spice",
    variants={SPICE: {}, **{name: {**settings, **NO_PROBES} for name, (settings, _) in ABLATIONS.items()}},
    claims=(
        raises(SPICE, at_least=0.05),
        *(beats(SPICE, name, says) for name, (_, says) in ABLATIONS.items()),
        *PROBES,
    ),
    metrics={
        "held-out": ("micro", "score"),
        "Integer": ("micro", "score_Integer"),
        "Expression": ("micro", "score_Expression"),
        "String": ("micro", "score_String"),
        "multiple choice": ("micro", "score_multiple_choice"),
        "items asked": ("questions asked", "items"),
        "pass rate": ("questions asked", "pass_rate"),
        "true references": ("questions asked", "true_reference"),
    },
)
