"""The stages of the study as command lines, each run only where its result is not there yet."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Measured
from plan import Policy, Sizes

#: The policy that everything starts from: the embedded checkpoint, fine-tuned on demonstrations.
SFT = "tiny"
#: Sampling, for the data and for avg@k alike. Embedded solutions have some 40 tokens.
SAMPLING = ("--temperature", 0.8, "--max-tokens", 256, "--engine", "transformers")
#: Of the problems and samples that policies are measured on.
SEED = 1


@dataclass(frozen=True)
class Data:
    """What policies are trained on.

    Attributes:
        pairs: Best correct against worst incorrect solutions.
        steps: First errors against right steps.
    """

    pairs: Path
    steps: Path

    def of(self, policy: Policy) -> Path:
        """Return the pairs that a loss is made for."""
        return self.steps if policy.loss == "step-dpo" else self.pairs


class Commands:
    """Runs commands whose results are missing in a directory.

    Args:
        out: The directory.
        sizes: How much of everything.
    """

    def __init__(self, out: Path, sizes: Sizes) -> None:
        self.out = out
        self.sizes = sizes
        self.out.mkdir(parents=True, exist_ok=True)

    def data(self, prm: str | None) -> Data:
        """Sample, train a process reward model unless ``prm`` names one, score, pair."""
        problems = ("--limit", self.sizes.problems, "--samples", self.sizes.samples)
        sampled = self._sealed("sampled", "build", "--model", SFT, *problems, *SAMPLING)
        model = prm or self._model("prm", "prm", "--data", sampled, *self.sizes.prm_options)
        scored = self._sealed("scored", "score", sampled, "--prm", model)
        return Data(
            pairs=self._sealed("pairs", "pair", scored),
            steps=self._sealed(
                *("steps", "pair", scored, "--style", "step-dpo", "--resamples", 3),
                *("--engine", "transformers"),
            ),
        )

    def trained(self, policy: Policy, data: Data) -> Path:
        """Train a policy with ``fsdpo-train dpo``; all of them read one reference."""
        options = {
            "data": data.of(policy),
            "model": SFT,
            "loss": policy.loss,
            "lr": policy.lr,
            "beta": policy.beta,
            "gamma": policy.gamma,
            "seed": policy.seed,
            "reference-cache": self.out / "reference",
            "save-every": 0,
            "log-every": 50,
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        return self._model(f"policies/{policy.name}", "dpo", *flags)

    def measured(self, policy: Path | None, split: str) -> Measured:
        """Measure a policy, or the SFT policy, by sampling and, on test problems, greedily."""
        problems, samples = self.sizes.validation if split == "validation" else self.sizes.test
        model = policy or SFT
        name = policy.name if policy else "sft"
        asked = ("build", "--model", model, "--template", "problem", "--split", split)
        asked = (*asked, "--limit", problems, "--seed", SEED)
        sampled = self._sealed(f"{split}/{name}", *asked, "--samples", samples, *SAMPLING)
        if split == "validation":  # settings are chosen by avg@k
            return Measured.read(sampled)
        greedy = ("--samples", 1, "--temperature", 0, *SAMPLING[2:])
        return Measured.read(sampled, self._sealed(f"{split}/{name}-greedy", *asked, *greedy))

    def _sealed(self, name: str, *words: object) -> Path:
        """Make a sealed dataset with ``fsdpo-data``."""
        return self._made(name, "manifest.json", "fsdpo_data.cli", *words)

    def _model(self, name: str, *words: object) -> Path:
        """Train a model with ``fsdpo-train``, which writes its card last."""
        return self._made(name, "README.md", "fsdpo_train.cli", *words)

    def _made(self, name: str, last: str, module: str, *words: object) -> Path:
        out = self.out / name
        if (out / last).exists():
            return out
        resume = ["--resume"] if out.exists() else []
        given = [*map(str, words), "--out", str(out), *resume]
        program = module.split(".")[0].replace("_", "-")
        print(f"\n$ {program} {shlex.join(given)}", flush=True)
        start = time.monotonic()
        out.parent.mkdir(parents=True, exist_ok=True)
        log = out.parent / f"{out.name}.log"
        with log.open("w") as file:
            ran = subprocess.run(
                [sys.executable, "-m", module, *given], stdout=file, stderr=subprocess.STDOUT
            )
        if ran.returncode:
            sys.exit(f"{log.read_text()[-2000:]}\n{program} failed; all it wrote is in {log}")
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
        return out
