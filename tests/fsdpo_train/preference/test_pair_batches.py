"""Batches that are counted in pairs: whole prompts, the same on any number of processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_random_model
from training import kill_at_step, python

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

from fsdpo_data.core.errors import InputError, RunMismatchError  # noqa: E402
from fsdpo_train.config import DpoConfig  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.preference.data import PairRow  # noqa: E402
from fsdpo_train.preference.pair_batches import PairBatchSampler, pair_batches  # noqa: E402
from fsdpo_train.preference.pairs import open_pairs  # noqa: E402
from fsdpo_train.trainer.computed_defaults import with_computed_defaults  # noqa: E402
from fsdpo_train.trainer.run import start_run  # noqa: E402

#: Plain gradient descent, whose weights show the gradient of every step.
PLAIN_SGD: dict[str, Any] = dict(
    optim="sgd", schedule="constant", warmup=0, max_grad_norm=1e9, lr=0.05, beta=0.5
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


def uneven_pairs() -> list[dict[str, Any]]:
    """Return the pairs of seven prompts, which have 1, 2, 3, 4, 5, 6 and 7 pairs."""
    rows = preference_rows(prompts=7, top=3)
    return [row for index, row in enumerate(rows) if index % 9 <= index // 9]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", uneven_pairs())


def config(policy: Path, data: Path, out: Path, **options: Any) -> DpoConfig:
    defaults: dict[str, Any] = dict(batch_size=2, batch_pairs=8, log_every=1, save_every=0)
    return DpoConfig(data=data, out=out, model=str(policy), **(defaults | options))


def pair_rows(counts: list[int]) -> list[PairRow]:
    """Return one row per prompt with this number of pairs, and a padding row."""
    rows = [
        PairRow(group=index, pairs=[(0, 1)] * count, length=10 + index * 7 % 5)
        for index, count in enumerate(counts)
    ]
    return [*rows, PairRow(group=0, pairs=[], length=0)]


COUNTS = [index * 11 % 16 + 1 for index in range(90)]


def sampled_steps(sampler: PairBatchSampler) -> list[list[int]]:
    """Return the rows of each step without padding, in the order of training."""
    order = list(sampler)
    assert len(order) == len(sampler)
    starts = range(0, len(order), sampler.rows_per_step)
    steps = [order[start : start + sampler.rows_per_step] for start in starts]
    return [[index for index in step if index < len(COUNTS)] for step in steps]


def test_a_step_ends_with_the_prompt_that_completes_its_pairs() -> None:
    batches = pair_batches(pair_rows(COUNTS)[:-1], 64, seed=3)
    assert sorted(index for batch in batches for index in batch) == list(range(len(COUNTS)))
    for batch in batches[:-1]:
        assert sum(COUNTS[index] for index in batch) >= 64
        assert sum(COUNTS[index] for index in batch[:-1]) < 64
    assert len(batches[-1]) >= 1
    assert batches == pair_batches(pair_rows(COUNTS)[:-1], 64, seed=3)
    assert batches != pair_batches(pair_rows(COUNTS)[:-1], 64, seed=4)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_any_number_of_processes_trains_the_same_steps(batch_size: int) -> None:
    rows = pair_rows(COUNTS)
    options = config(Path("m"), Path("d"), Path("o"), batch_size=batch_size, batch_pairs=64)
    steps_by_epoch = {}
    for world_size in (1, 2, 5):
        sampler = PairBatchSampler(rows, options, world_size)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            steps = [sorted(step) for step in sampled_steps(sampler)]
            assert steps == steps_by_epoch.setdefault(epoch, steps)
    assert sorted(steps_by_epoch[0]) == sorted(steps_by_epoch[1])
    assert steps_by_epoch[0] != steps_by_epoch[1]


def test_every_process_gets_prompts_of_every_step() -> None:
    options = config(Path("m"), Path("d"), Path("o"), batch_size=4, batch_pairs=64)
    sampler = PairBatchSampler(pair_rows(COUNTS), options, 2)
    order = list(sampler)
    # Consecutive micro-batches of four rows go to consecutive processes.
    micro_batches = [order[start : start + 4] for start in range(0, len(order), 4)]
    for first, second in zip(micro_batches[0::2], micro_batches[1::2], strict=True):
        sizes = [sum(index < len(COUNTS) for index in half) for half in (first, second)]
        assert max(sizes) - min(sizes) <= 1


def plain_pair_losses(
    model: Any, reference: Any, tokenizer: Any, rows: list[dict[str, Any]], loss: str
) -> Iterator[Any]:
    """Yield the loss of each pair, or its surrogate, from a forward pass of its own."""

    def logprobs(network: Any, row: dict[str, Any], side: str) -> tuple[Any, Any]:
        steps = row[f"{side}_steps"]
        text = row["prompt"] + "".join(steps)
        encoded = tokenizer(text, return_offsets_mapping=True)
        ids = [*encoded["input_ids"], tokenizer.eos_token_id]
        starts = [*(start for start, _ in encoded["offset_mapping"]), len(text) - 1]
        ends = [len(row["prompt"] + "".join(steps[: count + 1])) for count in range(len(steps))]
        logits = network(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        values, owners = [], []
        for position in range(1, len(ids)):
            if starts[position] >= len(row["prompt"]):
                values.append(logits[position - 1, ids[position]])
                owners.append(next(k for k, end in enumerate(ends) if starts[position] < end))
        return torch.stack(values), torch.tensor(owners)

    for row in rows:
        ratios, gains = [], []
        for side, sign in (("chosen", 1), ("rejected", -1)):
            logp, owners = logprobs(model, row, side)
            with torch.no_grad():
                ratios.append((logp - logprobs(reference, row, side)[0]).sum())
            rewards = torch.tensor(row[f"{side}_rewards"])
            weights = (sign * 0.5 * rewards).softmax(-1)[owners]
            gains.append((logp * (weights if loss == "full-step" else 1)).sum())
        margin = PLAIN_SGD["beta"] * (ratios[0] - ratios[1]).detach()
        yield -PLAIN_SGD["beta"] * torch.sigmoid(-margin) * (gains[0] - gains[1])


@pytest.mark.parametrize("loss", ["full-step", "dpo"])
def test_the_gradient_of_a_step_is_the_mean_over_its_pairs(
    loss: str, policy: Path, data: Path, tmp_path: Path
) -> None:
    """Compare the trained weights with gradient descent on the plain loss, pair by pair."""
    options = config(policy, data, tmp_path / "out", loss=loss, **PLAIN_SGD)
    report = dpo.train_dpo(options)
    rows = uneven_pairs()
    pairs_by_prompt: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        pairs_by_prompt.setdefault(row["prompt"], []).append(row)
    prompts = list(pairs_by_prompt)
    lengths = [len(pairs) for pairs in pairs_by_prompt.values()]
    sampler = PairBatchSampler(pair_rows(lengths), options, 1)
    order = list(sampler)
    steps = [
        order[i : i + sampler.rows_per_step] for i in range(0, len(order), sampler.rows_per_step)
    ]
    assert report.steps == len(steps) > 2

    load = transformers.AutoModelForCausalLM.from_pretrained
    model, reference = load(policy).train(), load(policy)
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    for step in steps:
        batch = [
            row for index in step if index < len(prompts) for row in pairs_by_prompt[prompts[index]]
        ]
        model.zero_grad()
        terms = list(plain_pair_losses(model, reference, tokenizer, batch, loss))
        torch.stack(terms).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= PLAIN_SGD["lr"] * parameter.grad
    trained = load(tmp_path / "out").state_dict()
    start = reference.state_dict()
    moved = max(float((trained[name] - start[name]).abs().max()) for name in trained)
    error = max(float((trained[name] - model.state_dict()[name]).abs().max()) for name in trained)
    assert moved > 1e-2 and error < 1e-3 * moved


def test_a_resumed_run_ends_in_the_same_weights(policy: Path, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = dict(save_every=2, epochs=2, lr=1e-3)
    expected = dpo.train_dpo(config(policy, data, tmp_path / "whole", **options))
    part = tmp_path / "part"
    kill_at_step(5, dpo, lambda: dpo.train_dpo(config(policy, data, part, **options)))
    resumed = dpo.train_dpo(config(policy, data, part, resume=True, **options))
    assert resumed == expected.__class__(**{**vars(expected), "out": part})
    load = transformers.AutoModelForCausalLM.from_pretrained
    ours, theirs = load(part).state_dict(), load(tmp_path / "whole").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "pairs"}, "with `shuffle=pairs`, a row is one pair"),
        ({"grad_accum": 2}, "Leave `batch_tokens` and `grad_accum` out"),
        ({"batch_tokens": 100}, "Leave `batch_tokens` and `grad_accum` out"),
    ],
)
def test_options_that_pairs_replace_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(Path("m"), Path("d"), Path("o"), **options)


#: Program of a process that trains, and records step and number of pairs of each micro-batch. The
#: number identifies a prompt of ``uneven_pairs``.
RECORDER = """
import json, os, pathlib
from fsdpo_train.cli.app import main
from fsdpo_train.preference.train import PreferenceTrainer

