"""Datasets whose solutions a beam search finds: rewards, cost, ids, resumption and options."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from fakes import BatchScorer, Judge, Writer, sample_all, score_all
from helpers import (
    REPLAY,
    problem_set,
    read_sample_settings,
    reward_model,
    reward_statistics_of,
    sample_settings,
)
from random_model import save_random_prm

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError, ItemError, SchemaError
from fsdpo_data.core.failures import FailurePolicy, read_failures
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import read_table, replace_column, write_parquet
from fsdpo_data.dataset.stage_records import SearchSettings
from fsdpo_data.dataset.validate import check_invariants, validate
from fsdpo_data.engines.beam_search import BeamSampler, BeamSpec
from fsdpo_data.engines.load import ResolvedPolicy
from fsdpo_data.engines.registry import SAMPLERS, SamplerEntry
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import ResolvedModel, resolve
from fsdpo_data.models.trained_template import write_trained_template
from fsdpo_data.stages import sample_prompts
from fsdpo_data.stages.pipeline import SolutionSearch, make_build_job
from fsdpo_data.stages.sample import build
from fsdpo_data.stages.score import ScoreRecord

PROBLEMS = problem_set(7, answer="7")
BEAM = BeamSpec(b1=3, b2=2, max_steps=6)


class BatchJudge(Judge):
    """A judge whose rewards depend on the size of the batch, like the last bits of a model's."""

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        all_rewards = super().compute_rewards(items)
        return [
            None if rewards is None else [reward + len(items) / 1e6 for reward in rewards]
            for rewards in all_rewards
        ]


SCORING = reward_model(ModelRef("judge", "0"), lambda: BatchJudge(0), "judge").settings
OTHER_SCORING = reward_model(ModelRef("judge", "1"), lambda: BatchJudge(0), "judge").settings
SEARCH = SearchSettings(sampler="beam", beam=BEAM, reward_model=SCORING)


def search_build(
    out: Path,
    *,
    sampler: Sampler | None = None,
    judge: Judge | None = None,
    search: str = "beam",
    max_failed: str = "0",
) -> Manifest:
    policy = ResolvedPolicy(
        model=ResolvedModel(Writer.model, path="", template=get_template("problem")),
        author=Writer.model,
        engine=REPLAY,
        unknown_fields=(),
        batch_size=3,
        make_sampler=lambda: sampler or Writer(0),
    )
    scoring = reward_model(ModelRef("judge", "0"), lambda: judge or BatchJudge(0), "judge")
    job = make_build_job(
        policy,
        PROBLEMS,
        sampling=SamplingSpec(n=2),
        segmenter="newline@1",
        search=SolutionSearch(search, scoring, BEAM),
        workers=1,
        failure_policy=FailurePolicy(max_failed),
    )
    return build(job, out, resume=True, progress=NO_PROGRESS)


def solutions(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "solutions/*.parquet")


def test_a_dataset_has_the_rewards_and_the_cost_of_its_search(tmp_path: Path) -> None:
    judge = Judge(0)
    manifest = search_build(tmp_path, judge=judge)
    assert validate(tmp_path) == manifest
    rows = solutions(tmp_path)
    assert len(rows) == 2 * len(PROBLEMS.problems)
    for row in rows.iter_rows(named=True):
        assert row["step_rewards"] == judge.one(row["prompt"], row["completions"])
    first = rows.filter(pl.col("sample_index") == 0)
    tokens = pl.col("n_tokens") + pl.col("search_cost").struct.field("discarded_tokens")
    # Both solutions of a problem state the tokens of the same search.
    assert rows.group_by("problem_id").agg(tokens.n_unique())["n_tokens"].to_list() == [1] * 7
    assert first["search_cost"].struct.field("discarded_tokens").min() > 0  # type: ignore[operator]
    assert manifest.cost.tokens == first.select(tokens.sum()).item()
    assert (
        first["search_cost"].struct.field("prm_calls").sum()
        == manifest.cost.prm_calls
        == judge.calls
    )
    rewards = reward_statistics_of(tmp_path)
    assert (rewards.scored, rewards.unscored) == (len(rows), 0)


def test_the_best_solution_comes_first(tmp_path: Path) -> None:
    search_build(tmp_path)
    for group in solutions(tmp_path).partition_by("problem_id"):
        last_rewards = [rewards[-1] for rewards in group.sort("sample_index")["step_rewards"]]
        assert last_rewards == sorted(last_rewards, reverse=True)


def test_ids_name_the_search_its_reward_model_and_its_segmenter(tmp_path: Path) -> None:
    specs = [
        sample_settings(n=2).model_copy(update={"segmenter": segmenter, "search": search})
        for search, segmenter in (
            (None, "newline@1"),
            (SEARCH, "newline@1"),
            (SEARCH, "blank-line@1"),
            (SEARCH.model_copy(update={"beam": BEAM.replace(b1=4)}), "newline@1"),
            (SEARCH.model_copy(update={"reward_model": OTHER_SCORING}), "newline@1"),
        )
    ]
    assert len({spec.sampling_id for spec in specs}) == len(specs)
    # The segmenter of independent samples is not part of their ids.
    other_segmenter = specs[0].model_copy(update={"segmenter": "blank-line@1"})
    assert other_segmenter.sampling_id == specs[0].sampling_id
    fewer_samples = specs[1].model_copy(update={"sampling": SamplingSpec(n=1)})
    assert fewer_samples.sampling_id == specs[1].sampling_id


