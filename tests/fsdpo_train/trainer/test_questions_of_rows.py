"""Training prompts of a sealed dataset know their question, and get the format of a chat server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fakes import FixedSampler, TableScorer
from helpers import (
    continuation_settings,
    fixed_sampler,
    problem_set,
    sample_settings,
    small_build,
)
from made_runs import written
from paired_data import SOLUTIONS, paired_dataset
from random_model import save_random_model
from small_tokenizer import save_tokenizer

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.engines.load import ResolvedRewardModel
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm
from fsdpo_data.exchange.export import export
from fsdpo_data.models.prompts import (
    find_template,
    get_template,
    is_same_template,
    load_tokenizer,
)
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.trained_template import read_trained_template
from fsdpo_data.pairs.first_error import StepPairSettings
from fsdpo_data.stages.continuations import ContinuationSampler
from fsdpo_data.stages.first_error import FirstErrorStage
from fsdpo_data.stages.label import LabelStage
from fsdpo_data.stages.score import ScoreStage, scorer_prompt_renderer
from fsdpo_data.stages.step_pairs import StepPairStage
from fsdpo_train.config import PrmConfig
from fsdpo_train.prm.train import train_prm
from fsdpo_train.trainer.row_formats import PRM_ROWS, SFT_ROWS
from fsdpo_train.trainer.row_source import (
    open_data,
    open_source,
    read_question,
    render_chat_prompts,
)


def test_prompts_have_the_questions_of_their_problems(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    files = read_manifest(root).config_paths(root, "problems")
    problems = scan_rows("problems", files).collect()
    questions = dict(problems.select("problem_id", "question").iter_rows())
    rows = [row for _, row in open_source(root, PRM_ROWS).rows()]
    assert rows
    for row in rows:
        assert read_question(row) == questions[row["problem_id"]]


def test_a_copy_without_problems_has_no_questions(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    shutil.rmtree(root / "problems")
    source = open_source(root, PRM_ROWS, allow_benchmark=True)
    assert not any(read_question(row) for _, row in source.rows())


def test_rows_of_files_may_state_their_question(tmp_path: Path) -> None:
    """An export for SFT does, so that special tokens in the question are text."""
    rows = export(paired_dataset(tmp_path / "data"), "trl-sft", tmp_path / "rows").file
    exported_rows = [row for _, row in open_source(rows, SFT_ROWS).rows()]
    assert exported_rows
    assert all((read_question(row) or "no question") in row["prompt"] for row in exported_rows)
    plain = written(tmp_path / "plain.jsonl", [{"prompt": "2+2?", "completion": "4"}])
    [(_, row)] = open_source(plain, SFT_ROWS).rows()
    assert read_question(row) is None


def build_dataset(root: Path, api: str, template: str = "problem") -> Path:
    """Build a dataset that a server sampled with an API."""
    source = problem_set(2)
    engine = EngineRef(name="openai", dtype="auto", api=api)
    changes = {"engine": engine, "template": find_template(template).ref}
    settings = sample_settings(n=4).model_copy(update=changes)
    sampler = fixed_sampler(source, SOLUTIONS)
    small_build(root, source, sampling=settings, make_sampler=lambda: sampler)
    return root


def test_prompts_of_a_chat_server_get_the_chat_format(tmp_path: Path) -> None:
    """The rows have the message of the user; the server wrote `<user>` and `<assistant>`."""
    tokenizer = load_tokenizer(save_tokenizer(tmp_path / "model"))
    for api, start, end in (("chat", "<user>", "<assistant>"), ("completions", "", "")):
        data = open_data([build_dataset(tmp_path / api, api)], PRM_ROWS)
        plain_prompts = [row["prompt"] for _, row in data.rows()]
        rendered_data = render_chat_prompts(data, tokenizer, "model")
        rendered_rows = [row for _, row in rendered_data.rows()]
        rendered = [row["prompt"] for row in rendered_rows]
        assert rendered == [f"{start}{prompt}{end}" for prompt in plain_prompts]
        assert all(map(read_question, rendered_rows))


@pytest.mark.parametrize("reader", ["dpo", "prm", "score", "measure"])
def test_a_model_without_a_chat_template_reads_no_prompts_of_a_chat_server(
    tmp_path: Path, reader: str
) -> None:
    model = str(save_random_model(tmp_path / "model"))
    root = build_dataset(tmp_path / "chat", "chat")
    weights = TrainedPrm(ModelRef("prm", "0"), model)
    readers = {
        "dpo": lambda: render_chat_prompts(
            open_data([root], PRM_ROWS), load_tokenizer(model), "model"
        ),
        "prm": lambda: train_prm(PrmConfig(data=root, model=model, out=tmp_path / "prm")),
        "score": lambda: score_dataset(root, tmp_path / "scored", weights, lambda: TableScorer({})),
        "measure": lambda: scorer_prompt_renderer(read_manifest(root), root, weights),
    }
    with pytest.raises(InputError, match=r"chat lack the chat format of the server that sampled"):
        readers[reader]()


def score_dataset(
    root: Path, out: Path, weights: ResolvedWeights, make_scorer: Callable[[], Scorer]
) -> None:
    engine = EngineRef(name="transformers", dtype="auto")
    stage = ScoreStage(ResolvedRewardModel(weights, engine, make_scorer))
    derive_dataset(root, out, [stage], progress=NO_PROGRESS)


def test_a_reward_model_reads_the_prompts_of_a_chat_server_in_its_chat_format(
    tmp_path: Path,
) -> None:
    weights = TrainedPrm(ModelRef("prm", "0"), save_tokenizer(tmp_path / "model"))
    root = build_dataset(tmp_path / "chat", "chat")
    prompts = []

    class PromptScorer(TableScorer):
        def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
            prompts.extend(item.prompt for item in items)
            return [[0.5] * len(item.steps) for item in items]

    score_dataset(root, tmp_path / "scored", weights, lambda: PromptScorer({}))
    assert len(set(prompts)) == 2
    assert all(re.fullmatch(r"<user>Problem: .*\n<assistant>", text, re.S) for text in prompts)


def test_solutions_of_a_chat_server_are_not_continued(tmp_path: Path) -> None:
    """The prompts of the prefixes would lack the chat format."""
    root = build_dataset(tmp_path / "chat", "chat")
    manifest = read_manifest(root)
    sampler = ContinuationSampler(
        continuation_settings(ModelRef("fixed", "0"), SamplingSpec(n=2)), lambda: FixedSampler({})
    )
    settings = StepPairSettings(style="step-dpo", threshold=0.5, continuations=sampler.settings)
    step_pairs = StepPairStage(sampler, settings)
    for stage in (LabelStage(sampler), FirstErrorStage(sampler), step_pairs):
        with pytest.raises(InputError, match=r"chat lack the chat format .* would continue"):
            stage.check(root, manifest)


@pytest.mark.parametrize(
    ("template", "expected"), [("chat", "<user>2+2?<assistant>"), ("problem", None)]
)
def test_a_model_that_learns_from_a_chat_server_states_its_chat_template(
    tmp_path: Path, template: str, expected: str | None
) -> None:
    """No template has the text of another template inside the chat format."""
    model = save_random_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    root = build_dataset(tmp_path / "chat", "chat", template)
    out = tmp_path / "prm"
    train_prm(PrmConfig(data=root, model=str(model), out=out, max_steps=1, held_out=0))
    trained = read_trained_template(out)
    assert (trained is None) == (expected is None)
    if trained is not None:
        rendered_template = get_template("chat", str(out))
        assert rendered_template.render("2+2?") == expected
        assert trained.digest == rendered_template.digest
        assert is_same_template(trained, find_template("chat").ref)
        assert not is_same_template(trained, find_template("chat-boxed").ref)


def test_an_export_of_prompts_without_chat_format_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for api in ("completions", "chat"):
        export(build_dataset(tmp_path / api, api), "trl-sft", tmp_path / f"{api}-rows")
        assert ("lack the chat format" in caplog.text) == (api == "chat")
