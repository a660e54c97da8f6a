"""Published reward models: the scorer's rewards equal those of the vendors' procedures.

Each ``vendor_…`` function follows the model card or the repository of the authors. It scores one
solution with one forward pass and shares no code with the scorer.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import score_all

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from published import FAMILIES, save_published, tokenizer_of  # noqa: E402
from random_model import save_random_model, save_random_prm  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from scored import worst  # noqa: E402

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.core.identity import ModelRef, file_sha256  # noqa: E402
from fsdpo_data.engines.choose_engine import select_scorer  # noqa: E402
from fsdpo_data.engines.load import load_scorer  # noqa: E402
from fsdpo_data.engines.options import ScorerOptions  # noqa: E402
from fsdpo_data.engines.scorers import (  # noqa: E402
    Scorer,
    ScorerInput,
    published_prm,
)
from fsdpo_data.engines.scorers.prm_format_tokens import PrmFormatTokenizer  # noqa: E402
from fsdpo_data.engines.scorers.prm_formats import (  # noqa: E402
    PRM_FORMATS,
    PublishedPrm,
)
from fsdpo_data.engines.scorers.published_prm import PrmHead, load_prm  # noqa: E402
from fsdpo_data.engines.weights import resolve_prm  # noqa: E402
from fsdpo_data.models.resolve import ResolvedWeights  # noqa: E402
from fsdpo_data.models.untrusted import read_tokenizer  # noqa: E402

#: ``make_checkpoint(family)`` returns the checkpoint of a family.
MakeCheckpoint = Callable[[str], Path]


@pytest.fixture(autouse=True)
def one_load_per_tokenizer(monkeypatch: pytest.MonkeyPatch, read_tokenizer_once: Any) -> None:
    """Share the loaded tokenizers: families have few different ones, and a load takes a second."""
    monkeypatch.setattr("fsdpo_data.models.checkpoints.read_tokenizer", read_tokenizer_once)


@pytest.fixture(scope="module")
def read_tokenizer_once() -> Callable[..., Any]:
    tokenizers: dict[str, Any] = {}

    def read_once(path: str, revision: str | None = None) -> Any:
        files = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
        paths = [Path(path) / name for name in files if (Path(path) / name).exists()]
        key = " ".join(map(file_sha256, paths))
        if key not in tokenizers:
            tokenizers[key] = read_tokenizer(path, revision)
        return tokenizers[key]

    return read_once


@pytest.fixture(scope="module")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> MakeCheckpoint:
    """Return a function that saves the checkpoint of a family at the first call."""
    checkpoints: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in checkpoints:
            path = tmp_path_factory.mktemp("published") / f"my-{family}"
            checkpoints[family] = save_published(path, family, shared)
        return checkpoints[family]

    return make


def items(shared: Path) -> list[ScorerInput]:
    """Return solutions of ProcessBench, two for each problem; some steps have several lines."""
    rows = json.loads((shared / "data/stepwise/processbench/math.json").read_text())[:3]
    inputs = []
    for row in rows:
        prompt, steps = f"Q: {row['problem']}\nA:", [step.strip() for step in row["steps"][:4]]
        for steps_of_solution in (steps, [*steps[:2], "Step 3: so\n$$1$$\nit is 7 + 1."]):
            terminated_steps = [
                *(f"{step}\n\n" for step in steps_of_solution[:-1]),
                steps_of_solution[-1],
            ]
            inputs.append(ScorerInput(prompt, terminated_steps, row["problem"]))
    return inputs


class VendorCheckpoint:
    """A checkpoint as the vendors' scripts load it: decoder and tensors of the head.

    The tokenizer is the one that was saved, because real tokenizers load slowly.
    """

    def __init__(self, path: Path, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False)
        self.config = config
        kind = getattr(transformers, f"{type(config).__name__.removesuffix('Config')}ForCausalLM")
        self.model = kind.from_pretrained(path, config=config).eval()
        self.tensors = load_file(path / "model.safetensors")

    @torch.no_grad()
    def hidden(self, ids: list[int]) -> Any:
        return self.model.model(torch.tensor([ids])).last_hidden_state[0]

    @torch.no_grad()
    def logits(self, ids: list[int]) -> Any:
        return self.model(torch.tensor([ids])).logits[0]

    def mlp(self, ids: list[int]) -> Any:
        t = self.tensors
        inner = (self.hidden(ids) @ t["score.0.weight"].T + t["score.0.bias"]).clamp(min=0)
        return (inner @ t["score.2.weight"].T + t["score.2.bias"]).softmax(-1)


def vendor_qwen(
    v: VendorCheckpoint, question: str, steps: list[str], system: bool = True
) -> list[float]:
    system_prompt = "Please reason step by step, and put your final answer within \\boxed{}."
    messages = [{"role": "system", "content": system_prompt}] if system else []
    messages += [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
    ]
    text = v.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    ids = v.tokenizer.encode(text)
    mark = v.tokenizer.encode("<extra_0>")[0]
    return [p[1].item() for p, token in zip(v.mlp(ids), ids, strict=True) if token == mark]


def vendor_reasonflux(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    return vendor_qwen(v, question, steps, system=False)


def vendor_math_shepherd(
    v: VendorCheckpoint, question: str, steps: list[str], number: bool = True
) -> list[float]:
    good, bad = v.tokenizer.encode("+ -")[1:]
    mark = v.tokenizer.encode("ки")[-1]
    assert (good, bad, mark) == (648, 387, 12902)
    steps = [step.strip() for step in steps]
    if number:
        steps = [s if s.startswith("Step ") else f"Step {k}: {s}" for k, s in enumerate(steps, 1)]
    ids = v.tokenizer.encode(f"{question} " + "\n".join(f"{step} ки" for step in steps))
    scores = v.logits(ids)[:, [good, bad]].softmax(-1)[:, 0]
    return [scores[i].item() for i, token in enumerate(ids) if token == mark]


def vendor_math_shepherd_bare(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    return vendor_math_shepherd(v, question, steps, number=False)


def vendor_rlhflow(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    """Follow prm_evaluate.py: one forward pass per step, read two tokens before the turn's end."""
    plus, minus = v.tokenizer.encode("+")[-1], v.tokenizer.encode("-")[-1]
    assert (plus, minus) == (10, 12)
    conversation, scores = [], []
    for k, step in enumerate(steps):
        text = f"{question} {step.strip()}" if k == 0 else step.strip()
        conversation.append({"role": "user", "content": text})
        conversation.append({"role": "assistant", "content": "+"})
        rendered = v.tokenizer.apply_chat_template(conversation, tokenize=False)
        ids = v.tokenizer.encode(rendered, add_special_tokens=False)
        assert ids[-2:] == [10, 128009]
        scores.append(v.logits(ids)[-3, [plus, minus]].softmax(-1)[0].item())
    return scores


