"""Preference training: the loss falls, batching changes nothing, the reference is computed once."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_random_model
from training import killed_at

torch = pytest.importorskip("torch")
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
from fsdpo_train.config import DpoConfig, Loss  # noqa: E402
from fsdpo_train.preference import reference  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.preference.data import prepare_pairs  # noqa: E402
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", preference_rows())


def config(policy: Path, data: Path, out: Path, **options: Any) -> DpoConfig:
    defaults: dict[str, Any] = dict(lr=1e-3, batch_size=2, epochs=2, log_every=1, save_every=0)
    return DpoConfig(data=data, out=out, model=str(policy), **(defaults | options))


def losses(out: Path) -> list[float]:
    """Return the loss of every step, as the trainer's last checkpoint has it."""
    states = sorted(out.glob("checkpoints/*/trainer_state.json"))
    return [e["loss"] for e in json.loads(states[-1].read_text())["log_history"] if "loss" in e]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()


def largest_difference(one: Path, other: Path) -> float:
    ours, theirs = weights(one), weights(other)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_every_loss_learns_to_prefer(loss: str, policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", loss=loss, epochs=4))
    assert report.loss < 0.4 < math.log(2)
    assert report.metrics["rewards/accuracies"] == 1
    assert report.metrics["rewards/margins"] > 0.5
    assert report.counts["pairs"] == 24 and report.counts["solutions"] == 24


def test_the_first_step_knows_no_preference(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    assert report.loss == pytest.approx(math.log(2), abs=1e-5)
    assert report.metrics["kl"] == pytest.approx(0, abs=1e-3)
    assert report.metrics["rewards/margins"] == pytest.approx(0, abs=1e-5)


def test_the_card_names_what_it_was_made_from(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", max_steps=1))
    card = (tmp_path / "out/README.md").read_text()
    assert f"`{policy.name}`" in card and str(policy) not in card
    assert "| data | `sha256:" in card and "| reference | `" in card
    assert f"| rewards/margins | {report.metrics['rewards/margins']:.4f} |" in card
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.eos_token_id is not None
    assert weights(tmp_path / "out").keys() == weights(policy).keys()


def test_an_optimizer_of_eight_bits_trains_as_adamw_does(
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
def test_one_row_per_solution_trains_the_same(
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
        return pad_sequences([[0] * each for each in lengths], 0, "cpu", pad_left=left)[1]

    assert row_mask(2, 3).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert row_mask(2, 4097).all() and not row_mask(2, 4097, left=True).all()
    options: dict[str, Any] = dict(share_prompt=False, save_every=6)
    dpo.train_dpo(config(policy, data, tmp_path / "mask", **options))
    monkeypatch.setattr("fsdpo_data.engines.prefix_sharing.MAX_MASKED_ROW_TOKENS", 4)
    assert row_mask(2, 5).all()
    dpo.train_dpo(config(policy, data, tmp_path / "none", **options))
    assert losses(tmp_path / "mask") == pytest.approx(losses(tmp_path / "none"), rel=1e-4)


def test_accumulation_counts_every_pair_the_same(policy: Path, tmp_path: Path) -> None:
    """A mean of batch means would not: the prompts have one, two, three and more pairs."""
    rows = preference_rows(prompts=4, top=3)
    kept = [row for i, row in enumerate(rows) if i % 9 <= 2 * (i // 9)]
    data = write_rows(tmp_path / "pairs.jsonl", kept)
    same: dict[str, Any] = dict(group_by_length=False, save_every=3, epochs=3)
    one = config(policy, data, tmp_path / "one", batch_size=4, **same)
    two = config(policy, data, tmp_path / "two", batch_size=1, grad_accum=4, **same)
    for each in (one, two):
        assert dpo.train_dpo(each).steps == 3
    assert losses(one.out) == pytest.approx(losses(two.out), rel=1e-5)
    assert largest_difference(one.out, two.out) < 1e-4


@pytest.mark.parametrize("shuffle", ["groups", "pairs"])
def test_batches_of_tokens_change_neither_loss_nor_gradients(
    shuffle: str, policy: Path, tmp_path: Path
) -> None:
    """Steps of all pairs, in one pass or in several that are full."""
    rows = preference_rows(prompts=4, top=3)
    kept = [row for i, row in enumerate(rows) if i % 9 <= 2 * (i // 9)]
    data = write_rows(tmp_path / "pairs.jsonl", kept)
    same: dict[str, Any] = dict(save_every=3, epochs=3, grad_accum=99, shuffle=shuffle)
    found = {}
    for name, tokens in (("rows", 0), ("some", 150), ("all", 10**6)):
        each = config(policy, data, tmp_path / name, batch_size=99, batch_tokens=tokens, **same)
        assert dpo.train_dpo(each).steps == 3
        found[name] = losses(each.out)
        assert largest_difference(each.out, tmp_path / "rows") < 1e-4
    assert found["some"] == pytest.approx(found["rows"], rel=1e-5)
    assert found["all"] == pytest.approx(found["rows"], rel=1e-5)


def test_pairs_scattered_over_one_batch_are_the_groups(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    same: dict[str, Any] = dict(save_every=2)
    groups = config(policy, data, tmp_path / "groups", batch_size=6, **same)
    pairs = config(policy, data, tmp_path / "pairs", batch_size=24, shuffle="pairs", **same)
    for each in (groups, pairs):
        assert dpo.train_dpo(each).steps == 2
    assert losses(groups.out) == pytest.approx(losses(pairs.out), rel=1e-5)


@pytest.mark.parametrize("tokens", [0, 150])
def test_a_run_killed_and_resumed_ends_in_the_same_weights(
    tokens: int, policy: Path, data: Path, tmp_path: Path
) -> None:
    same: dict[str, Any] = dict(save_every=2, batch_tokens=tokens)
    expected = dpo.train_dpo(config(policy, data, tmp_path / "whole", **same))

    part = tmp_path / "part"
    # Past the checkpoint at 4, in the second epoch.
    killed_at(5, dpo, lambda: dpo.train_dpo(config(policy, data, part, **same)))
    resumed = dpo.train_dpo(config(policy, data, part, resume=True, **same))
    assert resumed.loss == expected.loss and resumed.metrics == expected.metrics
    assert largest_difference(part, tmp_path / "whole") == 0
    with pytest.raises(RunMismatchError, match=r"these differ: \['beta'\]"):
        dpo.train_dpo(config(policy, data, part, resume=True, beta=0.1, **same))


def test_a_finished_run_says_the_same_when_it_is_resumed(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    """It is shorter than a logging window, whose loss would be that of no step."""
    same: dict[str, Any] = dict(save_every=500, log_every=10, max_steps=2)
    finished = dpo.train_dpo(config(policy, data, tmp_path / "out", **same))
    card = (tmp_path / "out/README.md").read_text()
    assert finished.loss > 0 and finished.metrics
    assert dpo.train_dpo(config(policy, data, tmp_path / "out", resume=True, **same)) == finished
    assert (tmp_path / "out/README.md").read_text() == card


def test_a_run_that_diverges_ends_and_keeps_its_last_checkpoint(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    wild: dict[str, Any] = dict(lr=1e30, max_grad_norm=1e30, warmup=0, save_every=1)
    with pytest.raises(InputError, match="training diverged: the gradient norm at step 2 is NaN"):
        dpo.train_dpo(config(policy, data, tmp_path / "out", **wild))
    assert [each.name for each in (tmp_path / "out/checkpoints").iterdir()] == ["checkpoint-1"]
    assert not (tmp_path / "out/config.json").exists()


def test_lora_is_merged_into_plain_weights(policy: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", lora=4, epochs=4, lr=1e-2))
    assert report.metrics["rewards/accuracies"] == 1
    assert not list((tmp_path / "out").glob("adapter*"))
    before, after = weights(policy), weights(tmp_path / "out")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("proj" in name for name in changed)


def test_the_base_of_adapters_is_in_halves_and_comes_out_whole(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    seen = set()
    real = dpo.run_trainer

    def watched(trainer: Any, *given: Any) -> None:
        seen.update((each.requires_grad, each.dtype) for each in trainer.model.parameters())
        real(trainer, *given)

    monkeypatch.setattr(dpo, "run_trainer", watched)
    same: dict[str, Any] = dict(lora=4, dtype="bfloat16", epochs=4, lr=1e-2, save_every=1)
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", **same))
    assert report.metrics["rewards/accuracies"] == 1
    assert seen == {(True, torch.float32), (False, torch.bfloat16)}
    assert losses(tmp_path / "out")[0] == pytest.approx(math.log(2), abs=1e-3)
    after = weights(tmp_path / "out")
    assert {each.dtype for each in after.values()} == {torch.float32}


def test_gradient_checkpointing_changes_nothing(policy: Path, data: Path, tmp_path: Path) -> None:
    for name, checkpointing in (("plain", False), ("again", True)):
        options: dict[str, Any] = dict(gradient_checkpointing=checkpointing, max_steps=3)
        dpo.train_dpo(config(policy, data, tmp_path / name, **options))
    assert largest_difference(tmp_path / "plain", tmp_path / "again") < 1e-6


def test_bfloat16_starts_from_its_own_reference(policy: Path, data: Path, tmp_path: Path) -> None:
    report = dpo.train_dpo(config(policy, data, tmp_path / "out", dtype="bfloat16", max_steps=1))
    assert report.loss == pytest.approx(math.log(2), abs=1e-3)
    assert weights(tmp_path / "out")["lm_head.weight"].dtype == torch.float32


@pytest.mark.parametrize(("window", "told"), [(16, "once per solution"), (200, "computed once\n")])
def test_a_narrow_window_takes_a_row_per_solution(
    window: int, told: str, policy: Path, data: Path, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO")
    settings = transformers.AutoConfig.from_pretrained(policy)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
    architecture = transformers.MistralConfig(
        **{name: getattr(settings, name) for name in names},
        num_hidden_layers=1,
        num_key_value_heads=1,
        max_position_embeddings=256,
        sliding_window=window,
        eos_token_id=settings.eos_token_id,
    )
    other = tmp_path / "mistral"
    transformers.MistralForCausalLM(architecture).save_pretrained(other)
    transformers.AutoTokenizer.from_pretrained(policy).save_pretrained(other)
    report = dpo.train_dpo(config(other, data, tmp_path / "out", max_steps=1))
    assert told in caplog.text
    assert report.loss == pytest.approx(math.log(2), abs=1e-5)


def test_logits_changed_behind_the_head_are_refused() -> None:
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


def no_model(*_: Any, **__: Any) -> Any:
    raise AssertionError("the reference was computed again")


SAVING = """
import sys
from pathlib import Path
from fsdpo_train.preference.reference_store import ReferenceKey, ReferenceStore
store = ReferenceStore(Path(sys.argv[1]), {})
rows = [(ReferenceKey(str(i), "prompt", "text"), [0.5] * 50) for i in range(500)]
for _ in range(60):
    store.save(rows)
assert len(store.load([key for key, _ in rows])) == 500
"""


def test_runs_that_share_a_reference_may_save_the_same_at_once(tmp_path: Path) -> None:
    line = [sys.executable, "-c", SAVING, str(tmp_path / "reference")]
    runs = [subprocess.Popen(line, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [run.communicate()[1] for run in runs] == ["", "", ""]
    left = sorted(each.suffix for each in (tmp_path / "reference").iterdir())
    assert left == [".json", ".parquet"]


def test_the_reference_is_computed_once_for_all_runs(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same: dict[str, Any] = dict(reference_cache=tmp_path / "of [1] 50%", max_steps=2)
    first = dpo.train_dpo(config(policy, data, tmp_path / "first", **same))
    monkeypatch.setattr(reference, "load_model", no_model)
    again = dpo.train_dpo(config(policy, data, tmp_path / "again", **same))
    assert again.loss == first.loss
    fewer = write_rows(tmp_path / "fewer.jsonl", preference_rows()[2:5])
    other = dpo.train_dpo(config(policy, fewer, tmp_path / "other", beta=0.3, gamma=2.0, **same))
    assert other.counts["pairs"] == 3


def test_new_solutions_are_added_to_the_reference(
    policy: Path, data: Path, tmp_path: Path, capfd: Any
) -> None:
    same: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    dpo.train_dpo(config(policy, data, tmp_path / "first", **same))
    more = write_rows(tmp_path / "more.jsonl", preference_rows(prompts=8))
    capfd.readouterr()
    dpo.train_dpo(config(policy, more, tmp_path / "second", **same))
    assert "reference: 8 to do" in capfd.readouterr().err


def test_every_loss_reads_one_reference(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    for loss in ("full-step", "step-dpo"):  # whose solutions are cut, so they are added
        dpo.train_dpo(config(policy, data, tmp_path / loss, loss=loss, **same))
    monkeypatch.setattr(reference, "load_model", no_model)
    for loss in get_args(Loss):
        dpo.train_dpo(config(policy, data, tmp_path / f"{loss}-again", loss=loss, **same))


def test_a_process_computes_its_own_groups_whatever_others_have_added(policy: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    prompts = group_by_prompt([("row", row) for row in preference_rows()], loss="dpo")
    data = prepare_pairs(prompts, tokenizer, 256, {})
    found = {key.solution: None for key in data.keys[0]}
    mine, theirs = (
        [key for _, keys in reference._missing_groups(data, there, process, 2) for key in keys]
        for process, there in ((0, {}), (1, found))
    )
    assert len({*mine, *theirs}) == len(mine) + len(theirs) == 24


def test_the_reference_of_something_else_is_refused(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "reference"
    same: dict[str, Any] = dict(reference_cache=cache, max_steps=1)
    dpo.train_dpo(config(policy, data, tmp_path / "first", **same))

    def refused(message: str, model: Path = policy, data: Path = data, **options: Any) -> None:
        with pytest.raises(RunMismatchError, match=message):
            dpo.train_dpo(config(model, data, tmp_path / "refused", **same, **options))

    refused("model is .* in the store", model=save_random_model(tmp_path / "other", seed=1))
    refused("precision is float32 in the store, bfloat16 in this run", dtype="bfloat16")
    rows = preference_rows()
    prompts = [{**row, "prompt": "Q: " + row["prompt"]} for row in rows]
    refused("the prompts differ", data=write_rows(tmp_path / "prompts.jsonl", prompts))
    unknown = [json.loads(json.dumps(row).replace("Step", "Line")) for row in prompts]
    refused("the data differ", data=write_rows(tmp_path / "unknown.jsonl", unknown))


def test_a_changed_reference_is_found_out(policy: Path, data: Path, tmp_path: Path) -> None:
    same: dict[str, Any] = dict(reference_cache=tmp_path / "reference", max_steps=1)
    dpo.train_dpo(config(policy, data, tmp_path / "first", **same))
    (file,) = (tmp_path / "reference").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreError, match="was changed since it was written"):
        dpo.train_dpo(config(policy, data, tmp_path / "second", **same))


def test_step_dpo_ends_with_the_first_difference() -> None:
    base = {"prompt": "p", "chosen_rewards": [0.5] * 3, "rejected_rewards": [0.5] * 3}
    row = base | {"chosen_steps": ["a", "b", "c"], "rejected_steps": ["a", "x", "y"]}
    (group,) = group_by_prompt([("row 1", row)], loss="step-dpo")
    assert [(each.steps, each.ends_with_eos) for each in group.solutions] == [
        (("a", "b"), False),
        (("a", "x"), False),
    ]
    shorter = base | {
        "chosen_steps": ["a", "b"],
        "chosen_rewards": [0.5] * 2,
        "rejected_steps": ["a", "b", "c"],
    }
    (group,) = group_by_prompt([("row 1", shorter)], loss="step-dpo")
    assert [(each.steps, each.ends_with_eos) for each in group.solutions] == [
        (("a", "b"), True),
        (("a", "b", "c"), True),
    ]
    (group,) = group_by_prompt([("row 1", row)], loss="dpo")
    assert [len(each.steps) for each in group.solutions] == [3, 3]


def test_losses_without_rewards_do_without_them() -> None:
    row = preference_rows()[0]
    bare = {name: text for name, text in row.items() if not name.endswith("_rewards")}
    for loss in ("dpo", "step-dpo"):
        (group,) = group_by_prompt([("row 1", bare)], loss)
        (scored,) = group_by_prompt([("row 1", row)], loss)
        assert [each.steps for each in group.solutions] == [each.steps for each in scored.solutions]
    for loss in ("full-step", "full-step-scaled", "public-code"):
        with pytest.raises(
            InputError, match="columns chosen_rewards, rejected_rewards are missing"
        ):
            group_by_prompt([("row 1", bare)], loss)
    with pytest.raises(InputError, match="chosen_steps and chosen_rewards: expected two lists"):
        group_by_prompt([("row 1", bare | {"chosen_steps": 3})], "dpo")


def test_each_different_solution_is_kept_once() -> None:
    rows = [("row", row) for row in preference_rows(prompts=3, top=4)]
    groups = group_by_prompt(rows, loss="dpo")
    assert [len(group.solutions) for group in groups] == [8, 8, 8]
    assert [len(group.pairs) for group in groups] == [16, 16, 16]


def test_solutions_beyond_the_context_are_left_out_whole(
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
def test_rows_that_disagree_are_named(
    change: dict[str, Any], message: str, policy: Path, tmp_path: Path
) -> None:
    row = preference_rows()[0] | change
    data = write_rows(tmp_path / "pairs.jsonl", [row])
    with pytest.raises(InputError, match=message):
        dpo.train_dpo(config(policy, data, tmp_path / "out"))


def test_two_sides_of_one_text_are_refused() -> None:
    row = preference_rows()[0]
    same = {f"rejected{end}": row[f"chosen{end}"] for end in ("", "_steps", "_rewards")}
    with pytest.raises(InputError, match="row 7: chosen and rejected are the same text"):
        group_by_prompt([("pairs, row 7", row | same)], loss="dpo")


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


def test_other_mistakes_are_named(policy: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="the data has no pairs"):
        dpo.train_dpo(config(policy, tmp_path / "empty.jsonl", tmp_path / "out"))
    with pytest.raises(InputError, match="expected a sealed dataset with pairs"):
        open_pairs(tmp_path / "nowhere")
    with pytest.raises(InputError, match="optim = 'adam': expected one of adamw_torch"):
        dpo.train_dpo(config(policy, data, tmp_path / "a", optim="adam"))
    if not torch.cuda.is_available():
        with pytest.raises(
            InputError, match="attention = 'flex': FlexAttention has gradients on GPUs only"
        ):
            dpo.train_dpo(
                config(policy, tmp_path / "empty.jsonl", tmp_path / "f", attention="flex")
            )
    (tmp_path / "folder").mkdir()
    with pytest.raises(SchemaError, match="holds no dataset"):
        open_pairs(tmp_path / "folder")


def test_the_command_line(policy: Path, data: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fsdpo_train.cli.app import app

    arguments = ["dpo", data, "--out", tmp_path / "out", "--model", policy]
    arguments += ["--max-steps", "2", "--lr", "1e-3", "--loss", "dpo", "--no-share-prompt"]
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    assert "2 steps, final loss" in result.output and "rewards/margins" in result.output
    state = json.loads((tmp_path / "out/dpo.json").read_text())
    assert state["loss"] == "dpo" and state["share_prompt"] == "False"
