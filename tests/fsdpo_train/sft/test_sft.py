"""SFT on a model of a few thousand weights: losses, masks, resuming and refused options."""

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import real_tokenizers
from command_line import run
from training import kill_at_step

torch = pytest.importorskip("torch")
import safetensors.torch  # noqa: E402
import transformers  # noqa: E402

from fsdpo_data.core.errors import InputError, RunMismatchError, UnavailableError  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.step_tokens import EncodedSolution  # noqa: E402
from fsdpo_data.models.trained_template import TEMPLATE_FILE  # noqa: E402
from fsdpo_train.cli.app import main  # noqa: E402
from fsdpo_train.config import SftConfig  # noqa: E402
from fsdpo_train.sft import data as sft_data  # noqa: E402
from fsdpo_train.sft import train as sft  # noqa: E402
from fsdpo_train.trainer import batching  # noqa: E402
from fsdpo_train.trainer.row_formats import SFT_ROWS  # noqa: E402
from fsdpo_train.trainer.row_source import RowSource, TrainingData, open_data  # noqa: E402
from fsdpo_train.trainer.run import start_run  # noqa: E402
from fsdpo_train.trainer.trainer import count_warmup_steps  # noqa: E402

ROWS = [
    {"prompt": f"Problem: {a} plus {b}\nSolution:\n", "completion": f"Step 1: {a} + {b} = {a + b}"}
    for a in range(8)
    for b in range(8)
]


