"""Figures of kept, refused and unreadable tasks, of trust in the judge, and of where the time goes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.reports.draw import GREY, PALETTE, Colours, Plot, by, draw, legend, percent, short
from warehouse.schemas import Row

BAR = 0.05  # width of a bar of the difficulty histogram
MOST_REASONS = 7
BLUE, ORANGE, GREEN, RED = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[4]


def difficulty(rows: list[Row], reasons: list[Row]) -> Plot:
    note = (
        "Candidates by the mean score of their answers: 0 means that no answer succeeds, 1 that all do. Only those in "
        "the shaded window may be kept; some are dropped for other reasons, such as another task of their document."
    )
    if not rows:
        return Plot("difficulty", "No candidate task has a mean score", note)
    of_iteration = dict(list(by(rows, "iteration").items())[-4:])
    last, found = list(of_iteration.items())[-1]
    low, high = found[0]["low"], found[0]["high"]
    scored, kept = sum(r["n"] for r in found), sum(r["n"] for r in found if r["kept"])
    unscored = sum(r["n"] - r["num_scored"] for r in reasons if r["iteration"] == last)
    window = "" if low is None or high is None else f" (window {low:g} to {high:g})"
    title = f"Iteration {last}: {kept} of {scored} scored candidates kept{window}; {unscored} more had no score"
    svg = draw(_paint_difficulty, of_iteration, rows=len(of_iteration), height_in=0.9 + 1.35 * len(of_iteration))
    return Plot("difficulty", title, note, svg)


def _paint_difficulty(axes: Any, of_iteration: dict[int, list[Row]]) -> None:
    panels = axes if isinstance(axes, list) else [axes]
    for panel, (iteration, rows) in zip(panels, of_iteration.items(), strict=True):
        low, high = rows[0]["low"], rows[0]["high"]
        if low is not None and high is not None:
            panel.axvspan(low - BAR / 2, high + BAR / 2, color=BLUE, alpha=0.13, linewidth=0)
        base: Counter[float] = Counter()
        for kept, colour, label in ((True, BLUE, "kept"), (False, GREY, "not kept")):
            bars = {r["centre"]: r["n"] for r in rows if r["kept"] == kept}
            base_of = [base[x] for x in bars]
            panel.bar(list(bars), list(bars.values()), BAR * 0.9, bottom=base_of, color=colour, label=label)
            base.update(bars)
        panel.set_xlim(-BAR / 2, 1 + BAR / 2)
        panel.set_ylabel("candidates")
        panel.set_title(f"iteration {iteration}")
    legend(panels)
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    panels[-1].set_xlabel("mean score of a candidate's answers")


def selection_reasons(rows: list[Row], colours: Colours) -> Plot:
    note = "Share of all candidates of an iteration; each counts once, under the first test it fails."
    if not rows:
        return Plot("selection", "There was no candidate task", note)
    total = Counter[str]()
    for row in rows:
        total[row["reason"]] += row["n"]
    names = sorted(total, key=lambda name: (name != "kept", -total[name], name))
    last = [r for r in rows if r["iteration"] == rows[-1]["iteration"]]
    num, lost = sum(r["n"] for r in last), [r for r in last if r["reason"] != "kept"]
    num_kept = num - sum(r["n"] for r in lost)
    most = f"; most of the others: {lost[0]['reason']} ({lost[0]['n']})" if lost else ""
    title = f"Iteration {last[0]['iteration']}: {num_kept} of {num} candidates kept{most}"
    return Plot("selection", title, note, draw(_paint_shares, by(rows, "iteration"), names, height_in=3.1))


def _paint_shares(axes: Any, of_iteration: dict[int, list[Row]], names: list[str]) -> None:
    """One horizontal stacked bar per iteration."""
    lefts = dict.fromkeys(of_iteration, 0.0)
    other = iter(PALETTE[1:])
    for name in names:
        colour = BLUE if name == "kept" else next(other, GREY)
        sizes = {t: _share(rows, [r for r in rows if r["reason"] == name]) for t, rows in of_iteration.items()}
        axes.barh(
            list(sizes), list(sizes.values()), 0.7, left=list(lefts.values()), color=colour, label=short(name, 50)
        )
        for t, size in sizes.items():
            lefts[t] += size
    axes.set_yticks(list(of_iteration))
    axes.set_ylim(max(of_iteration) + 0.6, min(of_iteration) - 0.6)
    axes.set_xlim(0, 100)
    axes.set(xlabel="share of candidates, %", ylabel="iteration")
    legend(axes, 2, "lower")


def gates(rows: list[Row], colours: Colours) -> Plot:
    note = "Share of checked tasks that pass; a malformed verdict is not a pass. Model gates are solid, rules dashed."
    if not rows:
        return Plot("gates", "No gate was applied", note)
    of_gate = by(rows, "gate", "kind")
    last = max(r["iteration"] for r in rows)
    says = [f"{r['gate']} {percent(r['num_passed'], r['n'])}" for r in rows if r["iteration"] == last]
    return Plot("gates", f"Passed in iteration {last}: " + "; ".join(says), note, draw(_paint_gates, of_gate))


def _paint_gates(axes: Any, of_gate: dict[tuple[str, str], list[Row]]) -> None:
    colours = Colours()
    for (gate, kind), rows in of_gate.items():
        rates = [100 * r["num_passed"] / r["n"] for r in rows]
        x, line = [r["iteration"] for r in rows], "-" if kind == "model" else "--"
        axes.plot(x, rates, line, marker="o", color=colours[gate], label=f"{short(gate)} ({kind})")
    axes.set_xticks(sorted({r["iteration"] for rows in of_gate.values() for r in rows}))
    axes.set_ylim(-3, 103)
    axes.set(xlabel="iteration", ylabel="tasks passing, %")
    legend(axes, 2)


def topic_drift(rows: list[Row]) -> Plot:
    note = (
        "Jensen-Shannon divergence of the words of an iteration's tasks from those of the first iteration, in bits: "
        "0: the same, 1: no word in common. The dashed line is noise: the distance of two halves of one iteration."
    )
    if len(rows) < 2:
        return Plot("topics", "How tasks drift shows from the second iteration on", note)
    last = rows[-1]
    noise = f", two halves of it {last['halves']:.2f} from each other" if last["halves"] is not None else ""
    title = f"Words of the tasks of iteration {last['iteration']}: {last['drift']:.2f} bits from the first's{noise}"
    return Plot("topics", title, note, draw(_paint_topics, rows))


def _paint_topics(axes: Any, rows: list[Row]) -> None:
    x = [r["iteration"] for r in rows]
    axes.plot(x, [r["drift"] for r in rows], marker="o", color=BLUE, label="from the first iteration")
    axes.plot(x, [r["halves"] for r in rows], "--", marker="o", color=GREY, label="between two halves")
    axes.set_xticks(x)
    axes.set_ylim(0, None)
    axes.set(xlabel="iteration", ylabel="divergence, bits")
    legend(axes, 2)


def malformed(rows: list[Row], iteration: int) -> Plot:
    note = "Shares of all replies to a template in this iteration; the table has counts, and other iterations."
    here = [r for r in rows if r["iteration"] == iteration]
    if not here:
        return Plot("malformed", f"Iteration {iteration} has no replies", note)
    num, bad = sum(r["n"] for r in here), Counter[str]()
    for row in here:
        if row["reason"] is not None:
            bad[row["reason"]] += row["n"]
    most = f", most often: {bad.most_common(1)[0][0]}" if bad else ""
    title = f"Iteration {iteration}: {percent(bad.total(), num)} of {num:,} replies could not be read{most}"
    if not bad:
        return Plot("malformed", title, note)
    of_template = {
        template if template.startswith(role) else f"{role} · {template}": found
        for (role, template), found in by(here, "role", "template").items()
    }
    names = [name for name, _ in bad.most_common(MOST_REASONS)]
    svg = draw(_paint_malformed, of_template, names, height_in=2.2 + 0.28 * len(of_template))
    return Plot("malformed", title, note, svg)


def _paint_malformed(axes: Any, of_template: dict[str, list[Row]], names: list[str]) -> None:
    labels = [short(name) for name in of_template]
    lefts = [0.0] * len(labels)
    for name, match in [(n, [n]) for n in names] + [("other reasons", None)]:
        sizes = [_share(rows, _with_reason(rows, match, names)) for rows in of_template.values()]
        if any(sizes):
            colour = GREY if match is None else PALETTE[names.index(name) % len(PALETTE)]
            axes.barh(range(len(labels)), sizes, 0.7, left=lefts, color=colour, label=short(name, 50))
            lefts = [a + b for a, b in zip(lefts, sizes, strict=True)]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.0, *lefts) * 1.05)
    axes.set_xlabel("replies that could not be read, %")
    legend(axes, 1 if len(names) < 4 else 2, "lower")


def _with_reason(rows: list[Row], match: list[str] | None, names: list[str]) -> list[Row]:
    """Rows with a reason in `match`; without `match`, rows with a reason that is not in `names`."""
    malformed = [r for r in rows if r["reason"] is not None]
    return [r for r in malformed if (r["reason"] in match if match else r["reason"] not in names)]


def _share(rows: list[Row], some: list[Row]) -> float:
    """The percentage of the sum of `rows`' n that lies in `some` of them."""
    return 100 * sum(r["n"] for r in some) / sum(r["n"] for r in rows)


