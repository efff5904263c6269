"""What SPELL teaches a real model of 135M parameters, and what its controls do not: `python -m flows.claims english`.

`make demo-english` makes the model, and the corpus that these runs learn from. Scores are exact matches of greedy
answers; the paper's claim is that of its profile, and the baselines and controls are ours.
"""

from __future__ import annotations

from typing import Any

from flows.claims import Claim, Seed, Study, beats, raises

WHOLE, PERMUTED, READABLE, PROMPTS = "self-play", "permuted rewards", "paid for form alone", "other prompts"
FEW_SHOT = ("lines-3-shot", "lines-5-shot", "instruct")
MAIN, OTHER, METRIC = "nq", "tatqa", "exact_match"
ALSO: dict[str, Any] = {"evaluation.also": [f"data/english/{OTHER}.jsonl"]}
UNPROMPTED: dict[str, Any] = {"evaluation.baselines": []}  # greedy, of the base model: one run has them for all
HARDLY = {"steps": 1, "sampling.clusters_per_round": 8, "sampling.groups": 1}


def best_few_shot(seed: Seed, benchmark: str) -> float:
    """The base model with the prompts that suit it best."""
    return max(seed.series(PROMPTS, METRIC, f"{benchmark}, {prompts}")[0] for prompts in FEW_SHOT)


def exceeds_few_shot(benchmark: str, least: float) -> Claim:
    def value(seed: Seed) -> float:
        return seed.series(WHOLE, METRIC, benchmark)[-1] - best_few_shot(seed, benchmark)

    says = f"it exceeds the base model's best prompts by {least:g} ({benchmark})"
    return Claim(
        says, "final score minus the best few-shot score", (WHOLE, PROMPTS), value, lambda number: number >= least
    )


def gains(benchmark: str, least: float) -> Claim:
    def value(seed: Seed) -> float:
        scores = seed.series(WHOLE, METRIC, benchmark)
        return scores[-1] - scores[0]

    says = f"self-play raises the score on another benchmark ({benchmark})"
    return Claim(says, "gain over iteration 0", (WHOLE,), value, lambda number: number >= least)


STUDY = Study(
    method="spell",
    name="english",
    profile="smollm2",
    corpus="english",
    held_out=(MAIN, METRIC),
    variants={
        WHOLE: {**ALSO, **UNPROMPTED},
        PERMUTED: {"controls.permuted": True, **UNPROMPTED},
        READABLE: {"controls.readable": True, **UNPROMPTED},
        PROMPTS: {**ALSO, **HARDLY},
    },
    seedless=(PROMPTS,),
    claims=(
        raises(WHOLE, at_least=0.25),
        exceeds_few_shot(MAIN, 0.1),
        beats(WHOLE, PERMUTED, "permuted rewards teach less"),
        beats(WHOLE, READABLE, "a reward for form alone teaches less"),
        gains(OTHER, 0.0),
        exceeds_few_shot(OTHER, 0.0),
    ),
    metrics={
        "exact match": (MAIN, METRIC),
        "F1": (MAIN, "f1"),
        "unreadable": (MAIN, "unanswered"),
        "exact match, TAT-QA": (OTHER, METRIC),
        "F1, TAT-QA": (OTHER, "f1"),
        **{f"base, {prompts}": (f"{MAIN}, {prompts}", METRIC) for prompts in FEW_SHOT},
        **{f"base, {prompts}, TAT-QA": (f"{OTHER}, {prompts}", METRIC) for prompts in FEW_SHOT},
    },
)
