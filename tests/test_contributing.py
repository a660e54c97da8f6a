"""The instructions of CONTRIBUTING.md work on a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: Language, instruction, content.
BLOCKS = re.findall(
    r"```\w+\n# (new file: [^\n]+|[^\n]+, at its end|[^\n]+, after `[^\n]+`)\n(.*?)```",
    TEXT,
    flags=re.S,
)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    copy = tmp_path_factory.mktemp("copy")
    for package in ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench", "cards/fsdpo_cards"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, copy / package, ignore=ignored)
    shutil.copy(ROOT / "benchmarks/published.csv", copy / "benchmarks")
    (copy / "tests/data").mkdir(parents=True)
    shutil.copy(ROOT / "tests/data/grader_cases.jsonl", copy / "tests/data")
    for path, content in BLOCKS:
        follow(copy, path, content)
    paths = os.pathsep.join(str(copy / part) for part in (".", "benchmarks", "cards"))

    def run(*line: object) -> str:
        done = subprocess.run(
            [sys.executable, *([] if line[0] == "-c" else ["-m"]), *map(str, line)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def follow(copy: Path, path: str, content: str) -> None:
    """Write a new file, or add a row to a table."""
    if path.startswith("new file: "):
        file = copy / path.removeprefix("new file: ")
        assert not file.exists() and file.parent.is_dir()
        file.write_text(content, encoding="utf-8")
        return
    if path.endswith("`"):
        name, _, line = path.removesuffix("`").partition(", after `")
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(f"\n{line}\n") == 1, f"{name} has the line {line} once"
        (copy / name).write_text(text.replace(f"\n{line}\n", f"\n{line}\n{content}"))
        return
    file = copy / path.removesuffix(", at its end")
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{content}", encoding="utf-8")


def test_a_sampler_and_a_scorer(run: Run, tmp_path: Path) -> None:
    built, scored, prm = (tmp_path / name for name in ("built", "scored", "prm"))
    run("fsdpo_data", "build", "--engine", "parrot", "--limit", 3, "--samples", 2, "--out", built)
    prm.mkdir()
    config = {"architectures": ["LlamaForTokenClassification"], "model_type": "llama"}
    (prm / "config.json").write_text(json.dumps({**config, "num_labels": 1}))
    run("fsdpo_data", "score", built, "--prm", prm, "--engine", "short", "--out", scored)
    manifest = json.loads((scored / "manifest.json").read_text())
    assert manifest["spec"]["engine"]["name"] == "parrot"
    assert manifest["spec"]["score"]["engine"]["name"] == "short"
    assert manifest["rewards"]["scored"] == 6
    assert "parrot" in run("fsdpo_data", "build", "--help")


def test_a_sampler_and_a_scorer_of_a_plugin(run: Run, tmp_path: Path) -> None:
    built, scored, prm = (tmp_path / name for name in ("built", "scored", "prm"))
    plugin = ["--plugin", "my_engines.py"]
    line = ["--engine", "macaw", "--limit", 3, "--samples", 2, "--out", built]
    run("fsdpo_data", "build", *plugin, *line)
    prm.mkdir()
    config = {"architectures": ["MyRewardModel"], "model_type": "llama"}
    (prm / "config.json").write_text(json.dumps(config))
    line = ["--prm", prm, "--engine", "first-step", "--out", scored]
    run("fsdpo_data", "score", built, *plugin, *line)
    manifest = json.loads((scored / "manifest.json").read_text())
    assert manifest["spec"]["engine"]["name"] == "macaw"
    assert manifest["spec"]["score"]["engine"]["name"] == "first-step"
    assert manifest["rewards"]["scored"] == 6


def test_a_benchmark(run: Run, tmp_path: Path) -> None:
    line = ["--suite", "mine", "--engine", "parrot", "--model", "tiny", "--out", tmp_path / "bench"]
    run("fsdpo_bench", "run", *line)
    results = json.loads((tmp_path / "bench/results.json").read_text())
    assert results["tasks"]["sums"]["decoders"]["greedy"]["accuracy"] == 0.5


def test_a_decoder_and_a_report_number(run: Run, tmp_path: Path) -> None:
    line = ["--suite", "mine", "--engine", "parrot", "--model", "tiny", "--out", tmp_path / "bench"]
    printed = run("fsdpo_bench", "run", *line, "--decoder", "shortest", "--k", 2)
    results = json.loads((tmp_path / "bench/results.json").read_text())
    assert results["tasks"]["sums"]["decoders"]["shortest@2"]["accuracy"] == 0.5
    assert results["tasks"]["sums"]["all_at_k"]["2"]["accuracy"] == 0.5
    assert "shortest@2" in printed and "all@2" in printed
    again = tmp_path / "again"
    run("fsdpo_bench", "grade", tmp_path / "bench", "--out", again, "--k", 1)
    assert [*json.loads((again / "results.json").read_text())["cost"]] == ["shortest@1"]


@pytest.fixture(scope="module")
def built(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "built"
    run("fsdpo_data", "build", "--engine", "parrot", "--limit", 3, "--samples", 2, "--out", out)
    return out


def test_a_stage(run: Run, built: Path, tmp_path: Path) -> None:
    """One file gives the command, its help, the method of ``Dataset`` and the row of the card."""
    brief = tmp_path / "brief"
    assert "brevity" in run("fsdpo_data", "--help")
    assert "fsdpo-data brevity runs/demo --words 8" in run("fsdpo_data", "brevity", "--help")
    printed = run("fsdpo_data", "brevity", built, "--words", 2, "--out", brief)
    assert f"next: fsdpo-data inspect {brief}" in printed
    manifest = json.loads((brief / "manifest.json").read_text())
    assert manifest["spec"]["brevity"] == {"words": 2}
    assert manifest["rewards"]["scored"] == 6
    assert manifest["commands"][-1].startswith("fsdpo-data brevity dataset@")
    card = (brief / "README.md").read_text()
    assert "| step rewards | 1 up to 2 words per step, then lower |" in card
    assert "fsdpo-data brevity runs/build \\\n  --words 2" in card
    files = {file: file.read_bytes() for file in brief.rglob("*") if file.is_file()}
    (brief / "manifest.json").unlink()  # as after an interruption
    run("fsdpo_data", "brevity", built, "--words", 2, "--out", brief, "--resume")
    assert files == {file: file.read_bytes() for file in brief.rglob("*") if file.is_file()}
    code = "import sys, fsdpo_data as fd; fd.open_dataset(sys.argv[1])"
    run("-c", f"{code}.brevity(words=2, out=sys.argv[2])", built, tmp_path / "same")
    same_manifest = json.loads((tmp_path / "same/manifest.json").read_text())
    assert same_manifest["digest"] == manifest["digest"]


def test_a_stage_of_a_plugin(run: Run, built: Path, tmp_path: Path) -> None:
    brief, plugin = tmp_path / "brief", tmp_path / "my_stage.py"
    source = dict(BLOCKS)["new file: fsdpo_data/stages/brevity.py"]
    plugin.write_text(source.replace('"brevity"', '"terse"'))
    assert "--words" in run("fsdpo_data", "terse", "--plugin", plugin, "--help")
    run("fsdpo_data", "terse", built, "--out", brief, "--plugin", plugin)
    run("fsdpo_data", "validate", brief)
    assert "| step rewards | 1 up to 10 words" in (brief / "README.md").read_text()


def test_a_command(run: Run, built: Path) -> None:
    assert "incorrect: 2.00" in run("fsdpo_data", "steps", built, "--digits", 2)
    assert "fsdpo-data steps runs/demo --digits 2" in run("fsdpo_data", "steps", "--help")
    assert "│ steps " in run("fsdpo_data", "--help")


def test_a_column(run: Run, built: Path, tmp_path: Path) -> None:
    """Three files suffice: builds fill the column, and datasets from before still open."""
    old = ROOT / "tests/data/schema-1"
    for dataset in (built, old):
        assert "is valid" in run("fsdpo_data", "validate", dataset)
    code = "import sys, fsdpo_data as fd; rows = fd.open_dataset(sys.argv[1]).solutions().collect()"
    print_values = f"{code}; print(rows['n_characters'].to_list())"
    n_characters = len("It is clear.\nThe answer is 42.")
    assert run("-c", print_values, built) == f"{[n_characters] * 6}\n"
    assert run("-c", print_values, old) == f"{[None] * 8}\n"
    columns = run("fsdpo_data", "inspect", built, "--columns")
    assert re.search(r"n_characters +int32 +1\.2 +0 +The number", columns)
    assert f"n_characters {n_characters}" in run("fsdpo_data", "inspect", built)
    run("fsdpo_data", "view", built, "--out", tmp_path / "page.html")
    assert f'"n_characters":"{n_characters}"' in (tmp_path / "page.html").read_text()
    run("fsdpo_data", "grade", built, "--out", tmp_path / "graded")
    assert run("-c", print_values, tmp_path / "graded") == f"{[n_characters] * 6}\n"


def test_a_default(tmp_path: Path) -> None:
    """The help shows the default of the options, which stands in one place."""
    for package in ("fsdpo_data", "cards/fsdpo_cards"):
        shutil.copytree(ROOT / package, tmp_path / package)
    sampling = tmp_path / "fsdpo_data/core/sampling.py"
    text = sampling.read_text(encoding="utf-8")
    [default] = re.findall(r"^    n: .* = (\d+)$", text, flags=re.M)
    sampling.write_text(re.sub(r"^(    n: .* = )\d+$", r"\g<1>1234", text, flags=re.M))
    paths = os.pathsep.join([str(tmp_path), str(tmp_path / "cards")])
    helps = [
        subprocess.run(
            [sys.executable, "-m", "fsdpo_data", "build", "--help"],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for folder, environment in ((ROOT, {}), (tmp_path, {"PYTHONPATH": paths}))
    ]
    assert helps[0].count("1234") == 0 and helps[1].count("1234") == 1
    assert f"default: {default}]" in helps[0] and "default: 1234]" in helps[1]


def test_every_path_that_is_named_exists() -> None:
    folders = ("", "fsdpo_data/", "benchmarks/", "benchmarks/fsdpo_bench/")
    table = TEXT.partition("## To add")[2].partition("###")[0]
    names = re.findall(r"`([\w/]+(?:/|\.py|\.jsonl))`", table)
    assert len(names) > 20
    for name in names:
        assert any((ROOT / folder / name).exists() for folder in folders), f"{name} is not there"


#: Checks of examples that need no model, in one process that imports the copy.
CHECKS = """
import fsdpo_data
from pathlib import Path

