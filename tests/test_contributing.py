"""The instructions of CONTRIBUTING.md work on a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import stage_counts, stage_options
from hub_server import TOKEN, client_env, running_hub
from paired_data import paired_dataset
from random_model import save_random_model
from warm import DATA_MODULES, WarmInterpreter

from fsdpo_data.problems.embedded import CHECKPOINT

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: The first line of an example: what a contributor does with the others.
INSTRUCTION = r"new file: [^\n]+|[^\n]+, at its end|[^\n]+, (?:after|instead of) `[^\n]+`"
#: Instruction and content of each example.
BLOCKS = [
    (instruction, content)
    for _, instruction, content in re.findall(
        rf"^(```+)\w+\n# ({INSTRUCTION})\n(.*?)^\1$", TEXT, flags=re.S | re.M
    )
]

Run = Callable[..., str]
#: Runs command lines of the three programs in one process, since each start takes seconds.
RUN_LINES = """
import importlib, json, sys

for line in json.loads(sys.argv[1]):
    sys.argv = line
    try:
        importlib.import_module(f"{line[0]}.cli.app").main()
    except SystemExit as ended:
        assert not ended.code, line
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the source in which all examples are applied."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench", "cards/fsdpo_cards"):
        shutil.copytree(ROOT / package, copy / package)  # bytecode too, which is slow to make
    for folder in ("benchmarks/recipes", "docs", "tests/support"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests/data").mkdir(parents=True)
    names = ("benchmarks/published.csv", "mkdocs.yml", "pyproject.toml")
    for name in (*names, "tests/data/grader_cases.jsonl"):
        shutil.copy(ROOT / name, copy / name)
    for path, content in BLOCKS:
        follow(copy, path, content)
    return copy


@pytest.fixture(scope="module")
def run(copy: Path) -> Iterator[Run]:
    """Yield a function that runs a module or code of the copy in a process of its own."""
    paths = os.pathsep.join(str(copy / part) for part in (".", "benchmarks", "cards"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    interpreter = WarmInterpreter(environment, (*DATA_MODULES, "fsdpo_bench.cli.app"))

    def run(*line: object, **variables: str) -> str:
        option = [] if line[0] == "-c" else ["-m"]
        return interpreter.run(*option, *line, folder=copy, env={**environment, **variables})

    yield run
    interpreter.stop()


def follow(copy: Path, path: str, content: str) -> None:
    """Write a new file, or add a row to a table."""
    if path.startswith("new file: "):
        file = copy / path.removeprefix("new file: ")
        assert not file.exists() and file.parent.is_dir()
        file.write_text(content, encoding="utf-8")
        return
    if path.endswith("`"):
        name, action, line = re.split(", (after|instead of) `", path.removesuffix("`"))
        kept_line = f"{line}\n" if action == "after" else ""
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(f"\n{line}\n") == 1, f"{name} has the line {line} once"
        (copy / name).write_text(text.replace(f"\n{line}\n", f"\n{kept_line}{content}"))
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
    assert stage_options(manifest, "sample")["engine"]["name"] == "parrot"
    assert stage_options(manifest, "score")["engine"]["name"] == "short"
    assert stage_counts(manifest, "score")["scored"] == 6
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
    assert stage_options(manifest, "sample")["engine"]["name"] == "macaw"
    assert stage_options(manifest, "score")["engine"]["name"] == "first-step"
    assert stage_counts(manifest, "score")["scored"] == 6


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
def built(run: Run, copy: Path) -> Path:
    out = copy / "runs/first"
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
    assert stage_options(manifest, "brevity") == {"words": 2}
    assert stage_counts(manifest, "brevity")["scored"] == 6
    card = (brief / "README.md").read_text()
    assert "| step rewards | 1 up to 2 words per step, then lower |" in card
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
    assert "step rewards" in run("fsdpo_data", "inspect", brief, FSDPO_PLUGINS=str(plugin))


def test_a_command(run: Run, built: Path) -> None:
    assert "incorrect: 2.00" in run("fsdpo_data", "steps", built, "--digits", 2)
    assert "fsdpo-data steps runs/demo --digits 2" in run("fsdpo_data", "steps", "--help")
    assert "│ steps " in run("fsdpo_data", "--help")


def test_a_column(run: Run, built: Path, tmp_path: Path) -> None:
    """Three files suffice: builds fill the column."""
    graded = tmp_path / "graded"
    lines = [
        ["validate", built],
        ["inspect", built, "--columns"],
        ["inspect", built],
        ["view", built, "--out", tmp_path / "page.html"],
        ["grade", built, "--out", graded],
    ]
    words = [["fsdpo_data", *map(str, line)] for line in lines]
    printed = run("-c", RUN_LINES, json.dumps(words))
    assert "is valid" in printed
    assert re.search(r"n_characters +int32 +0 +The number", printed)
    n_characters = len("It is clear.\nThe answer is 42.")
    assert f"n_characters {n_characters}" in printed
    assert f'"n_characters":"{n_characters}"' in (tmp_path / "page.html").read_text()
    code = """
import sys, fsdpo_data
for path in sys.argv[1:]:
    print(fsdpo_data.open_dataset(path).solutions().collect()["n_characters"].to_list())
"""
    values = [[n_characters] * 6, [n_characters] * 6]
    assert run("-c", code, built, graded).splitlines() == list(map(str, values))


def test_a_default(run: Run) -> None:
    """The help shows the default of the options, which stands in one place."""
    [(instruction, content)] = [block for block in BLOCKS if ", instead of `" in block[0]]
    old, new = (re.search(r" = (\d+)`?$", text.strip())[1] for text in (instruction, content))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "cards")])}
    help_before = subprocess.run(
        [sys.executable, "-m", "fsdpo_data", "build", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for text, default, other in (
        (help_before, old, new),
        (run("fsdpo_data", "build", "--help"), new, old),
    ):
        [help_default] = re.findall(r"--samples N .*?default: (\d+)\]", text, flags=re.S)
        assert help_default == default != other


def test_a_recipe(run: Run, copy: Path) -> None:
    """A file is a recipe by name; its stages run once."""
    line = ["fsdpo_bench", "recipe"]
    lines = [line, [*line, "first-samples"], [*line, "first-samples"]]
    printed = run("-c", RUN_LINES, json.dumps(lines))
    assert "First samples" in printed
    assert printed.count("samples: fsdpo-data build") == 1
    assert "samples: done (runs/first-samples/manifest.json)" in printed
    manifest = json.loads((copy / "runs/first-samples/manifest.json").read_text())
    assert manifest["rows"]["solutions"] == 4


def test_a_page_of_the_site(run: Run, built: Path) -> None:
    """The commands of the page run."""
    page = dict(BLOCKS)["new file: docs/howto/steps.md"]
    printed = [run("fsdpo_data", *line.split()) for line in re.findall(r"fsdpo-data (.*)\n", page)]
    assert re.search(r"^incorrect: \d\.\d\d$", printed[-1], flags=re.MULTILINE)


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
from fsdpo_train.config import PrmConfig
from fsdpo_train.losses.preference_losses import PreferenceSpec

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
for gold, response in (("7", "Jibu ni 7."), ("yes", "Jibu: ndiyo")):
    assert grade_response(read_answer(gold), response).status == "correct", response

from fsdpo_data.engines.answer_judge_formats import ANSWER_JUDGE_FORMATS, JudgeQuestion
item = JudgeQuestion(question="2 + 2?", gold="4", answer="four", response="It is four.")
one_word = ANSWER_JUDGE_FORMATS["one-word"]
assert "Answer: four" in one_word.render(item)
assert one_word.read_reply("", "Yes.", "stop") == "correct"

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
a sampler; a scorer; a format of answer judges; a published reward model; a benchmark;
a stage; a command; an export format;
an import format; a form of answers; a language of answers;
a unit, a phrase, a number word, a date, a clock time;
a preference loss;
a loss of process reward models; the thinking markers of a model; a segmenter;
an aggregate of step rewards; a prompt template; a model; a source of problems; a decoder;
a number of the report; a format of recorded responses; a column;
a recipe; a page of the site; a default
"""


def test_each_row_has_an_example() -> None:
    header = "| object | steps | its test |\n"
    table = TEXT.partition(header)[2].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    assert {len(cells) for cells in lines} == {3}, "each row names its test"
    rows = [cells[0] for cells in lines]
    with_examples = {row.strip() for row in ROWS_WITH_EXAMPLES.replace("\n", " ").split(";")}
    assert sorted(rows) == sorted(with_examples)


@pytest.fixture(scope="module")
def paired_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with rewards and pairs."""
    return paired_dataset(tmp_path_factory.mktemp("paired"))


def test_an_export_format(run: Run, paired_data: Path, tmp_path: Path) -> None:
    run("fsdpo_data", "export", paired_data, "--to", "plain-pairs", "--out", tmp_path / "plain")
    text = (tmp_path / "plain/plain.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 12 and {*rows[0]} == {"question", "good", "bad"}
    assert "20 + 22 = 42" in rows[0]["good"] and "is: 43" in rows[0]["bad"] + rows[1]["bad"]


def save_vocabulary_prm(folder: Path) -> None:
    """Write a random language model with the tokens of the format ``my-prm``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    save_random_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["§"])
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.proof
def test_losses_a_reward_model_and_a_search(run: Run, paired_data: Path, tmp_path: Path) -> None:
    """Each loss trains two steps; the models score with the format, and steer a search."""
    policy, prm, vocabulary_prm = (tmp_path / name for name in ("policy", "prm", "my-prm"))
    save_vocabulary_prm(vocabulary_prm)
    scored, bench = tmp_path / "scored", tmp_path / "bench"
    training = ["--model", "tiny", "--max-steps", 2, "--grad-accum", 1, "--save-every", 0]
    search = ["--decoder", "bon,sbs", "--aggregate", "median", "--k", 2, "--b1", 2]
    limits = ["--limit", 1, "--max-tokens", 48, "--step-tokens", 24, "--max-steps", 3]
    lines = [
        ["fsdpo_train", "dpo", paired_data, "--loss", "hinge", *training, "--out", policy],
        ["fsdpo_train", "prm", paired_data, "--loss", "mse", *training, "--out", prm],
        [
            *(
                "fsdpo_data",
                "score",
                paired_data,
                "--prm",
                vocabulary_prm,
                "--prm-format",
                "my-prm",
            ),
            *("--out", scored),
        ],
        [
            *("fsdpo_bench", "run", "--task", "sums", "--model", policy, "--prm", prm),
            *("--template", "problem", "--segmenter", "sentence", *search, *limits),
            *("--out", bench),
        ],
    ]
    run("-c", RUN_LINES, json.dumps([[str(word) for word in line] for line in lines]))
    for folder, loss in ((policy, "hinge"), (prm, "mse")):
        text = (folder / "README.md").read_text()
        assert loss in text, text
    manifest = json.loads((scored / "manifest.json").read_text())
    assert stage_options(manifest, "score")["prm_format"]["name"] == "my-prm"
    assert stage_counts(manifest, "score")["scored"] == manifest["rows"]["solutions"]
    results = json.loads((bench / "results.json").read_text())
    assert {*results["tasks"]["sums"]["decoders"]} == {"bon@2:median", "sbs@2,1"}
    record = json.loads((bench / "records/sums.jsonl").read_text())
    search_steps = record["decoded"]["sbs@2,1"]["solution"]["steps"]
    for steps in (search_steps, *(sample["steps"] for sample in record["samples"])):
        sentences = re.findall(r".+?(?:[.!?]\s+|\Z)", "".join(steps), flags=re.S)
        assert steps == sentences, (steps, sentences)
        assert all(step.strip() for step in steps)


@pytest.mark.proof
def test_a_model_and_a_dataset_of_the_hub(run: Run, tmp_path: Path) -> None:
    """A Hub on this machine has both repositories."""
    rows = [{"question": f"{number} + 1?", "answer": str(number + 1)} for number in range(100)]
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    weights = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    line = ["build", "--model", "my-model", "--problems", "my-problems", "--limit", 2]
    with running_hub() as hub:
        hub.add("dataset", "my-org/my-problems", {"train.jsonl": data})
        hub.add("model", "my-org/my-model", weights)
        environment = client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN, PYTHONWARNINGS="")
        out = ["--samples", 1, "--max-tokens", 16, "--out", tmp_path / "out"]
        run("fsdpo_data", *line, *out, **environment)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert stage_options(manifest, "sample")["model"]["name"] == "my-org/my-model"
    assert stage_options(manifest, "sample")["template"]["name"] == "plain-question@1"
    assert "my-org/my-problems" in json.dumps(manifest)


def test_a_format_of_recorded_responses(run: Run, tmp_path: Path) -> None:
    tries = ["It is 4. The answer is 4.", "The answer is 5."]
    row = {"task_text": "2+2?", "tries": tries, "key": "4"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    line = ["--replay", tmp_path / "rows.jsonl", "--decoder", "sc", "--k", 1]
    run("fsdpo_bench", "run", "--engine", "replay", *line, "--out", tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    [task] = results["tasks"].values()
    assert task["decoders"]["sc@1"]["accuracy"] == 1


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
