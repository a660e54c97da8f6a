"""The plots of the report: accuracy, cost, calibration, rewards."""

import math
from collections.abc import Mapping
from typing import Any

from fsdpo_bench.report.svg import Axis, SvgDrawing, panel
from fsdpo_bench.results.published import is_backbone, published_results_for
from fsdpo_data.core.sampling import UNKNOWN

_FAMILIES = ("greedy", "sc", "weighted", "bon", "sbs")
#: Accuracy plot: height of a decoder, space between benchmarks.
_ROW, _GAP = 16, 14
_NAMES = 106  #: Pixels for the names of decoders beside it, as the style sheet leaves them.
_LINE = 12  #: Height of a name in the cost plot.

#: Kinds of solutions, and the styles they are drawn in.
_KINDS = {"correct": "good", "wrong": "bad"}

Results = Mapping[str, Any]


def colour(decoder: str) -> str:
    """Return the style class of a decoder's family."""
    family = decoder.partition("@")[0]
    return f"c{_FAMILIES.index(family) + 1}" if family in _FAMILIES else "c6"


def points(share: Results) -> str:
    """Write an accuracy, or a drop of it, with its interval in points: ``58.3 [54.1, 62.4]``."""
    value = share["drop"] if "drop" in share else share["accuracy"]
    if value is None:
        return "–"
    low, high = share["ci95"]
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def accuracy_plot(results: Results) -> str:
    """Draw every decoder's accuracy with its interval, by benchmark, over the published ones."""
    tasks, model = results["tasks"], results["run"]["model"]["name"]
    rows = sum(1 + len(task["decoders"]) for task in tasks.values())
    height = 20 + rows * _ROW + len(tasks) * _GAP + 24
    drawing = SvgDrawing(None, height, "Accuracy by benchmark and decoder, with 95 % intervals")
    for value in range(0, 101, 20):
        drawing.line(f"{value}%", 16, f"{value}%", height - 24, "grid")
        drawing.text(f"{value}%", height - 10, f"{value}%", "small", "middle")
    top = 20.0
    for name, task in tasks.items():
        drawing.text(0, top + _ROW - 4, task["title"], "label", dx=-_NAMES)
        top += _ROW
        size = len(task["decoders"]) * _ROW
        for each in published_results_for(name):
            style = "own" if is_backbone(each.backbone, model) else "theirs"
            drawing.bar(f"{each.value}%", top, 2, size, style, f"{each.label}: {each.value}")
        for index, (decoder, share) in enumerate(task["decoders"].items()):
            _interval(drawing, top + (index + 0.5) * _ROW, decoder, share)
        top += size + _GAP
    return drawing.render()


def _interval(drawing: SvgDrawing, y: float, decoder: str, share: Results) -> None:
    style = colour(decoder)
    drawing.text(0, y + 4, decoder, "small", "end", dx=-8)
    if share["accuracy"] is None:
        drawing.text(0, y + 4, "no problem counts", "small")
        return
    low, at, high = (
        f"{100 * each:.2f}%" for each in (share["ci95"][0], share["accuracy"], share["ci95"][1])
    )
    drawing.line(low, y, high, y, f"whisker {style}")
    tip = f"{decoder}: {points(share)}, {share['correct']:g} of {share['n']}"
    drawing.dot(at, y, 4, f"fill {style}", tip)
    drawing.text("100%", y + 4, f"{100 * share['accuracy']:.1f}", "small", dx=8)


def cost_plot(task: Results) -> str:
    """Draw accuracy against tokens per problem, by decoder; empty if no tokens were counted."""
    decoders = {
        name: share
        for name, share in task["decoders"].items()
        if share["cost"]["tokens"] not in (0, UNKNOWN) and share["accuracy"] is not None
    }
    if not decoders:
        return ""
    spent = {name: share["cost"]["tokens"] / task["problems"] for name, share in decoders.items()}
    bounds = [bound for share in decoders.values() for bound in share["ci95"]]
    bottom = max(196, 30 + _LINE * len(decoders))
    x = Axis(min(spent.values()) / 1.4, max(spent.values()) * 1.4, 46, 250, log=True)
    y = Axis(100 * max(0, min(bounds) - 0.02), 100 * min(1, max(bounds) + 0.02), bottom, 26)
    title = f"{task['title']}: accuracy against tokens per problem"
    drawing = panel(title, x, y, "tokens per problem", f"{task['title']}, accuracy in %")
    heights = {name: y(100 * share["accuracy"]) for name, share in decoders.items()}
    lines = _apart(heights, _LINE, bottom)
    # Decoders of one budget stand side by side; their names, beside the plot, one below the other.
    for name, at in _apart({name: x(spent[name]) for name in spent}, 9).items():
        share = decoders[name]
        low, high = (y(100 * bound) for bound in share["ci95"])
        tip = f"{name}: {points(share)}, {spent[name]:,.0f} tokens per problem, "
        drawing.line(at, low, at, high, f"whisker {colour(name)}")
        tip += f"{share['cost']['prm_calls']:,} PRM calls"
        drawing.dot(at, heights[name], 4, f"fill {colour(name)}", tip)
        drawing.line(at + 5, heights[name], x.end + 6, lines[name], "leader")
        drawing.text(x.end + 9, lines[name] + 4, name, f"small {colour(name)} word")
    return drawing.render()


