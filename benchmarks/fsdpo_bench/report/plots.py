"""The plots of the report: accuracy, cost, calibration and rewards."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsdpo_bench.decoders.decoders import parse_result_name
from fsdpo_bench.metrics.report_numbers import format_points
from fsdpo_bench.metrics.result_records import Results, RewardStatistics, TaskResults
from fsdpo_bench.report.choice_tables import listed_decoders
from fsdpo_bench.report.published import PublishedResult, is_backbone, published_results_of
from fsdpo_bench.report.svg import Axis, SvgDrawing, draw_panel
from fsdpo_data.core.statistics import Mean

_ROW_HEIGHT = 16  #: Pixels per decoder in the accuracy plot.
_TASK_GAP = 14  #: Pixels between benchmarks in the accuracy plot.
_NAME_WIDTH = 106  #: Pixels for the decoder names; the style sheet has the same margin.
_MIN_TICK_GAP = 4.0  #: Points between ticks of the paper's rows that have labels of their own.
_LABEL_HEIGHT = 12  #: Pixels per decoder name in the cost plot.

_UNKNOWN_DECODER_STYLE = "c6"  #: Style class of a decoder whose plug-in is missing.
_CORRECTNESS_STYLES: Mapping[str, str] = {"correct": "good", "wrong": "bad"}


def style_class(decoder: str) -> str:
    """Return the style class of a decoder, which is its colour."""
    setup = parse_result_name(decoder)
    return f"c{setup.decoder.colour}" if setup else _UNKNOWN_DECODER_STYLE


def accuracy_plot(results: Results) -> str:
    """Draw the accuracy of every decoder by benchmark, over the paper's greedy results."""
    tasks = results.tasks
    model = results.run.sample.model.name
    labels = published_labels(results)
    n_rows = sum(1 + len(listed_decoders(task)) for task in tasks.values())
    height = 20 + n_rows * _ROW_HEIGHT + len(tasks) * _TASK_GAP + 24
    drawing = SvgDrawing(None, height, "Accuracy by benchmark and decoder, with 95 % intervals")
    for value in range(0, 101, 20):
        x = f"{value}%"
        drawing.add_line(x1=x, y1=16, x2=x, y2=height - 24, style="grid")
        drawing.add_text(x, height - 10, x, style="small", anchor="middle")
    top = 20.0
    for name, task in tasks.items():
        drawing.add_text(0, top + _ROW_HEIGHT - 4, task.title, style="label", dx=-_NAME_WIDTH)
        top += _ROW_HEIGHT
        decoders = listed_decoders(task)
        task_height = len(decoders) * _ROW_HEIGHT
        published = sorted(published_results_of(results, name), key=lambda result: result.value)
        for result in published:
            drawing.add_rectangle(
                x=f"{result.value}%",
                y=top,
                width=2,
                height=task_height,
                style="own" if is_backbone(result.backbone, model) else "theirs",
                tip=f"{result.label}: {result.value}",
            )
        for position, text in _tick_labels(published, labels):
            drawing.add_text(f"{position:.1f}%", top - 4, text, style="small", anchor="middle")
        for index, decoder in enumerate(decoders):
            y = top + (index + 0.5) * _ROW_HEIGHT
            _draw_interval(drawing, y, decoder, task.decoders[decoder].accuracy)
        top += task_height + _TASK_GAP
    return drawing.render()


def published_labels(results: Results) -> list[str]:
    """Return the names of the paper's rows in the accuracy plot; tick N is the N-th name."""
    return list(
        dict.fromkeys(
            published.label
            for name in results.tasks
            for published in published_results_of(results, name)
        )
    )


def _tick_labels(
    published: Sequence[PublishedResult], labels: Sequence[str]
) -> list[tuple[float, str]]:
    """Return the positions and the numbers of ticks; close ticks share one label.

    Args:
        published: The results, sorted by value.
        labels: The names of all rows, whose order gives the numbers.
    """
    clusters: list[list[PublishedResult]] = []
    for result in published:
        if clusters and result.value - clusters[-1][-1].value < _MIN_TICK_GAP:
            clusters[-1].append(result)
        else:
            clusters.append([result])
    tick_labels = []
    for cluster in clusters:
        numbers = sorted({labels.index(result.label) + 1 for result in cluster})
        position = (cluster[0].value + cluster[-1].value) / 2
        tick_labels.append((position, ",".join(map(str, numbers))))
    return tick_labels


