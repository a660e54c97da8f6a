"""Preference training: losses fall, batching does not change them, the reference is cached."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_other_architecture, save_random_model
from training import kill_at_step

torch = pytest.importorskip("torch")
import safetensors.torch  # noqa: E402
import transformers  # noqa: E402

from fsdpo_data.core.errors import (  # noqa: E402
    InputError,
    RunMismatchError,
    SchemaError,
    StoreError,
    UnavailableError,
)
from fsdpo_data.engines.logprobs import check_plain_head  # noqa: E402
from fsdpo_data.engines.samplers.tokenization import pad_sequences  # noqa: E402
from fsdpo_data.engines.step_tokens import EncodedSolution  # noqa: E402
from fsdpo_data.models.trained_template import TEMPLATE_FILE, read_trained_template  # noqa: E402
from fsdpo_train.config import DpoConfig  # noqa: E402
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES  # noqa: E402
from fsdpo_train.preference import reference  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.preference.data import tokenize_groups  # noqa: E402
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs  # noqa: E402
from fsdpo_train.preference.reference_store import ReferenceStore  # noqa: E402
from fsdpo_train.trainer.row_source import RowSource  # noqa: E402
from fsdpo_train.trainer.training_template import _distinct_prompts  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", preference_rows())


def config(policy: Path, data: Path, out: Path, **options: Any) -> DpoConfig:
    defaults: dict[str, Any] = dict(lr=1e-3, batch_size=2, log_every=1, save_every=0)
    if "max_steps" not in options:
        defaults["epochs"] = 2
    return DpoConfig(data=data, out=out, model=str(policy), **(defaults | options))


@pytest.mark.parametrize(("start", "template"), [("Problem: ", "problem@1"), ("Task ", None)])
def test_a_policy_trained_on_a_file_keeps_the_template_of_its_prompts(
    policy: Path, tmp_path: Path, start: str, template: str | None
) -> None:
    rows = preference_rows(prompts=2)
    for row in rows:
        row["prompt"] = start + row["prompt"].removeprefix("Problem ")
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    ref = read_trained_template(tmp_path / "out")
    assert (ref and ref.name) == template
    assert (tmp_path / "out" / TEMPLATE_FILE).exists()


def test_the_prompts_of_all_rows_show_the_template() -> None:
    """A file may be two files in one: a second template follows after 300 rows."""
    rows = [("", {"prompt": f"Problem {number}"}) for number in range(300)]
    source = RowSource("digest", "rows", lambda: iter([*rows, rows[0], ("", {"prompt": "Task 1"})]))
    prompts = _distinct_prompts([source])
    assert len(prompts) == 301 and prompts[-1] == "Task 1"


def losses(out: Path) -> list[float]:
    """Return the loss of every step from the last checkpoint."""
    states = sorted(out.glob("checkpoints/*/trainer_state.json"))
    return [e["loss"] for e in json.loads(states[-1].read_text())["log_history"] if "loss" in e]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()


def largest_difference(first_run: Path, second_run: Path) -> float:
    ours = weights(first_run)
    theirs = weights(second_run)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


@pytest.mark.parametrize("loss", list(PREFERENCE_LOSSES))
def test_every_loss_learns_to_prefer(loss: str, policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", loss=loss, epochs=4))
    assert report.metrics["rewards/accuracies"] == 1
    if loss == "ipo":  # starts at (1 / 2β)² = 100, and ends where the margin β·h is 1/2
        assert report.loss < 50
        assert report.metrics["rewards/margins"] == pytest.approx(0.5, abs=0.1)
    else:
        assert report.loss < 0.4 < math.log(2)
        assert report.metrics["rewards/margins"] > 0.5
    assert report.counts["pairs"] == 24 and report.counts["solutions"] == 24


def test_the_first_step_starts_with_zero_margins(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    assert report.loss == pytest.approx(math.log(2), abs=1e-5)
    assert report.metrics["kl"] == pytest.approx(0, abs=1e-3)
    assert report.metrics["rewards/margins"] == pytest.approx(0, abs=1e-5)


def test_the_card_names_policy_data_and_reference(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    card = (tmp_path / "out/README.md").read_text()
    assert f"`{policy.name}`" in card and str(policy) not in card
    assert "| data | `sha256:" in card and "| reference | `" in card
    assert f"| rewards/margins | {report.metrics['rewards/margins']:.4f} |" in card
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.eos_token_id is not None
    assert weights(tmp_path / "out").keys() == weights(policy).keys()


def test_the_8_bit_optimizer_reaches_the_loss_of_adamw(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitsandbytes", reason="optimizers of 8 bits need bitsandbytes")
    losses = [
        dpo.train_dpo(config(policy, data, tmp_path / optim, optim=optim)).loss
        for optim in ("adamw_torch", "adamw_bnb_8bit")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2) and losses[1] != losses[0]
    monkeypatch.setattr("transformers.trainer_optimizer.is_bitsandbytes_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"optim = 'adamw_8bit': .*install `bitsandb"):
        dpo.train_dpo(config(policy, data, tmp_path / "none", optim="adamw_8bit"))


@pytest.mark.parametrize("loss", ["full-step", "public-code"])
def test_one_row_per_solution_gives_the_same_losses(
    loss: str, policy: Path, data: Path, tmp_path: Path
) -> None:
    for name, share in (("tree", True), ("rows", False)):
        options: dict[str, Any] = dict(loss=loss, share_prompt=share, save_every=6)
        dpo.train_dpo(config(policy, data, tmp_path / name, **options))
    assert losses(tmp_path / "tree") == pytest.approx(losses(tmp_path / "rows"), rel=1e-4)


def test_long_rows_need_no_mask(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row_mask(*lengths: int, left: bool = False) -> Any:
        return pad_sequences([[0] * length for length in lengths], 0, "cpu", pad_left=left)[1]

    assert row_mask(2, 3).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert row_mask(2, 4097).all() and not row_mask(2, 4097, left=True).all()
    options: dict[str, Any] = dict(share_prompt=False, save_every=6)
    dpo.train_dpo(config(policy, data, tmp_path / "mask", **options))
    monkeypatch.setattr("fsdpo_data.engines.prefix_sharing.masks.MAX_MASKED_ROW_TOKENS", 4)
    assert row_mask(2, 5).all()
    dpo.train_dpo(config(policy, data, tmp_path / "none", **options))
    assert losses(tmp_path / "mask") == pytest.approx(losses(tmp_path / "none"), rel=1e-4)


def test_accumulation_counts_every_pair_the_same(policy: Path, tmp_path: Path) -> None:
    """Prompts have different numbers of pairs, so a mean of batch means would differ."""
    rows = preference_rows(prompts=4, top=3)
    selected_rows = [row for i, row in enumerate(rows) if i % 9 <= 2 * (i // 9)]
    data = write_rows(tmp_path / "pairs.jsonl", selected_rows)
    options: dict[str, Any] = dict(group_by_length=False, save_every=3, epochs=3)
    one_pass = config(policy, data, tmp_path / "one", batch_size=4, **options)
    accumulated = config(policy, data, tmp_path / "two", batch_size=1, grad_accum=4, **options)
    for run_config in (one_pass, accumulated):
        assert dpo.train_dpo(run_config).steps == 3
    assert losses(one_pass.out) == pytest.approx(losses(accumulated.out), rel=1e-5)
    assert largest_difference(one_pass.out, accumulated.out) < 1e-4


@pytest.mark.parametrize("shuffle", ["groups", "pairs"])
def test_token_budget_batches_change_neither_losses_nor_weights(
    shuffle: str, policy: Path, tmp_path: Path
) -> None:
    """Compare one pass over all pairs with several passes under a token budget."""
    rows = preference_rows(prompts=4, top=3)
    selected_rows = [row for i, row in enumerate(rows) if i % 9 <= 2 * (i // 9)]
    data = write_rows(tmp_path / "pairs.jsonl", selected_rows)
    options: dict[str, Any] = dict(save_every=3, epochs=3, grad_accum=99, shuffle=shuffle)
    losses_by_run = {}
    for name, tokens in (("rows", 0), ("some", 150), ("all", 10**6)):
        run_config = config(
            policy, data, tmp_path / name, batch_size=99, batch_tokens=tokens, **options
        )
        assert dpo.train_dpo(run_config).steps == 3
        losses_by_run[name] = losses(run_config.out)
        assert largest_difference(run_config.out, tmp_path / "rows") < 1e-4
    assert losses_by_run["some"] == pytest.approx(losses_by_run["rows"], rel=1e-5)
    assert losses_by_run["all"] == pytest.approx(losses_by_run["rows"], rel=1e-5)


def test_shuffled_pairs_in_one_batch_give_the_losses_of_groups(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = dict(save_every=2)
    groups = config(policy, data, tmp_path / "groups", batch_size=6, **options)
    pairs = config(policy, data, tmp_path / "pairs", batch_size=24, shuffle="pairs", **options)
    for run_config in (groups, pairs):
        assert dpo.train_dpo(run_config).steps == 2
    assert losses(groups.out) == pytest.approx(losses(pairs.out), rel=1e-5)


@pytest.mark.parametrize("tokens", [0, 150])
def test_a_run_killed_and_resumed_ends_in_the_same_weights(
    tokens: int, policy: Path, data: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = dict(save_every=2, batch_tokens=tokens)
    expected = dpo.train_dpo(config(policy, data, tmp_path / "whole", **options))

    part = tmp_path / "part"
    # Past the checkpoint at 4, in the second epoch.
    kill_at_step(5, dpo, lambda: dpo.train_dpo(config(policy, data, part, **options)))
    resumed = dpo.train_dpo(config(policy, data, part, resume=True, **options))
    assert resumed.loss == expected.loss and resumed.metrics == expected.metrics
    assert largest_difference(part, tmp_path / "whole") == 0
    with pytest.raises(RunMismatchError, match=r"these keys differ:\n  beta: "):
        dpo.train_dpo(config(policy, data, part, resume=True, beta=0.1, **options))


def test_resuming_a_finished_run_returns_the_same_report(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    """The run is shorter than a logging window, so a resumed run logs no loss."""
    options: dict[str, Any] = dict(save_every=500, log_every=10, max_steps=2)
    finished = dpo.train_dpo(config(policy, data, tmp_path / "out", **options))
    card = (tmp_path / "out/README.md").read_text()
    assert finished.loss > 0 and finished.metrics
    assert dpo.train_dpo(config(policy, data, tmp_path / "out", resume=True, **options)) == finished
    assert (tmp_path / "out/README.md").read_text() == card


def test_a_run_that_diverges_ends_and_keeps_its_last_checkpoint(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    wild: dict[str, Any] = dict(lr=1e30, max_grad_norm=1e30, warmup=0, save_every=1)
    with pytest.raises(InputError, match="training diverged: the gradient norm at step 2 is NaN"):
        dpo.train_dpo(config(policy, data, tmp_path / "out", **wild))
    assert [checkpoint.name for checkpoint in (tmp_path / "out/checkpoints").iterdir()] == [
        "checkpoint-1"
    ]
    assert not (tmp_path / "out/config.json").exists()


def test_lora_is_merged_into_plain_weights(policy: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", lora=4, epochs=4, lr=1e-2))
    assert report.metrics["rewards/accuracies"] == 1
    assert not list((tmp_path / "out").glob("adapter*"))
    base_weights = weights(policy)
    trained_weights = weights(tmp_path / "out")
    changed = {
        name for name in base_weights if not torch.equal(base_weights[name], trained_weights[name])
    }
    assert changed and all("proj" in name for name in changed)


def test_lora_trains_over_bfloat16_weights_and_saves_float32_weights(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    seen = set()
    run_trainer = dpo.run_trainer

    def run_and_record(trainer: Any, *arguments: Any) -> None:
        seen.update(
            (parameter.requires_grad, parameter.dtype) for parameter in trainer.model.parameters()
        )
        run_trainer(trainer, *arguments)

    monkeypatch.setattr(dpo, "run_trainer", run_and_record)
    options: dict[str, Any] = dict(lora=4, dtype="bfloat16", epochs=4, lr=1e-2, save_every=1)
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", **options))
    assert report.metrics["rewards/accuracies"] == 1
    assert seen == {(True, torch.float32), (False, torch.bfloat16)}
    assert losses(tmp_path / "out")[0] == pytest.approx(math.log(2), abs=1e-3)
    trained_weights = weights(tmp_path / "out")
    assert {tensor.dtype for tensor in trained_weights.values()} == {torch.float32}
    [checkpoint] = tmp_path.glob("out/checkpoints/*")
    expected_weights = merge_adapters(weights(policy), checkpoint)
    for name, expected in expected_weights.items():
        # With rounded weights under the adapters, the error was 1.9e-3.
        assert (trained_weights[name] - expected).abs().max() < 1e-6, name


def merge_adapters(base: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Merge the adapters of a checkpoint into weights, by the equation W + 2·B·A."""
    adapters = safetensors.torch.load_file(checkpoint / "adapter_model.safetensors")
    merged = dict(base)
    for name, lower in adapters.items():
        if "lora_A" in name:
            upper = adapters[name.replace("lora_A", "lora_B")]
            weight_name = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            merged[weight_name] = merged[weight_name] + 2 * upper @ lower
    return merged


