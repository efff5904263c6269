"""Figures of learning: held-out score, scores of training tasks, behaviour, optimizer steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from tasks.reports.draw import GREY, Colours, Plot, by, draw, iteration_axis, legend, percent, progress
from warehouse.schemas import Row

SCORE = "score"  # a benchmark's headline metric; score_<part> are its parts
MONITOR = "judge monitor"  # the benchmark whose metrics are errors of a judge
UPDATE_METRICS = (
    ("kl", "KL, nats per token"),
    ("clip_fraction", "share of clipped tokens"),
    ("grad_norm", "gradient norm"),
    ("loss", "loss"),
)
COMPLETED = "iterations completed"
NEEDLES = "needles"  # the benchmark that has a figure of its own
FEW = 2  # benchmarks that a title can say everything of


def held_out(evaluations: list[Row], colours: Colours) -> Plot:
    rows = [r for r in evaluations if r["metric"] == SCORE and r["benchmark"] != MONITOR]
    note = "Mean over the benchmark's tasks; bars are one standard error."
    if not rows:
        return Plot("held-out", "No held-out score was measured", note)
    of_benchmark = by(rows, "benchmark")
    title = "; ".join(gain_says(name, found) for name, found in of_benchmark.items())
    if len(of_benchmark) > FEW:
        title = "Held-out scores: " + "; ".join(f"{name} {ends(found)}" for name, found in of_benchmark.items())
    return Plot("held-out", title, note, draw(_paint_scores, of_benchmark, colours))


def gain(rows: list[Row]) -> tuple[float, float | None] | None:
    """Score of the last iteration minus that of the first, with the standard error of two independent scores.

    >>> gain([{"score": 0.2, "standard_error": 0.03}, {"score": 0.5, "standard_error": 0.04}])
    (0.3, 0.05)
    """
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    errors = (first["standard_error"], last["standard_error"])
    error = None if None in errors else round(math.hypot(*errors), 12)
    return round(last["score"] - first["score"], 12), error


def gain_says(benchmark: str, rows: list[Row]) -> str:
    found, last = gain(rows), rows[-1]["score"]
    if found is None:
        return f"Held-out score on {benchmark} is {last:.3f}"
    difference, error = found
    spread = f" ± {error:.3f}" if error is not None else ""
    return f"Held-out score on {benchmark} went from {rows[0]['score']:.3f} to {last:.3f}: {difference:+.3f}{spread}"


def _paint_scores(axes: Any, of_name: dict[str, list[Row]], colours: Colours) -> None:
    for name, rows in of_name.items():
        x, y = [r["iteration"] for r in rows], [r["score"] for r in rows]
        errors = [r["standard_error"] or 0.0 for r in rows]
        axes.errorbar(x, y, yerr=errors, marker="o", capsize=3, color=colours[name], label=name)
    low, high = axes.get_ylim()
    axes.set_ylim(max(0.0, low) if low > -0.2 else low, high)
    axes.set_xticks(sorted({r["iteration"] for rows in of_name.values() for r in rows}))
    axes.set(xlabel=COMPLETED, ylabel="score, 0 to 1")
    if len(of_name) > 1:
        legend(axes, 4)


def held_out_parts(evaluations: list[Row], colours: Colours) -> Plot:
    apart = (MONITOR, NEEDLES)
    rows = [r for r in evaluations if r["metric"].startswith(f"{SCORE}_") and r["benchmark"] not in apart]
    rows = [r for found in by(rows, "benchmark").values() if len(by(found, "metric")) > 1 for r in found]
    note = "The score by kind of task; bars are one standard error."
    if not rows:
        return Plot("held-out-parts", "No benchmark has several kinds of task", note)
    several = len({r["benchmark"] for r in rows}) > 1
    parts = {}
    for (benchmark, metric), found in by(rows, "benchmark", "metric").items():
        part = metric.removeprefix(f"{SCORE}_").replace("_", " ")
        parts[f"{benchmark}: {part}" if several else part] = found
    last = {name: found[-1]["score"] for name, found in parts.items()}
    worst, best = min(last, key=lambda k: last[k]), max(last, key=lambda k: last[k])
    spread = f"best {best} {last[best]:.2f}, worst {worst} {last[worst]:.2f}"
    title = f"By kind of task: {spread if last[best] > last[worst] else f'all {last[best]:.2f}'}"
    return Plot("held-out-parts", title, note, draw(_paint_scores, parts, Colours()))


def ends(rows: list[Row]) -> str:
    """First and last score.

    >>> ends([{"score": 0.25}, {"score": 0.5}]), ends([{"score": 0.5}])
    ('0.25 → 0.50', '0.50')
    """
    first, last = f"{rows[0]['score']:.2f}", f"{rows[-1]['score']:.2f}"
    return last if len(rows) == 1 else f"{first} → {last}"


def task_scores(rows: list[Row], colours: Colours) -> Plot:
    note = "Mean score of answers to training tasks at each step, over the tasks or answers with a score."
    if not rows:
        return Plot("task-scores", "No training task has a score", note)
    of_both = by(rows, "phase", "role")
    played = Counter(phase for phase, _ in of_both)
    of_line = {
        phase if phase and played[phase] == 1 else _role_in(role, phase): found
        for (phase, role), found in of_both.items()
    }
    title = "Mean score of training tasks: " + "; ".join(f"{p} {_first_last(found)}" for p, found in of_line.items())
    return Plot("task-scores", title, note, draw(_paint_steps, of_line, colours, "mean score, 0 to 1"))


def _first_last(rows: list[Row]) -> str:
    """Means of the first and last iteration, weighted by the rows' n.

    >>> _first_last([{"iteration": 1, "mean": 0.25, "n": 1}, {"iteration": 1, "mean": 0.75, "n": 1}])
    '0.50'
    >>> _first_last([{"iteration": 2, "mean": 1.0, "n": 9}, {"iteration": 1, "mean": 0.0, "n": 1}])
    '0.00 → 1.00'
    """
    of_iteration = [found for _, found in sorted(by(rows, "iteration").items())]
    means = [sum(r["mean"] * r["n"] for r in found) / sum(r["n"] for r in found) for found in of_iteration]
    return f"{means[0]:.2f}" if len(means) == 1 else f"{means[0]:.2f} → {means[-1]:.2f}"


def _paint_steps(axes: Any, of_name: dict[str, list[Row]], colours: Colours, ylabel: str) -> None:
    for name, rows in of_name.items():
        y = [r["mean"] for r in rows]
        axes.plot(progress(rows), y, marker=_marker(rows), markersize=3.5, color=colours[name], label=name)
    iteration_axis(axes, [r for rows in of_name.values() for r in rows])
    axes.set_ylim(bottom=0)
    axes.set(xlabel=COMPLETED, ylabel=ylabel)
    legend(axes, 3 if len(of_name) < 4 else 2)


def _marker(rows: list[Row]) -> str | None:
    return "o" if len(rows) < 40 else None


def answer_lengths(rows: list[Row], colours: Colours) -> Plot:
    note = "Tokens of the text of readable answers: median, and the band from the 10th to the 90th percentile."
    if not rows:
        return Plot("answer-lengths", "No readable answer was counted in tokens", note)
    of_phase = by(rows, "phase")
    says = [f"{p} {_first_last([{**r, 'mean': r['p50']} for r in found])}" for p, found in of_phase.items()]
    title = "Median answer length in tokens: " + "; ".join(says).replace(".00", "")
    return Plot("answer-lengths", title, note, draw(_paint_bands, of_phase, colours))


def _paint_bands(axes: Any, of_name: dict[str, list[Row]], colours: Colours) -> None:
    for i, (name, rows) in enumerate(of_name.items()):
        x = [r["iteration"] + 0.1 * (i - (len(of_name) - 1) / 2) for r in rows]
        below, above = [r["p50"] - r["p10"] for r in rows], [r["p90"] - r["p50"] for r in rows]
        y = [r["p50"] for r in rows]
        axes.errorbar(x, y, yerr=[below, above], marker="o", capsize=3, color=colours[name], label=name)
    axes.set_xticks(sorted({r["iteration"] for rows in of_name.values() for r in rows}))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="iteration", ylabel="answer length, tokens")
    legend(axes, 3)


def searches(rows: list[Row], colours: Colours) -> Plot:
    note = "Valid searches in all turns of a rollout, mean at each step; one line per role and phase."
    if not rows:
        return Plot("searches", "No role searches", note)
    of_both = {_role_in(*key): found for key, found in by(rows, "role", "phase").items()}
    last = max(r["iteration"] for r in rows)
    says = by([r for r in rows if r["iteration"] == last], "role")
    title = f"Searches per rollout, iteration {last}: "
    title += "; ".join(f"{role} {_first_last(found)}" for role, found in says.items())
    return Plot("searches", title, note, draw(_paint_steps, of_both, Colours(), "searches per rollout", height_in=3.4))


def _role_in(role: str, phase: str | None) -> str:
    return role if phase in (role, None) else f"{role} in {phase}"


def updates(rows: list[Row], colours: Colours) -> Plot:
    note = "Every optimizer step. KL is to the reference policy; the gradient norm is the one before clipping."
    of_metric = {name: found for name, _ in UPDATE_METRICS if (found := [r for r in rows if r["metric"] == name])}
    if not of_metric:
        return Plot("updates", "No policy was updated", note)
    title = "Updates: " + "; ".join(_peak(name, found) for name, found in of_metric.items() if name != "loss")
    return Plot("updates", title, note, draw(_paint_updates, of_metric, colours, rows=2, columns=2, height_in=4.4))


def _peak(name: str, rows: list[Row]) -> str:
    peak = max(r["value"] for r in rows)
    says: dict[str, Callable[[], str]] = {
        "kl": lambda: f"KL at most {peak:.3g}",
        "clip_fraction": lambda: f"at most {percent(peak, 1)} of tokens clipped",
        "grad_norm": lambda: f"gradient norm at most {peak:.3g}",
    }
    return says[name]()


def _paint_updates(axes: list[Any], of_metric: dict[str, list[Row]], colours: Colours) -> None:
    for panel, (name, title) in zip(axes, UPDATE_METRICS, strict=True):
        panel.set_title(title)
        for role, rows in by(of_metric.get(name, []), "role").items():
            y = [r["value"] for r in rows]
            panel.plot(_substeps(rows), y, marker=_marker(rows), markersize=3, color=colours[role], label=role)
        if name in of_metric:
            iteration_axis(panel, of_metric[name])
        else:
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=GREY)
        panel.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useOffset=False)
        panel.yaxis.set_offset_position("right")  # its power of ten; the title is on the left
    for panel in axes[2:]:
        panel.set_xlabel(COMPLETED)
    legend(axes)


def _substeps(rows: list[Row]) -> list[float]:
    """The x of each row; several optimizer steps of one step are spread evenly over it."""
    order = {key: i + 1 for key, i in zip(by(rows, "iteration", "step", "optimizer_step"), _places(rows), strict=True)}
    return progress([{**r, "step": order[r["iteration"], r["step"], r["optimizer_step"]]} for r in rows])


def _places(rows: list[Row]) -> list[int]:
    """0, 1, 2, ... within each iteration."""
    places: dict[int, int] = {}
    found = []
    for iteration, _, _ in by(rows, "iteration", "step", "optimizer_step"):
        found.append(places.get(iteration, 0))
        places[iteration] = found[-1] + 1
    return found
