"""Figures of kept, dropped and unreadable tasks, of the judge's errors, and of wall time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.reports.draw import GREY, PALETTE, Colours, Plot, by, draw, legend, short
from tasks.reports.duration import duration
from tasks.reports.percent import percent
from warehouse.schemas import Row

BAR = 0.05  # width of a bar of the difficulty histogram
MOST_REASONS = 7
MOST_PANELS = 4  # the last iterations whose difficulty is shown
BLUE = PALETTE[0]
ORANGE = PALETTE[1]
GREEN = PALETTE[2]
LONG_S = 300  # from here on, wall time is shown in minutes


def difficulty(rows: list[Row], reasons: list[Row]) -> Plot:
    """The candidate tasks of each iteration by mean score, from rows of `difficulty.sql`; `reasons`
    are rows of `selection_reasons.sql`."""
    note = (
        "Candidates by the mean score of their answers: 0 means that no answer succeeds, 1 that all"
        " do. Only those in the shaded window may be kept; some are dropped for other reasons, such"
        " as another task of their document."
    )
    if not rows:
        return Plot("difficulty", "No candidate task has a mean score", note)
    of_iteration = dict(list(by(rows, "iteration").items())[-MOST_PANELS:])
    last, bars = list(of_iteration.items())[-1]
    num_scored = sum(r["n"] for r in bars)
    num_kept = sum(r["n"] for r in bars if r["kept"])
    num_unscored = sum(r["n"] - r["num_scored"] for r in reasons if r["iteration"] == last)
    kept = f"{num_kept} of {num_scored} scored candidates kept"
    if (window := _window(bars)) is not None:
        low, high = window
        kept += f" (window {low:g} to {high:g})"
    title = f"Iteration {last}: {kept}; {num_unscored} more had no score"
    svg = draw(
        _paint_difficulty,
        of_iteration,
        rows=len(of_iteration),
        height_in=0.9 + 1.35 * len(of_iteration),
    )
    return Plot("difficulty", title, note, svg)


def _window(bars: list[Row]) -> tuple[float, float] | None:
    """The lowest and highest mean score that may be kept; None without such bounds."""
    low = bars[0]["low"]
    high = bars[0]["high"]
    if low is None or high is None:
        return None
    return low, high


def _paint_difficulty(axes: Any, of_iteration: dict[int, list[Row]]) -> None:
    panels = axes if isinstance(axes, list) else [axes]
    for panel, (iteration, rows) in zip(panels, of_iteration.items(), strict=True):
        if (window := _window(rows)) is not None:
            low, high = window
            panel.axvspan(low - BAR / 2, high + BAR / 2, color=BLUE, alpha=0.13, linewidth=0)
        base: Counter[float] = Counter()
        for kept, colour, label in ((True, BLUE, "kept"), (False, GREY, "not kept")):
            bars = {r["centre"]: r["n"] for r in rows if r["kept"] == kept}
            x = list(bars)
            heights = list(bars.values())
            bottom = [base[centre] for centre in bars]
            panel.bar(x, heights, BAR * 0.9, bottom=bottom, color=colour, label=label)
            base.update(bars)
        panel.set_xlim(-BAR / 2, 1 + BAR / 2)
        panel.set_ylabel("candidates")
        panel.set_title(f"iteration {iteration}")
    legend(panels)
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    panels[-1].set_xlabel("mean score of a candidate's answers")


def selection_reasons(rows: list[Row], colours: Colours) -> Plot:
    """Which tests candidate tasks fail first, as shares by iteration, from rows of
    `selection_reasons.sql`."""
    note = (
        "Share of all candidates of an iteration; each counts once, under the first test it fails."
    )
    if not rows:
        return Plot("selection", "There was no candidate task", note)
    total = Counter[str]()
    for row in rows:
        total[row["reason"]] += row["n"]
    names = sorted(total, key=lambda name: (name != "kept", -total[name], name))
    last = [r for r in rows if r["iteration"] == rows[-1]["iteration"]]
    num = sum(r["n"] for r in last)
    lost = [r for r in last if r["reason"] != "kept"]
    num_kept = num - sum(r["n"] for r in lost)
    title = f"Iteration {last[0]['iteration']}: {num_kept} of {num} candidates kept"
    if lost:
        title += f"; most of the others: {lost[0]['reason']} ({lost[0]['n']})"
    svg = draw(_paint_shares, by(rows, "iteration"), names, height_in=3.1)
    return Plot("selection", title, note, svg)


def _paint_shares(axes: Any, of_iteration: dict[int, list[Row]], names: list[str]) -> None:
    """One horizontal stacked bar per iteration."""
    lefts = dict.fromkeys(of_iteration, 0.0)
    other = iter(PALETTE[1:])
    for name in names:
        colour = BLUE if name == "kept" else next(other, GREY)
        sizes = {
            iteration: _share(rows, [r for r in rows if r["reason"] == name])
            for iteration, rows in of_iteration.items()
        }
        widths = list(sizes.values())
        left = list(lefts.values())
        axes.barh(list(sizes), widths, 0.7, left=left, color=colour, label=short(name, 50))
        for iteration, size in sizes.items():
            lefts[iteration] += size
    axes.set_yticks(list(of_iteration))
    axes.set_ylim(max(of_iteration) + 0.6, min(of_iteration) - 0.6)
    axes.set_xlim(0, 100)
    axes.set(xlabel="share of candidates, %", ylabel="iteration")
    legend(axes, 2, "lower")


def gates(rows: list[Row], colours: Colours) -> Plot:
    """The share of tasks that pass each gate, by iteration, from rows of `gates.sql`."""
    note = (
        "Share of checked tasks that pass; a malformed verdict is not a pass. Model gates are"
        " solid, rules dashed."
    )
    if not rows:
        return Plot("gates", "No gate was applied", note)
    of_gate = by(rows, "gate", "kind")
    last = max(r["iteration"] for r in rows)
    rates = [
        f"{r['gate']} {percent(r['num_passed'], r['n'])}" for r in rows if r["iteration"] == last
    ]
    title = f"Passed in iteration {last}: {'; '.join(rates)}"
    return Plot("gates", title, note, draw(_paint_gates, of_gate))


def _paint_gates(axes: Any, of_gate: dict[tuple[str, str], list[Row]]) -> None:
    colours = Colours()
    for (gate, kind), rows in of_gate.items():
        rates = [100 * r["num_passed"] / r["n"] for r in rows]
        x = [r["iteration"] for r in rows]
        line = "-" if kind == "model" else "--"
        axes.plot(x, rates, line, marker="o", color=colours[gate], label=f"{short(gate)} ({kind})")
    axes.set_xticks(sorted({r["iteration"] for rows in of_gate.values() for r in rows}))
    axes.set_ylim(-3, 103)
    axes.set(xlabel="iteration", ylabel="tasks passing, %")
    legend(axes, 2)


def topic_drift(rows: list[Row]) -> Plot:
    """How far the words of tasks are from those of the first iteration, from rows of
    `topic_drift.sql`."""
    note = (
        "Jensen-Shannon divergence of the words of an iteration's tasks from those of the first"
        " iteration, in bits: 0: the same, 1: no word in common. The dashed line is noise: the"
        " distance of two halves of one iteration."
    )
    if len(rows) < 2:
        return Plot("topics", "How tasks drift shows from the second iteration on", note)
    last = rows[-1]
    distance = f"{last['drift']:.2f} bits from the first's"
    title = f"Words of the tasks of iteration {last['iteration']}: {distance}"
    if last["halves"] is not None:
        title += f", two halves of it {last['halves']:.2f} from each other"
    return Plot("topics", title, note, draw(_paint_topics, rows))


def _paint_topics(axes: Any, rows: list[Row]) -> None:
    x = [r["iteration"] for r in rows]
    drift = [r["drift"] for r in rows]
    halves = [r["halves"] for r in rows]
    axes.plot(x, drift, marker="o", color=BLUE, label="from the first iteration")
    axes.plot(x, halves, "--", marker="o", color=GREY, label="between two halves")
    axes.set_xticks(x)
    axes.set_ylim(0, None)
    axes.set(xlabel="iteration", ylabel="divergence, bits")
    legend(axes, 2)


def malformed(rows: list[Row], iteration: int) -> Plot:
    """The share of replies to each template that are malformed, by reason, in one iteration, from
    rows of `malformed.sql`."""
    note = (
        "Shares of all replies to a template in this iteration; the table has counts, and other"
        " iterations."
    )
    now = [r for r in rows if r["iteration"] == iteration]
    if not now:
        return Plot("malformed", f"Iteration {iteration} has no replies", note)
    num = sum(r["n"] for r in now)
    bad = Counter[str]()
    for row in now:
        if row["reason"] is not None:
            bad[row["reason"]] += row["n"]
    share = percent(bad.total(), num)
    title = f"Iteration {iteration}: {share} of {num:,} replies could not be read"
    if not bad:
        return Plot("malformed", title, note)
    names = [name for name, _ in bad.most_common(MOST_REASONS)]
    title += f", most often: {names[0]}"
    of_template = {}
    for (role, template), some in by(now, "role", "template").items():
        name = template if template.startswith(role) else f"{role} · {template}"
        of_template[name] = some
    svg = draw(_paint_malformed, of_template, names, height_in=2.2 + 0.28 * len(of_template))
    return Plot("malformed", title, note, svg)


def _paint_malformed(axes: Any, of_template: dict[str, list[Row]], names: list[str]) -> None:
    labels = [short(name) for name in of_template]
    bars = [(name, PALETTE[i % len(PALETTE)], {name}) for i, name in enumerate(names)]
    malformed_rows = [r for rows in of_template.values() for r in rows if r["reason"] is not None]
    others = {r["reason"] for r in malformed_rows} - set(names)
    bars.append(("other reasons", GREY, others))
    y = range(len(labels))
    lefts = [0.0] * len(labels)
    for name, colour, reasons in bars:
        sizes = [
            _share(rows, [r for r in rows if r["reason"] in reasons])
            for rows in of_template.values()
        ]
        if any(sizes):
            axes.barh(y, sizes, 0.7, left=lefts, color=colour, label=short(name, 50))
            lefts = [left + size for left, size in zip(lefts, sizes, strict=True)]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.0, *lefts) * 1.05)
    axes.set_xlabel("replies that could not be read, %")
    legend(axes, 1 if len(names) < 4 else 2, "lower")


def _share(rows: list[Row], some: list[Row]) -> float:
    """The sum of n over `some` of `rows`, in percent of the sum over all."""
    return 100 * sum(r["n"] for r in some) / sum(r["n"] for r in rows)


def judge(rows: list[Row], colours: Colours) -> Plot:
    """How often the judge is right where the truth is known, from rows of `judge.sql`."""
    note = (
        "Verdicts against the oracle of true facts, and on canaries: answers whose verdict is known"
        " beforehand. Surplus is the mean of verdict minus truth: above 0 the judge is too lenient."
    )
    rows = [r for r in rows if r["n"]]
    if not rows:
        return Plot("judge", "No verdict has a known truth", note)
    of_truth = by(rows, "truth_of")
    last = max(r["iteration"] for r in rows)
    rates = [
        f"{r['truth_of']} {percent(r['num_right'], r['n'])} of {r['n']:,}"
        for r in rows
        if r["iteration"] == last
    ]
    title = f"Judge is right, iteration {last}: {'; '.join(rates)}"
    svg = draw(_paint_judge, of_truth, colours, columns=2, height_in=2.7)
    return Plot("judge", title, note, svg)


def _paint_judge(axes: list[Any], of_truth: dict[str, list[Row]], colours: Colours) -> None:
    right, surplus = axes
    for truth, rows in of_truth.items():
        x = [r["iteration"] for r in rows]
        rates = [100 * r["num_right"] / r["n"] for r in rows]
        right.plot(x, rates, marker="o", color=colours[truth], label=truth)
        y = [float("nan") if r["surplus"] is None else r["surplus"] for r in rows]
        surplus.plot(x, y, marker="o", color=colours[truth])
    low = min(100 * r["num_right"] / r["n"] for rows in of_truth.values() for r in rows)
    right.set_ylim(min(90.0, low - 2), 100.5)
    surplus.axhline(0, color=GREY, linewidth=0.8)
    reach = max(0.05, *(abs(y) * 1.2 for y in surplus.get_ylim()))
    surplus.set_ylim(-reach, reach)
    right.set_title("right verdicts, %")
    surplus.set_title("surplus: verdict − truth")
    legend(axes)
    for panel in axes:
        panel.set_xticks(sorted({r["iteration"] for rows in of_truth.values() for r in rows}))
        panel.set_xlabel("iteration")


def wall_time(rows: list[Row]) -> Plot:
    """Where the wall time of each iteration went, from rows of `wall_times.sql`."""
    note = (
        "From the first stage's start to the last one's end, without pauses of more than a minute."
        " Between stages: what no stage accounts for."
    )
    if not rows:
        return Plot("time", "No stage has been timed", note)
    last = rows[-1]
    share = percent(neither_s(last), last["wall_s"])
    title = (
        f"Iteration {last['iteration']} took {duration(last['wall_s'])}; "
        f"{share} was neither generation nor update"
    )
    return Plot("time", title, note, draw(_paint_wall, rows, height_in=1.6 + 0.35 * len(rows)))


def neither_s(row: Row) -> float:
    """Seconds of an iteration that are neither generation nor update.

    >>> neither_s({"wall_s": 10.0, "generation_s": 6.0, "update_s": None})
    4.0
    """
    return row["wall_s"] - (row["generation_s"] or 0.0) - (row["update_s"] or 0.0)


def _paint_wall(axes: Any, rows: list[Row]) -> None:
    unit_s = 1.0
    unit = "seconds"
    if max(r["wall_s"] for r in rows) > LONG_S:
        unit_s = 60.0
        unit = "minutes"
    iterations = [r["iteration"] for r in rows]
    lefts = [0.0] * len(rows)
    for label, colour, part_s in (
        ("generation", BLUE, lambda r: r["generation_s"] or 0.0),
        ("update", ORANGE, lambda r: r["update_s"] or 0.0),
        ("other stages", GREEN, lambda r: r["other_s"] or 0.0),
        ("between stages", GREY, lambda r: max(0.0, neither_s(r) - (r["other_s"] or 0.0))),
    ):
        sizes = [part_s(r) / unit_s for r in rows]
        axes.barh(iterations, sizes, 0.7, left=lefts, color=colour, label=label)
        lefts = [left + size for left, size in zip(lefts, sizes, strict=True)]
    axes.set_yticks(iterations)
    axes.invert_yaxis()
    axes.set(xlabel=f"wall time, {unit}", ylabel="iteration")
    legend(axes, 2, "lower")