def test_the_cost_of_a_search_belongs_to_a_search(tmp_path: Path) -> None:
    manifest = search_build(tmp_path)
    [file] = tmp_path.glob("solutions/*.parquet")
    table = read_table("solutions", file)
    write_parquet(replace_column(table, "search_cost", [None] * len(table)), file)
    with pytest.raises(SchemaError, match="14 solutions have the cost of a search without"):
        check_invariants(tmp_path, manifest)


class Dies(BatchScorer):
    """A scorer that stops after some calls."""

    model = Judge.model

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._judge = BatchJudge(0)

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self._calls -= 1
        if self._calls < 0:
            raise KeyboardInterrupt
        return score_all(self._judge, items)


def test_all_prompts_of_an_interrupted_batch_are_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_prompts, "SAVE_INTERVAL_SECONDS", 0.0)
    search_build(tmp_path / "clean")
    expected = solutions(tmp_path / "clean")
    partial_batches = 0
    for calls in range(1, 40):
        out = tmp_path / str(calls)
        try:
            search_build(out, judge=Dies(calls))  # type: ignore[arg-type]
        except KeyboardInterrupt:
            n_saved = len((out / "completions.jsonl").read_bytes().splitlines())
            partial_batches += n_saved % 3 > 0
            search_build(out)
            assert solutions(out).equals(expected)
        else:
            break
    # Some interruptions leave a part of a batch, whose rewards depend on the rest of it.
    assert partial_batches > 3


def test_batches_of_missing_problems_alone_would_change_the_rewards(tmp_path: Path) -> None:
    """The judge of these tests sees the batches."""
    prompts = [f"p{index}\n" for index in range(3)]
    searcher = BeamSampler(Writer(0), BatchJudge(0), "newline@1", BEAM)
    [[lone_solution]] = sample_all(searcher, prompts[2:], SamplingSpec(n=1))
    batch_solution = sample_all(searcher, prompts, SamplingSpec(n=1))[2][0]
    assert lone_solution.text == batch_solution.text
    assert lone_solution.step_rewards != batch_solution.step_rewards


class FussyWriter(Writer):
    """A writer that refuses prompts with some texts."""

    refused: Sequence[str] = ()

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if any(text in prompt for text in self.refused for prompt in prompts):
            raise ItemError("the prompt is too long")
        return super().complete_texts(prompts, spec)


class FullWriter(Writer):
    """A writer for which one prompt fills the context."""

    def one(self, prompt: str, index: int, spec: SamplingSpec) -> Completion:
        if "the 4th time" in prompt:
            return Completion("", "length", 0)
        return super().one(prompt, index, spec)


@pytest.mark.parametrize("writer_class", [FussyWriter, FullWriter])
def test_a_refused_problem_fails_alone_and_is_retried(
    tmp_path: Path, writer_class: type[Writer]
) -> None:
    writer = writer_class(0)
    if isinstance(writer, FussyWriter):
        writer.refused = ("the 4th time",)
    with pytest.raises(ItemError):
        search_build(tmp_path / "strict", sampler=writer)
    judge = Judge(0)
    clean = search_build(tmp_path / "clean", judge=judge)
    manifest = search_build(tmp_path / "run", sampler=writer, judge=judge, max_failed="50%")
    assert manifest.failed == {"sample": 1}
    failed_id = PROBLEMS.problems[4].id
    assert [record["id"] for record in read_failures(tmp_path / "run")] == [failed_id]
    expected = solutions(tmp_path / "clean")
    other_solutions = expected.filter(pl.col("problem_id") != failed_id)
    assert solutions(tmp_path / "run").equals(other_solutions)
    retried = search_build(tmp_path / "run", judge=judge, max_failed="50%")
    assert retried.digest == clean.digest and retried.failed == {}


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("models") / "prm"
    save_random_prm(folder, Path(resolve("tiny").path))
    yield folder


def search_line(prm: Path, *options: str) -> list[str]:
    line = ["build", "--model", "tiny", "--limit", "4", "--sampler", "beam", "--prm", str(prm)]
    beam = ["--b1", "3", "--b2", "2", "--samples", "2", "--max-steps", "3", "--batch-size", "4"]
    return [*line, *beam, *options]


@pytest.mark.parametrize("trained", ["problem@1", "alpaca@1"])
def test_a_search_by_a_reward_model_of_another_template_is_a_warning(
    prm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: str
) -> None:
    other_prm = shutil.copytree(prm, tmp_path / "prm")
    write_trained_template(other_prm, get_template(trained).ref)
    code, _, err = run(capsys, *search_line(other_prm), "--out", str(tmp_path / "run"))
    assert code == 0, err
    message = "prompts of the template alpaca@1, and the solutions have prompts of problem@1"
    assert err.count(message) == (trained == "alpaca@1")


