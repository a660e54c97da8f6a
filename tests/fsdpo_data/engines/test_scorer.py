"""Scoring: the rewards equal those of plain forward passes, for all batch sizes."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import (
    RIGHT,
    WRONG,
    problem_set,
    reward_model,
    reward_statistics_of,
    small_build,
    stage_options,
)
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model, save_random_prm

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from fakes import TableScorer, score_all  # noqa: E402
from scored import REF, solutions, worst  # noqa: E402

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError  # noqa: E402
from fsdpo_data.core.progress import LineProgress  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.dataset.derive import derive_dataset  # noqa: E402
from fsdpo_data.dataset.manifest import read_manifest  # noqa: E402
from fsdpo_data.dataset.validate import validate  # noqa: E402
from fsdpo_data.engines.choose_engine import resolve_engine  # noqa: E402
from fsdpo_data.engines.load import resolve_reward_model  # noqa: E402
from fsdpo_data.engines.options import ScorerOptions  # noqa: E402
from fsdpo_data.engines.scorers import ScorerInput  # noqa: E402
from fsdpo_data.engines.scorers.prm import PrmScorer  # noqa: E402
from fsdpo_data.engines.scorers.token_scorer import length_batches  # noqa: E402
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm  # noqa: E402
from fsdpo_data.engines.step_tokens import StepTokenizer  # noqa: E402
from fsdpo_data.engines.weights import resolve_prm  # noqa: E402
from fsdpo_data.models.prompts import get_template  # noqa: E402
from fsdpo_data.models.resolve import ResolvedWeights  # noqa: E402
from fsdpo_data.models.trained_template import write_trained_template  # noqa: E402
from fsdpo_data.pairs.best_worst import PairSpec  # noqa: E402
from fsdpo_data.stages.pair import PairStage  # noqa: E402
from fsdpo_data.stages.score import ScoreStage, warn_about_template  # noqa: E402
from fsdpo_train.config import PrmConfig  # noqa: E402
from fsdpo_train.prm.data import open_solutions, prepare_rows, read_labelled_rows  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> Path:
    return save_random_prm(tmp_path_factory.mktemp("prm"), policy)


def scorer_of(path: Path, *, share_prompts: bool = True, **options: Any) -> PrmScorer:
    """Load the reward model at ``path``."""
    weights = ResolvedWeights(REF, str(path))
    scorer = PrmScorer(weights, ScorerOptions(**options))
    if not share_prompts:
        scorer._can_share_prompts = False
    return scorer


def reference(path: Path, items: list[ScorerInput]) -> list[list[float]]:
    """Return step rewards from one unpadded forward pass per solution."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    net = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
    results = []
    for item in items:
        prompt = tokenizer(item.prompt)["input_ids"]
        text = tokenizer("".join(item.steps), add_special_tokens=False, return_offsets_mapping=True)
        starts = [start for start, _ in text["offset_mapping"]]
        with torch.no_grad():
            logits = net(torch.tensor([prompt + text["input_ids"]])).logits[0, :, 0]
        rewards, end = [], 0
        for step in item.steps:
            end += len(step)
            last = max(i for i, start in enumerate(starts) if start < end)
            rewards.append(torch.sigmoid(logits[len(prompt) + last]).item())
        results.append(rewards)
    return results


@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("batch_tokens", [1, 100, 700, 100_000])
def test_rewards_are_those_of_plain_forward_passes(
    model: Path, share_prompts: bool, batch_tokens: int
) -> None:
    items = solutions()
    scorer = scorer_of(model, share_prompts=share_prompts, batch_tokens=batch_tokens)
    expected = reference(model, items)
    assert worst(score_all(scorer, items), expected) < 1e-5
    spread = [reward for rewards in expected for reward in rewards]
    assert max(spread) - min(spread) > 0.5, "equal rewards would not test the scorer"


def test_bfloat16_is_close(model: Path) -> None:
    items = solutions()
    scorer = scorer_of(model, dtype="bfloat16")
    assert worst(score_all(scorer, items), reference(model, items)) < 0.1
    assert scorer._can_share_prompts, "rounding errors must not turn off sharing"