def _draw_interval(drawing: SvgDrawing, y: float, decoder: str, accuracy: Mean) -> None:
    """Draw the row of a decoder: its name, its interval and its accuracy."""
    style = style_class(decoder)
    drawing.add_text(0, y + 4, decoder, style="small", anchor="end", dx=-8)
    if accuracy.value is None or accuracy.ci95 is None:
        drawing.add_text(0, y + 4, "no problem counts", style="small")
        return
    low, high = (f"{100 * bound:.2f}%" for bound in accuracy.ci95)
    drawing.add_line(x1=low, y1=y, x2=high, y2=y, style=f"whisker {style}")
    drawing.add_circle(
        x=f"{100 * accuracy.value:.2f}%",
        y=y,
        radius=4,
        style=f"fill {style}",
        tip=f"{decoder}: {format_points(accuracy)}, {accuracy.total:g} of {accuracy.n}",
    )
    drawing.add_text("100%", y + 4, f"{100 * accuracy.value:.1f}", style="small", dx=8)


class _CostPoint(NamedTuple):
    """A decoder in the cost plot."""

    tokens: float  #: Tokens per problem.
    accuracy: float  #: Accuracy as a fraction.
    interval: Sequence[float]  #: 95 % interval of the accuracy.


def _cost_points(task: TaskResults) -> dict[str, _CostPoint]:
    """Return the points of the decoders with known token counts, by decoder."""
    points = {}
    for name in listed_decoders(task):
        result = task.decoders[name]
        tokens = result.cost.tokens
        value, interval = result.accuracy.value, result.accuracy.ci95
        if tokens and value is not None and interval is not None:
            points[name] = _CostPoint(tokens / task.distinct_problems, value, interval)
    return points


def cost_plot(task: TaskResults) -> str:
    """Draw accuracy against tokens per problem by decoder; empty without known token counts."""
    points = _cost_points(task)
    if not points:
        return ""
    tokens = {name: point.tokens for name, point in points.items()}
    bounds = [bound for point in points.values() for bound in point.interval]
    bottom = max(196, 30 + _LABEL_HEIGHT * len(points))
    x = Axis(min(tokens.values()) / 1.4, max(tokens.values()) * 1.4, 46, 250, log=True)
    y = Axis(100 * max(0, min(bounds) - 0.02), 100 * min(1, max(bounds) + 0.02), bottom, 26)
    drawing = draw_panel(
        f"{task.title}: accuracy against tokens per problem",
        x,
        y,
        x_label="tokens per problem",
        y_label=f"{task.title}, accuracy in %",
    )
    y_positions = {name: y(100 * point.accuracy) for name, point in points.items()}
    label_positions = _space_out(y_positions, _LABEL_HEIGHT, bottom)
    # Decoders with the same budget are next to each other. Their names are below each other, to the
    # right of the plot.
    x_positions = _space_out({name: x(tokens[name]) for name in tokens}, 9)
    for name, x_position in x_positions.items():
        result = task.decoders[name]
        style = style_class(name)
        low, high = (y(100 * bound) for bound in points[name].interval)
        drawing.add_line(x1=x_position, y1=low, x2=x_position, y2=high, style=f"whisker {style}")
        drawing.add_circle(
            x=x_position,
            y=y_positions[name],
            radius=4,
            style=f"fill {style}",
            tip=f"{name}: {format_points(result.accuracy)}, "
            f"{tokens[name]:,.0f} tokens per problem, {result.cost.prm_calls:,} PRM calls",
        )
        drawing.add_line(
            x1=x_position + 5,
            y1=y_positions[name],
            x2=x.end + 6,
            y2=label_positions[name],
            style="leader",
        )
        drawing.add_text(x.end + 9, label_positions[name] + 4, name, style=f"small {style} word")
    return drawing.render()


def _space_out(
    values: Mapping[str, float], gap: float, max_value: float = math.inf
) -> dict[str, float]:
    """Move values upwards, in their order, until neighbours are at least ``gap`` apart.

    No value exceeds ``max_value``.
    """
    positions: dict[str, float] = {}
    min_position = -math.inf
    for number, name in enumerate(sorted(values, key=values.__getitem__), start=1):
        reserved = gap * (len(values) - number)  # for the larger values
        positions[name] = max(min_position, min(values[name], max_value - reserved))
        min_position = positions[name] + gap
    return positions


