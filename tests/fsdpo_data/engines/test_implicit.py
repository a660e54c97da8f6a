"""Implicit PRMs: rewards from log-ratios equal sums over plain forward passes."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from fakes import score_all
from helpers import small_build, stage_counts, stage_options
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from scored import solutions, worst  # noqa: E402

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.engines.load import load_scorer  # noqa: E402
from fsdpo_data.engines.options import ScorerOptions  # noqa: E402
from fsdpo_data.engines.scorers import ScorerInput  # noqa: E402
from fsdpo_data.engines.weights import resolve_prm  # noqa: E402

CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a policy and its reference."""
    folders = [tmp_path_factory.mktemp(name) for name in ("policy", "reference")]
    paths = [save_random_model(folder, seed=seed) for seed, folder in enumerate(folders)]
    for path in paths:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(path)
    return paths[0], paths[1]


def ratios(
    models: tuple[Path, Path], prompt: str, steps: list[str], *, tokenize_separately: bool
) -> list[float]:
    """Return log π/π_ref of each step; the tokens of a step are those that start inside it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(models[0])
    parts = [prompt, "".join(steps)] if tokenize_separately else [prompt + "".join(steps)]
    ids: list[int] = []
    starts: list[int] = []
    for part_index, part in enumerate(parts):
        read = tokenizer(part, return_offsets_mapping=True)
        ids += read["input_ids"]
        starts += [start + part_index * len(prompt) for start, _ in read["offset_mapping"]]
    logps = []
    for path in models:
        net = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
        with torch.no_grad():
            table = net(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        logps.append([0.0] + [float(table[i - 1, ids[i]]) for i in range(1, len(ids))])
    step_ratios, end = [], len(prompt)
    for step in steps:
        inside = [i for i, start in enumerate(starts) if end <= start < end + len(step)]
        step_ratios.append(sum(logps[0][i] - logps[1][i] for i in inside))
        end += len(step)
    return step_ratios


@pytest.mark.parametrize("so_far", [False, True])
def test_rewards_are_log_ratios_of_steps(models: tuple[Path, Path], so_far: bool) -> None:
    items = [*solutions(3, 2), ScorerInput("p", []), ScorerInput("p", ["x" * 300])]
    options = ScorerOptions(
        device="cpu",
        reference=str(models[1]),
        beta=0.2,
        prm_format="implicit-so-far" if so_far else None,
    )
    rewards = score_all(load_scorer(str(models[0]), options), items)
    assert rewards[-2:] == [[], None]
    expected = [
        [
            0.2 * ratio
            for ratio in ratios(models, item.prompt, list(item.steps), tokenize_separately=True)
        ]
        for item in items[:-2]
    ]
    assert worst(rewards[:-2], [list(accumulate(e)) if so_far else e for e in expected]) < 1e-4


def test_the_eurus_prompt_uses_the_chat_template(models: tuple[Path, Path]) -> None:
    """The Q value of a step is 0.001 · Σ (log π − log π_ref) over the answer up to its end."""
    options = ScorerOptions(device="cpu", reference=str(models[1]), prm_format="eurus")
    [rewards] = score_all(
        load_scorer(str(models[0]), options),
        [ScorerInput("other words", ["20 + 22.\n\n", "So 42."], "20 + 22?")],
    )
    prompt, steps = "<user>20 + 22?<assistant>", ["Step 1: 20 + 22.", "\n\nStep 2: So 42."]
    expected = list(
        accumulate(
            0.001 * ratio for ratio in ratios(models, prompt, steps, tokenize_separately=False)
        )
    )
    assert worst([rewards], [expected]) < 1e-6


def test_policy_and_reference_on_the_command_line(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line import run

    small_build(tmp_path / "run")
    arguments: list[Any] = [
        "score",
        tmp_path / "run",
        "--prm",
        models[0],
        "--out",
        tmp_path / "out",
    ]
    code, _, err = run(capsys, *map(str, arguments))
    assert code == 1 and "--prm" in err and "need a --reference" in err
    code, _, err = run(capsys, *map(str, [*arguments, "--reference", models[1]]))
    assert code == 0, err
    assert "(PRM format implicit). For a renamed copy of a published model" in " ".join(err.split())
    assert "such as --prm-format eurus. The manifest records the format." in " ".join(err.split())
    score_spec = stage_options(json.loads((tmp_path / "out/manifest.json").read_text()), "score")
    assert score_spec["prm_format"]["meaning"] == "log-ratio of two policies"
    manifest_rewards = stage_counts(
        json.loads((tmp_path / "out/manifest.json").read_text()), "score"
    )
    evidence = "reference model, and no name of a published model"
    assert manifest_rewards["format_evidence"] == evidence
    assert score_spec["reference"]["name"] == models[1].name
    card = (tmp_path / "out/README.md").read_text()
    assert f"a reward is a log-ratio of two policies; reference `{models[1].name}` at" in card
    pair = ["pair", tmp_path / "out", "--style", "step-dpo", "--out", tmp_path / "pairs"]
    pair += ["--model", "tiny"]
    code, _, err = run(capsys, *map(str, pair))
    assert code == 1 and "are not probabilities" in err


def test_models_with_a_reference_are_recognised_by_name(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    eurus_path = tmp_path / "EurusPRM-Stage2"
    shutil.copytree(models[0], eurus_path)
    options = ScorerOptions(reference=str(models[1]))
    names = [resolve_prm(str(path), options).prm_format.name for path in (eurus_path, models[0])]
    assert names == ["eurus", "implicit"]


EURUS = "PRIME-RL/EurusPRM-Stage2"


@pytest.mark.parametrize(
    ("location", "evidence"),
    [
        ("snapshot", f"repository {EURUS} of the Hub cache"),
        ("link to a snapshot", f"repository {EURUS} of the Hub cache"),
        ("links to files", f"repository {EURUS} of the Hub cache"),
        ("link with the name", "folder name EurusPRM-Stage2"),
        ("link to the name", "folder name EurusPRM-Stage2"),
        ("config", f"_name_or_path {EURUS} in config.json"),
        ("path in config", "_name_or_path /data/ckpt/EurusPRM-Stage2 in config.json"),
        ("nothing", "reference model, and no name of a published model"),
    ],
)
def test_eurus_is_recognised_in_every_place(
    models: tuple[Path, Path],
    tmp_path: Path,
    location: str,
    evidence: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A snapshot and a symlink were once scored as `implicit`: β 0.05 and another prompt."""
    folder = "x"
    if location in ("snapshot", "link to a snapshot", "links to files"):
        folder = "models--PRIME-RL--EurusPRM-Stage2/snapshots/0a1b2c"
    elif location == "link to the name":
        folder = "EurusPRM-Stage2"
    path = Path(shutil.copytree(models[0], tmp_path / folder))
    if location in ("config", "path in config"):
        config = json.loads((path / "config.json").read_text())
        config["_name_or_path"] = EURUS if location == "config" else "/data/ckpt/EurusPRM-Stage2/"
        (path / "config.json").write_text(json.dumps(config))
    if location.startswith("link"):
        link = tmp_path / ("EurusPRM-Stage2" if location == "link with the name" else "mine")
        if location == "links to files":
            link.mkdir()
            for file in path.iterdir():
                (link / file.name).symlink_to(file)
        else:
            link.symlink_to(path, target_is_directory=True)
        path = link
    options = ScorerOptions(reference=str(models[1]))
    weights = resolve_prm(str(path), options)
    assert weights.format_evidence == evidence
    expected = ("implicit", 0.05) if location == "nothing" else ("eurus", 0.001)
    assert (weights.prm_format.name, weights.prm_format.beta) == expected
    assert ("`prm_format=eurus`" in caplog.text) == (location == "nothing")
    caplog.clear()
    forced = resolve_prm(str(path), ScorerOptions(reference=str(models[1]), prm_format="implicit"))
    assert (forced.prm_format.name, forced.format_evidence) == ("implicit", "option prm_format")
    assert not caplog.text