def test_on_cpus_scorers_use_transformers_even_with_vllm_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.samplers.vllm.is_vllm_usable", lambda *, on_cpu: on_cpu)
    monkeypatch.setattr("fsdpo_data.engines.choose_engine.find_spec", lambda _: "installed")
    assert resolve_engine("auto", "auto", "scorer") == "transformers"
    assert resolve_engine("auto", "auto", "sampler") == "vllm"
    assert resolve_engine("vllm", "auto", "scorer") == "vllm"


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_other_architectures(tmp_path: Path, policy: Path, family: str) -> None:
    """Mistral has sliding-window attention, so the scorer does not share its prompts."""
    settings = transformers.AutoConfig.from_pretrained(policy)
    windowed = {"sliding_window": 24} if family == "Mistral" else {}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=settings.vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, num_labels=1,
        initializer_range=0.3, eos_token_id=0, pad_token_id=1, **windowed,
    )  # fmt: skip
    torch.manual_seed(0)
    net = getattr(transformers, f"{family}ForTokenClassification")(config)
    net.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(policy).save_pretrained(tmp_path)
    items = solutions()
    scorer = scorer_of(tmp_path, batch_tokens=700)
    assert worst(score_all(scorer, items), reference(tmp_path, items)) < 1e-5


def test_a_prefix_has_the_rewards_of_the_full_solution(model: Path) -> None:
    """Beam search scores prefixes with this scorer."""
    items = [item for item in solutions() if len(item.steps) > 2]
    scorer = scorer_of(model)
    prefixes = [ScorerInput(item.prompt, item.steps[:2]) for item in items]
    expected = [(rewards or [])[:2] for rewards in score_all(scorer, items)]
    assert worst(score_all(scorer, prefixes), expected) < 1e-5


def test_repeated_texts_get_equal_rewards(model: Path) -> None:
    item, other = solutions()[:2]
    rewards = score_all(scorer_of(model), [item, other, item])
    assert rewards[0] == rewards[2] and rewards[0] is not rewards[2]


def test_solutions_without_steps_and_too_long_solutions(model: Path) -> None:
    item = solutions()[0]
    items = [
        ScorerInput("p", []),
        ScorerInput("p", ["x" * 300]),
        item,
        ScorerInput("p" * 300, ["x"]),
    ]
    none, long, rewards, prompt = score_all(scorer_of(model), items)
    assert none == [] and long is None and prompt is None and len(rewards or []) == len(item.steps)


def test_training_and_scoring_read_the_same_tokens(model: Path, tmp_path: Path) -> None:
    rows = stepwise_rows()
    data = write_rows(tmp_path / "rows.jsonl", rows)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    config = PrmConfig(data=data, out=tmp_path / "unused", held_out=0)
    trained = prepare_rows(
        read_labelled_rows(open_solutions(config.data), config, Counter()), tokenizer, 256, config
    ).train
    encoder = StepTokenizer(tokenizer)
    for row, read in zip(rows, trained, strict=True):
        encoded = encoder.encode(Prompt(row["prompt"]), row["completions"], add_eos=False)
        assert (encoded.input_ids.tolist(), encoded.score_positions) == (
            read.solution.input_ids.tolist(),
            read.label_positions,
        )


def test_batches_have_items_of_similar_length_within_the_budget() -> None:
    rng = random.Random(0)
    lengths = {index: rng.randrange(1, 300) for index in range(500)}
    batches = list(length_batches(lengths, 1000))
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    sizes = [[lengths[index] for index in batch] for batch in batches]
    assert all(max(size) * len(size) <= 1000 for size in sizes)
    assert sum(max(size) * len(size) for size in sizes) < 1.05 * sum(lengths.values())
    assert [len(batch) for batch in length_batches({0: 5, 1: 2000}, 1000)] == [1, 1]


