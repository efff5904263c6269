"""Figures of learning: held-out score, scores of training tasks, behaviour, optimizer steps."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any
from urllib.parse import urlencode

from tasks.reports.draw import (
    GREY,
    Colours,
    Plot,
    by,
    draw,
    gapped,
    hover,
    iteration_axis,
    legend,
    value_says,
    x_of_steps,
)
from tasks.reports.percent import percent
from warehouse.schemas import Row

SCORE = "score"  # a benchmark's headline metric; score_<part> are its parts
MONITOR = " monitor"  # suffix of the benchmarks of monitors
JUDGE_MONITOR = f"judge{MONITOR}"  # the benchmark whose metrics are errors of a judge
UPDATE_METRICS = {
    "kl": "KL, nats per token",
    "clip_fraction": "share of clipped tokens",
    "grad_norm": "gradient norm",
    "loss": "loss",
}
# drawn if they were measured
MORE_UPDATE_METRICS = {
    "entropy": "entropy, nats per token",
    "sampler_kl": "sampler-trainer KL, nats per token",
}
# the title states the largest value of these
PEAKS = {"kl": "KL", "clip_fraction": "clipped tokens", "grad_norm": "gradient norm"}
COMPLETED = "iterations completed"
BY_TIME = "iterations completed, to scale in time"
SCORE_AXIS = "score, 0 to 1"
NEEDLES = "needles"  # the benchmark that has its own figure
FEW = 2  # number of benchmarks up to which a title describes each
NUM_MARKED = 40  # a line with this many points has no markers

Tile = tuple[str, str, str]  # name, value, remark


def held_out_scores(evaluations: list[Row]) -> dict[str, list[Row]]:
    """The score of each benchmark by iteration, without those of monitors, probes and replays.

    `evaluations` are rows of `evaluations.sql`, here and below.
    """
    rows = [r for r in evaluations if r["metric"] == SCORE]
    return by([r for r in rows if r["is_held_out"]], "benchmark")


def held_out_tiles(evaluations: list[Row]) -> list[Tile]:
    """One tile per benchmark: its last score, and the gain since its first."""
    scores = held_out_scores(evaluations)
    return [_held_out_tile(benchmark, rows) for benchmark, rows in scores.items()]


def _held_out_tile(benchmark: str, rows: list[Row]) -> Tile:
    last = rows[-1]
    gained = gain(rows)
    if gained is None:
        remark = f"of iteration {last['iteration']}"
        if last["standard_error"] is not None:
            remark = f"± {last['standard_error']:.3f}, {remark}"
    else:
        remark = f"{_gain_says(gained)} since iteration {rows[0]['iteration']}"
    return f"held-out score, {benchmark}", f"{last['score']:.3f}", remark


def held_out(evaluations: list[Row], colours: Colours) -> Plot:
    """The score on each held-out benchmark by iteration."""
    of_benchmark = held_out_scores(evaluations)
    note = "Mean over the benchmark's tasks; bars are one standard error."
    if not of_benchmark:
        return Plot("held-out", "No held-out score was measured", note)
    if len(of_benchmark) > FEW:
        says = [f"{name} {ends(rows)}" for name, rows in of_benchmark.items()]
        title = f"Held-out scores: {'; '.join(says)}"
    else:
        title = "; ".join(held_out_says(name, rows) for name, rows in of_benchmark.items())
    return Plot("held-out", title, note, draw(_paint_scores, of_benchmark, colours))


def held_out_of_runs(evaluations: list[Row]) -> Plot:
    """The held-out scores of several runs in one figure."""
    note = "Mean over the benchmark's tasks; bars are one standard error."
    lines = {
        f"{run} · {benchmark}": scores
        for run, rows in by(evaluations, "run").items()
        for benchmark, scores in held_out_scores(rows).items()
    }
    if not lines:
        return Plot("held-out", "No held-out score was measured", note)
    svg = draw(_paint_scores, lines, Colours(), height_in=4.2)
    return Plot("held-out", "Held-out score", note, svg)


def gain(rows: list[Row]) -> tuple[float, float | None] | None:
    """Score of the last iteration minus that of the first, with the standard error of two
    independent scores.

    >>> gain([{"score": 0.2, "standard_error": 0.03}, {"score": 0.5, "standard_error": 0.04}])
    (0.3, 0.05)
    """
    if len(rows) < 2:
        return None
    first = rows[0]
    last = rows[-1]
    errors = (first["standard_error"], last["standard_error"])
    error = None if None in errors else round(math.hypot(*errors), 12)
    return round(last["score"] - first["score"], 12), error


def _gain_says(gained: tuple[float, float | None]) -> str:
    difference, error = gained
    if error is None:
        return f"{difference:+.3f}"
    return f"{difference:+.3f} ± {error:.3f}"


def held_out_says(benchmark: str, rows: list[Row]) -> str:
    """A title that says what the rows of a benchmark show."""
    gained = gain(rows)
    last = rows[-1]["score"]
    if gained is None:
        return f"Held-out score on {benchmark} is {last:.3f}"
    first = rows[0]["score"]
    change = f"from {first:.3f} to {last:.3f}: {_gain_says(gained)}"
    return f"Held-out score on {benchmark} went {change}"


def _paint_scores(axes: Any, of_name: dict[str, list[Row]], colours: Colours) -> None:
    for name, rows in of_name.items():
        x = [r["iteration"] for r in rows]
        y = [r["score"] for r in rows]
        errors = [r["standard_error"] or 0.0 for r in rows]
        axes.errorbar(x, y, yerr=errors, marker="o", capsize=3, color=colours[name], label=name)
        says = [value_says(r["score"], r["standard_error"]) for r in rows]
        hover(axes, x, y, [f"{s}\n{name}, iteration {t}" for s, t in zip(says, x, strict=True)])
    low, high = axes.get_ylim()
    if low > -0.2:
        low = max(0.0, low)
    axes.set_ylim(low, high)
    axes.set_xticks(sorted({r["iteration"] for rows in of_name.values() for r in rows}))
    axes.set(xlabel=COMPLETED, ylabel=SCORE_AXIS)
    if len(of_name) > 1:
        legend(axes, 4)


def held_out_parts(evaluations: list[Row], colours: Colours) -> Plot:
    """The held-out scores of benchmarks with several kinds of task, by kind and iteration."""
    note = "The score by kind of task; bars are one standard error."
    parts = _parts_of_scores(evaluations)
    if not parts:
        return Plot("held-out-parts", "No benchmark has several kinds of task", note)
    last = {name: rows[-1]["score"] for name, rows in parts.items()}
    worst = min(last, key=lambda name: last[name])
    best = max(last, key=lambda name: last[name])
    if last[best] > last[worst]:
        says = f"best {best} {last[best]:.2f}, worst {worst} {last[worst]:.2f}"
    else:
        says = f"all {last[best]:.2f}"
    svg = draw(_paint_scores, parts, Colours())
    return Plot("held-out-parts", f"By kind of task: {says}", note, svg)


def _parts_of_scores(evaluations: list[Row]) -> dict[str, list[Row]]:
    """The parts of scores that have several, by the part's name, preceded by the benchmark's if
    there are several benchmarks."""
    rows = [
        r
        for r in evaluations
        if r["metric"].startswith(f"{SCORE}_") and r["benchmark"] != NEEDLES and r["is_held_out"]
    ]
    of_benchmark = {
        benchmark: by(some, "metric")
        for benchmark, some in by(rows, "benchmark").items()
        if len(by(some, "metric")) > 1
    }
    parts = {}
    for benchmark, of_metric in of_benchmark.items():
        for metric, some in of_metric.items():
            part = metric.removeprefix(f"{SCORE}_").replace("_", " ")
            name = f"{benchmark}: {part}" if len(of_benchmark) > 1 else part
            parts[name] = some
    return parts


def ends(rows: list[Row]) -> str:
    """The first and last score.

    >>> ends([{"score": 0.25}, {"score": 0.5}]), ends([{"score": 0.5}])
    ('0.25 → 0.50', '0.50')
    """
    first = f"{rows[0]['score']:.2f}"
    last = f"{rows[-1]['score']:.2f}"
    return last if len(rows) == 1 else f"{first} → {last}"


def task_scores(rows: list[Row], colours: Colours) -> Plot:
    """The mean score of answers to training tasks, by step, from rows of `task_scores.sql`."""
    note = (
        "Mean score of answers to training tasks at each step, over the tasks or answers with a"
        " score."
    )
    if not rows:
        return Plot("task-scores", "No training task has a score", note)
    lines = _by_phase_or_role(rows)
    title = f"Mean score of training tasks: {_lines_say(lines)}"
    svg = draw(_paint_steps, lines, colours, "mean score, 0 to 1")
    return Plot("task-scores", title, note, svg)


def task_rewards(rows: list[Row], colours: Colours) -> Plot:
    """The mean reward of training rollouts, by step, from rows of `task_rewards.sql`."""
    note = "Mean reward of the rollouts of each step that have one."
    if not rows:
        return Plot("task-rewards", "No training rollout has a reward", note)
    lines = _by_phase_or_role(rows)
    title = f"Mean reward of training rollouts: {_lines_say(lines)}"
    return Plot("task-rewards", title, note, draw(_paint_steps, lines, colours, "mean reward"))


def _by_phase_or_role(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each role in a phase, by the phase's name if it has only one role."""
    of_both = by(rows, "phase", "role")
    num_roles = Counter(phase for phase, _ in of_both)
    lines = {}
    for (phase, role), some in of_both.items():
        name = phase if phase and num_roles[phase] == 1 else _role_in(role, phase)
        lines[name] = some
    return lines