def test_a_search_on_the_command_line_and_in_python(
    prm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *search_line(prm), "--out", str(tmp_path / "command"))
    assert code == 0, err
    assert "beam, b1 3, b2 2, ranked by prm" in " ".join(out.split())
    dataset = fd.build(
        model="tiny",
        limit=4,
        sampler="beam",
        prm=str(prm),
        beam=fd.BeamSpec(b1=3, b2=2, max_steps=3),
        sampling=fd.SamplingSpec(n=2),
        out=tmp_path / "python",
    )
    assert dataset.manifest.digest == validate(tmp_path / "command").digest
    search = read_sample_settings(dataset.manifest).search
    assert search is not None
    scoring = dataset.manifest.get("score", ScoreRecord).options
    assert search.reward_model == scoring
    assert (search.sampler, search.beam.b1, search.beam.b2) == ("beam", 3, 2)
    rewards = solutions(dataset.path)["step_rewards"]
    scored = dataset.score(prm=str(prm), out=tmp_path / "scored")
    for reward, again in zip(rewards, solutions(scored.path)["step_rewards"], strict=True):
        assert again.to_list() == pytest.approx(reward.to_list(), abs=1e-6)
    assert read_sample_settings(scored.manifest).search == search
    dataset.pair(out=tmp_path / "pairs", require_outcome=False, top=1)
    card = (tmp_path / "python/README.md").read_text()
    assert "| search | step-wise beam search: b1 3, b2 2, at most 3 generations" in card
    assert "--sampler beam \\\n  --prm prm \\\n  --b1 3" in card


def test_shards_of_a_search_are_merged(
    prm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = search_line(prm, "--batch-size", "2")
    assert run(capsys, *line, "--out", str(tmp_path / "all"))[0] == 0
    shards = [str(tmp_path / f"shard{index}") for index in (1, 2)]
    for index, shard in enumerate(shards, start=1):
        code, _, err = run(capsys, *line, "--shard", f"{index}/2", "--out", shard)
        assert code == 0, err
    code, _, err = run(capsys, "merge", *shards, "--out", str(tmp_path / "merged"))
    assert code == 0, err
    merged = solutions(tmp_path / "merged").drop("step_rewards")
    # Shards have other batches, so only the last bits of the rewards may differ.
    assert merged.equals(solutions(tmp_path / "all").drop("step_rewards"))


def test_a_plugin_registers_another_beam_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SAMPLERS, "data", dict(SAMPLERS.data))
    arguments: list[Any] = []

    def load(*models: Any) -> BeamSampler:
        arguments.extend(models)
        return BeamSampler(*models)

    SAMPLERS.register(SamplerEntry(name="narrow", loader=load, is_beam_search=True))
    search = read_sample_settings(search_build(tmp_path, search="narrow")).search
    assert search is not None and search.sampler == "narrow"
    assert [type(item) for item in arguments[:2]] == [Writer, BatchJudge]
    assert arguments[2:] == ["newline@1", BEAM]
    _, _, err = run(capsys, "build", "--sampler", "none")
    assert "expected one of plain, beam, narrow" in " ".join(err.split())
    _, _, err = run(capsys, "build", "--sampler", "narrow", "--prm", "P", "--b2", "3")
    assert "a beam search with --b1 5 and --b2 3 returns at most 3" in " ".join(err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--b1 3", "--b1 3: the sampler plain does not read this option"),
        ("--sampler beam --samples 1", "--sampler beam: the search ranks partial solutions"),
        ("--sampler beam --prm P", "returns at most 1 per problem. Use --samples 1"),
        ("--sampler beam --prm P --b2 9 --samples 6", "--b1 5 and --b2 9 returns at most 5"),
        ("--sampler beam --prm P --samples 1 --top 2", "--top 2: a search forms no pairs"),
        ("--sampler beam --prm P --samples 1 --temperature 0", "--temperature 0.0: all next steps"),
        (
            "--sampler beam --prm P --samples 1 --engine replay --replay F",
            "--engine replay: the engine cannot continue a text",
        ),
        (
            "--sampler beam --prm P --samples 1 --engine openai --base-url http://h/v1 --api chat",
            "servers need --api completions",
        ),
        ("--sampler beem", "expected one of plain, beam"),
        ("--sampler transformers", "expected one of plain, beam"),
        ("--engine beam", "--engine beam: expected one of auto, ray"),
    ],
)
def test_options_that_contradict_a_search_are_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "build", *options.split())
    assert code == 1 and message in " ".join(err.split())


def test_errors_in_python_name_the_fields() -> None:
    with pytest.raises(InputError, match=r"Write `beam=BeamSpec\(b1=3\)`"):
        fd.build(sampler="beam", b1=3)  # type: ignore[call-arg]
