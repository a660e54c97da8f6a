"""Print the measurements of ``fsdpo-bench rerank``."""

from collections.abc import Iterator, Mapping
from typing import Any

from fsdpo_bench.report.tables import print_table, print_text

_STRATEGIES = {"best-of-n": "best-of-N", "weighted-vote": "weighted vote"}


def print_reranking(result: Mapping[str, Any]) -> None:
    """Print the accuracies by N, the selected strategies, and the quality of the rewards."""
    sizes = [str(size) for size in result["n"]]
    print_text(
        f"{result['problems']:,} problems x {result['samples_per_problem']} samples; "
        f"{result['mixed_problems']:,} problems have correct and incorrect samples"
    )
    for reason, count in result["left_out"].items():
        print_text(f"left out: {count:,} problems ({reason})")
    print_text("\naccuracy (%) of N samples")
    columns = ("model", "choice", *(f"N={size}>" for size in sizes))
    print_table(columns, _accuracy_rows(result, sizes))
    print_text("\nselected on one half of the problems, measured on the other half")
    columns = ("model", "N>", "accuracy>", "ahead of the vote>", "p>", "p (Holm)>", "selected")
    print_table(columns, _selected_rows(result))
    print_text("\nranking AUC within problems, and calibration")
    columns = ("model", "aggregate", "AUC>", "mean reward>", "accuracy>", "ECE>", "Brier>")
    print_table(columns, _quality_rows(result))
    print_text("\npairs (T = 4, mean), and distance of the step weights from uniform weights")
    gammas = list(next(iter(result["models"].values()))["pairs"]["weights"])
    columns = ("model", "pairs>", "problems>", "margin>", *(f"at γ {gamma}>" for gamma in gammas))
    print_table(columns, _pair_rows(result))


def _accuracy_rows(result: Mapping[str, Any], sizes: list[str]) -> Iterator[tuple[str, ...]]:
    sample = _percent(result["sample"])
    yield ("", "an average sample", *(sample for _ in sizes))
    for name, title in (("vote", "vote"), ("pass", "pass@N")):
        yield ("", title, *(_percent(result[name][size]) for size in sizes))
    for name, model in result["models"].items():
        for strategy, by_aggregate in model["accuracy"].items():
            for aggregate, cells in by_aggregate.items():
                label = f"{_STRATEGIES[strategy]}, {aggregate}"
                yield (name, label, *(f"{100 * cells[size]['value']:.1f}" for size in sizes))


def _selected_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, model in result["models"].items():
        for size, cell in model["selected"].items():
            ahead = cell["ahead_of_vote"]
            if "p_holm" not in ahead:
                continue
            strategies = " / ".join(dict.fromkeys(cell["strategies"]))
            yield (
                name,
                size,
                _percent(cell["accuracy"]),
                _percent(ahead, sign="+"),
                f"{ahead['p']:.4f}",
                f"{ahead['p_holm']:.4f}",
                strategies,
            )


def _quality_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, model in result["models"].items():
        for aggregate, auc in model["ranking_auc"].items():
            cells = ("–", "–", "–", "–")
            if model["calibration"]:
                quality = model["calibration"][aggregate]
                cells = (
                    f"{quality['mean_reward']:.3f}",
                    f"{quality['accuracy']:.3f}",
                    f"{quality['ece']:.3f}",
                    f"{quality['brier']:.3f}",
                )
            value = "–"
            if auc["value"] is not None:
                low, high = auc["ci95"]
                value = f"{auc['value']:.3f} [{low:.3f}, {high:.3f}]"
            yield (name, aggregate, value, *cells)


def _pair_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, model in result["models"].items():
        pairs = model["pairs"]
        margin = pairs["margin"]
        cells = [
            " / ".join(
                "–" if side is None else f"{side['from_uniform']:.3f}" for side in sides.values()
            )
            for sides in pairs["weights"].values()
        ]
        mean = f"{margin['mean']:.3f}" if margin else "–"
        yield (name, f"{pairs['pairs']:,}", f"{pairs['problems']:,}", mean, *cells)


def _percent(cell: Mapping[str, Any], sign: str = "") -> str:
    """Return a mean and its interval in percent."""
    low, high = cell["ci95"]
    return f"{100 * cell['value']:{sign}.1f} [{100 * low:.1f}, {100 * high:.1f}]"