def test_a_model_with_another_head_is_refused(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a language model .Qwen2ForCausalLM."):
        resolve_prm(str(policy))
    three = transformers.AutoModelForTokenClassification.from_pretrained(policy, num_labels=3)
    three.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="Qwen2ForTokenClassification with 3 labels"):
        resolve_prm(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    for damaged in (7, {}, "Qwen2", [7]):
        (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": damaged}))
        with pytest.raises(FsdpoError, match="Expected "):
            resolve_prm(str(tmp_path))
    with pytest.raises(InputError, match=r"prm = '\./nothing': no such file or directory"):
        resolve_prm("./nothing")


def test_nan_rewards_are_refused(policy: Path, tmp_path: Path) -> None:
    model = save_random_prm(tmp_path / "prm", policy)
    net = transformers.AutoModelForTokenClassification.from_pretrained(model)
    net.score.bias.data.fill_(torch.nan)
    net.save_pretrained(model)
    with pytest.raises(
        UnavailableError,
        match="prm = 'prm': the reward model returned NaN or infinite step rewards",
    ):
        score_all(scorer_of(model), [ScorerInput("p", ["a\n", "b"])])


def test_the_table_scorer_is_a_scorer() -> None:
    scorer = TableScorer({"ab": [0.5, 0.25], "c": None})
    items = [ScorerInput("p", ["a", "b"]), ScorerInput("p", ["c"])]
    assert score_all(scorer, items) == [[0.5, 0.25], None]


TABLE = TableScorer({RIGHT: [0.75, 0.875], WRONG: [0.5, 0.125], "I do not know": [0.25], "": []})


def score_dataset(source: Path, out: Path, scorer: Any = TABLE, **options: Any) -> dict[str, Any]:
    stage = ScoreStage(reward_model(scorer.model, lambda: scorer))
    manifest = derive_dataset(source, out, [stage], progress=LineProgress(), **options)
    assert validate(out) == manifest
    return manifest.to_dict()


def test_a_scored_dataset(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    manifest = score_dataset(tmp_path / "run", tmp_path / "scored")
    rows = pl.read_parquet(tmp_path / "scored/solutions/*.parquet")
    assert rows["step_rewards"].to_list()[:4] == [[0.75, 0.875], [0.5, 0.125], [0.25], []]
    source_rows = pl.read_parquet(tmp_path / "run/solutions/*.parquet")
    assert rows.drop("step_rewards").equals(source_rows.drop("step_rewards"))
    assert stage_options(manifest, "score")["prm"] == {"name": "table", "revision": "0"}
    assert manifest["cost"]["prm_calls"] == 9
    rewards = reward_statistics_of(tmp_path / "scored")
    assert (rewards.scored, rewards.unscored) == (9, 3)  # three solutions are empty
    assert rewards.ranking_auc["mean"].value == 1


def test_the_scorer_receives_the_question(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    requests = set()

    class RecordingScorer(TableScorer):
        def compute_rewards(self, items: Any) -> Any:
            requests.update((item.prompt, item.question) for item in items)
            return super().compute_rewards(items)

    score_dataset(tmp_path / "run", tmp_path / "scored", RecordingScorer(TABLE._rewards))
    questions = [question.question for question in problem_set().problems]
    assert requests == {(f"Problem: {question}\nSolution:\n", question) for question in questions}


def test_a_too_long_solution_has_no_rewards(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    table = TableScorer({RIGHT: None, WRONG: [0.5, 0.5], "I do not know": [0.25], "": []})
    score_dataset(tmp_path / "run", tmp_path / "scored", table)
    rewards = reward_statistics_of(tmp_path / "scored")
    assert (rewards.scored, rewards.unscored) == (6, 6)
    assert rewards.ranking_auc["mean"].value is None


def test_scoring_again_drops_the_old_pairs(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    score_dataset(tmp_path / "run", tmp_path / "a")
    derive_dataset(tmp_path / "a", tmp_path / "b", [PairStage(PairSpec())], progress=LineProgress())
    manifest = score_dataset(tmp_path / "b", tmp_path / "c")
    assert not (tmp_path / "c/pairs").exists()
    assert read_manifest(tmp_path / "c").rows.pairs == 0
    assert "pair" not in [entry["name"] for entry in manifest["stages"]]


def test_a_run_stopped_between_files_continues_with_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 4)
    small_build(tmp_path / "run", problem_set(3))
    expected_manifest = score_dataset(tmp_path / "run", tmp_path / "whole")

    class DyingScorer(TableScorer):
        calls = 0

        def compute_rewards(self, items: Any) -> Any:
            self.calls += 1
            if self.calls == 3:
                raise UnavailableError("the engine died")
            return super().compute_rewards(items)

    dying_scorer = DyingScorer(TABLE._rewards)
    with pytest.raises(UnavailableError):
        score_dataset(tmp_path / "run", tmp_path / "part", dying_scorer)
    assert len(list((tmp_path / "part/solutions").iterdir())) == 2
    assert not (tmp_path / "part/manifest.json").exists()
    again = DyingScorer(TABLE._rewards)
    assert (
        score_dataset(tmp_path / "run", tmp_path / "part", again, resume=True) == expected_manifest
    )
    assert again.calls == 1


def test_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from command_line import run

    small_build(tmp_path / "run")
    arguments = ["score", tmp_path / "run", "--prm", model, "--out", tmp_path / "out"]
    command_line = [str(argument) for argument in [*arguments, "--engine", "transformers"]]
    code, out, _ = run(capsys, *command_line)
    assert code == 0 and "step rewards" in out
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert stage_options(manifest, "score")["prm"]["name"] == model.name
    assert stage_options(manifest, "score")["prm"]["revision"].startswith("sha256:")
    code, _, err = run(capsys, *command_line)
    assert code == 1 and "already holds this run. Continue it with --resume" in err
    code, _, err = run(capsys, "score", str(tmp_path), "--prm", str(model), "--out", "x")
    assert code == 1 and "holds no dataset" in err


@pytest.mark.parametrize(("trained", "is_warned"), [("problem@1", False), ("alpaca@1", True)])
def test_a_reward_model_of_another_template_is_a_warning(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, trained: str, is_warned: bool
) -> None:
    prm = save_random_prm(tmp_path / "prm", policy)
    write_trained_template(prm, get_template(trained).ref)
    small_build(tmp_path / "run")
    stage = ScoreStage(resolve_reward_model(str(prm), ScorerOptions(engine="transformers")))
    derive_dataset(tmp_path / "run", tmp_path / "out", [stage], progress=LineProgress())
    message = "prompts of the template alpaca@1, and the solutions have prompts of problem@1"
    assert (message in caplog.text) == is_warned
    assert ("template" in caplog.text) == is_warned


def test_a_template_with_the_same_name_and_another_text_is_a_warning(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prm = TrainedPrm(REF, str(tmp_path), last_step_only=False)
    (tmp_path / "alpaca.txt").write_text("Q: {question}")
    own_template = get_template(str(tmp_path / "alpaca.txt")).ref
    write_trained_template(tmp_path, own_template)
    warn_about_template(prm, own_template)
    assert caplog.messages == []
    (tmp_path / "alpaca.txt").write_text("Question: {question}")
    warn_about_template(prm, get_template(str(tmp_path / "alpaca.txt")).ref)
    [message] = caplog.messages
    assert "have prompts of alpaca with another text" in message


def test_likelihoods_equal_those_of_plain_forward_passes(policy: Path) -> None:
    from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer

    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    net = transformers.AutoModelForCausalLM.from_pretrained(policy).eval()
    items = [*solutions(), ScorerInput("p", []), ScorerInput("p", ["x" * 300])]
    scorer = LikelihoodScorer(
        ResolvedWeights(REF, str(policy)), ScorerOptions(device="cpu", batch_tokens=300)
    )
    likelihoods = score_all(scorer, items)
    log_likelihoods = scorer.log_likelihoods(items)
    assert likelihoods[-2:] == [[], None]
    assert log_likelihoods[-2:] == [None, None]
    for item, rewards, log_likelihood in zip(
        items[:-2], likelihoods[:-2], log_likelihoods[:-2], strict=True
    ):
        prompt = tokenizer(item.prompt)["input_ids"]
        ids = torch.tensor(prompt + tokenizer("".join(item.steps))["input_ids"])
        with torch.no_grad():
            logprobs = net(ids[None]).logits[0].log_softmax(-1)
        total = logprobs[len(prompt) - 1 : -1].gather(-1, ids[len(prompt) :, None]).sum()
        assert rewards is not None and len(rewards) == len(item.steps)
        assert sum(map(math.log, rewards)) == pytest.approx(float(total), abs=1e-3)
        assert all(0 < reward < 1 for reward in rewards)
        assert log_likelihood == pytest.approx(float(total), abs=1e-3)
