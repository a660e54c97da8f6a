"""Render the card of a benchmark run from its ``results.json``."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fsdpo_cards.bars import draw_bars
from fsdpo_cards.pinned_names import COMMIT_PATTERN, pinned_name
from fsdpo_cards.render import front_matter, hub_metadata, render
from fsdpo_cards.shell_command import format_command, sampling_options, template_option

Results = Mapping[str, Any]  #: The content of ``results.json``.


def benchmark_card(
    results: Results,
    decoders: Mapping[str, str] | None = None,
    run_decoders: Sequence[str] = (),
) -> str:
    """Render the README of a run, with its accuracies as metadata and as tables.

    Args:
        results: The content of ``results.json``.
        decoders: Explanation of each decoder, by the form of its result names.
        run_decoders: Result names of the decoders of the run; empty for those of the results. A
            report can have other ones, which its command must not have.

    Raises:
        jinja2.UndefinedError: if the results lack a field of the card.
    """
    optional_sections = {}
    if "answer_judge" in results:
        optional_sections["answer_judge"] = results["answer_judge"]
    body = render(
        "benchmark.md",
        run=results["run"],
        tasks=results["tasks"],
        suites=results["suites"],
        cost=results["cost"],
        has_costs=any(map(_has_cost, results["cost"].values())),
        plot=draw_bars(list(_accuracy_rows(results))),
        decoders=decoders or {},
        command=run_command(results["run"], run_decoders or results["run"]["decoders"]),
        limit=problem_limit(results["run"]["benchmarks"]),
        **optional_sections,
    )
    metadata = hub_metadata(
        language="en",
        tags=["math", "evaluation", "fsdpo"],
        model_name=results["run"]["sample"]["model"]["name"],
        eval_results=list(model_index(results)) or None,
    )
    return front_matter(metadata) + body


def run_command(run: Mapping[str, Any], decoders: Sequence[str]) -> str:
    """Return the command of a run; empty for the responses of another program.

    Args:
        run: The settings of the measurement.
        decoders: Result names of the decoders.
    """
    if "unknown" in run["sample"]["sampling"].values() or not run["benchmarks"]:
        return ""
    reward_models = list(run["reward_models"].values())
    judge = run["grade"].get("answer_judge")
    options = {
        "task": list(run["benchmarks"]),
        "limit": problem_limit(run["benchmarks"]),
        "model": pinned_name(run["sample"]["model"]),
        "template": template_option(run["sample"]["template"]),
        "decoder": ",".join(dict.fromkeys(name.partition("@")[0] for name in decoders)),
        "k": list(dict.fromkeys(_sample_counts(decoders))),
        "aggregate": _aggregate(decoders),
        **_search_options(run["datasets"]),
        **sampling_options(run["sample"]["sampling"]),
        "segmenter": run["sample"]["segmenter"],
        "prm": pinned_name(reward_models[0]["prm"]) if reward_models else None,
        "judge": pinned_name(judge["model"]) if judge else None,
        "engine": run["sample"]["engine"]["name"],
        "dtype": run["sample"]["engine"]["dtype"],
        "out": "runs/bench",
    }
    return format_command(["fsdpo-bench", "run"], options)


def _sample_counts(decoders: Iterable[str]) -> Iterator[str]:
    """Yield the numbers of samples in result names, such as the 5 of ``bon@5:mean``."""
    for name in decoders:
        if match := re.fullmatch(r"[^@]+@(\d+)(:.*)?", name):
            yield match[1]


def problem_limit(benchmarks: Mapping[str, Any]) -> int | None:
    """Return the option ``limit`` of a run; None if all of its benchmarks are complete."""
    limits = [
        entry["problems"]
        for entry in benchmarks.values()
        if entry["task"]["count"] and entry["problems"] < entry["task"]["count"]
    ]
    return max(limits, default=None)


def _aggregate(decoders: Iterable[str]) -> str | None:
    """Return the aggregate in result names, such as the ``mean`` of ``bon@5:mean``."""
    return next((name.partition(":")[2] for name in decoders if ":" in name), None)


def _search_options(datasets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the beam searches of a run, which differ only in ``b2``."""
    samples = [dataset["sample"] for dataset in datasets.values()]
    beams = [sample["search"]["beam"] for sample in samples if sample.get("search")]
    if not beams:
        return {}
    options = {name.replace("_", "-"): value for name, value in beams[0].items()}
    return {**options, "b2": [beam["b2"] for beam in beams if "b2" in beam]}


def _has_cost(cost: Mapping[str, Any]) -> bool:
    """Return whether a cost says something; recorded responses may have none."""
    return bool(cost["tokens"] or cost["prm_calls"])


def _accuracy_rows(results: Results) -> Iterator[tuple[str, int]]:
    """Yield (task and decoder, accuracy in percent) for the plot."""
    for task in results["tasks"].values():
        for decoder, decoder_results in task["decoders"].items():
            accuracy = decoder_results["accuracy"]["value"]
            if accuracy is not None:
                yield f"{task['title']} {decoder}", round(100 * accuracy)


def model_index(results: Results) -> Iterator[Any]:
    """Yield one ``EvalResult`` per benchmark and decoder, in percent with its interval."""
    from huggingface_hub import EvalResult

    for name, task in results["tasks"].items():
        if name not in results["run"]["benchmarks"]:
            continue
        source = results["run"]["benchmarks"][name]["source"]
        revision = source["revision"]
        repo, _, config = source["name"].partition(":")
        for decoder, decoder_results in task["decoders"].items():
            accuracy = decoder_results["accuracy"]
            if accuracy["value"] is None:
                continue
            yield EvalResult(
                task_type="text-generation",
                task_name="mathematical reasoning",
                dataset_type=repo,
                dataset_name=task["title"],
                dataset_config=config or None,
                dataset_split=source["split"],
                dataset_revision=revision if COMMIT_PATTERN.fullmatch(revision) else None,
                metric_type="accuracy",
                metric_name=f"accuracy, {decoder}",
                metric_value=round(100 * accuracy["value"], 2),
                metric_args={
                    "decoder": decoder,
                    "n": accuracy["n"],
                    "ci95": [round(100 * bound, 2) for bound in accuracy["ci95"]],
                },
            )
