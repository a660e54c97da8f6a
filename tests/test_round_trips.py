"""Random problems and solutions keep their texts, ids, labels and rewards through every stage.

They are sampled from a recording, graded, scored, paired, encoded for training, exported in every
format, imported again, and pushed to and pulled from a Hub.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("transformers")

import trained_tokenizers
from fakes import Judge
from helpers import derive, reward_model
from hub_server import TOKEN, client_env, run_client, running_hub
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from made_runs import written
from random_texts import PIECES, long_lines, texts
from recorded_imports import import_labels
from trained_tokenizers import restore_text

from fsdpo_data.answers.response import grade
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.api import build, open_dataset
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, encode_prompt
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.exchange.export import export
from fsdpo_data.models.prompts import get_template
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.score import ScoreStage
from fsdpo_train.config import PrmConfig
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.data import tokenize_groups
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs
from fsdpo_train.prm.data import open_solutions, prepare_rows, read_labelled_rows
from fsdpo_train.sft.data import encode_rows
from fsdpo_train.trainer.row_formats import SFT_ROWS
from fsdpo_train.trainer.row_source import open_data

EXAMPLES = [2, pytest.param(60, marks=pytest.mark.proof)]
N_SAMPLES = 4
TOKENIZERS = ("Qwen", "bytes with a space", "metaspace, always", "unigram")
MAX_TOKENS = 1_000_000
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A recorded solution."""

    text: str
    finish_reason: str
    n_tokens: int | None


def samples() -> st.SearchStrategy[Sample]:
    thinking = st.one_of(st.just(""), texts(4).map("<think>\n{}\n</think>\n\n".format))
    answer = st.sampled_from(["\nThe answer is: 42", "\nThe answer is: 41", " \\boxed{42}\n", ""])
    parts = st.tuples(thinking, st.one_of(texts(16), texts(4), long_lines()), answer)
    blank = st.sampled_from(["", " \n", "\u2028"])
    return st.builds(
        Sample,
        text=st.one_of(parts.map("".join), parts.map("".join), parts.map("".join), blank),
        finish_reason=st.sampled_from(["stop", "stop", "stop", "length"]),
        n_tokens=st.one_of(st.none(), st.integers(0, 9_999)),
    )


@dataclass(frozen=True)
class Question:
    """A problem with its recorded solutions."""

    text: str
    gold: str
    samples: Sequence[Sample]

    @property
    def problem_id(self) -> str:
        return Problem(self.text, self.gold, "", "").id


RIGHT_AND_WRONG = [
    Sample("So 42.\n\nThe answer is: 42", "stop", 9),
    Sample("So \\boxed{41}", "stop", 9),
]


def questions() -> st.SearchStrategy[list[Question]]:
    four = st.lists(samples(), min_size=N_SAMPLES - 2, max_size=N_SAMPLES - 2)
    question = st.builds(
        Question,
        text=texts(10),
        gold=st.just("42"),
        samples=four.map(lambda first: [*first, *RIGHT_AND_WRONG]),
    )
    return st.lists(
        question, min_size=3, max_size=4, unique_by=lambda question: question.text.strip()
    )


def run(check: Callable[[list[Question]], None], max_examples: int) -> None:
    phases = (Phase.explicit, Phase.generate)
    checks = list(HealthCheck)
    options = settings(max_examples=max_examples, phases=phases, suppress_health_check=checks)
    options(given(questions())(check))()


def record(folder: Path, problems: Sequence[Question], template: str) -> None:
    """Write the problems, and the recorded solutions of their prompts."""
    rows = [{"question": question.text, "answer": question.gold} for question in problems]
    written(folder / "problems.jsonl", rows)
    lines = [
        {
            "prompt": get_template(template).render(question.text),
            "completions": [vars(sample) for sample in question.samples],
        }
        for question in problems
    ]
    written(folder / "recorded.jsonl", lines)


def sample_dataset(folder: Path, problems: Sequence[Question], template: str) -> Path:
    record(folder, problems, template)
    return build(
        problems=[str(folder / "problems.jsonl")],
        template=template,
        sampling=SamplingSpec(n=N_SAMPLES),
        engine=SamplerOptions(engine="replay", replay=folder / "recorded.jsonl"),
        out=folder / "sampled",
        workers=1,
    ).path


def rows_of(dataset: Path, config: str) -> list[Row]:
    return pl.read_parquet(dataset / config / "*.parquet").to_dicts()