def _lines_say(lines: dict[str, list[Row]]) -> str:
    return "; ".join(f"{name} {_first_last(rows)}" for name, rows in lines.items())


def _first_last(rows: list[Row]) -> str:
    """The means of the first and last iteration, weighted by the rows' n.

    >>> half = {"iteration": 1, "mean": 0.25, "n": 1}
    >>> _first_last([half, {"iteration": 1, "mean": 0.75, "n": 1}])
    '0.50'
    >>> late = {"iteration": 2, "mean": 1.0, "n": 9}
    >>> _first_last([late, {"iteration": 1, "mean": 0.0, "n": 1}])
    '0.00 → 1.00'
    """
    in_order = [some for _, some in sorted(by(rows, "iteration").items())]
    first = f"{_weighted_mean(in_order[0]):.2f}"
    if len(in_order) == 1:
        return first
    return f"{first} → {_weighted_mean(in_order[-1]):.2f}"


def _weighted_mean(rows: list[Row]) -> float:
    return sum(r["mean"] * r["n"] for r in rows) / sum(r["n"] for r in rows)


def _paint_steps(axes: Any, of_name: dict[str, list[Row]], colours: Colours, ylabel: str) -> None:
    for name, rows in of_name.items():
        x = x_of_steps(rows)
        y = [r["mean"] for r in rows]
        line_x, line_y = gapped(rows, x, y)
        marker = _marker(rows)
        axes.plot(line_x, line_y, marker=marker, markersize=3.5, color=colours[name], label=name)
        hover(axes, x, y, [f"{value_says(r['mean'])}\n{name}, {_step_says(r)}" for r in rows])
    iteration_axis(axes, [r for rows in of_name.values() for r in rows])
    if all(r["mean"] >= 0 for rows in of_name.values() for r in rows):
        axes.set_ylim(bottom=0)
    axes.set(xlabel=BY_TIME, ylabel=ylabel)
    legend(axes, 3 if len(of_name) < 4 else 2)