def test_gradient_checkpointing_changes_nothing(policy: Path, data: Path, tmp_path: Path) -> None:
    for name, checkpointing in (("plain", False), ("again", True)):
        options: dict[str, Any] = dict(gradient_checkpointing=checkpointing, max_steps=3)
        dpo.train_dpo(config(policy, data, tmp_path / name, **options))
    assert largest_difference(tmp_path / "plain", tmp_path / "again") < 1e-6


def test_bfloat16_starts_from_its_own_reference(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", dtype="bfloat16", max_steps=1))
    assert report.loss == pytest.approx(math.log(2), abs=1e-3)
    assert weights(tmp_path / "out")["lm_head.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("window", "message"), [(16, "once per solution"), (200, "computed once\n")]
)
def test_a_narrow_window_takes_a_row_per_solution(
    window: int, message: str, policy: Path, data: Path, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO")
    other = save_other_architecture(
        tmp_path / "mistral", policy, "Mistral", num_key_value_heads=1, sliding_window=window
    )
    report = dpo.train_dpo(config(other, data, tmp_path / "out", max_steps=1))
    assert message in caplog.text
    assert report.loss == pytest.approx(math.log(2), abs=1e-5)


def test_models_that_change_logits_after_the_head_are_refused() -> None:
    sizes: dict[str, Any] = dict(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        pad_token_id=0,
        initializer_range=0.5,
    )
    capped = transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**sizes, final_logit_softcapping=1.0)
    )
    with pytest.raises(InputError, match="Gemma2ForCausalLM changes its logits after"):
        check_plain_head(capped)
    plain = transformers.Gemma2Config(**sizes, final_logit_softcapping=None)
    check_plain_head(transformers.Gemma2ForCausalLM(plain))