def check_samples(dataset: Path, problems: Sequence[Question], template: str) -> None:
    rows = rows_of(dataset, "problems")
    assert [row["question"] for row in rows] == [question.text for question in problems]
    assert [row["problem_id"] for row in rows] == [question.problem_id for question in problems]
    solutions = rows_of(dataset, "solutions")
    expected = [(question, sample) for question in problems for sample in question.samples]
    for row, (question, sample) in zip(solutions, expected, strict=True):
        assert row["problem_id"] == question.problem_id
        assert row["prompt"] == get_template(template).render(question.text)
        # A blank solution has no steps, and so no text.
        assert "".join(row["completions"]) == (sample.text if sample.text.strip() else "")
        assert all(step.strip() for step in row["completions"])
        assert (row["finish_reason"], row["n_tokens"]) == (sample.finish_reason, sample.n_tokens)
        check_outcome(row, question, sample)


def check_outcome(row: Row, question: Question, sample: Sample) -> None:
    labels = None if row["labels"] is None else set(row["labels"])
    assert labels in (None, set(), {row["outcome"] == "correct"})
    # The other solutions of a run tell whether one that was cut has only thinking.
    if row["thinking_closed"] == find_thinking(row["prompt"], sample.text).closed:
        verdict = grade(
            question.gold, sample.text, prompt=row["prompt"], finish_reason=sample.finish_reason
        )
        assert row["outcome"] == verdict.status


class Scorer(Judge):
    """A scorer that keeps its inputs."""

    def __init__(self) -> None:
        super().__init__(0, levels=11)
        self.inputs: list[ScorerInput] = []

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self.inputs += items
        return super().compute_rewards(items)


def check_scores(dataset: Path, scorer: Scorer) -> None:
    """Check what the reward model saw, and that its rewards are stored."""
    questions_by_id = {row["problem_id"]: row["question"] for row in rows_of(dataset, "problems")}
    seen = {
        (item.prompt, tuple(item.steps)): (item.question, scorer.one(item.prompt, item.steps))
        for item in scorer.inputs
    }
    for row in rows_of(dataset, "solutions"):
        if not row["completions"]:
            assert not row["step_rewards"]
            continue
        question, rewards = seen[row["prompt"], tuple(row["completions"])]
        assert question == questions_by_id[row["problem_id"]]
        assert row["step_rewards"] == [ctypes.c_float(reward).value for reward in rewards or []]


def check_pairs(dataset: Path) -> None:
    solutions = {row["solution_id"]: row for row in rows_of(dataset, "solutions")}
    pairs = rows_of(dataset, "pairs")
    assert pairs
    for pair in pairs:
        for side in ("chosen", "rejected"):
            solution = solutions[pair[f"{side}_id"]]
            assert solution["problem_id"] == pair["problem_id"]
            assert solution["prompt"] == pair["prompt"]
            assert pair[f"{side}_steps"] == solution["completions"]
            assert pair[side] == "".join(solution["completions"])
            assert pair[f"{side}_rewards"] == solution["step_rewards"]


def check_training(dataset: Path, tokenizer: Any, folder: Path) -> None:
    """Check that training reads the texts, labels and rewards of a dataset."""
    eos_ids = [tokenizer.eos_token_id]
    questions_by_id = {row["problem_id"]: row["question"] for row in rows_of(dataset, "problems")}
    pairs = rows_of(dataset, "pairs")
    prompt_questions = {row["prompt"]: questions_by_id[row["problem_id"]] for row in pairs}
    rows = export_rows(dataset, "trl-preference", folder / "trl-preference")
    file = written(folder / "pairs.jsonl", rows)
    for source, loss_name in ((dataset, "full-step"), (dataset, "dpo"), (file, "dpo")):
        loss = PREFERENCE_LOSSES.find(loss_name)
        data = open_pairs([source], loss)
        groups, counts = tokenize_groups(
            group_by_prompt(data.rows(), loss), tokenizer, MAX_TOKENS, eos_ids
        )
        assert not counts["long_pairs"]
        decoded = []
        for group in groups:
            # Rows of this format do not state their question.
            question = None if source == file else prompt_questions[group.prompt.text]
            prompt_ids = encode_prompt(tokenizer, Prompt(group.prompt.text, question))
            for solution in group.solutions:
                check_ids(tokenizer, solution.tokens, prompt_ids, solution.steps, ends=True)
            for chosen, rejected in group.pairs:
                sides = (group.solutions[chosen], group.solutions[rejected])
                decoded.append(tuple(side.text for side in sides))
                if loss.uses_rewards:
                    assert [list(side.rewards) for side in sides] in [
                        [row["chosen_rewards"], row["rejected_rewards"]] for row in pairs
                    ]
        assert set(decoded) == {(row["chosen"], row["rejected"]) for row in pairs}
    check_prm_training(dataset, tokenizer, folder, questions_by_id)
    check_sft(dataset, tokenizer, folder, questions_by_id)


