"""A plug-in registers a sampler and a scorer, which work like the built-in ones."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import read_sample_settings, reward_statistics_of

from fsdpo_data.core import plugins
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.engines import ray as ray_engine
from fsdpo_data.engines.load import _load_sampler_here, resolve_reward_model
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.ray import Placement, ReplicaPool
from fsdpo_data.engines.registry import SAMPLERS, SCORERS, choose_engine, scorer_engine_for
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.stages.pipeline import BuildOptions, run_build
from fsdpo_data.stages.score import ScoreRecord, ScoreStage

SOURCE = '''"""A sampler and a scorer."""
from fsdpo_data.core.sampling import Completion
from fsdpo_data.engines.registry import SAMPLERS, SCORERS, SamplerEntry, ScorerEntry


class ParrotSampler:
    def __init__(self, weights, options):
        self.model = weights.ref

    def sample(self, prompts, spec):
        completion = Completion("It is clear.\\nThe answer is 42.", "stop", 9)
        return enumerate([[completion] * spec.n for _ in prompts])


class ShortScorer:
    def __init__(self, weights, options):
        self.model = weights.ref

    def score(self, items):
        return enumerate([[1 / len(step.split()) for step in item.steps] for item in items])


SAMPLERS.register(SamplerEntry(name="parrot", loader=ParrotSampler, continues_text=False))
SCORERS.register(ScorerEntry(name="short", loader=ShortScorer, architectures=("Short*",)))
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_plugins: None) -> Iterator[Path]:
    """Load the plug-in, and forget it after the test."""
    for registry in (SAMPLERS, SCORERS):
        monkeypatch.setattr(registry, "data", dict(registry.data))
    file = tmp_path / "parrot_and_short.py"
    file.write_text(SOURCE)
    plugins.load_plugin(str(file))
    yield file
    sys.modules.pop("parrot_and_short", None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Write the config of a reward model that no PRM format recognises."""
    folder = tmp_path / "short-prm"
    folder.mkdir()
    config = {"architectures": ["ShortReward"], "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_build_and_its_scores(plugin: Path, checkpoint: Path, tmp_path: Path) -> None:
    options = make_options(
        BuildOptions, {"engine": "parrot", "limit": 3, "samples": 2, "out": tmp_path / "built"}
    )
    out, built = run_build(options, NO_PROGRESS)
    assert read_sample_settings(built).engine.name == "parrot"
    stage = ScoreStage(resolve_reward_model(str(checkpoint), ScorerOptions(engine="short")))

    scored = derive_dataset(out, tmp_path / "scored", [stage], progress=NO_PROGRESS)
    assert reward_statistics_of(tmp_path / "scored").scored == 6
    assert scored.get("score", ScoreRecord).options.engine.name == "short"


def test_a_scorer_recognises_its_checkpoint(plugin: Path, checkpoint: Path) -> None:
    weights = resolve_prm(str(checkpoint), ScorerOptions(engine="short"))
    assert isinstance(weights, ResolvedWeights) and not isinstance(weights, PublishedPrm)
    with pytest.raises(InputError, match="the checkpoint has ShortReward"):
        resolve_prm(str(checkpoint), ScorerOptions())


def test_properties_of_a_plugin(plugin: Path) -> None:
    with pytest.raises(InputError, match="Nearest: parrot"):
        SamplerOptions(engine="parot")
    with pytest.raises(InputError, match="short"):
        SamplerOptions(engine="short")  # a scorer
    assert choose_engine(SAMPLERS, "cpu").name == "transformers"
    assert scorer_engine_for("parrot") == "transformers"
    assert scorer_engine_for("parrot", shares_memory=False) == "auto"


@pytest.mark.parametrize(
    ("sampler", "engine_beside", "engine_afterwards"),
    [
        ("auto", "transformers", "auto"),
        ("vllm", "transformers", "vllm"),
        ("ray", "ray", "ray"),
        ("openai", "transformers", "auto"),
        ("replay", "auto", "auto"),
    ],
)
def test_the_engine_of_a_reward_model(
    sampler: str, engine_beside: str, engine_afterwards: str
) -> None:
    assert scorer_engine_for(sampler) == engine_beside
    assert scorer_engine_for(sampler, shares_memory=False) == engine_afterwards


def test_actors_get_the_plugins(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options_of_actors: list[dict[str, Any]] = []

    def remote(**options: Any) -> Any:
        options_of_actors.append(options)
        return lambda actor_class: SimpleNamespace(remote=lambda load: "actor")

    node = {"NodeID": "n", "Alive": True, "Resources": {"CPU": 2.0}}
    fake_ray = SimpleNamespace(remote=remote, nodes=lambda: [node])
    monkeypatch.setattr(ray_engine, "ray", fake_ray)
    monkeypatch.setattr(ray_engine, "start_ray", lambda: None)
    ReplicaPool(ModelRef("m", "0"), lambda: None, Placement(actors=1), batch_size=1)
    assert options_of_actors[0]["runtime_env"] == {
        "env_vars": {plugins.PLUGINS_VARIABLE: str(plugin)}
    }
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "")
    ReplicaPool(ModelRef("m", "0"), lambda: None, Placement(actors=1), batch_size=1)
    assert "runtime_env" not in options_of_actors[1]


def test_another_process_loads_the_sampler_of_a_plugin(plugin: Path, tmp_path: Path) -> None:
    """A Ray actor unpickles the load function, and has the plug-ins in its environment."""
    weights = ResolvedWeights(ModelRef("m", "0"), "m")
    load = partial(_load_sampler_here, "parrot", weights, SamplerOptions(engine="parrot"))
    (tmp_path / "load.pickle").write_bytes(pickle.dumps(load))
    code = (
        "import pickle, pathlib\n"
        "from fsdpo_data.core.sampling import Prompt, SamplingSpec\n"
        "sampler = pickle.loads(pathlib.Path('load.pickle').read_bytes())()\n"
        "[(index, [completion])] = sampler.sample([Prompt('2+2?')], SamplingSpec(n=1))\n"
        "print(completion.text)\n"
    )
    environment = {**os.environ, **plugins.plugin_environment()}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path[1:]])
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout == "It is clear.\nThe answer is 42.\n", result.stderr