def vendor_skywork(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    """Follow prepare_input: tokenize each line, flag line ends, use the last flag of a step."""
    response = "\n\n".join(steps)
    ids = v.tokenizer.encode((v.tokenizer.bos_token or "") + question + "\n")
    mark, flags = v.tokenizer.encode("\n")[-1], []
    for line in response.split("\n"):
        ids += v.tokenizer.encode(line) if line else []
        ids.append(mark)
        flags.append((line, len(ids) - 1))
    value = v.hidden(ids) @ v.tensors["v_head.summary.weight"].T + v.tensors["v_head.summary.bias"]
    positions, line_index = [], 0
    for step in steps:
        lines = step.split("\n")
        assert [line for line, _ in flags[line_index : line_index + len(lines)]] == lines
        positions.append(flags[line_index + len(lines) - 1][1])
        line_index += len(lines) + 1  # and the blank line
    return value[positions, 0].sigmoid().tolist()


def vendor_pure(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    separator = v.tokenizer("\n", add_special_tokens=False)["input_ids"]
    ids, positions = v.tokenizer(question, add_special_tokens=False)["input_ids"], []
    for step in steps:
        ids = ids + v.tokenizer(step, add_special_tokens=False)["input_ids"] + separator
        positions.append(len(ids) - 1)
    p = v.mlp(ids)[positions]
    return (p[:, 1] - p[:, 0]).tolist()


def vendor_trl(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    """Follow PRMTrainer.tokenize_row, which made the training rows."""
    bos = [] if v.tokenizer.bos_token_id is None else [v.tokenizer.bos_token_id]
    ids = bos + v.tokenizer(question, add_special_tokens=False)["input_ids"]
    separator, positions = v.tokenizer.encode("\n", add_special_tokens=False), []
    for step in steps:
        ids = ids + v.tokenizer(step, add_special_tokens=False)["input_ids"] + separator
        positions.append(len(ids) - 1)
    logits = v.hidden(ids) @ v.tensors["score.weight"].T + v.tensors["score.bias"]
    return logits.softmax(-1)[positions, 1].tolist()


def vendor_reasoneval_7b(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    """Follow codes/examples.py: the pad token is BOS, which is removed and added again."""
    return _reasoneval_rewards(v, question, steps, v.tokenizer.bos_token, is_7b=True)


def vendor_reasoneval_34b(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    return _reasoneval_rewards(v, question, steps, v.tokenizer.eos_token, is_7b=False)


def _reasoneval_rewards(
    v: VendorCheckpoint, question: str, steps: list[str], pad: str, *, is_7b: bool
) -> list[float]:
    prompt = f"Question:\n{question}\nAnswer:\nLet's think step by step.\n"
    tokens = v.tokenizer(prompt + pad + "".join(step + pad for step in steps))["input_ids"]
    mark, positions, ids = v.tokenizer(pad)["input_ids"][-1], [], []
    for index, token in enumerate(tokens):
        if token == mark:
            positions.append(index - 1 - len(positions))
        else:
            ids.append(token)
    ids, positions = ([1, *ids], positions[2:]) if is_7b else (ids, positions[1:])
    assert len(positions) == len(steps)
    bias = v.tensors.get("score_head.bias", 0)
    p = (v.hidden(ids)[positions] @ v.tensors["score_head.weight"].T + bias).softmax(-1)
    return (p[:, 1] + p[:, 2]).tolist()


def vendor_actprm(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    system_prompt = "Please reason step by step, and put your final answer within \\boxed{}."
    messages = [
        {"role": "system", "content": system_prompt},
        {"role": "user", "content": question},
        {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
    ]
    ids = v.tokenizer.encode(v.tokenizer.apply_chat_template(messages, tokenize=False))
    hidden, members, t = v.hidden(ids), [], v.tensors
    for e in range(8):
        x = hidden
        for name in ("nn1", "nn2", "nn_out"):
            x = x @ t[f"score.model.{name}.weight"][e] + t[f"score.model.{name}.bias"][e]
            x = x.clamp(min=0) if name != "nn_out" else x
        members.append(x[:, 0].sigmoid())
    mean, mark = torch.stack(members).mean(0), v.tokenizer.encode("<extra_0>")[0]
    return [mean[i].item() for i, token in enumerate(ids) if token == mark]


def vendor_versaprm(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    steps = [step.strip().replace(" \n\n\n\n", "") for step in steps]
    text = f"{question.strip()} \n\n" + "".join(f"{step} \n\n\n\n" for step in steps)
    ids = v.tokenizer.encode(text)
    scores = v.logits(ids)[:, [12, 10]].softmax(-1)[:, 1]
    return [scores[i].item() for i, token in enumerate(ids) if token == 23535]


def vendor_er_prm(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    good, bad = (v.tokenizer.encode(word)[-1] for word in (" +", " -"))
    steps = [s.strip() for s in steps]
    steps = [s if s.startswith("Step ") else f"Step {k}: {s}" for k, s in enumerate(steps, 1)]
    ids = v.tokenizer.encode(f"{question} " + " ки\n".join(steps) + " ки")
    scores = v.logits(ids)[:, [good, bad]].softmax(-1)[:, 0]
    mark = v.tokenizer.encode(" ки")[-1]
    return [scores[i].item() for i, token in enumerate(ids) if token == mark]


def vendor_llemma(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    """Find line ends after ``# Solution`` by their ids; the first match belongs to the heading."""
    text = f"# Question\n\n{question}\n\n# Solution\n\n" + "".join(f"{s}\n\n" for s in steps)
    ids = v.tokenizer.encode(text)
    heading = v.tokenizer.encode("# Solution", add_special_tokens=False)[1:]
    marks = v.tokenizer.encode("\n\n", add_special_tokens=False)[1:]
    in_solution, positions = False, []
    for i in range(len(ids)):
        in_solution = in_solution or ids[i : i + len(heading)] == heading
        if in_solution and ids[i : i + len(marks)] == marks:
            positions.append(i)
    return v.logits(ids).mean(-1)[positions[1:]].sigmoid().tolist()


def vendor_pqm(v: VendorCheckpoint, question: str, steps: list[str]) -> list[float]:
    steps = [re.sub(r"^Step \d+:", "", step.strip()) for step in steps]
    steps = [f"Step {k}: " + step.strip() for k, step in enumerate(steps, 1)]
    text = f"[INST] {question} [/INST]\n" + " [PRM]\n".join(steps) + " [PRM]"
    ids = v.tokenizer.encode(text, add_special_tokens=False)
    value = v.hidden(ids) @ v.tensors["v_head.summary.weight"].T + v.tensors["v_head.summary.bias"]
    mark = v.tokenizer.encode("[PRM]", add_special_tokens=False)[-1]
    return [value[i, 0].item() for i, token in enumerate(ids) if token == mark]


VENDORS = {family: globals()[f"vendor_{family.replace('-', '_')}"] for family in FAMILIES}


def vendor_rewards(
    family: str, path: Path, inputs: Sequence[ScorerInput], shared: Path
) -> list[list[float]]:
    """Return the rewards of the vendor's procedure."""
    vendor = VendorCheckpoint(path, tokenizer_of(family, shared))
    return [
        VENDORS[family](vendor, item.question, [step.strip("\n") for step in item.steps])
        for item in inputs
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_rewards_equal_those_of_the_vendor(
    family: str, make_checkpoint: MakeCheckpoint, shared: Path
) -> None:
    path, inputs = make_checkpoint(family), items(shared)
    expected = vendor_rewards(family, path, inputs, shared)
    options = ScorerOptions(device="cpu", batch_tokens=2000, prm_format=family)
    scorer = load_prm(resolve_prm(str(path), options), options)
    rewards = score_all(scorer, inputs)
    assert [len(step_rewards) for step_rewards in expected] == [len(item.steps) for item in inputs]
    assert worst(rewards, expected) < 1e-4
    spread = [reward for rewards in expected for reward in rewards]
    assert max(spread) - min(spread) > (0.005 if family == "llemma" else 0.05), (
        "equal rewards would not test the scorer"
    )
    assert scorer._can_share_prompts, "prompts are computed once"
    # One solution per batch, and a full forward pass for each.
    scorer._batch_tokens = 1
    scorer._can_share_prompts = False
    assert worst(score_all(scorer, inputs), expected) < 1e-4


@pytest.mark.vllm
@pytest.mark.filterwarnings("default")  # vLLM's own imports warn
@pytest.mark.parametrize("family", FAMILIES)
def test_vllm_gives_the_rewards_of_the_vendors(
    family: str, make_checkpoint: MakeCheckpoint, shared: Path
) -> None:
    path, inputs = make_checkpoint(family), items(shared)
    options = ScorerOptions(engine="vllm", batch_tokens=2000, prm_format=family)
    scorer = load_scorer(str(path), options)
    assert worst(score_all(scorer, inputs), vendor_rewards(family, path, inputs, shared)) < 1e-4


HEADING_STEPS = [
    "### Step 1: Add 3 and 4.\n\n",
    "**Step 2** It is 7.\n\n",
    "Step 3: So 7 + 1 = 8.\n\n",
    "4. The answer is 8.",
]


def test_the_layers_of_a_head_are_in_the_order_of_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = {f"score.{number}.weight": torch.full((1, 1), number) for number in (10, 2, 0)}
    monkeypatch.setattr(published_prm, "read_tensors", lambda weights, prefix: tensors)
    weights = SimpleNamespace(prm_format=SimpleNamespace(head="v_head"))
    layers = published_prm._read_layers(weights, None)
    assert [layer[0].item() for layer in layers] == [0, 2, 10]


@pytest.mark.parametrize("family", ["math-shepherd", "er-prm", "pqm"])
def test_a_markdown_heading_is_not_a_step_number(
    family: str, make_checkpoint: MakeCheckpoint, shared: Path
) -> None:
    """Such steps once had no number; this moved rewards of Math-Shepherd by up to 0.495."""
    path = make_checkpoint(family)
    item = ScorerInput("", HEADING_STEPS, "What is 3 + 4 + 1?")
    options = ScorerOptions(device="cpu", prm_format=family)
    rewards = score_all(load_prm(resolve_prm(str(path), options), options), [item])
    assert worst(rewards, vendor_rewards(family, path, [item], shared)) < 1e-4


@pytest.mark.parametrize(
    ("family", "step", "expected"),
    [
        # The steps of the card have numbers; PRMBench's code adds them where they are missing.
        ("math-shepherd", "### Step 2: a = 1", "Step 2: ### Step 2: a = 1"),
        ("math-shepherd", "**Step 2** a = 1", "Step 2: **Step 2** a = 1"),
        ("math-shepherd", "Step 2: a = 1", "Step 2: a = 1"),
        ("math-shepherd", "step 2. a = 1", "step 2. a = 1"),
        ("math-shepherd", "2. a = 1", "Step 2: 2. a = 1"),
        # The card gives numbered steps; the authors' script for ProcessBench adds numbers.
        ("eurus", "### Step 2: a = 1", "Step 2: ### Step 2: a = 1"),
        ("eurus", "**Step 2** a = 1", "Step 2: **Step 2** a = 1"),
        ("eurus", "Step 1: a = 1", "Step 1: a = 1"),
        ("eurus", "2. a = 1", "Step 2: 2. a = 1"),
        # The authors' code splits at "Step k:" and numbers the parts again.
        ("pqm", "### Step 2: a = 1", "Step 2: ### Step 2: a = 1"),
        ("pqm", "**Step 2** a = 1", "Step 2: **Step 2** a = 1"),
        ("pqm", "Step 7:  a = 1", "Step 2: a = 1"),
        ("pqm", "step 2. a = 1", "Step 2: step 2. a = 1"),
        ("pqm", "2. a = 1", "Step 2: 2. a = 1"),
        # The authors' code removes "Step k:" everywhere in a step.
        ("thinkprm", "### Step 2: a = 1", "Step 2: ###  a = 1"),
        ("thinkprm", "**Step 2** a = 1", "Step 2: **Step 2** a = 1"),
        ("thinkprm", "Step 7: a = 1", "Step 2: a = 1"),
        ("thinkprm", "As in Step 1: a = 1", "Step 2: As in  a = 1"),
        ("thinkprm", "2. a = 1", "Step 2: 2. a = 1"),
    ],
)
def test_the_text_of_a_numbered_step_is_the_vendors(family: str, step: str, expected: str) -> None:
    assert PRM_FORMATS[family].format_step(2, f"{step}\n\n") == expected


def test_every_format_has_a_vendor() -> None:
    """Formats that only read another class of the same forward pass are not tested again."""
    tested_elsewhere = {
        "implicit",
        "implicit-so-far",
        "eurus",
    }  # log-ratios: tests/…/test_implicit.py
    tested_elsewhere |= {"processbench", "thinkprm", "genprm"}  # judges: tests/…/test_critiques.py
    formats = {name for name in PRM_FORMATS if not name.endswith("-redundancy")} - tested_elsewhere
    assert formats == set(FAMILIES)


@pytest.mark.parametrize(
    ("name", "architecture", "expected"),
    [
        ("Qwen2.5-Math-PRM-7B", "Qwen2ForProcessRewardModel", "qwen"),
        ("PURE-PRM-7B", "Qwen2ForProcessRewardModel", "pure"),
        ("Llama3.1-8B-PRM-Deepseek-Data", "LlamaForCausalLM", "rlhflow"),
        ("VersaPRM-Aug", "LlamaForCausalLM", "versaprm"),
        ("mine", "Qwen2ForEnsemblePRM", "actprm"),
        ("mine", "Qwen2ForTokenClassification", "trl"),
        ("mine", "Qwen2ForProcessRewardModel", "Set `prm_format` to qwen or pure"),
        ("mine", "LlamaForCausalLM", "is a language model .LlamaForCausalLM., not"),
    ],
)
def test_a_model_is_recognised_by_name_or_architecture(
    tmp_path: Path, name: str, architecture: str, expected: str
) -> None:
    settings = {"model_type": "qwen2", "architectures": [architecture], "num_labels": 2}
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(json.dumps(settings))
    if expected in PRM_FORMATS:
        assert resolve_prm(str(tmp_path / name)).prm_format.name == expected
    else:
        with pytest.raises(InputError, match=expected):
            resolve_prm(str(tmp_path / name))


@pytest.mark.parametrize(
    ("folder", "settings", "tensor", "expected", "evidence"),
    [
        (
            "models--Qwen--Qwen2.5-Math-PRM-7B/snapshots/0a1b",
            {"architectures": ["Qwen2ForProcessRewardModel"]},
            None,
            "qwen",
            "repository Qwen/Qwen2.5-Math-PRM-7B of the Hub cache",
        ),
        (
            "models--jinachris--PURE-PRM-7B/snapshots/0a1b",
            {"architectures": ["Qwen2ForProcessRewardModel"]},
            None,
            "pure",
            "repository jinachris/PURE-PRM-7B of the Hub cache",
        ),
        (
            "mine",
            {
                "architectures": ["Qwen2ForProcessRewardModel"],
                "_name_or_path": "Qwen/Qwen2.5-Math-7B-PRM800K",
            },
            None,
            "qwen",
            "_name_or_path Qwen/Qwen2.5-Math-7B-PRM800K in config.json",
        ),
        (
            "mine",
            {"architectures": ["ReasonEval_34B"]},
            None,
            "reasoneval-34b",
            "architecture ReasonEval_34B",
        ),
        # A model that TRL trained from another reward model has the format of TRL.
        (
            "mine",
            {
                "architectures": ["Qwen2ForTokenClassification"],
                "_name_or_path": "Qwen/Qwen2.5-Math-PRM-7B",
            },
            None,
            "trl",
            "architecture Qwen2ForTokenClassification with 2 labels",
        ),
        (
            "mine",
            {"architectures": []},
            "score.model.nn1.weight",
            "actprm",
            "weights score.model.nn1.weight",
        ),
        (
            "mine",
            {"architectures": ["Qwen2ForCausalLM"]},
            "v_head.summary.weight",
            "Set `prm_format` to skywork or pqm",
            "",
        ),
    ],
)
def test_a_model_is_recognised_by_its_content(
    tmp_path: Path,
    folder: str,
    settings: dict[str, Any],
    tensor: str | None,
    expected: str,
    evidence: str,
) -> None:
    """Cached reward models were once refused, because a snapshot is a folder with a hash."""
    path = tmp_path / folder
    path.mkdir(parents=True)
    config = {"model_type": "qwen2", "num_labels": 2, **settings}
    (path / "config.json").write_text(json.dumps(config))
    if tensor is not None:
        index = {"metadata": {}, "weight_map": {tensor: "model-1.safetensors"}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    if not evidence:
        with pytest.raises(InputError, match=expected):
            resolve_prm(str(path))
        return
    weights = resolve_prm(str(path))
    assert (weights.prm_format.name, weights.format_evidence) == (expected, evidence)


def test_our_own_reward_model_needs_no_format_under_any_name(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "PURE-PRM-7B", save_random_model(tmp_path / "policy"))
    assert not isinstance(resolve_prm(str(prm)), PublishedPrm)


def test_a_prm_format_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'based_on = "trl"\nstep_token = "\\n\\n"\nprompt = "{prompt}"\n'
    )
    mine = PRM_FORMATS.find(str(tmp_path / "mine.toml"))
    assert (mine.name, mine.step_token, mine.prompt, mine.tokenize_separately) == (
        "mine.toml",
        "\n\n",
        "{prompt}",
        True,
    )
    assert mine.ref.digest != PRM_FORMATS["trl"].ref.digest
    (tmp_path / "odd.toml").write_text('marks = "x"\n')
    with pytest.raises(InputError, match=r"the PRM format odd\.toml has unknown keys: marks"):
        PRM_FORMATS.find(str(tmp_path / "odd.toml"))
    with pytest.raises(InputError, match="expected one of qwen, "):
        PRM_FORMATS.find("quen")
    with pytest.raises(InputError, match="read_at = 'here': expected one of step_token, step"):
        (tmp_path / "bad.toml").write_text('read_at = "here"\n')
        PRM_FORMATS.find(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize("family", ["trl", "llemma"])
def test_a_format_with_the_prompt_of_the_policy_has_its_step_tokens(
    family: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """The ids are those of TRL's PRMTrainer for the rows of ``export --to trl-stepwise``."""
    path = make_checkpoint(family)
    (tmp_path / "exported.toml").write_text(
        'based_on = "trl"\nprompt = "{bos}{prompt}"\nstrip = "nothing"\nhead = "lm_head"\n'
    )
    options = ScorerOptions(device="cpu", prm_format=str(tmp_path / "exported.toml"))
    scorer = load_prm(resolve_prm(str(path), options), options)
    tokenizer = scorer._tokenizer
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    steps = ["Step 1: 2 + 3 = 5.\n", "Step 2: 5."]
    prompt = "Problem: 2 + 3?\nSolution:\n"

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    expected = bos + encode(prompt)
    positions = []
    for step in steps:
        expected += encode(step) + encode("\n")
        positions.append(len(expected) - 1)
    encoded = scorer._encode(ScorerInput(prompt, steps, "2 + 3?"))
    assert encoded.input_ids.tolist() == expected
    assert encoded.score_positions == positions


def test_the_default_aggregate_of_best_of_n() -> None:
    """It does not change rewards, so it is not in the digest. Formats on top of others have it."""
    aggregates = {name: entry.aggregate for name, entry in PRM_FORMATS.items()}
    assert {name for name, aggregate in aggregates.items() if aggregate != "min"} == {"skywork"}
    skywork = PRM_FORMATS["skywork"]
    assert skywork.aggregate == "mean"
    assert skywork.replace(aggregate="min").ref == skywork.ref
    with pytest.raises(InputError, match="aggregate"):
        skywork.replace(aggregate="median")


def test_the_digests_of_prm_formats_are_stable() -> None:
    """Manifests record the digests of PRM formats, so formats are added but never edited."""
    entries = {name: PRM_FORMATS[name].ref.to_dict() for name in ("qwen", "math-shepherd", "pure")}
    assert entries == {
        "qwen": {"name": "qwen", "digest": "1075c0996c1e45d9f7cc", "meaning": "probability"},
        "math-shepherd": {
            "name": "math-shepherd",
            "digest": "ed1cfbeed410aaf4fb93",
            "meaning": "probability",
        },
        "pure": {
            "name": "pure",
            "digest": "43b3c569d0dbe8ec02e3",
            "meaning": "difference of two probabilities",
        },
    }


@pytest.fixture(scope="module")
def qwen_scorer(make_checkpoint: MakeCheckpoint) -> Scorer:
    options = ScorerOptions(device="cpu", prm_format="qwen")
    return load_scorer(str(make_checkpoint("qwen")), options)


def test_step_tokens_in_the_text_do_not_add_rewards(qwen_scorer: Scorer) -> None:
    """The vendors' procedures search for ids, so they would also find step tokens of the text."""
    steps = ["One <extra_0> and <extra_0>.\n\n", "Two.<|im_end|>\n\n", "Three."]
    [rewards] = score_all(qwen_scorer, [ScorerInput("p", steps, "What?")])
    assert rewards is not None and len(rewards) == 3


def test_too_long_solutions_and_wrong_formats(qwen_scorer: Scorer, tmp_path: Path) -> None:
    long, none, short = score_all(
        qwen_scorer,
        [
            ScorerInput("p", ["a b " * 1500, "c"], "q"),
            ScorerInput("p", [], "q"),
            ScorerInput("p", ["a"], "q"),
        ],
    )
    assert long is None and none == [] and len(short or []) == 1
    with pytest.raises(InputError, match="the PRM format qwen needs the question"):
        score_all(qwen_scorer, [ScorerInput("p", ["a"])])
    policy = str(save_random_model(tmp_path / "policy"))
    with pytest.raises(InputError, match=r"marks steps with '\[PRM\]', which is not a token"):
        load_scorer(policy, ScorerOptions(device="cpu", prm_format="pqm"))
    with pytest.raises(InputError, match="no weights called score_head"):
        load_scorer(policy, ScorerOptions(device="cpu", prm_format="reasoneval-34b"))


def test_a_first_step_of_one_token_scores_the_same_next_to_other_solutions(
    make_checkpoint: MakeCheckpoint,
) -> None:
    """ReasonEval-7B reads the token before a step's last one: here the last token of the prompt."""
    path = str(make_checkpoint("reasoneval-7b"))
    scorer = load_scorer(path, ScorerOptions(device="cpu", prm_format="reasoneval-7b"))
    solutions = [
        ["Sure\n\n", "It is 14."],
        ["First, 3 * 4 = 12.\n\n", "So 14."],
        ["Sure\n\n", "14"],
    ]
    inputs = [ScorerInput("p", steps, "What is 2 + 3 * 4?") for steps in solutions]
    single_scores = [score_all(scorer, [item])[0] for item in inputs]
    assert worst(score_all(scorer, inputs), single_scores) < 1e-5


@pytest.mark.parametrize(("offset", "prompt"), [(1, "{question}"), (-3, "")])
def test_a_score_position_outside_of_the_text_is_refused(
    offset: int, prompt: str, make_checkpoint: MakeCheckpoint
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_checkpoint("trl"))
    prm_format = PRM_FORMATS["trl"].replace(token_offset=offset, prompt=prompt)
    with pytest.raises(InputError, match="reads a reward outside of the text"):
        PrmFormatTokenizer(prm_format, tokenizer).encode(ScorerInput("p", ["a"], "What?"), 99)


@pytest.mark.network
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen2.5-Math-PRM-7B", [1.0, 0.1904296875, 0.9765625, 1.0]),
        ("Qwen/Qwen2.5-Math-7B-PRM800K", [0.9921875, 0.2333984375, 0.6796875, 0.94140625]),
    ],
)
def test_the_example_of_the_qwen_model_card(
    model: str, expected: list[float], shared: Path
) -> None:
    row = json.loads((shared / "data/stepwise/processbench/gsm8k.json").read_text())[0]
    steps = [step.replace("\\(", "(").replace("\\)", ")") for step in row["steps"]]
    item = ScorerInput("", [f"{step}\n\n" for step in steps], row["problem"])
    [rewards] = score_all(load_scorer(model), [item])
    assert rewards == pytest.approx(expected, abs=0.02)


@pytest.mark.network
def test_the_example_of_the_math_shepherd_model_card() -> None:
    """The model card has a correct solution, and one with an incorrect last step."""
    question = (
        "Janet\u2019s ducks lay 16 eggs per day. She eats three for breakfast every morning and "
        "bakes muffins for her friends every day with four. She sells the remainder at the "
        "farmers' market daily for $2 per fresh duck egg. How much in dollars does she make every "
        "day at the farmers' market?"
    )
    steps = [
        "Step 1: Janet's ducks lay 16 eggs per day.\n",
        "Step 2: She eats three for breakfast every morning, so she has 16 - 3 = 13 eggs left.\n",
        "Step 3: She bakes muffins for her friends every day with four eggs, so she has 13 - 4 = 9 "
        "eggs left.\n",
        "Step 4: She sells the remainder at the farmers' market daily for $2 per fresh duck egg, "
        "so she makes 9 * $2 = ${} every day at the farmers' market. The answer is: {}",
    ]
    scorer = load_scorer("peiyi9979/math-shepherd-mistral-7b-prm")
    for answer, expected in (
        (18, [0.9955, 0.9958, 0.9983, 0.9957]),
        (17, [0.9955, 0.9958, 0.9983, 0.0240]),
    ):
        item = ScorerInput("", [step.format(answer, answer) for step in steps], question)
        [rewards] = score_all(scorer, [item])
        assert rewards == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("architecture", "is_tied"),
    [("MistralForCausalLM", False), ("MistralForTokenClassification", True)],
)
def test_input_embeddings_are_no_head_unless_the_config_says_so(
    architecture: str, is_tied: bool, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    path = tmp_path / "bare"
    shutil.copytree(make_checkpoint("math-shepherd"), path)
    tensors = load_file(path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config |= {"architectures": [architecture], "tie_word_embeddings": is_tied}
    (path / "config.json").write_text(json.dumps(config))
    weights = resolve_prm(str(path), ScorerOptions(prm_format="math-shepherd"))
    assert isinstance(weights, PublishedPrm)
    with pytest.raises(InputError, match="no weights called lm_head, which"):
        PrmHead(weights, None)


def test_a_tied_head_is_the_input_embedding(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    path = tmp_path / "tied"
    shutil.copytree(make_checkpoint("math-shepherd"), path)
    tensors = load_file(path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    item = ScorerInput("", ["Step 1: 2.\n", "Step 2: 4."], "1 + 3?")
    options = ScorerOptions(prm_format="math-shepherd", engine="transformers")
    expected = score_all(load_scorer(str(path), options), [item])
    del tensors["lm_head.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert score_all(load_scorer(str(path), options), [item]) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "score", "positive": [1]}, "expects at least 2 output(s), and class 1 is right"),
        ({"head": "score", "positive": [0]}, "expects at least 2 output(s), and class 0 is right"),
        ({"head": "score", "activation": "value", "positive": [2]}, "expects at least 3 output(s)"),
        ({"head": "vocabulary", "label_tokens": ["+", "-"], "positive": [2]}, "head vocabulary"),
    ],
)
def test_a_head_with_other_outputs_than_the_format_reads_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Before a solution is scored."""
    prm = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    keys = {"layout": "text", "prompt": "{question}", "step_token": "+", **changes}
    if changes["head"] == "vocabulary":
        prm = tmp_path / "policy"
    file = tmp_path / "mine.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        load_scorer(str(prm), ScorerOptions(prm_format=str(file), engine="transformers"))
    assert "the PRM format mine.toml" in str(refused.value)
    assert "`prm_format`" in str(refused.value)


def test_one_output_for_a_sigmoid_and_known_label_tokens(tmp_path: Path) -> None:
    policy = save_random_model(tmp_path / "policy")
    file = tmp_path / "mine.toml"
    common = 'prompt = "{question}"\nstep_token = "+"\n'
    file.write_text(f'{common}head = "score"\nactivation = "sigmoid"\n')
    two_classes = save_random_prm(tmp_path / "prm", policy, labels=2)
    with pytest.raises(InputError, match="expects one output, the logit of a right step, but the "):
        load_scorer(str(two_classes), ScorerOptions(prm_format=str(file), engine="transformers"))
    file.write_text(f'{common}head = "vocabulary"\nlabel_tokens = ["good", "bad"]\n')
    with pytest.raises(InputError, match="reads the logit of 'good', which is not a token"):
        load_scorer(str(policy), ScorerOptions(prm_format=str(file), engine="transformers"))


def test_published_heads_use_vllm_only_if_it_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdpo_data.engines.choose_engine.resolve_engine", lambda *_: "vllm")
    own_weights = ResolvedWeights(ModelRef("mine", "0"), "mine")
    published_weights = PublishedPrm(
        ModelRef("theirs", "0"), "theirs", prm_format=PRM_FORMATS["qwen"]
    )
    assert select_scorer(ScorerOptions(), own_weights).entry.name == "vllm"
    assert select_scorer(ScorerOptions(), published_weights).entry.name == "transformers"
    vllm_options = ScorerOptions(engine="vllm")
    assert select_scorer(vllm_options, published_weights).entry.name == "vllm"
    implicit_weights = dataclasses.replace(
        published_weights, prm_format=PRM_FORMATS["implicit"], reference=own_weights
    )
    with pytest.raises(InputError, match="Use `engine=transformers`"):
        select_scorer(vllm_options, implicit_weights)


def test_the_page_lists_every_prm_format() -> None:
    page = (Path(__file__).parents[3] / "docs/prms.md").read_text(encoding="utf-8")
    assert [name for name in PRM_FORMATS if f"`{name}`" not in page] == []


def test_a_tokenizer_without_a_chat_template_is_named(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of("qwen", shared)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    tokens = PrmFormatTokenizer(PRM_FORMATS.find("qwen"), tokenizer)
    with pytest.raises(InputError, match="qwen needs a chat template, but the tokenizer has none"):
        tokens.encode(ScorerInput("", ["2"], "1 + 1?"), max_length=512)