def check_ids(
    tokenizer: Any,
    encoded: EncodedSolution,
    prompt_ids: list[int],
    steps: Sequence[str],
    *,
    ends: bool,
) -> None:
    """Check that ids are those of the prompt, and give the text of the steps."""
    ids = encoded.input_ids.tolist()
    assert ids[: encoded.prompt_length] == prompt_ids
    assert len(encoded.score_positions) == len(steps)
    completion_ids = ids[encoded.prompt_length :]
    text = "".join(steps)
    if ends:
        assert completion_ids.pop() == tokenizer.eos_token_id
        text = text.removesuffix(tokenizer.eos_token)
    assert CompletionDecoder(tokenizer)(completion_ids) == restore_text(tokenizer, text)


def check_prm_training(
    dataset: Path, tokenizer: Any, folder: Path, questions_by_id: dict[str, str]
) -> None:
    solutions = [
        row for row in rows_of(dataset, "solutions") if row["completions"] and row["labels"]
    ]
    rows = export_rows(dataset, "trl-stepwise", folder / "trl-stepwise")
    assert [(row["prompt"], row["completions"], row["labels"]) for row in rows] == [
        (row["prompt"], row["completions"], row["labels"]) for row in solutions
    ]
    file = written(folder / "stepwise.jsonl", rows)
    for source in (dataset, file):
        config = PrmConfig(data=[source], model="x", out=folder / "prm", held_out=0)
        data = open_solutions(config.data)
        labelled = read_labelled_rows(data, config, Counter())
        prm_data = prepare_rows(labelled, tokenizer, MAX_TOKENS, config)
        for row, solution in zip(prm_data.train, solutions, strict=True):
            # Rows of this format do not state their question.
            question = None if source == file else questions_by_id[solution["problem_id"]]
            prompt_ids = encode_prompt(tokenizer, Prompt(solution["prompt"], question))
            check_ids(tokenizer, row.solution, prompt_ids, solution["completions"], ends=False)
            assert list(row.labels) == [float(label) for label in solution["labels"]]
            assert row.label_positions == row.solution.score_positions


def check_sft(dataset: Path, tokenizer: Any, folder: Path, questions_by_id: dict[str, str]) -> None:
    expected = {
        (row["prompt"], "".join(row["completions"])): questions_by_id[row["problem_id"]]
        for row in rows_of(dataset, "solutions")
        if row["outcome"] == "correct"
        and row["finish_reason"] == "stop"
        and row["thinking_closed"] is not False
    }
    rows = export_rows(dataset, "trl-sft", folder / "trl-sft")
    assert [(row["prompt"], row["completion"]) for row in rows] == list(expected)
    data = open_data([written(folder / "sft.jsonl", rows)], SFT_ROWS)
    encoded = encode_rows(data, tokenizer, MAX_TOKENS, [tokenizer.eos_token_id])
    for row, ((prompt, completion), question) in zip(encoded.rows, expected.items(), strict=True):
        prompt_ids = encode_prompt(tokenizer, Prompt(prompt, question))
        check_ids(tokenizer, row.solution, prompt_ids, [completion], ends=True)


def export_rows(dataset: Path, name: str, out: Path) -> list[Row]:
    file = export(dataset, name, out).file
    text = file.read_text(encoding="utf-8")
    return (
        json.loads(text) if file.suffix == ".json" else list(map(json.loads, text.split("\n")[:-1]))
    )