def _step_says(row: Row) -> str:
    if row["step"] is None:
        return f"iteration {row['iteration']}"
    return f"iteration {row['iteration']}, step {row['step']}"


def _marker(rows: list[Row]) -> str | None:
    return "o" if len(rows) < NUM_MARKED else None


def answer_lengths(rows: list[Row], colours: Colours) -> Plot:
    """The length of readable answers in tokens, by step, from rows of `answer_lengths.sql`."""
    note = (
        "Tokens of the text of readable answers: median, and the band from the 10th to the 90th"
        " percentile."
    )
    if not rows:
        return Plot("answer-lengths", "No readable answer was counted in tokens", note)
    of_phase = by(rows, "phase")
    medians = by([{**r, "mean": r["p50"]} for r in rows], "phase")
    title = f"Median answer length in tokens: {_lines_say(medians)}".replace(".00", "")
    return Plot("answer-lengths", title, note, draw(_paint_bands, of_phase, colours))


def _paint_bands(axes: Any, of_name: dict[str, list[Row]], colours: Colours) -> None:
    for i, (name, rows) in enumerate(of_name.items()):
        # side by side, so that the bands of an iteration do not hide each other
        x = [r["iteration"] + 0.1 * (i - (len(of_name) - 1) / 2) for r in rows]
        y = [r["p50"] for r in rows]
        below = [r["p50"] - r["p10"] for r in rows]
        above = [r["p90"] - r["p50"] for r in rows]
        errors = [below, above]
        axes.errorbar(x, y, yerr=errors, marker="o", capsize=3, color=colours[name], label=name)
    axes.set_xticks(sorted({r["iteration"] for rows in of_name.values() for r in rows}))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="iteration", ylabel="answer length, tokens")
    legend(axes, 3)


def searches(rows: list[Row], colours: Colours) -> Plot:
    """The mean number of searches in a rollout, by step, from rows of `searches.sql`."""
    note = (
        "Valid searches in all turns of a rollout, mean at each step; one line per role and phase."
    )
    if not rows:
        return Plot("searches", "No role searches", note)
    lines = {_role_in(*key): some for key, some in by(rows, "role", "phase").items()}
    last = max(r["iteration"] for r in rows)
    of_role = by([r for r in rows if r["iteration"] == last], "role")
    title = f"Searches per rollout, iteration {last}: {_lines_say(of_role)}"
    svg = draw(_paint_steps, lines, colours, "searches per rollout", height_in=3.4)
    return Plot("searches", title, note, svg)


def _role_in(role: str, phase: str | None) -> str:
    if phase in (role, None):
        return role
    return f"{role} in {phase}"


