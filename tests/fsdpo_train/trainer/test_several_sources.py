"""Training on several datasets and files: their rows follow each other, and the card names each."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import sample_settings, small_build
from paired_data import paired_dataset
from transformers import AutoTokenizer
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_train import DpoConfig, PrmConfig, SftConfig, train_dpo, train_prm, train_sft
from fsdpo_train.cli.app import app
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import open_pairs
from fsdpo_train.prm.data import open_solutions, prepare_rows, read_labelled_rows
from fsdpo_train.trainer.row_formats import SFT_ROWS, pair_rows
from fsdpo_train.trainer.row_source import open_data
from fsdpo_train.trainer.start_model import with_start_model

FULL_STEP = PREFERENCE_LOSSES["full-step"]
PAIR_COLUMNS = ["problem_id", "chosen", "rejected", *pair_rows(FULL_STEP).columns]
SOLUTION_COLUMNS = ["problem_id", "prompt", "completions", "labels"]


def write_rows(file: Path, rows: pl.DataFrame) -> Path:
    """Write rows as JSON lines or parquet."""
    if file.suffix == ".parquet":
        rows.write_parquet(file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_dicts()))
    return file


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return sources of each kind by stage; all of them have other rows."""
    folder = tmp_path_factory.mktemp("sources")
    sealed = {name: paired_dataset(folder / name, salt=name) for name in ("a", "b", "c", "d")}
    stages: dict[str, dict[str, Any]] = {}
    for stage, config, columns in (
        ("dpo", "pairs", PAIR_COLUMNS),
        ("prm", "solutions", SOLUTION_COLUMNS),
    ):
        rows = {
            name: pl.read_parquet(root / config / "*.parquet").select(columns)
            for name, root in sealed.items()
        }
        stages[stage] = {
            "sealed": sealed["a"],
            "jsonl": write_rows(folder / f"{config}.jsonl", rows["b"]),
            "parquet": write_rows(folder / f"{config}.parquet", rows["c"]),
            "url": f"file://{sealed['d']}",
        }
    completions = pl.DataFrame(
        {
            "prompt": [f"Problem: {i}\nSolution:\n" for i in range(6)],
            "completion": [f"It is {i}." for i in range(6)],
        }
    )
    stages["sft"] = {
        "jsonl": write_rows(folder / "sft.jsonl", completions[:4]),
        "parquet": write_rows(folder / "sft.parquet", completions[4:]),
    }
    return stages


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_rows_follow_each_other_in_the_order_given(sources: dict[str, dict[str, Any]]) -> None:
    for order in (("sealed", "jsonl", "parquet", "url"), ("url", "parquet", "sealed", "jsonl")):
        data = [sources["dpo"][name] for name in order]
        separate = [row for item in data for row in open_pairs([item], FULL_STEP).rows()]
        assert list(open_pairs(data, FULL_STEP).rows()) == separate
        assert [source.count_rows() for source in open_pairs(data, FULL_STEP).sources] == [12] * 4
        data = [sources["prm"][name] for name in order]
        labelled = list(read_solutions(data))
        separate_labels = [row for item in data for row in read_solutions([item])]
        assert [row.steps for row in labelled] == [row.steps for row in separate_labels]
        assert [row.labels for row in labelled] == [row.labels for row in separate_labels]
        assert len(labelled) == 4 * 12
    data = list(sources["sft"].values())
    assert [row["completion"] for _, row in open_data(data, SFT_ROWS).rows()] == [
        f"It is {i}." for i in range(6)
    ]


def read_solutions(data: list[Any], **options: Any) -> Any:
    config = PrmConfig(data=data, out=Path("out"), **options)
    return read_labelled_rows(open_solutions(config.data), config, Counter())