def check_exports(dataset: Path, folder: Path) -> None:
    """Check that the formats of other tools have the texts, and that imports restore them."""
    problems = {row["problem_id"]: row for row in rows_of(dataset, "problems")}
    pairs = [
        row | {"question": problems[row["problem_id"]]["question"]}
        for row in rows_of(dataset, "pairs")
    ]
    sides = [(row["chosen"], row["rejected"]) for row in pairs]
    for name in ("trl-preference", "openrlhf"):
        rows = export_rows(dataset, name, folder / name)
        assert [row["prompt"] for row in rows] == [row["prompt"] for row in pairs]
        assert [(row["chosen"], row["rejected"]) for row in rows] == sides
    rows = export_rows(dataset, "llama-factory-alpaca", folder / "alpaca")
    assert [row["instruction"] for row in rows] == [row["question"] for row in pairs]
    assert [(row["chosen"], row["rejected"]) for row in rows] == sides
    rows = export_rows(dataset, "llama-factory-sharegpt", folder / "sharegpt")
    assert [row["conversations"][0]["value"] for row in rows] == [row["question"] for row in pairs]
    assert [(row["chosen"]["value"], row["rejected"]["value"]) for row in rows] == sides
    labelled = [
        {**row, **{key: problems[row["problem_id"]][key] for key in ("question", "answer")}}
        for row in rows_of(dataset, "solutions")
        if row["completions"] and row["labels"]
    ]
    for name, expect in EXPECTED_IMPORTS.items():
        check_import(dataset, name, folder / name, filter(None, map(expect, labelled)))
    check_step_dpo(dataset, folder / "step-dpo-10k", pairs)


def check_import(
    dataset: Path, name: str, folder: Path, expected: Iterable[tuple[Any, ...]]
) -> None:
    """Check the question, the steps and the labels of an export that is imported again."""
    folder.mkdir()
    file = export(dataset, name, folder / "rows").file
    _, result = import_labels(file, name, folder / "in")
    assert not result.quarantined, result.quarantined[:1]
    questions_by_id = {
        row["problem_id"]: row["question"] for row in rows_of(folder / "in", "problems")
    }
    imported = [
        (
            questions_by_id[row["problem_id"]],
            tuple(row["completions"]),
            tuple(row["imported_labels"]),
        )
        for row in rows_of(folder / "in", "solutions")
    ]
    assert Counter(imported) == Counter(expected)


def strip_steps(steps: Sequence[str], separator: str) -> list[str]:
    """Return stripped steps with a separator between them."""
    *first_steps, last_step = [step.strip() for step in steps]
    return [*(step + separator for step in first_steps), last_step]


def expect_trl(row: Row) -> tuple[Any, ...]:
    return (row["question"], tuple(row["completions"]), tuple(map(float, row["labels"])))


def expect_math_shepherd(row: Row) -> tuple[Any, ...] | None:
    texts_of_row = "".join([row["question"], *row["completions"]])
    if "ки" in texts_of_row:
        return None
    steps = [step.strip() for step in row["completions"]]
    numbered = [
        step if step.startswith(f"Step {number}:") else f"Step {number}: {step}"
        for number, step in enumerate(steps, 1)
    ]
    if (row["question"] + numbered[0]).count("Step 1:") > 1:
        return None
    question = row["question"].rstrip()
    return (question, tuple(strip_steps(numbered, "\n")), tuple(map(float, row["labels"])))


def expect_prm800k(row: Row) -> tuple[Any, ...]:
    steps = strip_steps(row["completions"], "\n")
    # The format has no complete solutions with a wrong step, unless they have this heading.
    is_complete = row["finish_reason"] == "stop" and all(row["labels"])
    if not is_complete and "# Answer" not in steps[-1]:
        steps[-1] += "\n"
    return (row["question"], tuple(steps), tuple(map(float, row["labels"])))


def expect_processbench(row: Row) -> tuple[Any, ...]:
    labels = row["labels"]
    end = labels.index(False) + 1 if False in labels else len(labels)
    steps = strip_steps(row["completions"], "\n\n")[:end]
    return (row["question"], tuple(steps), tuple(map(float, labels[:end])))


#: What each format gives back of a labelled solution.
EXPECTED_IMPORTS: dict[str, Callable[[Row], tuple[Any, ...] | None]] = {
    "trl-stepwise": expect_trl,
    "math-shepherd": expect_math_shepherd,
    "prm800k": expect_prm800k,
    "processbench": expect_processbench,
}


def check_step_dpo(dataset: Path, folder: Path, pairs: Sequence[Row]) -> None:
    folder.mkdir()
    result = export(dataset, "step-dpo-10k", folder / "rows")
    if result.rows:
        import_labels(result.file, "step-dpo-10k", folder / "in")
        for row in rows_of(folder / "in", "pairs"):
            assert any(
                pair["chosen"].startswith(row["chosen"])
                and pair["rejected"].startswith(row["rejected"])
                for pair in pairs
            )