file = pathlib.Path(__file__).with_name(f"rank-{os.environ['RANK']}.jsonl")
compute_loss = PreferenceTrainer.compute_loss

def record_pairs(trainer, model, inputs, *args, **options):
    record = [trainer.state.global_step, len(inputs["solutions"].chosen_P)]
    with file.open("a") as lines:
        lines.write(json.dumps(record) + "\\n")
    return compute_loss(trainer, model, inputs, *args, **options)

PreferenceTrainer.compute_loss = record_pairs
main()
"""


def read_log(out: Path, key: str) -> list[float]:
    """Return the logged values of a training run with one checkpoint."""
    [file] = out.glob("checkpoints/checkpoint-*/trainer_state.json")
    return [entry[key] for entry in json.loads(file.read_text())["log_history"] if key in entry]


@pytest.mark.proof
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="plain"),
        pytest.param(
            ("--deepspeed", "zero3", "--gradient-checkpointing", "--head-chunk", "16"),
            marks=(pytest.mark.deepspeed, pytest.mark.short_proof),
            id="zero3",
        ),
    ],
)
def test_two_processes_train_the_steps_of_one(
    options: tuple[str, ...], policy: Path, data: Path, tmp_path: Path
) -> None:
    """Both have equally many micro-batches, also in steps where one of them has fewer prompts."""
    arguments = ["dpo", str(data), "--model", str(policy), "--lr", "1e-3", "--epochs", "2"]
    arguments += ["--batch-pairs", "8", "--batch-size", "1", "--log-every", "1"]
    recorder = tmp_path / "recorder.py"
    recorder.write_text(RECORDER)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    single, distributed = tmp_path / "single", tmp_path / "distributed"
    python("-m", "fsdpo_train", *arguments, "--out", str(single))
    python(*torchrun, str(recorder), *arguments, *options, "--out", str(distributed))

    rows = pair_rows([1, 2, 3, 4, 5, 6, 7])
    run = config(policy, data, tmp_path, batch_size=1)
    sampler = PairBatchSampler(rows, run, 2)
    expected_steps = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        order = list(sampler)
        starts = range(0, len(order), sampler.rows_per_step)
        steps = [order[start : start + sampler.rows_per_step] for start in starts]
        expected_steps += [sorted(len(rows[i].pairs) for i in step if i < 7) for step in steps]
    # Every step has at least 8 pairs, of complete prompts, except one with the rest of the data.
    assert sum(map(sum, expected_steps)) == 2 * 28
    assert sum(sum(step) < 8 for step in expected_steps) <= 2

    records = [
        [json.loads(line) for line in (tmp_path / f"rank-{rank}.jsonl").read_text().splitlines()]
        for rank in (0, 1)
    ]
    by_step = [
        [[n_pairs for record_step, n_pairs in record if record_step == step] for record in records]
        for step in range(len(expected_steps))
    ]
    for micro_batches, expected in zip(by_step, expected_steps, strict=True):
        assert [len(counts) for counts in micro_batches] == [sampler.micro_batches] * 2
        assert sorted(count for counts in micro_batches for count in counts if count) == expected
    n_prompts = [[sum(map(bool, counts)) for counts in ranks] for ranks in by_step]
    assert any(first != second for first, second in n_prompts)

    # The order of float32 sums differs, but some steps of Adam keep the difference small.
    for key in ("loss", "rewards/margins"):
        assert read_log(distributed, key) == pytest.approx(read_log(single, key), abs=2e-4)
    load = transformers.AutoModelForCausalLM.from_pretrained
    expected_weights, weights = load(single).state_dict(), load(distributed).state_dict()
    worst = max(float((expected_weights[n] - weights[n]).abs().max()) for n in expected_weights)
    assert expected_weights.keys() == weights.keys() and worst < 1e-3


def test_batches_of_prompts_belong_to_a_number_of_processes(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process adds rows to a step, so another number would skip other rows on resume."""
    run_config = config(policy, data, tmp_path / "out", batch_pairs=0, max_steps=1)
    dpo.train_dpo(run_config)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunMismatchError, match=r"these keys differ:\n  processes: "):
        dpo.train_dpo(run_config.replace(resume=True))


def test_batches_of_pairs_resume_on_any_number_of_processes(
    policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config = config(policy, data, tmp_path / "out", max_steps=1)
    dpo.train_dpo(run_config)
    pairs = open_pairs(run_config.data, run_config.preference_loss)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with start_run(with_computed_defaults(run_config.replace(resume=True)), pairs) as identity:
        assert "processes" not in identity