def calibration_plot(rewards: RewardStatistics) -> str:
    """Draw the fraction of correct solutions against the reward of their steps."""
    x = Axis(0, 1, 46, 350)
    y = Axis(0, 1, 196, 26)
    drawing = draw_panel(
        "Calibration of the step rewards",
        x,
        y,
        x_label="step reward",
        y_label="Fraction of correct solutions",
    )
    drawing.add_polyline([(x(0), y(0)), (x(1), y(1))], "ideal")
    assert rewards.calibration is not None  # the plots are for probabilities
    bins = rewards.calibration.bins
    max_steps = max(reward_bin.correct.n for reward_bin in bins)
    for reward_bin in bins:
        fraction = reward_bin.correct
        assert fraction.value is not None and fraction.ci95 is not None  # a bin has steps
        x_position = x(reward_bin.reward)
        top = y(0.12 * fraction.n / max_steps)
        low, high = fraction.ci95
        drawing.add_rectangle(
            x=x(reward_bin.low) + 1,
            y=top,
            width=x(0.1) - x(0) - 2,
            height=y(0) - top,
            style="mass",
        )
        drawing.add_line(x1=x_position, y1=y(low), x2=x_position, y2=y(high), style="whisker c1")
        drawing.add_circle(
            x=x_position,
            y=y(fraction.value),
            radius=4,
            style="fill c1",
            tip=f"{fraction.n:,} steps with mean reward {reward_bin.reward:.3f}: "
            f"{100 * fraction.value:.1f} % in correct solutions",
        )
    return drawing.render()


def distribution_plot(rewards: RewardStatistics) -> str:
    """Draw the reward distributions of correct and of wrong solutions."""
    distribution = rewards.distribution
    assert distribution is not None  # the plots are for probabilities
    counts = {"correct": distribution.correct, "wrong": distribution.wrong}
    totals = {kind: max(1, sum(counts[kind])) for kind in counts}
    fractions = {kind: [n / totals[kind] for n in counts[kind]] for kind in counts}
    max_fraction = max(max(values) for values in fractions.values()) or 1
    x = Axis(0, 1, 46, 350)
    y = Axis(0, 100 * max_fraction, 196, 26)
    drawing = draw_panel(
        "Rewards of correct and of wrong solutions",
        x,
        y,
        x_label=f"{distribution.aggregate} of the step rewards",
        y_label="% of the solutions",
    )
    bin_width = (x(1) - x(0)) / len(distribution.correct)
    for offset, (kind, style) in enumerate(_CORRECTNESS_STYLES.items()):
        for index, fraction in enumerate(fractions[kind]):
            top = y(100 * fraction)
            drawing.add_rectangle(
                x=x(0) + index * bin_width + 1 + offset * (bin_width / 2 - 1),
                y=top,
                width=bin_width / 2 - 1,
                height=y(0) - top,
                style=style,
                tip=f"{kind}: {counts[kind][index]:,} solutions",
            )
    _draw_legend(drawing)
    return drawing.render()


def step_plot(rewards: RewardStatistics) -> str:
    """Draw the mean reward by the number of the step."""
    steps = rewards.by_step
    numbered_steps = {
        kind: [(number, entry) for number, entry in enumerate(entries, start=1) if entry]
        for kind, entries in (("correct", steps.correct), ("wrong", steps.wrong))
    }
    last = max(entries[-1][0] for entries in numbered_steps.values() if entries)
    labels = {float(number): str(number) for number in range(1, last + 1)}
    if last == len(steps.correct):
        labels[last] += "+"
    x = Axis(0.5, max(2, last) + 0.5, 46, 350)
    y = Axis(0, 1, 196, 26)
    drawing = draw_panel(
        "Mean reward by step",
        x,
        y,
        x_label="number of the step",
        y_label="Mean reward",
        x_ticks=labels,
    )
    for kind, style in _CORRECTNESS_STYLES.items():
        entries = numbered_steps[kind]
        points = [(x(number), y(entry.reward)) for number, entry in entries]
        drawing.add_polyline(points, f"curve {style}")
        for number, entry in entries:
            drawing.add_circle(
                x=x(number),
                y=y(entry.reward),
                radius=3,
                style=style,
                tip=f"step {number} of {entry.steps:,} {kind} solutions: {entry.reward:.3f}",
            )
    _draw_legend(drawing)
    return drawing.render()


def _draw_legend(drawing: SvgDrawing) -> None:
    for x, (kind, style) in zip((216, 286), _CORRECTNESS_STYLES.items(), strict=True):
        drawing.add_rectangle(x=x, y=5, width=10, height=10, style=style)
        drawing.add_text(x + 14, 14, kind, style="small")