assert Path(fsdpo_data.__file__).is_relative_to(Path.cwd()), "the copy is imported"
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.steps.rewards import aggregate
from fsdpo_data.steps.segment import segmenter_name, split_steps, step_stops
from fsdpo_train.config import PreferenceSpec, PrmConfig

name = segmenter_name("sentence")
assert split_steps("One. Two! Three.", 0, name) == ["One. ", "Two! ", "Three."]
assert step_stops(name, "One. ") == (". ", "! ", "? ", "\\n")
assert aggregate([0.1, 0.9, 0.5], "median") == 0.5
assert get_template("plain-question").render("2+2?") == "Q: 2+2?\\nA:"
assert find_thinking("", "<ponder>a</ponder>b").end == len("<ponder>a</ponder>")
assert "my-model" in MODELS and "plain-pairs" in FORMATS
assert PRM_FORMATS["my-prm"].step_token == " §" and PRM_FORMATS["my-prm"].head == "vocabulary"

import json
from fsdpo_data.answers.grader import grade_response
from fsdpo_data.answers.parsing.read import read_answer

lines = Path("tests/data/grader_cases.jsonl").read_text().splitlines()[-3:]
cases = [json.loads(line) for line in lines if line]
assert [case["gold"] for case in cases] == ["5:30", "square"]
for case in cases:
    gold = read_answer(case["gold"])
    for answer, status in ((case["answer"], "correct"), ("half past 6", "incorrect")):
        assert grade_response(gold, f"The answer is {answer}.").status == status, answer