def judge(rows: list[Row], colours: Colours) -> Plot:
    note = (
        "Verdicts against the oracle of true facts, and on canaries: answers whose verdict is known beforehand. "
        "Surplus is the mean of verdict minus truth: above 0 the judge is too lenient."
    )
    rows = [r for r in rows if r["n"]]
    if not rows:
        return Plot("judge", "No verdict has a known truth", note)
    of_truth = by(rows, "truth_of")
    last = max(r["iteration"] for r in rows)
    says = [f"{r['truth_of']} {percent(r['num_right'], r['n'])} of {r['n']:,}" for r in rows if r["iteration"] == last]
    title = f"Judge is right, iteration {last}: " + "; ".join(says)
    return Plot("judge", title, note, draw(_paint_judge, of_truth, colours, columns=2, height_in=2.7))


def _paint_judge(axes: list[Any], of_truth: dict[str, list[Row]], colours: Colours) -> None:
    right, surplus = axes
    for truth, rows in of_truth.items():
        x = [r["iteration"] for r in rows]
        right.plot(x, [100 * r["num_right"] / r["n"] for r in rows], marker="o", color=colours[truth], label=truth)
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
    note = (
        "From the first stage's start to the last one's end, without pauses of more than a minute. Between stages: "
        "what no stage accounts for."
    )
    if not rows:
        return Plot("time", "No stage has been timed", note)
    last = rows[-1]
    title = (
        f"Iteration {last['iteration']} took {seconds(last['wall_s'])}; "
        f"{percent(neither_s(last), last['wall_s'])} was neither generation nor update"
    )
    return Plot("time", title, note, draw(_paint_wall, rows, height_in=1.6 + 0.35 * len(rows)))


