"""Averages over several benchmarks, as papers report them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from tasks.benchmarks.item_scores import SCORE
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import EVALUATIONS, Evaluation, Row


@stage(EVALUATIONS)
def average(
    evaluations: Tables,
    *,
    policy: str,
    benchmark: str,
    averages: Mapping[str, Sequence[str]],
    names: Mapping[str, str],
) -> Rows:
    """Yield a row for every one of `averages`: the unweighted mean of its members' `score`.

    A member is a benchmark, its items of one kind (`benchmark/kind`), or an average named earlier.
    `names` maps labels in `evaluations` to benchmarks. An average that lacks members states in its
    name how many it has, as in the metric "overall, 3 of 22"; one without any is left out. `n`
    counts the members; the standard error assumes that their errors are independent.
    """
    scores: dict[str, Row] = {
        names[row["benchmark"]] + row["metric"].removeprefix(SCORE).replace("_", "/", 1): {
            "score": row["score"],
            "error": row["standard_error"],
            "protocol": row["protocol"],
        }
        for row in rows_of(evaluations, Evaluation)
        if (row["metric"] == SCORE or row["metric"].startswith(f"{SCORE}_"))
        and row["score"] is not None
    }
    for name, members in averages.items():
        present = [scores[member] for member in members if member in scores]
        if not present:
            continue
        mean = math.fsum(member["score"] for member in present) / len(present)
        errors = [member["error"] for member in present]
        error = None
        if None not in errors:
            error = math.hypot(*errors) / len(present)
        # two averages are comparable if all their members are
        protocols = {
            member: hash_json(scores[member]["protocol"]) for member in members if member in scores
        }
        protocol = json.dumps(protocols)
        metric = name
        if len(present) == len(members):
            # only a complete average can be a member of another
            scores[name] = {"score": mean, "error": error, "protocol": protocol}
        else:
            metric = f"{name}, {len(present)} of {len(members)}"
        yield {
            "policy": policy,
            "benchmark": benchmark,
            "metric": metric,
            "n": len(present),
            "score": mean,
            "standard_error": error,
            "protocol": protocol,
        }