def metric_rows(updates: list[Row]) -> list[Row]:
    """The rows of `updates.sql`, one per metric, ordered by role.

    {"step": 2, "metrics": {"kl": 0.1, "loss": 0.5}, ...} becomes {"step": 2, "metric": "kl",
    "value": 0.1, ...} and {"step": 2, "metric": "loss", "value": 0.5, ...}.
    """
    rows = []
    for update in sorted(updates, key=lambda row: row["role"]):
        for metric, value in (update["metrics"] or {}).items():
            if value is not None:
                # on the x axis, an update outside any step counts as the first one
                row = {**update, "step": update["step"] or 1, "metric": metric, "value": value}
                rows.append({**row, "place": _place(update)})
    return rows


def _place(update: Row) -> dict[str, Any]:
    """The parameters of the viewer's page for the update."""
    place = {name: update[name] for name in ("iteration", "phase", "step")}
    return {name: value for name, value in place.items() if value is not None}


def updates(rows: list[Row], colours: Colours, viewer: str = "") -> Plot:
    """Panels of the metrics in `metric_rows`. With `viewer`, the address of the run's page in the
    viewer, points link to their update."""
    note = (
        "Every optimizer step. KL is to the reference policy; the gradient norm is the one before"
        " clipping."
    )
    measured = by(rows, "metric")
    more = {name: title for name, title in MORE_UPDATE_METRICS.items() if name in measured}
    panels = {**UPDATE_METRICS, **more}
    of_metric = {name: measured[name] for name in panels if name in measured}
    if not of_metric:
        return Plot("updates", "No policy was updated", note)
    peaks = [_peak(name, some) for name, some in of_metric.items() if name in PEAKS]
    num_lines = math.ceil(len(panels) / 2)
    svg = draw(
        _paint_updates,
        panels,
        of_metric,
        colours,
        viewer,
        rows=num_lines,
        columns=2,
        height_in=2.2 * num_lines,
    )
    return Plot("updates", f"Updates: {'; '.join(peaks)}", note, svg)


def _peak(name: str, rows: list[Row]) -> str:
    peak = max(r["value"] for r in rows)
    if name == "clip_fraction":
        return f"at most {percent(peak, 1)} of tokens clipped"
    return f"{PEAKS[name]} at most {peak:.3g}"


def _paint_updates(
    axes: list[Any],
    panels: dict[str, str],
    of_metric: dict[str, list[Row]],
    colours: Colours,
    viewer: str,
) -> None:
    for panel in axes[len(panels) :]:
        panel.set_axis_off()
    axes = axes[: len(panels)]
    for panel, (name, title) in zip(axes, panels.items(), strict=True):
        panel.set_title(title)
        for role, rows in by(of_metric.get(name, []), "role").items():
            _paint_metric(panel, rows, role, colours[role], viewer)
        if name in of_metric:
            iteration_axis(panel, of_metric[name])
        else:
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=GREY)
        panel.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useOffset=False)
        panel.yaxis.set_offset_position("right")  # its power of ten; the title is on the left
    for panel in axes[-2:]:
        panel.set_xlabel(BY_TIME)
    legend(axes)


def _paint_metric(panel: Any, rows: list[Row], role: str, colour: str, viewer: str) -> None:
    x = _substeps(rows)
    y = [r["value"] for r in rows]
    panel.plot(*gapped(rows, x, y), marker=_marker(rows), markersize=3, color=colour, label=role)
    links = [f"{viewer}/update?{urlencode(r['place'])}" for r in rows] if viewer else None
    hover(panel, x, y, [f"{value_says(r['value'])}\n{role}, {_step_says(r)}" for r in rows], links)


def _substeps(rows: list[Row]) -> list[float]:
    """The x of each row; several optimizer steps in one step are spread evenly over it."""
    if all("span" in row for row in rows):
        return _within_steps(rows)
    num_before: Counter[int] = Counter()
    number: dict[tuple[int, int, int], int] = {}
    for key in by(rows, "iteration", "step", "optimizer_step"):
        iteration = key[0]
        num_before[iteration] += 1
        number[key] = num_before[iteration]
    return x_of_steps(
        [{**r, "step": number[r["iteration"], r["step"], r["optimizer_step"]]} for r in rows]
    )


def _within_steps(rows: list[Row]) -> list[float]:
    """The x of rows with a span of time: a step's optimizer steps are spread evenly over it."""
    of_step = by(rows, "iteration", "phase", "step")
    places = []
    for row in rows:
        same_step = of_step[row["iteration"], row["phase"], row["step"]]
        steps = sorted({other["optimizer_step"] for other in same_step})
        begin, end = row["span"]
        places.append(begin + (steps.index(row["optimizer_step"]) + 1) / len(steps) * (end - begin))
    return places
