"""Runs without a sabotage, really played: `python -m tests.bench.healthy [NAME]`.

A finding in one of them is either true of the run or noise. Plays each run in the store that
SELFPLAY_STORE names, over few tasks but two iterations, so that rules which compare iterations can
speak. Appends a line to data/bench/healthy.jsonl: the rules that spoke, with their sentences.
Without names it plays all.
"""

from __future__ import annotations

import argparse
from typing import Any

from flows.eapo.flow import eapo_iteration
from flows.mae.flow import mae_iteration
from flows.method import Method
from flows.rzero.flow import rzero_iteration
from flows.scope.flow import scope_iteration
from flows.spell.flow import spell_iteration
from flows.spice.flow import spice_iteration
from flows.ttrl.flow import ttrl_iteration
from tests.bench.sabotaged import BENCH, SCOPE, SPICE, TTRL, Sabotage, chosen, play_and_keep

SPELL: dict[str, Any] = {
    "num_engines": 1,
    "clusters.per_type": 24,
    "steps": 2,
    "sampling.groups": 8,
    "sampling.clusters_per_round": 24,
    "evaluation.num_tasks": 48,
    "evaluation.samples": 1,
}
EAPO: dict[str, Any] = {
    "num_engines": 1,
    "steps": 2,
    "batch_size": 16,
    "evaluation.num_tasks": 48,
}
MAE: dict[str, Any] = {
    "num_engines": 1,
    "steps": 2,
    "batch_size": 48,
    "mini_batch": 144,
    "evaluation.num_tasks": 48,
}
RZERO: dict[str, Any] = {
    "num_engines": 1,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 12,
    "solver.candidates": 128,
    "solver.steps": 3,
    "evaluation.num_tasks": 96,
}


def healthy(method: Method, settings: dict[str, Any], seed: int) -> Sabotage:
    """A run of a method's profile `micro` over two iterations, which nothing spoils."""
    return Sabotage(method, "micro", {**settings, "iterations": 2, "seed": seed}, expected=())


RUNS = {
    "scope 0": healthy(scope_iteration, SCOPE, 0),
    "spice 1": healthy(spice_iteration, SPICE, 1),
    "spice 2": healthy(spice_iteration, SPICE, 2),
    "spell 0": healthy(spell_iteration, SPELL, 0),
    "spell 1": healthy(spell_iteration, SPELL, 1),
    "eapo 0": healthy(eapo_iteration, EAPO, 0),
    "mae 0": healthy(mae_iteration, MAE, 0),
    "mae 1": healthy(mae_iteration, MAE, 1),
    "rzero 0": healthy(rzero_iteration, RZERO, 0),
    "ttrl 0": healthy(ttrl_iteration, TTRL, 0),
}


if __name__ == "__main__":
    chosen_runs = chosen(RUNS, argparse.ArgumentParser(description=__doc__))
    play_and_keep(chosen_runs, BENCH.with_name("healthy.jsonl"))