from fsdpo_data.exchange.step_label_readers import STEP_LABEL_READERS
from fsdpo_data.problems.hub_datasets import DATASETS
from fsdpo_data.recorded.formats import RESPONSE_FORMATS, find_response_format

row = {"task": "2+2?", "lines": ["a", "b"], "marks": [1, 0]}
[solution] = STEP_LABEL_READERS["my-labels"].read(row)
assert list(solution.labels) == [1, 0], solution
row = {"task_text": "2+2?", "tries": ["4"], "key": "4"}
assert find_response_format(row) is RESPONSE_FORMATS["my-tool"]
assert DATASETS["my-problems"].repo == "my-org/my-problems"

import torch
from fsdpo_train.losses.preference_losses import PairLogprobs

logps = torch.tensor([[1.0], [0.5], [1.0], [0.5], [3.0], [3.0]])
spec = PreferenceSpec("hinge", beta=0.5)
assert spec.preference_loss.pair_loss(PairLogprobs(*logps), spec).tolist() == [0.75]
config = PrmConfig(data="d", out="o", loss="mse")
inputs = (torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[True, False]]))
assert config.prm_loss.function(*inputs, config=config, class_weights=None) == 0.25
"""


#: Rows of the table with a complete example, which the tests of this file apply and use.
ROWS_WITH_EXAMPLES = """
a sampler; a scorer; a published reward model; a benchmark; a stage; a command; an export format;
an import format; a form of answers; a unit, a phrase, a number word, a date, a clock time;
a preference loss;
a loss of process reward models; the thinking markers of a model; a segmenter;
an aggregate of step rewards; a prompt template; a model; a source of problems; a decoder;
a number of the report; a format of recorded responses; a column
"""
#: Rows without an example so far. Do not add to them.
ROWS_WITHOUT_EXAMPLES = {
    "a recipe",
    "a default",
    "a page of the site",
}


def test_each_row_has_an_example_or_is_listed_without_one() -> None:
    table = TEXT.partition("| object | steps |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (?!-)([^|]+) \|", table, flags=re.M)
    with_examples = {row.strip() for row in ROWS_WITH_EXAMPLES.replace("\n", " ").split(";")}
    assert sorted(rows) == sorted(with_examples | ROWS_WITHOUT_EXAMPLES)


def test_an_import_format(run: Run, tmp_path: Path) -> None:
    row = {"task": "2+2?", "lines": ["We add.", "It is 4."], "marks": [1, 0]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    line = [tmp_path / "rows.jsonl", "--from", "my-labels", "--out", tmp_path / "labels.jsonl"]
    run("fsdpo_data", "import", *line)
    imported = json.loads((tmp_path / "labels.jsonl").read_text().splitlines()[0])
    assert imported["completions"] == ["We add.\n", "It is 4."] and imported["labels"] == [1, 0]


def test_entries_that_need_no_model(run: Run) -> None:
    run("-c", CHECKS)


def test_a_build_with_the_segmenter_and_the_template(run: Run, tmp_path: Path) -> None:
    line = ["build", "--engine", "parrot", "--limit", 2, "--samples", 1, "--out", tmp_path / "out"]
    run("fsdpo_data", *line, "--segmenter", "sentence", "--template", "plain-question")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert "sentence@1" in json.dumps(manifest) and "plain-question@1" in json.dumps(manifest)