@pytest.fixture(scope="module")
def architecture(tmp_path_factory):
    """Return a folder with a tiny Llama config and a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("architecture")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(["<|end|>", "<|pad|>", *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>"
    ).save_pretrained(folder)
    transformers.LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=1,
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def config(architecture, data, out, **options):
    defaults = dict(lr=5e-3, batch_size=8, log_every=1, save_every=0)
    if "max_steps" not in options:
        defaults["epochs"] = 2
    return SftConfig(data=data, out=out, from_config=architecture, **(defaults | options))


def losses(out):
    states = out.glob("checkpoints/checkpoint-*/trainer_state.json")
    last = max(states, key=lambda path: int(path.parent.name.split("-")[1]))
    return [x["loss"] for x in json.loads(last.read_text())["log_history"] if "loss" in x]


def open_rows(data):
    return open_data([data], SFT_ROWS)


def tokenizer(architecture):
    return transformers.AutoTokenizer.from_pretrained(architecture)


def test_loss_goes_down_and_the_model_loads_back(architecture, data, tmp_path):
    report = sft.train_sft(config(architecture, data, tmp_path / "out", epochs=4, save_every=32))
    history = losses(tmp_path / "out")
    assert len(history) == report.steps == 32
    assert history[-1] < history[0] / 2
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == 0
    assert tokenizer(tmp_path / "out").eos_token == "<|end|>"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "64 rows" in card and "| lr | `0.005` |" in card


def test_the_loss_covers_only_the_completion_and_its_eos_token(architecture, data):
    tok = tokenizer(architecture)
    encoded, _, _ = sft_data.encode_rows(
        open_rows(data), tok, max_length=128, eos_ids=[tok.eos_token_id]
    )
    for row, source in zip(encoded, ROWS, strict=True):
        ids = row.solution.input_ids.tolist()
        n_prompt = row.solution.prompt_length
        trained = ids[n_prompt:]
        assert trained[-1] == tok.eos_token_id
        assert tok.decode(trained[:-1]) == source["completion"]
        assert tok.decode(ids[:n_prompt]) == source["prompt"]


def test_batches_are_padded_on_the_right():
    solutions = [
        EncodedSolution(
            input_ids=np.array(ids),
            prompt_length=n_prompt,
            score_positions=[len(ids) - 1],
            n_steps=1,
        )
        for ids, n_prompt in (([5, 6, 8], 2), ([7, 9], 1))
    ]
    tensors = batching.collate_tokens(solutions, pad_id=1)
    batch = {key: value.tolist() for key, value in tensors.items()}
    assert batch == {
        "input_ids": [[5, 6, 8], [7, 9, 1]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "completion_mask": [[False, False, True], [False, True, False]],
    }


def test_an_existing_eos_token_is_not_doubled(architecture, tmp_path):
    tok = tokenizer(architecture)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "p", "completion": "c<|end|>"}))
    (row,), _, _ = sft_data.encode_rows(
        open_rows(path), tok, max_length=128, eos_ids=[tok.eos_token_id]
    )
    assert row.solution.input_ids.tolist().count(tok.eos_token_id) == 1


def test_rows_longer_than_the_context_are_dropped_and_counted(architecture, data, tmp_path, caplog):
    caplog.set_level("INFO")
    with data.open("a") as file:
        file.write(json.dumps({"prompt": "p", "completion": "x" * 200}) + "\n")
        file.write(json.dumps({"prompt": "p", "completion": " "}) + "\n")
        file.write(json.dumps({"prompt": None, "completion": "y"}) + "\n")
    report = sft.train_sft(config(architecture, data, tmp_path / "out", max_steps=1))
    assert (report.rows, report.too_long, report.unusable) == (64, 1, 2)
    assert "dropped 1 of 67 rows: longer than 128 tokens" in caplog.text


def test_a_run_killed_and_resumed_ends_in_the_same_weights(architecture, data, tmp_path):
    uninterrupted = config(architecture, data, tmp_path / "whole", save_every=5)
    interrupted = config(architecture, data, tmp_path / "part", save_every=5)
    expected = sft.train_sft(uninterrupted)

    # Past the checkpoint at 10, in the second epoch.
    kill_at_step(12, sft, lambda: sft.train_sft(interrupted))
    resumed = sft.train_sft(
        config(architecture, data, tmp_path / "part", save_every=5, resume=True)
    )
    assert resumed.loss == expected.loss and resumed.steps == expected.steps == 16
    ours, theirs = (
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict()
        for name in ("part", "whole")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_gradient_accumulation_matches_one_large_batch(architecture, data, tmp_path):
    options = dict(group_by_length=False, log_every=4, max_steps=4)
    one_pass = config(architecture, data, tmp_path / "one", batch_size=16, **options)
    accumulated = config(
        architecture, data, tmp_path / "two", batch_size=8, grad_accum=2, **options
    )
    assert sft.train_sft(one_pass).loss == pytest.approx(sft.train_sft(accumulated).loss, abs=1e-4)


def test_token_budget_batches_match_one_large_batch(architecture, data, tmp_path):
    options = dict(log_every=1, max_steps=2, grad_accum=99)
    one_pass = config(architecture, data, tmp_path / "one", batch_size=99, **options)
    default = SftConfig.model_fields["batch_size"].default
    packed = config(
        architecture, data, tmp_path / "two", batch_size=default, batch_tokens=200, **options
    )
    assert sft.train_sft(one_pass).loss == pytest.approx(sft.train_sft(packed).loss, abs=1e-4)


def test_grouped_order_is_a_permutation_with_little_padding():
    lengths = [(i * 37) % 101 + 1 for i in range(1000)]
    order = list(batching.grouped_order(lengths, 10, seed=0, epoch=0))
    assert sorted(order) == list(range(1000))
    assert order != list(batching.grouped_order(lengths, 10, seed=0, epoch=1))

    def padding(order):
        batches = [[lengths[i] for i in order[start : start + 10]] for start in range(0, 1000, 10)]
        return sum(max(batch) * 10 - sum(batch) for batch in batches)

    plain = batching.grouped_order(lengths, 10, seed=0, epoch=0, group_by_length=False)
    assert padding(order) < padding(list(plain)) / 5


def test_model_continues_a_checkpoint(architecture, data, tmp_path):
    first = sft.train_sft(config(architecture, data, tmp_path / "first", epochs=4))
    again = SftConfig(
        data=data, out=tmp_path / "second", model=str(tmp_path / "first"), max_steps=1, log_every=1
    )
    assert sft.train_sft(again).loss < first.loss * 1.5


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.jsonl", "", "the file is empty"),
        (
            "missing.jsonl",
            '{"question": "q", "completion": "c"}\n',
            "the columns prompt are missing; SFT needs prompt, completion. The rows have question",
        ),
        ("broken.jsonl", '{"prompt": "p", "completion"\n', "row 1: not JSON"),
        ("rows.txt", "prompt,completion\n", "expected a .jsonl or .parquet file"),
    ],
)
def test_bad_data_is_named(architecture, tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        sft_data.encode_rows(open_rows(path), tokenizer(architecture), 128, eos_ids=[])


def test_parquet_files_are_read(tmp_path):
    import polars

    polars.DataFrame(ROWS).write_parquet(tmp_path / "rows.parquet")
    assert [row for _, row in open_rows(tmp_path / "rows.parquet").rows()][3] == ROWS[3]


def test_training_on_a_file_does_not_use_the_datasets_cache(
    architecture, data, tmp_path, monkeypatch
):
    """An unwritable cache used to cause an error about the data."""
    import datasets

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "file/cache")
    assert sft.train_sft(config(architecture, data, tmp_path / "out", max_steps=1)).rows == 64


@pytest.mark.parametrize("model_options", [{}, {"model": "tiny", "from_config": "x"}])
def test_exactly_one_of_model_and_from_config_is_required(tmp_path, model_options):
    with pytest.raises(InputError, match="expected exactly one"):
        SftConfig(data=tmp_path, out=tmp_path / "out", **model_options)


def test_other_bad_options_are_named(architecture, data, tmp_path):
    with pytest.raises(InputError, match=r"SftConfig.lr = 0"):
        config(architecture, data, tmp_path, lr=0)
    with pytest.raises(InputError, match=r"\./nothing': no such file or directory"):
        sft.train_sft(SftConfig(data=data, out=tmp_path / "a", model="./nothing"))
    with pytest.raises(InputError, match=rf"`fsdpo-data export {tmp_path} --to trl-sft` makes one"):
        sft.train_sft(config(architecture, tmp_path, tmp_path / "a"))
    with pytest.raises(UnavailableError, match="report_to = 'nobody'"):
        sft.train_sft(config(architecture, data, tmp_path / "b", report_to="nobody"))
    with pytest.raises(InputError, match=r"schedule = 'cosin': .* Nearest: cosine"):
        sft.train_sft(config(architecture, data, tmp_path / "b", schedule="cosin"))
    with pytest.raises(InputError, match="the model reads 128 tokens"):
        sft.train_sft(config(architecture, data, tmp_path / "c", max_length=4096))
    with pytest.raises(InputError, match="no row is left"):
        sft.train_sft(config(architecture, data, tmp_path / "d", max_length=2))


@pytest.mark.skipif(find_spec("deepspeed") is not None, reason="deepspeed is installed")
def test_missing_deepspeed_is_named(architecture, data, tmp_path):
    (tmp_path / "zero.json").write_text("{}")
    options = dict(deepspeed=str(tmp_path / "zero.json"))
    with pytest.raises(
        UnavailableError, match=r"deepspeed.*pip install -e '.*\[train,deepspeed\]'"
    ):
        sft.train_sft(config(architecture, data, tmp_path / "out", **options))


def test_a_failed_start_leaves_the_output_directory_usable(architecture, data, tmp_path):
    with pytest.raises(InputError):
        sft.train_sft(config(architecture, data, tmp_path / "out", max_length=2))
    assert not (tmp_path / "out").exists()
    sft.train_sft(config(architecture, data, tmp_path / "out", max_steps=1))


@pytest.mark.parametrize(
    ("warmup", "steps", "expected"),
    [
        (0.05, 1, 0),
        (0.05, 5, 0),  # transformers rounds up, and the run loses its first step
        (0.05, 40, 2),
        (0.05, 30, 2),
        (0.29, 100, 29),  # 0.29 * 100 is 28.999999999999996
        (3, 3, 2),
        (9, 1, 0),
        (0, 10, 0),
    ],
)
def test_warmup_never_takes_the_last_step(warmup, steps, expected):
    assert count_warmup_steps(warmup, steps) == expected


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant_with_warmup"])
def test_a_run_of_one_step_trains(architecture, data, tmp_path, schedule):
    start = sft.train_sft(config(architecture, data, tmp_path / "first", max_steps=1)).out
    options = dict(model=str(start), max_steps=1, schedule=schedule)
    sft.train_sft(config(None, data, tmp_path / "second", **options))
    weights = [
        safetensors.torch.load_file(tmp_path / name / "model.safetensors")
        for name in ("first", "second")
    ]
    assert all((weights[0][name] != weights[1][name]).any() for name in weights[0])


def test_a_constant_rate_has_the_warmup_that_is_set(architecture, data, tmp_path):
    options = dict(max_steps=3, save_every=3, log_every=1, schedule="constant", warmup=2)
    sft.train_sft(config(architecture, data, tmp_path / "out", **options))
    state = json.loads((tmp_path / "out/checkpoints/checkpoint-3/trainer_state.json").read_text())
    rates = [entry["learning_rate"] for entry in state["log_history"] if "loss" in entry]
    assert rates[0] < rates[1] < rates[2]


def test_a_schedule_by_evaluations_is_refused(architecture, data, tmp_path):
    with pytest.raises(InputError, match="schedule = 'reduce_lr_on_plateau'"):
        sft.train_sft(config(architecture, data, tmp_path / "out", schedule="reduce_lr_on_plateau"))


@pytest.mark.parametrize("lora", [0, 2])
def test_a_run_that_changes_no_weight_is_an_error(architecture, data, tmp_path, lora):
    if lora:
        pytest.importorskip("peft")
    options = dict(max_steps=2, lr=1e-60, save_every=1, lora=lora)
    with pytest.raises(InputError, match="the training of 2 steps changed no weight"):
        sft.train_sft(config(architecture, data, tmp_path / "out", **options))
    with pytest.raises(InputError, match="the training of 2 steps changed no weight"):
        sft.train_sft(config(architecture, data, tmp_path / "out", resume=True, **options))
    assert not (tmp_path / "out" / "config.json").exists()


def test_the_last_logging_window_ends_with_the_run(architecture, data, tmp_path):
    options = dict(max_steps=3, save_every=3)
    every_step = sft.train_sft(config(architecture, data, tmp_path / "1", log_every=1, **options))
    windows = sft.train_sft(config(architecture, data, tmp_path / "2", log_every=2, **options))
    assert len(losses(tmp_path / "2")) == 2
    assert windows.loss == pytest.approx(every_step.loss, abs=1e-6)
    assert losses(tmp_path / "2")[0] == pytest.approx(np.mean(losses(tmp_path / "1")[:2]), abs=1e-6)


def test_a_used_directory_is_refused(architecture, data, tmp_path):
    sft.train_sft(config(architecture, data, tmp_path / "out", max_steps=1))
    with pytest.raises(RunMismatchError, match="already holds this run"):
        sft.train_sft(config(architecture, data, tmp_path / "out", max_steps=1))
    with pytest.raises(RunMismatchError, match=r"these keys differ:\n  lr: "):
        other = config(architecture, data, tmp_path / "out", max_steps=1, lr=1e-3, resume=True)
        sft.train_sft(other)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_changed_architecture_is_not_resumed(architecture, data, tmp_path, file):
    folder = shutil.copytree(architecture, tmp_path / "architecture")
    options = dict(max_steps=1, save_every=1)
    sft.train_sft(config(folder, data, tmp_path / "out", **options))
    moved = shutil.move(folder, tmp_path / "moved" / folder.name)
    sft.train_sft(config(moved, data, tmp_path / "out", resume=True, **options))
    content = json.loads((moved / file).read_text())
    (moved / file).write_text(json.dumps({**content, "note": "changed"}))
    with pytest.raises(RunMismatchError, match=r"these keys differ:\n  from_config: "):
        sft.train_sft(config(moved, data, tmp_path / "out", resume=True, **options))


def test_a_changed_deepspeed_file_is_not_resumed(architecture, data, tmp_path):
    file = tmp_path / "zero.json"
    file.write_text('{"zero_optimization": {"stage": 2}}')
    options = config(architecture, data, tmp_path / "out", deepspeed=str(file), resume=True)
    with start_run(options, open_rows(data)):
        pass
    with start_run(options, open_rows(data)):
        pass
    file.write_text('{"zero_optimization": {"stage": 3}}')
    with (
        pytest.raises(RunMismatchError, match=r"these keys differ:\n  deepspeed: "),
        start_run(options, open_rows(data)),
    ):
        pass


def test_an_invalid_option_prints_one_line(capsys):
    line = ["sft", "none.jsonl", "--out", "o", "--model", "tiny", "--lr", "-1"]
    code, _, err = run(capsys, *line, main=main)
    assert (code, err) == (1, "error: --lr -1: expected more than 0.\n")


@pytest.mark.parametrize("name", ["qwen2", "llama2"])
def test_a_completion_has_the_token_ids_of_the_joined_text(name, shared):
    """SentencePiece tokenizers put a space at the start of a text.

    The score positions of more tokenizers are tested in tests/fsdpo_data/engines/test_step_tokens.
    """
    from fsdpo_data.engines.step_tokens import StepTokenizer

    tok = real_tokenizers.load(shared / "tokenizers" / name)
    completions = ["Let's think."]
    if name == "llama2":
        completions.append("\nStep 1: 2 + 2 = 4")
    rows = [
        (str(number), {"prompt": "### Response:", "completion": completion})
        for number, completion in enumerate(completions)
    ]
    data = TrainingData((RowSource("", "", lambda: iter(rows)),))
    encoded, _, _ = sft_data.encode_rows(data, tok, max_length=128, eos_ids=[tok.eos_token_id])
    encoder = StepTokenizer(tok)
    for row, completion in zip(encoded, completions, strict=True):
        ids = row.solution.input_ids.tolist()
        assert ids[:-1] == tok("### Response:" + completion)["input_ids"]
        assert ids[-1] == tok.eos_token_id
        expected = encoder.encode(Prompt("### Response:"), [completion], add_eos=True)
        assert ids == expected.input_ids.tolist()
        assert row.solution.prompt_length == expected.prompt_length


@pytest.mark.parametrize("capped", [False, True])
def test_the_loss_equals_the_cross_entropy_over_all_logits(architecture, tmp_path, capped):
    """A model that caps its logits after the head is trained on the capped logits."""
    from types import SimpleNamespace

    settings = transformers.Gemma2Config if capped else transformers.LlamaConfig
    size = dict(vocab_size=300, hidden_size=32, intermediate_size=32, num_hidden_layers=1)
    heads = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16, pad_token_id=1)
    model = transformers.AutoModelForCausalLM.from_config(settings(**size, **heads)).double()
    if capped:
        model.lm_head.weight.data *= 100
    ids = torch.randint(2, 300, (3, 20))
    is_completion = torch.arange(20) >= torch.tensor([[5], [9], [1]])
    is_completion[1, 15:] = False
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "completion_mask": is_completion,
    }
    logits = model(ids).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits[is_completion[:, 1:]], ids[is_completion])
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    assert bool(sft.head_error(model)) is capped
    sft.patch_to_return_logprobs(model, has_plain_head=not capped)
    items = sft.SftTrainer.count_items(None, batch)
    trainer = SimpleNamespace(
        scale_loss=lambda loss, items, total: loss * items / total, share_prompt=False
    )
    loss = sft.SftTrainer.compute_loss(trainer, model, batch, num_items_in_batch=items)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-12)


def test_a_trained_model_keeps_the_template_of_its_training(architecture, data, tmp_path):
    from fsdpo_data.models.resolve import resolve

    chat_architecture = tmp_path / "architecture"
    shutil.copytree(architecture, chat_architecture)
    chat = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    (chat_architecture / "chat_template.jinja").write_text(chat)
    sft.train_sft(config(chat_architecture, data, tmp_path / "plain", max_steps=1))
    template = resolve(str(tmp_path / "plain")).template
    assert (template.name, template.render("2+2?")) == ("problem@1", "Problem: 2+2?\nSolution:\n")
    assert resolve(str(tmp_path / "plain"), "chat").template.name == "chat@1"

    chat_rows = [row | {"prompt": f"<user>{row['prompt']}<assistant>"} for row in ROWS]
    data.write_text("".join(json.dumps(row) + "\n" for row in chat_rows))
    sft.train_sft(config(chat_architecture, data, tmp_path / "chat", max_steps=1))
    assert resolve(str(tmp_path / "chat")).template.name == "chat@1"

    data.write_text("".join(json.dumps({**row, "prompt": "Q"}) + "\n" for row in ROWS))
    sft.train_sft(config(chat_architecture, data, tmp_path / "other", max_steps=1))
    with pytest.raises(InputError, match="trained with prompts of no known template"):
        resolve(str(tmp_path / "other"))
    assert resolve(str(tmp_path / "other"), "chat-boxed").template.name == "chat-boxed@1"


def test_sft_writes_the_template_that_the_options_name(architecture, data, tmp_path, capsys):
    """A template file has no name here, so the prompts do not show it."""
    from fsdpo_data.models.resolve import resolve

    file = tmp_path / "alpaca.txt"
    file.write_text("Problem: {question}\nAnswer:\n")
    with pytest.raises(InputError, match=r"template = '.*alpaca.txt': the prompts do not have"):
        sft.train_sft(config(architecture, data, tmp_path / "other", template=str(file)))
    file.write_text("Problem: {question}\nSolution:\n")
    sft.train_sft(config(architecture, data, tmp_path / "out", template=str(file), max_steps=1))
    template = resolve(str(tmp_path / "out")).template
    assert (template.name, template.text) == ("alpaca", file.read_text()) and template.is_file
    card = (tmp_path / "out" / "README.md").read_text()
    assert "--template alpaca.txt" in card and str(tmp_path) not in card
    assert f"| template | `alpaca@{template.digest}` |" in card


def test_a_chat_template_that_requests_a_box_gets_no_second_request(architecture, data, tmp_path):
    from fsdpo_data.models.resolve import resolve

    request = "Please reason step by step, and put your final answer within \\boxed{}."
    chat_architecture = tmp_path / "architecture"
    shutil.copytree(architecture, chat_architecture)
    chat = (
        "<system>" + request + "{% for m in messages %}<user>{{ m.content }}{% endfor %}<assistant>"
    )
    (chat_architecture / "chat_template.jinja").write_text(chat)
    data.write_text("".join(json.dumps({**row, "prompt": "Q"}) + "\n" for row in ROWS))
    sft.train_sft(config(chat_architecture, data, tmp_path / "out", max_steps=1))
    (tmp_path / "out" / TEMPLATE_FILE).unlink()  # as if another program had trained the model
    prompt = resolve(str(tmp_path / "out")).template.render("2+2?")
    assert prompt.count("put your final answer") == 1 and "2+2?" in prompt