@pytest.mark.parametrize("max_examples", EXAMPLES)
@pytest.mark.parametrize("template", ["problem", "qwen2-boxed"])
def test_texts_pass_through_all_stages(template: str, max_examples: int) -> None:
    def check(problems: list[Question]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            dataset = sample_dataset(folder, problems, template)
            check_samples(dataset, problems, template)
            graded = open_dataset(dataset).grade(out=folder / "graded", workers=1).path
            assert rows_of(graded, "solutions") == rows_of(dataset, "solutions")
            scorer = Scorer()
            stage = ScoreStage(reward_model(scorer.model, lambda: scorer))
            derive(graded, folder / "scored", stage)
            check_scores(folder / "scored", scorer)
            derive(folder / "scored", folder / "pairs", PairStage(PairSpec(top=2)))
            check_pairs(folder / "pairs")
            for name in TOKENIZERS:
                trained = folder / name
                trained.mkdir()
                check_training(folder / "pairs", trained_tokenizers.train_tokenizer(name), trained)
            check_exports(folder / "pairs", folder)

    run(check, max_examples)


#: What an import gives back of the solutions of an export; the rest is what the format drops.
RESTORED = {
    "trl-stepwise": {"prompt", "question", "text", "steps", "labels"},
    "math-shepherd": {"question", "steps", "labels"},
    "prm800k": {"question", "answer", "steps", "labels"},
    "processbench": {"question", "steps", "labels", "imported_correct"},
}


@pytest.mark.parametrize("name", RESTORED)
def test_what_an_import_gives_back(name: str, tmp_path: Path) -> None:
    """White space around a step does not count as a loss of the step."""
    texts_of_samples = ["Step 1: So 42. \nStep 2: The answer is: 42", "Step 1: \\boxed{41}"]
    problems = [
        Question(
            f"What is {index} + 42 - {index}?",
            "42",
            [Sample(text, reason, 9) for text in texts_of_samples for reason in ("stop", "length")],
        )
        for index in range(2)
    ]
    dataset = sample_dataset(tmp_path, problems, "qwen2-boxed")
    solutions = comparable_solutions(dataset)
    file = export(dataset, name, tmp_path / "rows").file
    import_labels(file, name, tmp_path / "in")
    imported = comparable_solutions(tmp_path / "in")
    assert len(imported) == len(solutions)
    restored_fields = {
        field
        for field in solutions[0]
        if [row[field] for row in imported] == [row[field] for row in solutions]
    }
    assert restored_fields == RESTORED[name]


def comparable_solutions(dataset: Path) -> list[Row]:
    """Return what a format may restore of each solution, in a fixed order."""
    problems = {row["problem_id"]: row for row in rows_of(dataset, "problems")}
    rows = []
    for solution in rows_of(dataset, "solutions"):
        problem = problems[solution["problem_id"]]
        labels = (
            solution["labels"]
            if solution["imported_labels"] is None
            else solution["imported_labels"]
        )
        correct = solution["imported_correct"]
        if solution["outcome"] in ("correct", "incorrect"):
            correct = solution["outcome"] == "correct"
        rows.append(
            {
                "question": problem["question"],
                "answer": problem["answer"],
                "prompt": solution["prompt"],
                "text": "".join(solution["completions"]),
                "steps": [step.strip() for step in solution["completions"]],
                "labels": [bool(label) for label in labels],
                "imported_correct": correct,
                "finish_reason": solution["finish_reason"],
                "n_tokens": solution["n_tokens"],
            }
        )
    return sorted(rows, key=lambda row: (row["question"], row["steps"]))


def test_a_dataset_of_the_hub_has_the_same_bytes(tmp_path: Path) -> None:
    """The texts of a pushed dataset come back, and so do its ids, labels and rewards."""
    problems = [
        Question(
            f"{index}: {piece}", "42", [*RIGHT_AND_WRONG, *[Sample(piece + "42", "stop", 3)] * 2]
        )
        for index, piece in enumerate(PIECES)
    ]
    dataset = sample_dataset(tmp_path, problems, "problem")
    check_samples(dataset, problems, "problem")
    pulled = tmp_path / "pulled"
    code = (
        "from fsdpo_data import pull, push\n"
        f"push({str(dataset)!r}, 'o/r')\npull('o/r', {str(pulled)!r})\n"
    )
    with running_hub() as hub:
        ran = run_client(code, client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN))
    assert ran.returncode == 0, ran.stderr
    files = [path.relative_to(dataset) for path in dataset.rglob("*.parquet")]
    assert files
    for file in [*files, Path("manifest.json")]:
        assert (pulled / file).read_bytes() == (dataset / file).read_bytes()
    validate(pulled)
    check_samples(pulled, problems, "problem")
