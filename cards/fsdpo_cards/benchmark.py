"""The card of a benchmark run, rendered from its ``results.json``."""

from collections.abc import Iterator, Mapping
from typing import Any

from fsdpo_cards.bars import bars
from fsdpo_cards.commands import COMMIT, measure_command
from fsdpo_cards.render import front_matter, hub_metadata, render

Results = Mapping[str, Any]


def benchmark_card(results: Results) -> str:
    """Render the README of a run: its numbers as metadata, then what they mean.

    Raises:
        jinja2.UndefinedError: if the results lack a field that the card shows.
    """
    measured = [
        (f"{task['title']} {name}", round(100 * found["accuracy"]))
        for task in results["tasks"].values()
        for name, found in task["decoders"].items()
        if found["accuracy"] is not None
    ]
    body = render(
        "benchmark.md", **results, plot=bars(measured), command=measure_command(results["run"])
    )
    metadata = hub_metadata(
        language="en",
        tags=["math", "evaluation", "fsdpo"],
        model_name=results["run"]["model"]["name"],
        eval_results=list(model_index(results)) or None,
    )
    return front_matter(metadata) + body


def model_index(results: Results) -> Iterator[Any]:
    """Yield one result for each benchmark and decoder, in percent with its interval."""
    from huggingface_hub import EvalResult

    for name, task in results["tasks"].items():
        source = results["run"]["tasks"][name]["source"]
        revision = source["revision"]
        repo, _, config = source["name"].partition(":")
        for decoder, found in task["decoders"].items():
            if found["accuracy"] is None:
                continue
            yield EvalResult(
                task_type="text-generation",
                task_name="mathematical reasoning",
                dataset_type=repo,
                dataset_name=task["title"],
                dataset_config=config or None,
                dataset_split=source["split"],
                dataset_revision=revision if COMMIT.fullmatch(revision) else None,
                metric_type="accuracy",
                metric_name=f"accuracy, {decoder}",
                metric_value=round(100 * found["accuracy"], 2),
                metric_args={
                    "decoder": decoder,
                    "n": found["n"],
                    "ci95": [round(100 * bound, 2) for bound in found["ci95"]],
                },
            )
