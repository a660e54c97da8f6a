"""The numbers, tables and inputs of the recipes `real.toml` (`make real`) and `curve.toml`.

    python benchmarks/evidence/real.py tables    # the tables of the CPU, from its numbers
    python benchmarks/evidence/real.py curve-tables

The model is Qwen2.5-Coder-0.5B-Instruct (Apache-2.0), whose weights are in Python packages
(`real_model.py`).

`benchmarks/measured/real/SIZE/` has one row per problem and choice in `choices.csv`, and per row of
ProcessBench in `processbench.csv`. It has one row per problem and policy in `policies.csv`, and per
stage in `stages.csv`. `benchmarks/measured/real/curve/` has the choices in `curve.csv`, and
policies on training problems in `rates.csv`. Exit code 69 of `model` means that the model cannot be
downloaded.
"""

import json
import random
from pathlib import Path
from typing import Annotated, Any

import typer
from curve_results import record_curve
from curve_tables import render_curve
from real_model import write_model
from real_results import record_numbers
from real_tables import render_tables
from recordings import join_parts, record_parts, unpack_recording, write_gzip

from fsdpo_data.core.files import write_text
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.exchange.export import read_rows
from fsdpo_data.models.prompts import get_template

RESULTS = Path(__file__).parents[1] / "measured/real"

# The parameters of the commands that write or print numbers, for both recipes.
RunFolder = Annotated[Path, typer.Argument(help="Folder of the stages.")]
ResultsFolder = Annotated[Path, typer.Argument(help="Folder with the numbers.")]
ProcessbenchFile = Annotated[Path, typer.Option(help="File of ProcessBench.")]
TestSamples = Annotated[int, typer.Option(help="Samples of each test problem.")]
PolicySamples = Annotated[int, typer.Option(help="Samples that measure a policy.")]

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def model(
    out: Annotated[Path, typer.Option(help="Directory for the model.")],
    parts: Annotated[
        Path | None, typer.Option(help="Folder with the packages of the model, or their parts.")
    ] = None,
) -> None:
    """Download the model, and write it as `from_pretrained` reads it."""
    write_model(parts, out)


@app.command()
def numbers(
    run: RunFolder,
    processbench: ProcessbenchFile,
    samples: TestSamples,
    policy_samples: PolicySamples,
    results: Annotated[Path, typer.Option(help="Folder for the numbers.")],
) -> None:
    """Write the numbers of all complete stages, and print their tables."""
    record_numbers(run, results, processbench_file=processbench, policy_samples=policy_samples)
    print(render_tables(results, samples))


@app.command()
def tables(
    results: ResultsFolder = RESULTS / "cpu",
    samples: TestSamples = 8,
) -> None:
    """Print the tables of the numbers of a run."""
    print(render_tables(results, samples))


@app.command()
def curve(
    run: RunFolder,
    processbench: ProcessbenchFile,
    samples: TestSamples,
    policy_samples: PolicySamples,
    results: Annotated[Path, typer.Option(help="Folder for the numbers.")],
) -> None:
    """Write the numbers of all complete stages of the curve, and print their tables."""
    record_curve(run, results, processbench_file=processbench, policy_samples=policy_samples)
    print(render_curve(results, samples))


@app.command()
def curve_tables(
    results: ResultsFolder = RESULTS / "curve",
    samples: TestSamples = 8,
) -> None:
    """Print the tables of the numbers of a curve."""
    print(render_curve(results, samples))


