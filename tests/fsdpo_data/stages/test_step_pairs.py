"""Step-DPO pairs: an incorrect step, a correct alternative, and the solutions without a pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from fakes import TextSampler, sample_all
from helpers import (
    continuation_settings,
    pair_statistics_of,
    problem_set,
    sample_settings,
    seal_json,
    small_build,
    stage_counts,
    stage_entry,
    stage_options,
)
from pair_files import Rewards, rewrite

from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError, SchemaError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.export import export
from fsdpo_data.models.prompts import get_template
from fsdpo_data.pairs.first_error import StepPairSettings, find_first_errors
from fsdpo_data.stages.continuations import ContinuationSampler, continuation_sampling
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.stages.step_pairs import StepPairStage

RIGHT = "Step 1: 20 + 22 = 42.\nStep 2: The answer is: 42"
LATE = "Step 1: 20 + 22 = 42.\nStep 2: So it is 43. The answer is: 43"
EARLY = "Step 1: 20 + 22 = 43.\nStep 2: So it is 43. The answer is: 43"
CUT = "Step 1: 20 + 22 = 44.\nStep 2: So it"
UNSEEN = "Step 1: 20 + 22 = 45.\nStep 2: The answer is: 45"
REWARDS: dict[str, Sequence[float] | None] = {
    RIGHT: [0.9, 0.9],
    LATE: [0.9, 0.1],
    EARLY: [0.2, 0.3],
    CUT: [0.1, 0.1],
    UNSEEN: [0.9, 0.8],
}
NEW = "Step 1: Add: 42.\nStep 2: The answer is: 42"


class TableSampler(TextSampler):
    """A sampler that looks up completions by the longest matching end of the prompt."""

    model = ModelRef("table", "0")

    def __init__(self, texts: dict[str, Sequence[Completion]]) -> None:
        self.texts = texts

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        return [list(self._completions(prompt))[: spec.n] for prompt in prompts]

    def _completions(self, prompt: str) -> Sequence[Completion]:
        return next(
            self.texts[end] for end in sorted(self.texts, key=len)[::-1] if prompt.endswith(end)
        )


def finished_completion(text: str) -> Completion:
    return Completion(text, "stop", 7, 0.5)


def truncated_completion(text: str) -> Completion:
    return Completion(text, "length", 7, 0.5)


@pytest.fixture
def make_scored_dataset(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that builds a scored dataset with the five solutions above."""

    def make(problems: int = 1) -> Path:
        source = problem_set(problems)
        completions = [
            truncated_completion(text) if text is CUT else finished_completion(text)
            for text in REWARDS
        ]
        ends = {
            get_template("problem").render(problem.question): completions
            for problem in source.problems
        }
        small_build(
            tmp_path / "built",
            source,
            sampling=sample_settings(n=len(completions)),
            make_sampler=lambda: TableSampler(ends),
        )
        derive_dataset(
            tmp_path / "built", tmp_path / "scored", [Rewards(REWARDS)], progress=LineProgress()
        )
        return tmp_path / "scored"

    return make


#: Completions by the end of the prompt: of the question alone, and of the correct first step.
TEXTS = {
    "": [
        truncated_completion(NEW),
        finished_completion(EARLY),
        finished_completion("Step 1: Add: 41.\nStep 2: The answer is: 41"),
        finished_completion(NEW),
    ],
    "= 42.\n": [
        finished_completion("Step 2: So it is 43. The answer is: 43"),
        finished_completion("Step 2: It is 42. The answer is: 42"),
        finished_completion("Step 2: The answer is: 42"),
        finished_completion("Step 2: The answer is: 42"),
    ],
}


