"""Plots of the rewards of solutions, where it is known which of them are correct."""

from collections.abc import Mapping
from typing import Any

from fsdpo_cards.pages.drawing import Axis, Drawing, panel

#: Kinds of solutions, and the styles they are drawn in.
_KINDS = {"correct": "good", "wrong": "bad"}

Rewards = Mapping[str, Any]


def distribution_plot(rewards: Rewards) -> str:
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


def step_plot(rewards: Rewards) -> str:
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


def _key(drawing: Drawing) -> None:
    for at, (name, style) in zip((216, 286), _KINDS.items(), strict=True):
        drawing.bar(at, 5, 10, 10, style)
        drawing.text(at + 14, 14, name, "small")
