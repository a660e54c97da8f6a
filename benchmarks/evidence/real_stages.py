"""The stages of `make real`, each an ordinary command of the toolkit."""

import gzip
import shlex
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import real_results
from pydantic import AfterValidator, BaseModel, ConfigDict

from fsdpo_data.dataset.run_directory import MANIFEST_FILE, SHARD_FILE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Files that end a command, by program: its output is complete if the file exists.
DONE_FILES = {"fsdpo-data": MANIFEST_FILE, "fsdpo-train": "README.md"}
StageKind = Literal["sample", "label", "train", "score", "other"]
#: A file whose relative path starts at the root of the repository.
RepositoryFile = Annotated[Path, AfterValidator(lambda path: ROOT / path)]


class PrmRecipe(NamedTuple):
    """A way to train a reward model."""

    data: str  #: EvidenceStage that wrote the labelled solutions.
    options: str  #: Options of `fsdpo-train prm`.
    is_implicit: bool = False  #: Whether the rewards are log-ratios to the start model.


class PolicyRecipe(NamedTuple):
    """A way to train a policy."""

    pairs: str  #: EvidenceStage that wrote the pairs.
    options: str  #: Options of `fsdpo-train dpo`.


PRMS = {
    "outcome": PrmRecipe("samples", "--labels outcome"),
    "rollouts": PrmRecipe("labelled", "--labels rollouts"),
    "pqm": PrmRecipe("labelled", "--labels rollouts --loss pqm"),
    "implicit": PrmRecipe("samples", "--labels outcome --loss implicit", is_implicit=True),
}
POLICIES = {
    "dpo": PolicyRecipe("pairs", "--loss dpo"),
    "dpo-k": PolicyRecipe("pairs", "--loss full-step --gamma 0"),
    "step-dpo": PolicyRecipe("step-pairs", "--loss step-dpo"),
    "full-step": PolicyRecipe("pairs", "--loss full-step --gamma 0.5"),
    "full-step-4": PolicyRecipe("pairs", "--loss full-step --gamma 4"),
    "shuffled": PolicyRecipe("shuffled-pairs.jsonl", "--loss full-step --gamma 0.5"),
}


