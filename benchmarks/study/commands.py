"""The stages of the study as command lines, each run only where its result is not there yet."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Measured
from plan import Policy, Sizes

#: The policy that everything starts from: the embedded checkpoint, fine-tuned on demonstrations.
SFT = "tiny"
#: Sampling, for the data and for avg@k alike. Embedded solutions have some 40 tokens.
SAMPLING = ("--temperature", 0.8, "--max-tokens", 256, "--engine", "transformers")
SEED = 1  #: Of the problems and samples that policies are measured on.


@dataclass(frozen=True)
class Data:
    """What policies are trained on."""

    pairs: Path  #: Best correct against worst incorrect solutions.
    steps: Path  #: First errors against right steps.


class Commands:
    """Runs commands whose results are missing in a directory.

    Of the policies, ``jobs`` are measured at a time, each on its share of the cores.
    """

    def __init__(self, out: Path, sizes: Sizes, jobs: int) -> None:
        self.out = out
        self.sizes = sizes
        self._jobs = jobs
        self.out.mkdir(parents=True, exist_ok=True)

    def data(self, prm: str | None) -> Data:
        """Sample, train a process reward model unless ``prm`` names one, score, pair."""
        problems = ("--limit", self.sizes.problems, "--samples", self.sizes.samples)
        sampled = self._sealed("sampled", "build", "--model", SFT, *problems, *SAMPLING)
        model = prm or self._model(
            *("prm", "prm", sampled, "--model", "tiny", "--epochs", self.sizes.prm_epochs),
            *("--lr", 1.5e-3, "--adam-beta2", 0.98, "--batch-size", 32, "--grad-accum", 1),
            *("--log-every", 100, "--save-every", 0),
        )
        scored = self._sealed("scored", "score", sampled, "--prm", model)
        return Data(
            pairs=self._sealed("pairs", "pair", scored),
            steps=self._sealed(
                *("steps", "pair", scored, "--style", "step-dpo", "--resamples", 3),
                *("--seed", 2, "--engine", "transformers"),
            ),
        )

    def trained(self, policy: Policy, data: Data) -> Path:
        """Train a policy with ``fsdpo-train dpo``; all of them read one reference."""
        options = {
            "model": SFT,
            **asdict(policy),
            "reference-cache": self.out / "reference",
            "save-every": 0,
            "log-every": 50,
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        pairs = data.steps if policy.loss == "step-dpo" else data.pairs
        return self._model(f"policies/{policy.name}", "dpo", pairs, *flags)

    def measured(self, policies: Iterable[Path | None], split: str) -> list[Measured]:
        """Measure policies by sampling and, on test problems, greedily; None is the SFT policy."""
        threads = max(1, len(os.sched_getaffinity(0)) // self._jobs)
        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(lambda each: self._measured(each, split, threads), policies))

    def _measured(self, policy: Path | None, split: str, threads: int) -> Measured:
        problems, samples = self.sizes.validation if split == "validation" else self.sizes.test
        name = policy.name if policy else "sft"
        asked = ("build", "--model", policy or SFT, "--template", "problem", "--split", split)
        asked = (*asked, "--limit", problems, "--seed", SEED, "--workers", 1)
        drawn = ("--samples", samples, *SAMPLING)
        sampled = self._sealed(f"{split}/{name}", *asked, *drawn, threads=threads)
        if split == "validation":  # settings are chosen by avg@k
            return Measured.read(sampled)
        drawn = ("--samples", 1, "--temperature", 0, *SAMPLING[2:])
        greedy = self._sealed(f"{split}/{name}-greedy", *asked, *drawn, threads=threads)
        return Measured.read(sampled, greedy)

    def _sealed(self, name: str, *words: object, threads: int | None = None) -> Path:
        return made(self.out / name, "manifest.json", "fsdpo_data", words, threads)

    def _model(self, name: str, *words: object) -> Path:
        """Train a model with ``fsdpo-train``, which writes its card last."""
        return made(self.out / name, "README.md", "fsdpo_train", words)


def made(
    out: Path, last: str, module: str, words: Sequence[object], threads: int | None = None
) -> Path:
    """Run a command if the ``last`` file of what it makes is missing; go on where it was."""
    if (out / last).exists():
        return out
    resume = ["--resume"] if out.exists() else []
    given = [*map(str, words), "--out", str(out), *resume]
    told = f"$ {module.replace('_', '-')} {shlex.join(given)}"
    start = time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    log = out.parent / f"{out.name}.log"
    env = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    with log.open("w") as file:
        command = [sys.executable, "-m", module, *given]
        ran = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=env)
    if ran.returncode:
        sys.exit(f"{told}\n{log.read_text()[-2000:]}\nAll that it wrote is in {log}.")
    print(f"{told}\n  {time.monotonic() - start:.0f} s", flush=True)
    return out
