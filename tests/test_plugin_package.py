"""The example plug-in is installed with pip, and everything that it adds is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import stage_counts, stage_options
from paired_data import paired_dataset
from warm import DATA_MODULES, WarmInterpreter

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples/plugin"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package to a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(PACKAGE)], check=True)
    return folder


def environment_with(*sites: Path) -> dict[str, str]:
    """Return the environment of programs, with the packages of some folders."""
    paths = [ROOT, ROOT / "benchmarks", ROOT / "cards", *sites]
    variables = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **variables}


@pytest.fixture(scope="module")
def interpreter(site: Path) -> Iterator[WarmInterpreter]:
    modules = (*DATA_MODULES, "fsdpo_bench.cli.app")
    interpreter = WarmInterpreter(environment_with(site), modules)
    yield interpreter
    interpreter.stop()


@pytest.fixture(scope="module")
def bare_interpreter() -> Iterator[WarmInterpreter]:
    """Yield an interpreter without the package."""
    interpreter = WarmInterpreter(environment_with(), DATA_MODULES)
    yield interpreter
    interpreter.stop()


@pytest.fixture
def run(interpreter: WarmInterpreter, site: Path, tmp_path: Path) -> Run:
    env = environment_with(site)
    return lambda *line: interpreter.run("-m", *line, folder=tmp_path, env=env)


@pytest.fixture
def run_bare(bare_interpreter: WarmInterpreter, tmp_path: Path) -> Run:
    env = environment_with()
    return lambda *line: bare_interpreter.run("-m", *line, folder=tmp_path, env=env)


def read_manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def test_data_with_everything_from_the_package(run: Run, run_bare: Run, tmp_path: Path) -> None:
    """Sampler, segmenter and template build; scorer and aggregate make pairs."""
    things = ("--engine", "parrot", "--segmenter", "sentence", "--template", "arrow")
    run("fsdpo_data", "build", *things, "--limit", 4, "--samples", 2, "--out", "built")
    built = read_manifest(tmp_path / "built")
    assert stage_options(built, "sample")["engine"]["name"] == "parrot"
    assert stage_options(built, "sample")["segmenter"] == "sentence@1"
    assert stage_options(built, "sample")["template"]["name"] == "arrow@1"
    assert built["statistics"]["unique_solutions"] == 4
    assert built["labels"]["steps"] == 2 * 4 * 2  # two sentences per sample
    modules = {plugin["module"]: plugin["version"] for plugin in built["plugins"]}
    assert modules.keys() >= {"fsdpo_example.engines", "fsdpo_example.steps"}
    assert set(modules.values()) == {"1.0"}
    prm = tmp_path / "prm"
    prm.mkdir()
    config = {"architectures": ["LlamaForTokenClassification"], "model_type": "llama"}
    (prm / "config.json").write_text(json.dumps({**config, "num_labels": 1}))
    run("fsdpo_data", "score", "built", "--prm", "prm", "--engine", "short", "--out", "scored")
    assert stage_counts(read_manifest(tmp_path / "scored"), "score")["scored"] == 8
    mixed = paired_dataset(tmp_path / "mixed")
    run("fsdpo_data", "score", mixed, "--prm", "prm", "--engine", "short", "--out", "rewarded")
    run("fsdpo_data", "pair", "rewarded", "--aggregate", "median", "--out", "pairs")
    assert stage_options(read_manifest(tmp_path / "pairs"), "pair")["aggregate"] == "median"
    run("fsdpo_data", "validate", "pairs")

    for line in (("validate", "built"), ("inspect", "built"), ("view", "built")):
        run_bare("fsdpo_data", *line)


def test_a_stage(run: Run, run_bare: Run, tmp_path: Path) -> None:
    line = ("--engine", "parrot", "--limit", 2, "--samples", 2, "--out", "built")
    run("fsdpo_data", "build", *line)
    assert "fsdpo-data uniform runs/demo" in run("fsdpo_data", "uniform", "--help")
    run("fsdpo_data", "uniform", "built", "--reward", 0.25, "--out", "uniform")
    manifest = read_manifest(tmp_path / "uniform")
    assert stage_counts(manifest, "uniform")["scored"] == 4 and stage_options(
        manifest, "uniform"
    ) == {"reward": 0.25}
    assert "fsdpo_example.stages" in {plugin["module"] for plugin in manifest["plugins"]}
    assert "| step rewards | 0.25 for every step |" in (tmp_path / "uniform/README.md").read_text()
    run_bare("fsdpo_data", "validate", "uniform")


def test_a_benchmark_and_a_decoder(run: Run, tmp_path: Path) -> None:
    line = ("--suite", "mine", "--engine", "parrot", "--model", "tiny", "--segmenter", "sentence")
    run("fsdpo_bench", "run", *line, "--decoder", "shortest", "--k", 2, "--out", "bench")
    results = json.loads((tmp_path / "bench/results.json").read_text())
    assert results["tasks"]["sums"]["decoders"]["shortest@2"]["accuracy"] == 0.5
    assert "shortest@2" in run("fsdpo_bench", "report", "bench")


@pytest.mark.skipif(sys.platform == "win32", reason="torch.distributed")
def test_a_preference_loss(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from preference_data import preference_rows
    from prm_data import write_rows
    from random_model import save_random_model

    save_random_model(tmp_path / "policy")
    write_rows(tmp_path / "pairs.jsonl", preference_rows())
    train = ("dpo", "pairs.jsonl", "--model", "policy", "--loss", "slic", "--max-steps", 6)
    steps = ("--lr", "1e-3", "--log-every", 1, "--save-every", 6)
    run("fsdpo_train", *train, *steps, "--out", "trained")
    assert "slic" in (tmp_path / "trained/README.md").read_text()
    state = tmp_path / "trained/checkpoints/checkpoint-6/trainer_state.json"
    history = json.loads(state.read_text())["log_history"]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert losses[-1] < losses[0]
    # The loss needs no reference, so none is computed.
    assert not list((tmp_path / "trained/reference").glob("*.parquet"))
    identity = json.loads((tmp_path / "trained/dpo.json").read_text())
    assert "fsdpo_example" in identity["plugins"]


def test_help_lists_the_names_without_importing_the_package(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in site.iterdir():
        if path.name.endswith(".dist-info"):
            (broken / path.name).symlink_to(path)  # the metadata without the modules
    environment = environment_with(broken)
    interpreter = WarmInterpreter(environment, DATA_MODULES)
    lines: list[tuple[object, ...]] = [
        ("build", "--help"),
        ("build", "--limit", 1, "--samples", 1, "--out", "plain"),
        ("build", "--limit", 1, "--samples", 1, "--engine", "parrot"),
    ]
    text, plain, refused = (
        interpreter.complete("-m", "fsdpo_data", *line, folder=tmp_path, env=environment)
        for line in lines
    )
    interpreter.stop()
    assert "parrot" in text.stdout
    assert plain.returncode == 0, plain.stderr
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "fsdpo_example" in refused.stderr and "cannot be imported" in refused.stderr