def _apart(values: Mapping[str, float], gap: float, most: float = math.inf) -> dict[str, float]:
    """Move values at least ``gap`` apart, upwards and in their order; none comes above ``most``."""
    placed: dict[str, float] = {}
    least = -math.inf
    for number, name in enumerate(sorted(values, key=values.__getitem__), start=1):
        room = gap * (len(values) - number)  # for those above it
        placed[name] = max(least, min(values[name], most - room))
        least = placed[name] + gap
    return placed


def calibration_plot(rewards: Results) -> str:
    """Draw how often solutions are correct against the reward of their steps."""
    x, y = Axis(0, 1, 46, 350), Axis(0, 1, 196, 26)
    title, above = "Calibration of the step rewards", "Share of correct solutions"
    drawing = panel(title, x, y, "step reward", above)
    drawing.path([(x(0), y(0)), (x(1), y(1))], "ideal")
    bins = rewards["calibration"]["bins"]
    most = max(each["steps"] for each in bins)
    for each in bins:
        at, top = x(each["reward"]), y(0.12 * each["steps"] / most)
        drawing.bar(x(each["from"]) + 1, top, x(0.1) - x(0) - 2, y(0) - top, "mass")
        drawing.line(at, y(each["ci95"][0]), at, y(each["ci95"][1]), "whisker c1")
        tip = f"{each['steps']:,} steps with mean reward {each['reward']:.3f}: "
        tip += f"{100 * each['correct']:.1f} % in correct solutions"
        drawing.dot(at, y(each["correct"]), 4, "fill c1", tip)
    return drawing.render()


def distribution_plot(rewards: Results) -> str:
    """Draw the rewards of correct and of wrong solutions."""
    shown = rewards["distribution"]
    totals = {kind: max(1, sum(shown[kind])) for kind in _KINDS}
    shares = {kind: [n / totals[kind] for n in shown[kind]] for kind in totals}
    top = max(max(values) for values in shares.values()) or 1
    x, y = Axis(0, 1, 46, 350), Axis(0, 100 * top, 196, 26)
    title = "Rewards of correct and of wrong solutions"
    below = f"{shown['aggregate']} of the step rewards"
    drawing = panel(title, x, y, below, "% of the solutions")
    width = (x(1) - x(0)) / len(shown["correct"])
    for offset, (kind, style) in enumerate(_KINDS.items()):
        for index, part in enumerate(shares[kind]):
            left = x(0) + index * width + 1 + offset * (width / 2 - 1)
            height = y(0) - y(100 * part)
            tip = f"{kind}: {shown[kind][index]:,} solutions"
            drawing.bar(left, y(100 * part), width / 2 - 1, height, style, tip)
    _key(drawing)
    return drawing.render()


def step_plot(rewards: Results) -> str:
    """Draw the mean reward by the number of the step."""
    steps = rewards["by_step"]
    last = max(i for kind in steps for i, each in enumerate(steps[kind], start=1) if each)
    labels = {float(number): str(number) for number in range(1, last + 1)}
    if last == len(steps["correct"]):
        labels[last] += "+"
    x, y = Axis(0.5, max(2, last) + 0.5, 46, 350), Axis(0, 1, 196, 26)
    drawing = panel("Mean reward by step", x, y, "number of the step", "Mean reward", labels)
    for kind, style in _KINDS.items():
        known = [(i, each) for i, each in enumerate(steps[kind], start=1) if each]
        drawing.path([(x(i), y(each["reward"])) for i, each in known], f"curve {style}")
        for i, each in known:
            tip = f"step {i} of {each['steps']:,} {kind} solutions: {each['reward']:.3f}"
            drawing.dot(x(i), y(each["reward"]), 3, style, tip)
    _key(drawing)
    return drawing.render()


def _key(drawing: SvgDrawing) -> None:
    for at, (name, style) in zip((216, 286), _KINDS.items(), strict=True):
        drawing.bar(at, 5, 10, 10, style)
        drawing.text(at + 14, 14, name, "small")