def test_rewards_do_not_depend_on_the_path_of_a_model(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    paths = [tmp_path / "EurusPRM-Stage2"]
    paths.append(tmp_path / "models--PRIME-RL--EurusPRM-Stage2/snapshots/0a1b2c")
    item = ScorerInput("p", ["20 + 22.\n\n", "So 42."], "20 + 22?")
    rewards = []
    for path in paths:
        shutil.copytree(models[0], path)
        options = ScorerOptions(device="cpu", reference=str(models[1]))
        [step_rewards] = score_all(load_scorer(str(path), options), [item])
        rewards.append(step_rewards)
    assert rewards[0] == rewards[1]
    plain = ScorerOptions(device="cpu", reference=str(models[1]), prm_format="implicit")
    [plain_rewards] = score_all(load_scorer(str(paths[0]), plain), [item])
    assert worst([rewards[0]], [plain_rewards]) > 0.01


def test_missing_and_unneeded_references_are_refused(models: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="format implicit needs a reference model"):
        load_scorer(str(models[0]), ScorerOptions(device="cpu", prm_format="implicit"))
    with pytest.raises(InputError, match="qwen uses no reference model"):
        options = ScorerOptions(device="cpu", prm_format="qwen", reference=str(models[1]))
        load_scorer(str(models[0]), options)