def test_the_solutions_of_a_problem_stay_together(
    sources: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """A file without ids names a problem by its prompt, and a dataset by its id."""
    sealed = sources["prm"]["sealed"]
    rows = pl.read_parquet(sealed / "solutions/*.parquet").select(SOLUTION_COLUMNS[1:])
    file = write_rows(tmp_path / "rows.jsonl", rows)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    config = PrmConfig(data=[sealed, file], out=Path("out"))
    prepared = prepare_rows(read_solutions([sealed, file]), tokenizer, 512, config)
    rows_of_both = [*prepared.train, *prepared.held_out]
    assert len(rows_of_both) == 2 * len(rows)
    assert len({row.problem for row in rows_of_both}) == 3 == prepared.counts["problems"]


@pytest.mark.parametrize("stage", ["sft", "prm", "dpo"])
def test_several_files_train_the_model_of_one_file(
    stage: str, sources: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    parts = [sources[stage]["jsonl"], sources[stage]["parquet"]]
    rows = [row for file in parts for row in _plain_rows(file)]
    together = write_rows(tmp_path / "together.jsonl", pl.DataFrame(rows))
    for name, data in (("one", [together]), ("several", parts)):
        _train(stage, data, tmp_path / name)
    trained_together, trained_in_parts = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "several")
    )
    assert trained_together == trained_in_parts


def _plain_rows(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        return pl.read_parquet(file).to_dicts()
    return [json.loads(line) for line in file.read_text().splitlines()]


def _train(stage: str, data: list[Any], out: Path, **options: Any) -> None:
    shared: dict[str, Any] = {"data": data, "out": out, "model": "tiny", "max_steps": 2, "lr": 1e-3}
    shared |= options
    if stage == "sft":
        train_sft(SftConfig(**shared))
    elif stage == "prm":
        train_prm(PrmConfig(**shared, grad_accum=1, held_out=0))
    else:
        train_dpo(DpoConfig(**shared, batch_size=2))


@pytest.mark.parametrize("stage", ["sft", "prm", "dpo"])
def test_the_card_names_each_source_with_its_rows(
    stage: str, sources: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    data = list(sources[stage].values())
    words = [stage, *map(str, data), "--model", "tiny", "--max-steps", "1", "--lr", "1e-3"]
    words += ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out/README.md").read_text()
    table = r"\| training data \| `(.*?)` \|\n\|---\|---\|\n\| rows read \| (\d+)"
    tables = re.findall(table, card)
    names = [Path(str(item)).name for item in data]
    assert [name.rpartition("/")[2] for name, _ in tables] == names
    assert [int(count) for _, count in tables] == ([4, 2] if stage == "sft" else [12] * 4)
    assert card.count("wrote the solutions.") == (0 if stage == "sft" else 2)
    identity = json.loads((tmp_path / "out" / f"{stage}.json").read_text())["data"]
    assert len(identity.split(", ")) == len(data)
    # The order of the sources is part of the run.
    with pytest.raises(RunMismatchError, match="data"):
        _train(stage, data[::-1], tmp_path / "out", max_steps=1, resume=True)


def test_the_start_model_is_that_of_all_datasets(
    sources: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    tiny = resolve_weights("tiny").ref
    roots = []
    for name, model in (("a", tiny), ("b", tiny), ("other", ModelRef("other", "0"))):
        small_build(tmp_path / name, sampling=sample_settings().model_copy(update={"model": model}))
        roots.append(tmp_path / name)

    def start_model(*data: Path) -> str | None:
        config = PrmConfig(data=data, out=Path("out"))
        return with_start_model(config, open_solutions(config.data)).model

    assert start_model(*roots[:2]) == "tiny"
    with pytest.raises(InputError, match="several models, such as tiny and other"):
        start_model(*roots)
    with pytest.raises(InputError, match=r"solutions\.jsonl does not name the model"):
        start_model(roots[0], sources["prm"]["jsonl"])


def test_no_data_is_refused() -> None:
    with pytest.raises(InputError, match="at least one dataset or file"):
        SftConfig(data=[], out=Path("out"), model="tiny")