def neither_s(row: Row) -> float:
    """
    >>> neither_s({"wall_s": 10.0, "generation_s": 6.0, "update_s": None})
    4.0
    """
    return row["wall_s"] - (row["generation_s"] or 0.0) - (row["update_s"] or 0.0)


def seconds(value: float) -> str:
    """
    >>> seconds(9.94), seconds(75.2), seconds(3660)
    ('9.9 s', '1 min 15 s', '1 h 01 min')
    """
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _paint_wall(axes: Any, rows: list[Row]) -> None:
    lefts = [0.0] * len(rows)
    unit, name = (60.0, "minutes") if max(r["wall_s"] for r in rows) > 300 else (1.0, "seconds")
    for label, colour, part in (
        ("generation", BLUE, lambda r: r["generation_s"] or 0.0),
        ("update", ORANGE, lambda r: r["update_s"] or 0.0),
        ("other stages", GREEN, lambda r: r["other_s"] or 0.0),
        ("between stages", GREY, lambda r: max(0.0, neither_s(r) - (r["other_s"] or 0.0))),
    ):
        sizes = [part(r) / unit for r in rows]
        axes.barh([r["iteration"] for r in rows], sizes, 0.7, left=lefts, color=colour, label=label)
        lefts = [a + b for a, b in zip(lefts, sizes, strict=True)]
    axes.set_yticks([r["iteration"] for r in rows])
    axes.invert_yaxis()
    axes.set(xlabel=f"wall time, {name}", ylabel="iteration")
    legend(axes, 2, "lower")