@pytest.mark.parametrize("uses_reference", [True, False])
def test_no_loss_trains_a_model_that_changes_logits_after_the_head(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses_reference: bool
) -> None:
    monkeypatch.setattr(PREFERENCE_LOSSES, "data", dict(PREFERENCE_LOSSES))
    loss = replace(PREFERENCE_LOSSES["dpo"], name="other", uses_reference=uses_reference)
    PREFERENCE_LOSSES.register(loss)
    path = save_other_architecture(
        tmp_path / "scaled", policy, "Granite", num_key_value_heads=1, logits_scaling=4.0
    )
    with pytest.raises(InputError, match="GraniteForCausalLM changes its logits after"):
        dpo.train_dpo(config(path, data, tmp_path / "out", loss="other", max_steps=1))


def refuse_to_load(*_: Any, **__: Any) -> Any:
    raise AssertionError("the reference model was loaded again")


SAVE_PROGRAM = """
import sys
from pathlib import Path
from fsdpo_train.preference.reference_store import ReferenceStore
store = ReferenceStore(Path(sys.argv[1]), {})
rows = [(str(i), [0.5] * 50) for i in range(500)]
for _ in range(60):
    store.save(rows)
assert len(store.load([key for key, _ in rows])) == 500
"""


def test_concurrent_runs_can_save_to_one_reference_cache(tmp_path: Path) -> None:
    line = [sys.executable, "-c", SAVE_PROGRAM, str(tmp_path / "reference")]
    runs = [subprocess.Popen(line, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[1] for run in runs] == ["", ""]
    assert [file.suffix for file in (tmp_path / "reference").iterdir()] == [".parquet"]


def test_the_reference_is_computed_once_for_all_runs(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = dict(reference_cache=tmp_path / "of [1] 50%", max_steps=2)
    first = dpo.train_dpo(config(policy, data, tmp_path / "first", **options))
    monkeypatch.setattr(reference, "ReferenceModel", refuse_to_load)
    again = dpo.train_dpo(config(policy, data, tmp_path / "again", **options))
    assert again.loss == first.loss
    fewer = write_rows(tmp_path / "fewer.jsonl", preference_rows()[2:5])
    other = dpo.train_dpo(config(policy, fewer, tmp_path / "other", beta=0.3, gamma=2.0, **options))
    assert other.counts["pairs"] == 3


def test_new_solutions_are_added_to_the_reference(
    policy: Path, data: Path, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO")
    options: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    dpo.train_dpo(config(policy, data, tmp_path / "first", **options))
    more_data = write_rows(tmp_path / "more.jsonl", preference_rows(prompts=8))
    caplog.clear()
    dpo.train_dpo(config(policy, more_data, tmp_path / "second", **options))
    assert "reference: 8 to do" in caplog.text


def test_all_losses_share_one_reference_cache(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    for loss in ("full-step", "step-dpo"):  # step-dpo truncates solutions, which adds entries
        dpo.train_dpo(config(policy, data, tmp_path / loss, loss=loss, **options))
    monkeypatch.setattr(reference, "ReferenceModel", refuse_to_load)
    for loss in PREFERENCE_LOSSES:
        dpo.train_dpo(config(policy, data, tmp_path / f"{loss}-again", loss=loss, **options))


def test_processes_compute_disjoint_reference_groups(policy: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    prompts = group_by_prompt([("row", row) for row in preference_rows()], PREFERENCE_LOSSES["dpo"])
    groups, _ = tokenize_groups(prompts, tokenizer, 256, [tokenizer.eos_token_id])
    store = ReferenceStore(tmp_path / "reference", {})
    keys = [reference._group_keys(group, store) for group in groups]
    mine, theirs = (
        [
            key
            for group in reference._missing_groups(
                groups, keys, stored, process_index=process, world_size=2
            )
            for key in reference._group_keys(group, store)
        ]
        for process, stored in ((0, {}), (1, set(keys[0])))
    )
    assert len({*mine, *theirs}) == len(mine) + len(theirs) == 24


def test_a_file_of_the_reference_cache_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    content = b"PAR1 no parquet PAR1"
    name = f"{hashlib.sha256(content).hexdigest()[:32]}.parquet"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=rf"{name} is damaged\. Remove the file"):
        ReferenceStore(tmp_path, {}).load([])


def test_a_reference_cache_has_own_values_for_each_model_precision_and_prompt(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    rows = preference_rows()
    prompts = [{**row, "prompt": "Q: " + row["prompt"]} for row in rows]
    runs: list[tuple[Path, Path, dict[str, Any]]] = [
        (policy, data, {}),
        (save_random_model(tmp_path / "other", seed=1), data, {}),
        (policy, data, {"dtype": "bfloat16"}),
        (policy, write_rows(tmp_path / "prompts.jsonl", prompts), {}),
    ]
    for number, (model, file, run_options) in enumerate(runs, start=1):
        dpo.train_dpo(config(model, file, tmp_path / str(number), **options, **run_options))
        stored = pl.read_parquet(tmp_path / "reference/*.parquet")
        assert stored["solution"].n_unique() == number * 24


def test_a_reference_key_depends_on_model_and_tokens(tmp_path: Path) -> None:
    """A prompt may have other tokens if its question is known, whose special tokens are text."""
    store = ReferenceStore(tmp_path, {"model": "m"})
    tokens = EncodedSolution(
        input_ids=np.array([1, 2, 3], np.int32), prompt_length=1, score_positions=[2], n_steps=1
    )
    other_keys = [
        store.key(replace(tokens, input_ids=np.array([1, 7, 3], np.int32))),
        store.key(replace(tokens, prompt_length=2)),
        ReferenceStore(tmp_path, {"model": "n"}).key(tokens),
    ]
    assert len({store.key(tokens), *other_keys}) == 4


def test_a_changed_reference_file_is_detected(policy: Path, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    dpo.train_dpo(config(policy, data, tmp_path / "first", **options))
    (file,) = (tmp_path / "reference").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreError, match="was changed since it was written"):
        dpo.train_dpo(config(policy, data, tmp_path / "second", **options))


def test_step_dpo_ends_with_the_first_difference() -> None:
    base = {"prompt": "p", "chosen_rewards": [0.5] * 3, "rejected_rewards": [0.5] * 3}
    row = base | {"chosen_steps": ["a", "b", "c"], "rejected_steps": ["a", "x", "y"]}
    (group,) = group_by_prompt([("row 1", row)], PREFERENCE_LOSSES["step-dpo"])
    assert [(solution.steps, solution.ends_with_eos) for solution in group.solutions] == [
        (("a", "b"), False),
        (("a", "x"), False),
    ]
    last = base | {"chosen_steps": ["a", "b", "c"], "rejected_steps": ["a", "b", "x"]}
    (group,) = group_by_prompt([("row 1", last)], PREFERENCE_LOSSES["step-dpo"])
    assert [solution.ends_with_eos for solution in group.solutions] == [False, False]
    shorter = base | {
        "chosen_steps": ["a", "b"],
        "chosen_rewards": [0.5] * 2,
        "rejected_steps": ["a", "b", "c"],
    }
    (group,) = group_by_prompt([("row 1", shorter)], PREFERENCE_LOSSES["step-dpo"])
    assert [(solution.steps, solution.ends_with_eos) for solution in group.solutions] == [
        (("a", "b"), True),
        (("a", "b", "c"), False),
    ]
    (group,) = group_by_prompt([("row 1", row)], PREFERENCE_LOSSES["dpo"])
    assert [len(solution.steps) for solution in group.solutions] == [3, 3]


def test_white_space_is_not_the_first_difference_of_a_step_pair() -> None:
    row = {
        "prompt": "p",
        "chosen_steps": ["Step 1: four.\n", "Step 2: five.\n"],
        "rejected_steps": ["Step 1: four.\n\n", "Step 2: six.\n"],
    }
    (group,) = group_by_prompt([("row 1", row)], PREFERENCE_LOSSES["step-dpo"])
    assert [solution.steps[1:] for solution in group.solutions] == [
        ("Step 2: five.\n",),
        ("Step 2: six.\n",),
    ]
    row["rejected_steps"] = ["Step 1: four.\n\n", "Step 2:  five."]
    with pytest.raises(InputError, match="row 1: chosen and rejected differ only in white space"):
        group_by_prompt([("row 1", row)], PREFERENCE_LOSSES["step-dpo"])


def test_losses_that_use_no_rewards_need_no_reward_columns() -> None:
    row = preference_rows()[0]
    bare = {name: text for name, text in row.items() if not name.endswith("_rewards")}
    for loss in ("dpo", "step-dpo", "ipo"):
        (group,) = group_by_prompt([("row 1", bare)], PREFERENCE_LOSSES[loss])
        (scored,) = group_by_prompt([("row 1", row)], PREFERENCE_LOSSES[loss])
        assert [solution.steps for solution in group.solutions] == [
            solution.steps for solution in scored.solutions
        ]
    for loss in ("full-step", "full-step-scaled", "public-code"):
        with pytest.raises(
            InputError, match="columns chosen_rewards, rejected_rewards are missing"
        ):
            group_by_prompt([("row 1", bare)], PREFERENCE_LOSSES[loss])
    with pytest.raises(InputError, match="chosen_steps and chosen_rewards: expected two lists"):
        group_by_prompt([("row 1", bare | {"chosen_steps": 3})], PREFERENCE_LOSSES["dpo"])


def test_repeated_solutions_are_stored_once() -> None:
    rows = [("row", row) for row in preference_rows(prompts=3, top=4)]
    groups = group_by_prompt(rows, PREFERENCE_LOSSES["dpo"])
    assert [len(group.solutions) for group in groups] == [8, 8, 8]
    assert [len(group.pairs) for group in groups] == [16, 16, 16]


def test_solutions_beyond_the_context_are_dropped_not_truncated(
    policy: Path, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO")
    rows = preference_rows(prompts=3)
    long = [*rows[0]["chosen_steps"], "x" * 400]
    rows[0] |= {"chosen": "".join(long), "chosen_steps": long, "chosen_rewards": [0.5] * 4}
    rows[1] |= {"chosen": "".join(long), "chosen_steps": long, "chosen_rewards": [0.5] * 4}
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    assert report.counts["long_solutions"] == 1 and report.counts["long_pairs"] == 2
    assert report.counts["pairs"] == 10 and report.counts["solutions"] == 11
    assert "left out 1 solutions beyond the context length, and 2 pairs" in caplog.text
    with pytest.raises(InputError, match="none of 12 pairs is left; 12 solutions exceed 8 tokens"):
        dpo.train_dpo(config(policy, data, tmp_path / "none", max_length=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen_rewards": [0.5]}, "row 1: 1 chosen_rewards for 3 chosen_steps"),
        ({"rejected_rewards": [0.1, math.nan, 0.2]}, "row 1: reward nan in rejected_rewards"),
        ({"rejected_rewards": [0.1, None, 0.2]}, "row 1: reward None in rejected_rewards"),
        (
            {"chosen_rewards": None},
            "columns chosen_rewards are missing. The loss full-step needs them",
        ),
        (
            {"chosen_steps": None, "chosen_rewards": None},
            "columns chosen_steps, chosen_rewards are missing",
        ),
        ({"chosen_steps": "Step"}, "chosen_steps and chosen_rewards: expected two lists"),
        ({"chosen_steps": ["a", "", "b"]}, "chosen_steps is empty or has an empty step"),
        ({"chosen_steps": [], "chosen_rewards": []}, "chosen_steps is empty or has an empty step"),
        ({"chosen": "something else"}, "chosen_steps do not join to the text in chosen"),
        ({"chosen_rewards": [0.1, 1e300, 0.2]}, r"reward 1e\+300 in chosen_rewards"),
        ({"prompt": [{"role": "user", "content": "2 + 2?"}]}, "prompt: expected a text"),
    ],
)
def test_invalid_rows_are_named(
    change: dict[str, Any], message: str, policy: Path, tmp_path: Path
) -> None:
    row = preference_rows()[0] | change
    data = write_rows(tmp_path / "pairs.jsonl", [row])
    with pytest.raises(InputError, match=message):
        dpo.train_dpo(config(policy, data, tmp_path / "out"))


@pytest.mark.parametrize("rewards", [[0.1, math.nan, 0.2], [None], "none", [1e300] * 3])
def test_losses_without_rewards_ignore_the_rewards(rewards: Any) -> None:
    row = preference_rows()[0]
    damaged = row | {"chosen_rewards": rewards, "rejected_rewards": rewards}
    loss = PREFERENCE_LOSSES["dpo"]
    assert group_by_prompt([("row 1", damaged)], loss) == group_by_prompt([("row 1", row)], loss)


def test_an_overflow_of_gamma_times_reward_names_the_pair_and_the_cause(
    policy: Path, tmp_path: Path
) -> None:
    rows = preference_rows()
    rows[3] |= {"rejected_rewards": [0.1, -1e25, 0.2]}
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    message = r"gamma = 1e\+20: .*row 4: the reward -1e\+25 times 1e\+20 is too large for float32"
    with pytest.raises(InputError, match=message):
        dpo.train_dpo(config(policy, data, tmp_path / "out", gamma=1e20))


def test_a_nan_in_the_first_step_is_not_blamed_on_the_learning_rate(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(policy, tmp_path / "damaged"))
    tensors = safetensors.torch.load_file(damaged / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 3] = math.nan
    safetensors.torch.save_file(tensors, damaged / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"model = .* the first step is NaN or infinite, before"):
        dpo.train_dpo(config(damaged, data, tmp_path / "out"))


def test_identical_chosen_and_rejected_texts_are_refused() -> None:
    row = preference_rows()[0]
    rejected_side = {f"rejected{end}": row[f"chosen{end}"] for end in ("", "_steps", "_rewards")}
    with pytest.raises(InputError, match="row 7: chosen and rejected are the same text"):
        group_by_prompt([("pairs, row 7", row | rejected_side)], PREFERENCE_LOSSES["dpo"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "DpoConfig.beta = 0.0: expected more than 0"),
        ({"shuffle": "rows"}, "shuffle = 'rows': expected one of groups, pairs"),
        (
            {"lora": 2, "deepspeed": "zero3"},
            "lora = 2: adapters cannot be merged",
        ),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(Path("policy"), Path("data"), Path("out"), **options)


def test_other_input_errors_are_named(policy: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="the file is empty; the loss full-step needs"):
        dpo.train_dpo(config(policy, tmp_path / "empty.jsonl", tmp_path / "out"))
    with pytest.raises(InputError, match="Expected a dataset with pairs"):
        open_pairs([tmp_path / "nowhere"], PREFERENCE_LOSSES["dpo"])
    with pytest.raises(InputError, match="optim = 'adam': expected one of adamw_torch"):
        dpo.train_dpo(config(policy, data, tmp_path / "a", optim="adam"))
    if not torch.cuda.is_available():
        with pytest.raises(
            InputError, match="attention = 'flex': FlexAttention has gradients on GPUs only"
        ):
            dpo.train_dpo(config(policy, data, tmp_path / "f", attention="flex"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(SchemaError, match="holds no dataset"):
        open_pairs([tmp_path / "folder"], PREFERENCE_LOSSES["dpo"])


def test_the_command_line(policy: Path, data: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fsdpo_train.cli.app import app

    arguments = ["dpo", data, "--out", tmp_path / "out", "--model", policy]
    arguments += ["--max-steps", "2", "--lr", "1e-3", "--loss", "dpo", "--no-share-prompt"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert "2 steps, mean loss" in result.output and "rewards/margins" in result.output
    state = json.loads((tmp_path / "out/dpo.json").read_text())
    assert state["loss"] == "dpo" and state["share_prompt"] is False and state["lr"] == 1e-3


PLAIN_PAIR = {
    "prompt": "Problem: 1 + 1?\nSolution:\n",
    "chosen": "It is 2.",
    "rejected": "It is 3.",
}


@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_losses_without_steps_train_on_plain_texts_as_on_one_step(
    loss: str, policy: Path, tmp_path: Path
) -> None:
    one_step = {
        "prompt": PLAIN_PAIR["prompt"],
        "chosen_steps": [PLAIN_PAIR["chosen"]],
        "rejected_steps": [PLAIN_PAIR["rejected"]],
    }
    losses = []
    for name, row in (("plain", PLAIN_PAIR), ("steps", one_step)):
        data = tmp_path / f"{name}.jsonl"
        data.write_text(json.dumps(row) + "\n")
        losses.append(dpo.train_dpo(config(policy, data, tmp_path / name, loss=loss)).loss)
    assert losses[0] == losses[1] > 0


@pytest.mark.parametrize("loss", ["full-step", "step-dpo"])
def test_losses_with_steps_say_how_to_get_them(loss: str, policy: Path, tmp_path: Path) -> None:
    data = tmp_path / "plain.jsonl"
    data.write_text(json.dumps(PLAIN_PAIR) + "\n")
    with pytest.raises(InputError, match=r"`loss=dpo`.*fsdpo-data import .*fsdpo-data score"):
        dpo.train_dpo(config(policy, data, tmp_path / "out", loss=loss))


def test_a_conversation_in_place_of_a_text_is_refused(policy: Path, tmp_path: Path) -> None:
    data = tmp_path / "plain.jsonl"
    messages = [{"role": "assistant", "content": "2"}]
    data.write_text(json.dumps(PLAIN_PAIR | {"chosen": messages}) + "\n")
    with pytest.raises(InputError, match="chosen: expected a non-empty text, with the chat"):
        dpo.train_dpo(config(policy, data, tmp_path / "out", loss="dpo"))
