"""The example plug-in is installed with pip, and everything that it adds is used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import run as run_here
from fsdpo_bench.cli.app import main as bench_main
from fsdpo_bench.decoders.decoders import DECODERS
from fsdpo_bench.tasks.table import PLUGIN_TASKS
from helpers import reward_statistics_of, stage_options, statistics_of
from paired_data import paired_dataset

from fsdpo_data.cli.app import app
from fsdpo_data.cli.app import main as data_main
from fsdpo_data.core import plugins
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.stage_registry import STAGES
from fsdpo_data.engines.registry import SAMPLERS, SCORERS
from fsdpo_data.models.prompts import TEMPLATES
from fsdpo_data.steps.rewards import AGGREGATES
from fsdpo_data.steps.segment import SEGMENTERS
from fsdpo_train.cli.app import main as train_main
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES

MAINS = {"fsdpo_data": data_main, "fsdpo_bench": bench_main, "fsdpo_train": train_main}
PACKAGE = Path(__file__).parents[2] / "examples/plugin"
#: The registries that plug-ins can extend.
REGISTRIES: tuple[Registry, ...] = (
    *(SAMPLERS, SCORERS, SEGMENTERS, AGGREGATES, TEMPLATES, STAGES),
    *(PREFERENCE_LOSSES, DECODERS, PLUGIN_TASKS),
)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package to a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(PACKAGE)], check=True)
    return folder


class Environment:
    """This process as an environment, in which packages come and go.

    Args:
        patch: Undoes the changes after the test.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._entries = [dict(registry.data) for registry in REGISTRIES]
        self._path = [*sys.path]

    def install(self, *folders: Path) -> None:
        """Have the packages of some folders, and no other plug-ins."""
        self._patch.setattr(sys, "path", [*map(str, folders), *self._path])
        self._patch.setattr(app, "registered_commands", [*app.registered_commands])
        for registry, entries in zip(REGISTRIES, self._entries, strict=True):
            self._patch.setattr(registry, "data", dict(entries))
        self.forget_packages()

    def forget_packages(self) -> None:
        """Let the next access look for installed plug-ins again."""
        plugins.entry_points.cache_clear()
        plugins._program_entry_points.cache_clear()
        for name in [name for name in sys.modules if name.startswith("fsdpo_example")]:
            del sys.modules[name]


@pytest.fixture
def environment(empty_plugins: None) -> Iterator[Environment]:
    with pytest.MonkeyPatch.context() as patch:
        environment = Environment(patch)
        yield environment
    environment.forget_packages()


@pytest.fixture
def run(
    environment: Environment,
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Return a function that runs a command with the package; it returns the standard output."""
    monkeypatch.chdir(tmp_path)
    environment.install(site)

    def run(program: str, *words: object) -> str:
        code, out, err = run_here(capsys, *map(str, words), main=MAINS[program])
        assert code == 0, err
        return out

    return run


def read_manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def test_data_with_everything_from_the_package(
    run: Run, environment: Environment, tmp_path: Path
) -> None:
    """Sampler, segmenter and template build; scorer and aggregate make pairs."""
    things = ("--engine", "parrot", "--segmenter", "sentence", "--template", "arrow")
    run("fsdpo_data", "build", *things, "--limit", 4, "--samples", 2, "--out", "built")
    built = read_manifest(tmp_path / "built")
    assert stage_options(built, "sample")["engine"]["name"] == "parrot"
    assert stage_options(built, "sample")["segmenter"] == "sentence@1"
    assert stage_options(built, "sample")["template"]["name"] == "arrow@1"
    statistics = statistics_of(tmp_path / "built")
    assert statistics.distinct_solutions == 4
    assert statistics.solutions.labels["steps"] == 2 * 4 * 2  # two sentences per sample
    modules = {plugin["module"]: plugin["version"] for plugin in built["plugins"]}
    assert modules.keys() >= {"fsdpo_example.engines", "fsdpo_example.steps"}
    assert set(modules.values()) == {"1.0"}
    prm = tmp_path / "prm"
    prm.mkdir()
    config = {"architectures": ["LlamaForTokenClassification"], "model_type": "llama"}
    (prm / "config.json").write_text(json.dumps({**config, "num_labels": 1}))
    run("fsdpo_data", "score", "built", "--prm", "prm", "--engine", "short", "--out", "scored")
    assert reward_statistics_of(tmp_path / "scored").scored == 8
    mixed = paired_dataset(tmp_path / "mixed")
    run("fsdpo_data", "score", mixed, "--prm", "prm", "--engine", "short", "--out", "rewarded")
    run("fsdpo_data", "pair", "rewarded", "--aggregate", "median", "--out", "pairs")
    assert stage_options(read_manifest(tmp_path / "pairs"), "pair")["aggregate"] == "median"
    run("fsdpo_data", "validate", "pairs")

    environment.install()
    for line in (("validate", "built"), ("inspect", "built"), ("view", "built")):
        run("fsdpo_data", *line)


def test_a_stage(run: Run, environment: Environment, tmp_path: Path) -> None:
    line = ("--engine", "parrot", "--limit", 2, "--samples", 2, "--out", "built")
    run("fsdpo_data", "build", *line)
    assert "fsdpo-data uniform runs/demo" in run("fsdpo_data", "uniform", "--help")
    stage = ("uniform", "built", "--reward", 0.25, "--out", "uniform")
    assert "next: fsdpo-data inspect uniform" in run("fsdpo_data", *stage)
    manifest = read_manifest(tmp_path / "uniform")
    assert reward_statistics_of(tmp_path / "uniform").scored == 4
    assert stage_options(manifest, "uniform") == {"reward": 0.25}
    assert "fsdpo_example.stages" in {plugin["module"] for plugin in manifest["plugins"]}
    assert "| step rewards | 0.25 for every step |" in (tmp_path / "uniform/README.md").read_text()
    files = {file: file.read_bytes() for file in tmp_path.glob("uniform/**/*") if file.is_file()}
    (tmp_path / "uniform/manifest.json").unlink()  # as after an interruption
    run("fsdpo_data", *stage, "--resume")
    assert files == {file: file.read_bytes() for file in files}
    environment.install()
    run("fsdpo_data", "validate", "uniform")


def test_a_benchmark_and_a_decoder(run: Run, tmp_path: Path) -> None:
    line = ("--suite", "mine", "--engine", "parrot", "--model", "tiny", "--segmenter", "sentence")
    run("fsdpo_bench", "run", *line, "--decoder", "shortest", "--k", 2, "--out", "bench")
    results = json.loads((tmp_path / "bench/results.json").read_text())
    assert results["tasks"]["sums"]["decoders"]["shortest@2"]["accuracy"]["value"] == 0.5
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
    assert "fsdpo_example" in str(identity["plugins"])


def test_help_lists_the_names_without_importing_the_package(
    environment: Environment, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in site.iterdir():
        if path.name.endswith(".dist-info"):
            (broken / path.name).symlink_to(path)  # the metadata without the modules
    environment.install(broken)
    line = ("build", "--limit", "1", "--samples", "1")
    assert "parrot" in run_here(capsys, "build", "--help")[1]
    code, _, err = run_here(capsys, *line, "--out", str(tmp_path / "plain"))
    assert code == 0, err
    code, _, err = run_here(capsys, *line, "--engine", "parrot")
    assert code == 1 and "fsdpo_example" in err and "cannot be imported" in err
