"""Log-ratios of two policies: sums of plain forward passes, whatever asks for them."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from helpers import small_build
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from scored import solutions, worst  # noqa: E402

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.engines.load import load_scorer, resolve_prm  # noqa: E402
from fsdpo_data.engines.options import ScorerOptions  # noqa: E402
from fsdpo_data.engines.scorers import ScorerInput  # noqa: E402

CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a policy and its reference."""
    folders = [tmp_path_factory.mktemp(name) for name in ("policy", "reference")]
    made = [save_random_model(each, seed=seed) for seed, each in enumerate(folders)]
    for each in made:
        tokenizer = transformers.AutoTokenizer.from_pretrained(each)
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(each)
    return made[0], made[1]


def ratios(two: tuple[Path, Path], before: str, steps: list[str], *, apart: bool) -> list[float]:
    """Return log π/π_ref of each step, its tokens being those that start inside it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(two[0])
    parts = [before, "".join(steps)] if apart else [before + "".join(steps)]
    ids: list[int] = []
    starts: list[int] = []
    for place, part in enumerate(parts):
        read = tokenizer(part, return_offsets_mapping=True)
        ids += read["input_ids"]
        starts += [start + place * len(before) for start, _ in read["offset_mapping"]]
    logps = []
    for path in two:
        net = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
        with torch.no_grad():
            table = net(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        logps.append([0.0] + [float(table[i - 1, ids[i]]) for i in range(1, len(ids))])
    found, end = [], len(before)
    for step in steps:
        inside = [i for i, start in enumerate(starts) if end <= start < end + len(step)]
        found.append(sum(logps[0][i] - logps[1][i] for i in inside))
        end += len(step)
    return found


@pytest.mark.parametrize("so_far", [False, True])
def test_the_log_ratio_of_each_step(two: tuple[Path, Path], so_far: bool) -> None:
    items = [*solutions(3, 2), ScorerInput("p", []), ScorerInput("p", ["x" * 300])]
    options = ScorerOptions(
        device="cpu",
        reference=str(two[1]),
        beta=0.2,
        prm_format="implicit-so-far" if so_far else None,
    )
    found = load_scorer(str(two[0]), options).score(items)
    assert found[-2:] == [[], None]
    expected = [
        [0.2 * each for each in ratios(two, item.prompt, list(item.steps), apart=True)]
        for item in items[:-2]
    ]
    assert worst(found[:-2], [list(accumulate(e)) if so_far else e for e in expected]) < 1e-4


def test_eurus_is_asked_in_its_chat(two: tuple[Path, Path]) -> None:
    """Q of a step is 0.001 · Σ (log π − log π_ref) over the answer, up to the step's end."""
    options = ScorerOptions(device="cpu", reference=str(two[1]), prm_format="eurus")
    [found] = load_scorer(str(two[0]), options).score(
        [ScorerInput("other words", ["20 + 22.\n\n", "So 42."], "20 + 22?")]
    )
    before, steps = "<user>20 + 22?<assistant>", ["Step 1: 20 + 22.", "\n\nStep 2: So 42."]
    expected = list(accumulate(0.001 * each for each in ratios(two, before, steps, apart=False)))
    assert worst([found], [expected]) < 1e-6


def test_policy_and_reference_on_the_command_line(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line import run

    small_build(tmp_path / "run")
    given: list[Any] = ["score", tmp_path / "run", "--policy", two[0], "--out", tmp_path / "out"]
    code, _, err = run(capsys, *map(str, given))
    assert code == 1 and "--policy" in err and "--reference" in err
    code, _, err = run(capsys, *map(str, [*given, "--reference", two[1]]))
    assert code == 0, err
    told = json.loads((tmp_path / "out/manifest.json").read_text())["spec"]["score"]
    assert told["prm_format"]["meaning"] == "log-ratio of two policies"
    assert told["reference"]["name"] == two[1].name
    card = (tmp_path / "out/README.md").read_text()
    assert "in which a reward is a log-ratio of two policies" in card and "--reference" in card
    pair = ["pair", tmp_path / "out", "--style", "step-dpo", "--out", tmp_path / "pairs"]
    pair += ["--model", "tiny"]
    code, _, err = run(capsys, *map(str, pair))
    assert code == 1 and "are not probabilities" in err


def test_a_reference_does_not_hide_what_a_model_is(two: tuple[Path, Path], tmp_path: Path) -> None:
    theirs = tmp_path / "EurusPRM-Stage2"
    shutil.copytree(two[0], theirs)
    options = ScorerOptions(reference=str(two[1]))
    names = [resolve_prm(str(each), options).prm_format.name for each in (theirs, two[0])]
    assert names == ["eurus", "implicit"]


def test_a_reference_where_there_is_none(two: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="format implicit needs a reference model"):
        load_scorer(str(two[0]), ScorerOptions(device="cpu", prm_format="implicit"))
    with pytest.raises(InputError, match="qwen uses no reference model"):
        options = ScorerOptions(device="cpu", prm_format="qwen", reference=str(two[1]))
        load_scorer(str(two[0]), options)