@app.command()
def rows(
    file: Annotated[Path, typer.Argument(help="JSONL file.")],
    first: Annotated[int, typer.Option(help="Number of the first line, from 1.")],
    last: Annotated[int, typer.Option(help="Number of the last line.")],
    out: Annotated[Path, typer.Option(help="JSONL file.")],
) -> None:
    """Write consecutive lines of a file."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    write_text(out, "".join(lines[first - 1 : last]))


@app.command()
def record(
    runs: Annotated[Path, typer.Argument(help="Folder with the parts of the samples.")],
    recorded: Annotated[Path, typer.Argument(help="Folder of the recorded parts.")],
) -> None:
    """Compress the completions of complete parts that are not recorded yet."""
    for file in record_parts(runs, recorded):
        print(f"recorded {file}")


@app.command()
def join(
    recordings: Annotated[list[Path], typer.Argument(help="Recorded parts, if they exist.")],
    problems: Annotated[Path, typer.Option(help="File of the problems.")],
    model: Annotated[str, typer.Option(help="The model, for the chat format of the prompts.")],
    template: Annotated[str, typer.Option(help="Name of the prompt template.")],
    out: Annotated[Path, typer.Option(help="Folder for the completions and the problems.")],
    without: Annotated[
        list[Path] | None, typer.Option(help="Recording whose problems are left out.")
    ] = None,
) -> None:
    """Join recorded parts for a replay, and write the problems that have completions."""
    parts = [file for file in recordings if file.exists()]
    n_excluded = join_parts(
        parts,
        problems,
        out,
        template=get_template(template, model),
        other_recordings=without or (),
    )
    print(
        f"joined {len(parts)} of {len(recordings)} parts, without {n_excluded} problems that other "
        "recordings have"
    )


@app.command()
def unpack(recording: Path, out: Annotated[Path, typer.Option(help="JSONL file.")]) -> None:
    """Write the completions of a recording as a file that a replay reads."""
    unpack_recording(recording, out)


@app.command()
def likelihood(
    data: Path,
    model: Path,
    dtype: Annotated[str, typer.Option(help="Data type of the model.")] = "auto",
    out: Annotated[Path, typer.Option(help="JSON file.")] = Path("likelihood.json"),
) -> None:
    """Write log π of each solution of a dataset under a policy, by solution id."""
    from fsdpo_data.engines.load import load_likelihood
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput

    files = read_manifest(data).config_paths(data, "solutions")
    rows = collect_rows(scan_rows("solutions", files))
    options: Any = {"dtype": dtype}
    scorer = load_likelihood(str(model), ScorerOptions(**options))
    items = [
        ScorerInput(prompt, steps)
        for prompt, steps in rows.select("prompt", "completions").iter_rows()
    ]
    logprobs = dict(zip(rows["solution_id"], scorer.log_likelihoods(items), strict=True))
    write_text(out, json.dumps(logprobs, indent=0) + "\n")


@app.command()
def template(model: Path, name: str, out: Annotated[Path, typer.Option(help="Text file.")]) -> None:
    """Write a prompt template within the chat format of a model, as text with `{question}`."""
    write_text(out, get_template(name, str(model)).render("{question}"))


@app.command()
def responses(
    data: Path, out: Annotated[Path, typer.Option(help="JSONL file, compressed by gzip.")]
) -> None:
    """Write the solutions of a scored dataset as `fsdpo-data import` reads them."""
    solutions = sorted(
        read_rows(data, read_manifest(data), "solutions"),
        key=lambda row: (row["problem_id"], row["sample_index"]),
    )
    rows = [
        {
            "question": row["question"],
            "prompt": row["prompt"],
            "finish_reason": row["finish_reason"],
            "n_tokens": row["n_tokens"],
            "answer": row["gold"],
            "response": "".join(row["completions"]),
            "steps": row["completions"],
            "step_scores": row["step_rewards"],
        }
        for row in solutions
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_gzip(out, lines.encode())


@app.command()
def shuffle(
    pairs: Path,
    out: Annotated[Path, typer.Option(help="JSONL file.")],
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Write the pairs of a dataset with the step rewards of each solution in random order.

    A solution of several pairs has the same order in all of them.
    """
    rows = collect_rows(scan_rows("pairs", read_manifest(pairs).config_paths(pairs, "pairs")))
    rng = random.Random(seed)
    shuffled_rewards: dict[str, list[float]] = {}
    pair_rows = rows.to_dicts()
    for row in pair_rows:
        for side in ("chosen", "rejected"):
            rewards = row[f"{side}_rewards"]
            solution_id = row[f"{side}_id"]
            if solution_id not in shuffled_rewards:
                shuffled_rewards[solution_id] = rng.sample(rewards, len(rewards))
            row[f"{side}_rewards"] = shuffled_rewards[solution_id]
    write_text(out, "".join(json.dumps(row) + "\n" for row in pair_rows))


if __name__ == "__main__":
    app()