def make_step_pairs(
    source: Path, out: str = "steps", *, sampler: Any = None, resume: bool = False, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    chosen = sampler or TableSampler(TEXTS)
    manifest = read_manifest(source)
    sampling = continuation_sampling(manifest, 4, seed=2)
    continuer = ContinuationSampler(
        continuation_settings(chosen.model, sampling), lambda: chosen, batch_size=1
    )
    settings = StepPairSettings(
        style="step-dpo", continuations=continuer.settings, **{"threshold": 0.5} | options
    )
    stage = StepPairStage(continuer, settings)
    target = source.parent / out
    result = derive_dataset(source, target, [stage], progress=LineProgress(), resume=resume)
    assert validate(target) == result
    return result.to_dict(), pl.read_parquet(target / "pairs/*.parquet").to_dicts()


def test_the_first_error_is_paired_with_a_step_that_leads_to_a_correct_answer(
    make_scored_dataset: Callable[..., Path],
) -> None:
    manifest, rows = make_step_pairs(make_scored_dataset())
    assert [(row["chosen"], row["rejected"]) for row in rows] == [
        ("Step 1: 20 + 22 = 42.\nStep 2: It is 42. The answer is: 42", LATE),
        (NEW, EARLY),
    ]
    late, early = rows
    assert late["chosen_steps"][:1] == late["rejected_steps"][:1] == ["Step 1: 20 + 22 = 42.\n"]
    assert early["chosen_steps"][0] == "Step 1: Add: 42.\n"
    assert late["chosen_rewards"] is None
    assert late["rejected_rewards"] == pytest.approx([0.9, 0.1])
    assert stage_options(manifest, "pair")["threshold"] == 0.5


def test_incorrect_solutions_are_counted_by_result(
    make_scored_dataset: Callable[..., Path],
) -> None:
    source = make_scored_dataset()
    manifest, _ = make_step_pairs(source)
    statistics = pair_statistics_of(source.parent / "steps")
    assert statistics.pairs == 2
    assert statistics.solutions == {
        "incorrect": 4,
        "truncated": 1,
        "unscored": 0,
        "no_error": 1,
        "repeated": 0,
        "over_limit": 0,
        "not_corrected": 0,
    }
    assert statistics.first_error == 1.5
    assert stage_counts(manifest, "pair") == {"continued_prefixes": 2}
    assert stage_entry(manifest, "pair")["cost"]["tokens"] == 56
    source_cost = json.loads((source / "manifest.json").read_text())["cost"]
    assert manifest["cost"]["tokens"] == source_cost["tokens"] + 56


def test_the_threshold_defines_an_error(make_scored_dataset: Callable[..., Path]) -> None:
    source = make_scored_dataset()
    _, rows = make_step_pairs(source, threshold=0.15)
    assert [row["rejected"] for row in rows] == [LATE]
    assert pair_statistics_of(source.parent / "steps").solutions["no_error"] == 2
    with pytest.raises(InputError, match=r"no step of 4 incorrect .* below `threshold=0.01`"):
        make_step_pairs(source, "none", threshold=0.01)


def test_steps_of_an_earlier_version_of_a_segmenter_are_refused(
    make_scored_dataset: Callable[..., Path],
) -> None:
    source = make_scored_dataset()
    manifest = json.loads((source / "manifest.json").read_text())
    stage_options(manifest, "sample")["segmenter"] = "both@1"
    (source / "manifest.json").write_text(seal_json(manifest))
    with pytest.raises(SchemaError, match="both@1, which this release does not have"):
        make_step_pairs(source)


def test_a_reward_that_equals_the_threshold_is_no_error(
    make_scored_dataset: Callable[..., Path],
) -> None:
    """A reward of 0.9 is stored in 32 bits, as 0.899999976."""
    [file] = (make_scored_dataset() / "solutions").iterdir()
    continuations = continuation_settings(TableSampler(TEXTS).model, SamplingSpec(n=4))
    settings = StepPairSettings(style="step-dpo", threshold=0.9, continuations=continuations)
    errors = find_first_errors(file, settings)
    steps = {error.solution.text: error.step for error in errors}
    assert steps == {LATE: 1, UNSEEN: 1, EARLY: 0}


def test_the_lowest_rewards_come_first(make_scored_dataset: Callable[..., Path]) -> None:
    source = make_scored_dataset()
    _, rows = make_step_pairs(source, max_pairs=1)
    assert [row["rejected"] for row in rows] == [LATE]
    assert pair_statistics_of(source.parent / "steps").solutions["over_limit"] == 1


def test_an_error_without_a_correct_continuation_is_counted(
    make_scored_dataset: Callable[..., Path],
) -> None:
    source = make_scored_dataset()
    wrong = {**TEXTS, "": [finished_completion(EARLY)] * 4}
    _, rows = make_step_pairs(source, sampler=TableSampler(wrong))
    assert [row["rejected"] for row in rows] == [LATE]
    assert pair_statistics_of(source.parent / "steps").solutions["not_corrected"] == 1
    nothing = {end: [finished_completion("Step 2: The answer is: 7")] * 4 for end in TEXTS}
    with pytest.raises(InputError, match="none of 8 continuations of 2 prefixes is correct"):
        make_step_pairs(source, "none", sampler=TableSampler(nothing))


class DyingSampler(TextSampler):
    """A ``TableSampler`` that raises ``UnavailableError`` after a number of prompts."""

    model = TableSampler.model

    def __init__(self, calls: int) -> None:
        self.max_prompts = calls
        self.n_prompts = 0

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if self.n_prompts == self.max_prompts:
            raise UnavailableError("the engine died")
        self.n_prompts += len(prompts)
        return sample_all(TableSampler(TEXTS), prompts, spec)


def test_a_resumed_run_samples_only_the_missing_continuations(
    make_scored_dataset: Callable[..., Path],
) -> None:
    source = make_scored_dataset(2)
    expected_manifest, _ = make_step_pairs(source)
    with pytest.raises(UnavailableError):
        make_step_pairs(source, "part", sampler=DyingSampler(3))
    again = DyingSampler(9)
    manifest, _ = make_step_pairs(source, "part", sampler=again, resume=True)
    assert again.n_prompts == 1 and manifest == expected_manifest


def test_broken_step_pairs_are_found(make_scored_dataset: Callable[..., Path]) -> None:
    source = make_scored_dataset()
    _, rows = make_step_pairs(source)
    root = source.parent / "steps"
    late = rows[0]
    steps = ["Step 1: So.\n", late["chosen_steps"][1]]
    breaks: list[tuple[dict[str, Any], str]] = [
        ({"rejected_id": "0" * 20}, "have a rejected solution that is missing"),
        ({"chosen": "other"}, "have a chosen text that differs from its steps"),
        ({"chosen": "".join(steps), "chosen_steps": steps}, "do not differ first at the first"),
        ({name: rows[1][name] for name in rows[1]}, "occur more than once"),
    ]
    for fields, message in breaks:
        rewrite(root, **{**late, **fields})
        with pytest.raises(SchemaError, match=message):
            validate(root)
    rewrite(root, **late)
    validate(root)


def test_step_pairs_are_exported_or_counted_as_left_out(
    make_scored_dataset: Callable[..., Path],
) -> None:
    source = make_scored_dataset()
    make_step_pairs(source)
    done = export(source.parent / "steps", "step-dpo-10k", source.parent / "lai")
    first = json.loads(done.file.read_text().splitlines()[0])
    assert first["initial_reason_steps"] == "Step 1: 20 + 22 = 42.\nStep 2:"
    assert first["chosen"] == " It is 42. The answer is: 42"
    assert first["rejected"] == " So it is 43. The answer is: 43"
    done = export(source.parent / "steps", "openrlhf", source.parent / "openrlhf")
    assert done.rows == 0 and sum(done.left_out.values()) == 2


def test_the_card_describes_the_step_pairs(make_scored_dataset: Callable[..., Path]) -> None:
    from fsdpo_data.dataset.card import dataset_card

    source = make_scored_dataset()
    make_step_pairs(source)
    root = source.parent / "steps"
    manifest = validate(root)
    card = dataset_card(root, manifest, name="org/name")
    assert "4 continuations by `table`" in card


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "threshold = 0.0: expected more than 0 and at most 1"),
        ({"threshold": 1.5}, "threshold = 1.5: expected more than 0 and at most 1"),
        ({"max_pairs": 0}, "max_pairs = 0: expected at least 1"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_options(PairOptions, {"data": "d", "out": "o", "style": "step-dpo", **options})


def test_the_command_line_with_the_embedded_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from command_line import run

    from fsdpo_train.config import DpoConfig
    from fsdpo_train.preference.train import train_dpo

    base, marked, steps = (tmp_path / name for name in ("base", "marked", "steps"))
    engine = ["--engine", "transformers", "--device", "cpu"]
    few = ["--limit", "4", "--samples", "4", "--max-tokens", "128"]
    assert run(capsys, "build", *few, *engine, "--out", str(base))[0] == 0
    derive_dataset(base, marked, [LowSecondRewards()], progress=LineProgress())
    command = ["pair", str(marked), "--out", str(steps), "--style", "step-dpo"]
    code, out, err = run(capsys, *command, *engine)
    assert code == 0, err
    assert "8 continuations of" in " ".join(out.split())
    code, _, err = run(capsys, *command, "--top", "2")
    assert code == 1 and "--top 2: the style step-dpo does not read this option" in err
    code, _, err = run(capsys, *command[:4], "--continuations", "4")
    assert code == 1 and "--continuations 4: the style full does not read this option" in err
    report = train_dpo(DpoConfig(data=steps, out=tmp_path / "policy", loss="step-dpo", lr=1e-4))
    assert report.counts["pairs"] == read_manifest(steps).rows.pairs
    with pytest.raises(InputError, match=r"chosen_rewards are missing\. The loss full-step needs"):
        train_dpo(DpoConfig(data=steps, out=tmp_path / "other"))


class LowSecondRewards(Rewards):
    """A stage that gives every second step of a solution a low reward."""

    def __init__(self) -> None:
        super().__init__({})

    def _add_rewards(self, table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        for row in rows:
            row["step_rewards"] = [
                0.9 if k % 2 == 0 else 0.1 for k in range(len(row["completions"]))
            ]
        return pa.Table.from_pylist(rows, schema=arrow_schema("solutions"))