class Sizes(BaseModel):
    """The sizes of a run, from a TOML file in `real/`. Options are those of our commands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: int  #: Stages that run side by side.
    trainings: int = 1  #: Trainings among them.
    #: Parts of the sampling of training solutions and of their labelling, which run side by side.
    shards: int = 1
    engine: str  #: Engine that samples.
    dtype: str  #: Data type of all models.
    sample_options: str = ""  #: Further options of commands that sample whole solutions.
    continue_options: str = ""  #: The same of commands that continue solutions.
    #: Training problems.
    train_file: RepositoryFile = ROOT.parent / "shared/data/train/gsm8k/train.jsonl"
    #: Test problems.
    test_file: RepositoryFile = ROOT.parent / "shared/data/benchmarks/gsm8k/test.jsonl"
    #: ProcessBench's rows for GSM8K.
    processbench_file: RepositoryFile = ROOT.parent / "shared/data/stepwise/processbench/gsm8k.json"
    template: str = "chat-boxed"  #: Prompt template of all models.
    train_problems: int  #: Training problems to sample solutions for.
    samples: int  #: Solutions of each training problem, and of each test problem for best-of-N.
    max_tokens: int  #: Maximum number of tokens per solution.
    select_options: str  #: Selection of the solutions that get Monte-Carlo labels.
    rollouts: int  #: Continuations per step.
    prms: list[str]  #: Names in ``PRMS``, the most important first.
    prm_options: str  #: Options of all trainings of reward models.
    pair_prm: str  #: The reward model that scores the training solutions.
    pair_options: str  #: Selection of the pairs.
    test_problems: int  #: Test problems for the reward models.
    policies: list[str]  #: Names in ``POLICIES``, the most important first.
    policy_options: str  #: Options of all trainings of policies.
    policy_problems: int  #: Test problems for the policies.
    policy_samples: int  #: Solutions of each of them.
    seeds: list[int]  #: Seeds of the trainings of policies.
    minutes: dict[StageKind, float]  #: Time limit of a stage.
    environment: dict[str, str] = {}  #: Environment variables of the commands.


def read_sizes(name: str) -> Sizes:
    """Read the sizes from a file in `real/`, or from a TOML file."""
    file = HERE / "real" / f"{name}.toml"
    path = file if file.exists() else Path(name)
    return Sizes.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class EvidenceStage:
    """A command with its output."""

    name: str  #: Name of the output in the run's folder.
    kind: StageKind  #: Kind, which decides the time limit.
    command: tuple[str, ...]  #: Words of the command, without ``--out`` and ``--resume``.
    needs: tuple[str, ...] = ()  #: Stages that must be complete before.
    #: Writes the numbers of the finished stage to the results.
    record: Callable[[], None] | None = None

    @property
    def is_shard(self) -> bool:
        """Whether the output is a part that waits for its merge."""
        return "--shard" in self.command

    @property
    def can_resume(self) -> bool:
        """Whether the command has ``--resume``."""
        return self.command[0] in DONE_FILES and self.command[1] != "merge"

    def is_done(self, run: Path) -> bool:
        """Return whether the output in the folder of a run is complete."""
        done_file = SHARD_FILE if self.is_shard else DONE_FILES.get(self.command[0], "")
        return (run / self.name / done_file).exists()


def script_command(name: str, *arguments: object) -> tuple[str, ...]:
    """Return the words of a command of `real.py`."""
    return (sys.executable, str(HERE / "real.py"), name, *map(str, arguments))


class StageList:
    """Builds the stages of a run, in the order of their importance."""

    def __init__(
        self, sizes: Sizes, *, run: Path, results: Path, model: Path, recorded: Path | None
    ) -> None:
        """Take the sizes and the folders.

        Args:
            sizes: The sizes.
            run: Folder for the outputs of the stages.
            results: Folder for the numbers.
            model: Directory of the start model.
            recorded: Folder with recorded completions to replay, ``STAGE.jsonl.gz``; None samples.
        """
        self.sizes = sizes
        self.run = run
        self.results = results
        self.model = model
        self.recorded = recorded
        self.stages: list[EvidenceStage] = []

    def build(self) -> list[EvidenceStage]:
        """Return all stages."""
        sizes = self.sizes
        self._add_samples(
            "samples", "train", sizes.train_problems, sizes.samples, n_shards=sizes.shards
        )
        self._add_samples("test", "test", sizes.test_problems, sizes.samples)
        self._add_samples("greedy", "test", sizes.test_problems, 1)
        self._add_start_measurements()
        self._add_labels()
        self._add_prm(sizes.pair_prm)
        self._add_pairs()
        for prm in sizes.prms:
            if prm != sizes.pair_prm:
                self._add_prm(prm)
        for seed in sizes.seeds:
            for policy in sizes.policies:
                self._add_policy(policy, seed)
        return self.stages

    def _add(
        self,
        name: str,
        kind: StageKind,
        *words: object,
        needs: tuple[str, ...] = (),
        record: Callable[[], None] | None = None,
        n_shards: int = 1,
    ) -> None:
        """Add a command as one stage, or as one stage per shard and the merge of their outputs."""
        command = tuple(map(str, words))
        if n_shards > 1:
            shards = tuple(f"{name}-shard{index}" for index in range(1, n_shards + 1))
            for index, shard in enumerate(shards, 1):
                part = (*command, "--shard", f"{index}/{n_shards}")
                self.stages.append(EvidenceStage(shard, kind, part, needs))
            command = ("fsdpo-data", "merge", *(str(self.run / shard) for shard in shards))
            kind = "other"
            needs = shards
        self.stages.append(EvidenceStage(name, kind, command, needs, record))

    def _sampling(self, name: str, options: str) -> list[str]:
        """Return the options of the engine of a stage that samples.

        Args:
            name: The stage.
            options: Further options, if the engine samples.
        """
        packed = self.recorded / f"{name}.jsonl.gz" if self.recorded else None
        if packed is not None and packed.exists():
            file = self.run / f"{name}-recorded.jsonl"
            file.write_bytes(gzip.decompress(packed.read_bytes()))
            return ["--engine", "replay", "--replay", str(file)]
        return [
            *("--engine", self.sizes.engine, "--dtype", self.sizes.dtype),
            *shlex.split(options),
        ]

    def _add_samples(
        self,
        name: str,
        split: str,
        problems: int,
        samples: int,
        policy: str = "",
        needs: tuple[str, ...] = (),
        record: Callable[[], None] | None = None,
        n_shards: int = 1,
    ) -> None:
        """Add the sampling of solutions; one solution per problem is greedy."""
        is_greedy = samples == 1
        model = self.run / policy if policy else self.model
        file = self.sizes.train_file if split == "train" else self.sizes.test_file
        self._add(
            name,
            "sample",
            *("fsdpo-data", "build", "--model", model, "--problems", file, "--split", split),
            *("--limit", problems, "--samples", samples),
            *("--temperature", 0 if is_greedy else 0.8, "--max-tokens", self.sizes.max_tokens),
            *("--template", self.sizes.template),
            *self._sampling(name, self.sizes.sample_options),
            needs=needs,
            record=record,
            n_shards=n_shards,
        )

    def _add_start_measurements(self) -> None:
        """Add the choices among the samples that need no reward model, and the start policy."""
        test = self.run / "test"
        likelihood = self.run / "likelihood.json"
        self._add(
            "likelihood.json",
            "score",
            *script_command("likelihood", test, self.model, "--dtype", self.sizes.dtype),
            needs=("test", "greedy"),
            record=partial(
                real_results.record_start,
                self.results,
                test,
                self.run / "greedy",
                likelihood_file=likelihood,
                policy_samples=self.sizes.policy_samples,
            ),
        )

    def _add_labels(self) -> None:
        """Add the Monte-Carlo labels of a part of the training solutions, and ProcessBench."""
        self._add(
            "selected",
            "other",
            *("fsdpo-data", "select", self.run / "samples"),
            *shlex.split(self.sizes.select_options),
            needs=("samples",),
        )
        self._add(
            "labelled",
            "label",
            *("fsdpo-data", "label", self.run / "selected", "--model", self.model),
            *("--rollouts", self.sizes.rollouts),
            *self._sampling("labelled", self.sizes.continue_options),
            needs=("selected",),
            n_shards=self.sizes.shards,
        )
        self._add(
            "template.txt",
            "other",
            *script_command("template", self.model, self.sizes.template),
        )
        self._add(
            "processbench",
            "other",
            *("fsdpo-data", "import", self.sizes.processbench_file, "--from", "processbench"),
            *("--template", self.run / "template.txt"),
            needs=("template.txt",),
        )

    def _add_prm(self, name: str) -> None:
        """Add the training of a reward model and its measurements."""
        recipe = PRMS[name]
        prm = f"prm-{name}"
        self._add(
            prm,
            "train",
            *("fsdpo-train", "prm", self.run / recipe.data, "--model", self.model),
            *shlex.split(recipe.options),
            *shlex.split(self.sizes.prm_options),
            *("--dtype", self.sizes.dtype),
            needs=(recipe.data,),
        )
        self._add_score(
            f"test-{name}",
            "test",
            name,
            record=partial(real_results.record_prm, self.results, self.run / f"test-{name}", name),
        )
        self._add_score(
            f"processbench-{name}",
            "processbench",
            name,
            record=partial(
                real_results.record_processbench,
                self.results,
                self.run / f"processbench-{name}",
                rows_file=self.sizes.processbench_file,
                prm=name,
            ),
        )

    def _add_score(
        self, name: str, data: str, prm_name: str, record: Callable[[], None] | None = None
    ) -> None:
        """Add the step rewards of a dataset."""
        prm = f"prm-{prm_name}"
        prm_options: tuple[object, ...] = ("--prm", self.run / prm)
        if PRMS[prm_name].is_implicit:
            prm_options = ("--policy", self.run / prm, "--reference", self.model)
        self._add(
            name,
            "score",
            *("fsdpo-data", "score", self.run / data, *prm_options, "--dtype", self.sizes.dtype),
            needs=(data, prm),
            record=record,
        )

    def _add_pairs(self) -> None:
        """Add the pairs of complete solutions, of shuffled rewards, and of steps."""
        self._add_score("scored", "samples", self.sizes.pair_prm)
        self._add(
            "pairs",
            "other",
            *("fsdpo-data", "pair", self.run / "scored", *shlex.split(self.sizes.pair_options)),
            needs=("scored",),
        )
        pair_stages = {POLICIES[name].pairs for name in self.sizes.policies}
        if "shuffled-pairs.jsonl" in pair_stages:
            self._add(
                "shuffled-pairs.jsonl",
                "other",
                *script_command("shuffle", self.run / "pairs"),
                needs=("pairs",),
            )
        if "step-pairs" in pair_stages:
            self._add(
                "step-pairs",
                "label",
                *("fsdpo-data", "pair", self.run / "scored", "--style", "step-dpo"),
                *("--model", self.model),
                *self._sampling("step-pairs", self.sizes.continue_options),
                needs=("scored",),
            )

    def _add_policy(self, name: str, seed: int) -> None:
        """Add the training of a policy and its measurements."""
        sizes = self.sizes
        recipe = POLICIES[name]
        policy = f"{name}-seed{seed}"
        self._add(
            policy,
            "train",
            *("fsdpo-train", "dpo", self.run / recipe.pairs, "--model", self.model, "--seed", seed),
            *shlex.split(recipe.options),
            *shlex.split(sizes.policy_options),
            *("--dtype", sizes.dtype),
            needs=(recipe.pairs,),
        )
        folders = (self.run / f"{policy}-test", self.run / f"{policy}-greedy")

        def record() -> None:
            """Write the results of the measurements that are complete."""
            test, greedy = (
                folder if (folder / MANIFEST_FILE).exists() else None for folder in folders
            )
            if test is not None:
                real_results.record_policy(
                    self.results,
                    test,
                    greedy,
                    policy=name,
                    seed=seed,
                    n_samples=sizes.policy_samples,
                )

        for folder, n_samples in zip(folders, (sizes.policy_samples, 1), strict=True):
            self._add_samples(
                folder.name,
                "test",
                sizes.policy_problems,
                n_samples,
                policy,
                needs=(policy,),
                record=record,
            )
