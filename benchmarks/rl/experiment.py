"""The parts of the experiment: problems, the process reward model, one training, its measurement.

Each part writes its files into the directory of the experiment, and is not computed again if they
exist.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl
from fsdpo_bench.recipes.recipe import RecipeStage, pending_command, run_stages

from fsdpo_data import rewards
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import transformers
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.core.statistics import auc, auc_interval
from fsdpo_data.engines.load import load_sampler
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.problems.embedded import CHECKPOINT, PROMPT
from fsdpo_data.problems.embedded.generator import ProblemKind, make_problems
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.steps.segment import split_at_step_markers

START = "start"  #: Name of the policy before training, the embedded model.
#: Numbers of steps of the problems, with their weights. The embedded model was trained on two to
#: six steps.
KIND = ProblemKind(lengths={3: 1, 4: 1, 5: 1})
#: Seeds of the generated problems. Each training seed has problems of its own.
PRM_PROBLEM_SEED = 100
TRAINING_PROBLEM_SEED = 200
TEST_PROBLEM_SEED = 300

TEMPERATURE = 1.0  #: Of training and of the measurement.
MAX_TOKENS = 180  #: Tokens per completion. The longest correct solutions have about 130.
GENERATIONS = 8  #: Completions per prompt in training.

#: The commands that make the process reward model. The continuations have a low temperature,
#: because the sampled policy often fails from a right prefix, too.
PRM_COMMANDS = {
    "sampled": """
        fsdpo-data build --model tiny --template problem --problems {out}/prm-problems.jsonl
        --samples 4 --temperature 1 --max-tokens 180 --engine transformers --workers 1
    """,
    "labelled": """
        fsdpo-data label {out}/sampled --search first-error --rollouts 2 --temperature 0.3
        --engine transformers --workers 1
    """,
    "prm": """
        fsdpo-train prm {out}/labelled --model tiny --labels first-error --epochs 3 --lr 1.5e-3
        --adam-beta2 0.98 --batch-size 32 --grad-accum 1 --log-every 20 --save-every 0
    """,
}


class RewardWeights(NamedTuple):
    """The weights of an arm, next to 1 for the outcome."""

    process: float = 0.0  #: Weight of the smallest step reward, a second reward function.
    steps: float = 0.0  #: Weight of the step advantages.


#: The arms of the experiment.
ARMS = {
    "outcome": RewardWeights(),
    "process": RewardWeights(process=0.5),
    "step-advantages": RewardWeights(steps=1.0),
}


@dataclass(frozen=True)
class Experiment:
    """The sizes of the experiment, and its directory."""

    out: Path  #: Directory of all files.
    steps: int  #: Optimizer steps of each training.
    prompts: int  #: Prompts per optimizer step.
    lr: float  #: Learning rate.
    prm_problems: int  #: Problems on which the process reward model is trained.
    test_problems: int  #: Held-out problems per training seed.
    test_samples: int  #: Samples of each held-out problem.
    log_every: int = 25  #: Optimizer steps between two lines of progress and two checkpoints.

    def run_directory(self, arm: str, seed: int) -> Path:
        """Return the directory of the checkpoints and the measurement of one training."""
        return self.out / f"{arm}-{seed}"


class Measurement(NamedTuple):
    """Fractions of the samples of each held-out problem."""

    correct: list[float]  #: Samples whose answer is correct.
    right: list[float]  #: Samples without a wrong step.


def make_prm(experiment: Experiment) -> Path:
    """Train the process reward model on samples of the start policy, and return its directory."""
    out = experiment.out
    out.mkdir(parents=True, exist_ok=True)
    problems = make_problems("train", experiment.prm_problems, PRM_PROBLEM_SEED, KIND)
    rows = [{"question": problem.question, "answer": problem.answer} for problem in problems]
    pl.DataFrame(rows).write_ndjson(out / "prm-problems.jsonl")
    for name, command in PRM_COMMANDS.items():
        last_file = "README.md" if name == "prm" else "manifest.json"
        stage = RecipeStage(
            name=name,
            purpose="",
            command=f"{' '.join(command.format(out=out).split())} --out {out / name}",
            done_file=str(out / name / last_file),
            gpus=0,
        )
        if pending_command(stage):
            run_stages([stage], print)
    return out / "prm"


def run_policy(experiment: Experiment, arm: str, seed: int) -> Measurement:
    """Train a policy and measure it on the held-out problems, or read its measurement."""
    file = experiment.run_directory(arm, seed) / "measurement.json"
    if not file.exists():
        model = CHECKPOINT if arm == START else train_policy(experiment, arm, seed)
        problems = _test_problems(experiment, seed)
        measurement = measure_samples(problems, sample_texts(model, problems, experiment))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(measurement._asdict()))
        print(f"{arm}, seed {seed}: measured, {fmean(measurement.correct):.1%} correct", flush=True)
    return Measurement(**json.loads(file.read_text()))


def train_policy(experiment: Experiment, arm: str, seed: int) -> Path:
    """Train the start policy with the rewards of an arm, and return the directory of the policy.

    A stopped training continues from its last checkpoint. All arms of a seed have the same prompts
    in the same order.
    """
    out = experiment.run_directory(arm, seed)
    policy = out / "policy"
    if not (policy / "config.json").exists():
        trainer = make_trainer(experiment, arm, seed)
        checkpoints = list(out.glob("checkpoint-*"))
        trainer.train(resume_from_checkpoint=bool(checkpoints))
        trainer.save_model(str(policy))
    return policy


def make_trainer(experiment: Experiment, arm: str, seed: int) -> Any:
    """Return TRL's trainer for an arm, or the subclass with advantages of tokens."""
    from datasets import Dataset
    from step_grpo import StepGRPOTrainer
    from transformers.trainer_callback import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    n_problems = experiment.steps * experiment.prompts
    problems = make_problems("train", n_problems, TRAINING_PROBLEM_SEED + seed, KIND)
    rows = [
        {"prompt": PROMPT.format(question=problem.question), "answer": problem.answer}
        for problem in problems
    ]
    weights = ARMS[arm]
    reward_funcs: list[Any] = [rewards.outcome()]
    reward_weights = [1.0]
    trainer_class, options = GRPOTrainer, {}
    if weights.process:
        reward_funcs.append(rewards.process(experiment.out / "prm"))
        reward_weights.append(weights.process)
    if weights.steps:
        trainer_class = StepGRPOTrainer
        options = {
            "process": rewards.process(experiment.out / "prm"),
            "step_weight": weights.steps,
        }
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, trust_remote_code=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        CHECKPOINT, padding_side="left", trust_remote_code=False
    )
    trainer = trainer_class(
        model=model,
        reward_funcs=reward_funcs,
        args=GRPOConfig(
            output_dir=str(experiment.run_directory(arm, seed)),
            seed=seed,
            max_steps=experiment.steps,
            # All completions of an optimizer step are one batch, so training is on-policy.
            per_device_train_batch_size=experiment.prompts * GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=MAX_TOKENS,
            mask_truncated_completions=True,
            temperature=TEMPERATURE,
            reward_weights=reward_weights,
            learning_rate=experiment.lr,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=experiment.log_every,
            save_steps=experiment.log_every,
            save_total_limit=1,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[make_progress_callback(f"{arm}, seed {seed}", experiment.steps)],
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def make_progress_callback(name: str, steps: int) -> Any:
    """Return a callback that prints one line per log entry, instead of a dictionary."""

    class ProgressCallback(transformers.TrainerCallback):
        """Prints the mean outcome reward and the elapsed time."""

        def __init__(self) -> None:
            self.start = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "rewards/outcome_reward/mean" in logs:
                print(
                    f"{name}: step {state.global_step} of {steps}, "
                    f"outcome reward {logs['rewards/outcome_reward/mean']:.3f}, "
                    f"{time.monotonic() - self.start:.0f} s",
                    flush=True,
                )

    return ProgressCallback()


def sample_texts(
    model: Path, problems: Sequence[Problem], experiment: Experiment
) -> list[list[str]]:
    """Return samples of each problem; every policy samples with the same random numbers."""
    sampling = SamplingSpec(
        n=experiment.test_samples, temperature=TEMPERATURE, max_tokens=MAX_TOKENS, seed=1
    )
    sampler = load_sampler(str(model), SamplerOptions(engine="transformers"))
    prompts = [PROMPT.format(question=problem.question) for problem in problems]
    results = sampler.sample(prompts, sampling)
    return [[completion.text for completion in completions] for completions in results]


def measure_samples(
    problems: Sequence[Problem], texts_by_problem: Sequence[Sequence[str]]
) -> Measurement:
    """Return the fractions of correct samples, and of samples without a wrong step."""
    outcome = rewards.outcome()
    correct, right = [], []
    for problem, texts in zip(problems, texts_by_problem, strict=True):
        golds = [problem.answer] * len(texts)
        outcomes = outcome(prompts=[""] * len(texts), completions=texts, answer=golds)
        correct.append(fmean(reward or 0.0 for reward in outcomes))
        errors = [first_wrong_step(problem, split_at_step_markers(text)) for text in texts]
        right.append(fmean(error is None for error in errors))
    return Measurement(correct, right)


class PrmQuality(NamedTuple):
    """How well the process reward model tells right steps from wrong ones."""

    auc: float  #: Area under the ROC curve.
    ci95: tuple[float, float]  #: 95 % interval over problems.
    steps: int  #: Number of steps.


def measure_prm(experiment: Experiment) -> PrmQuality:
    """Compare the step rewards with the true labels of steps, on held-out problems.

    The samples come from the start policy. A step is right before the first wrong step.
    """
    file = experiment.out / "prm-quality.json"
    if not file.exists():
        problems = make_problems("test", experiment.test_problems, PRM_PROBLEM_SEED, KIND)
        process = rewards.process(experiment.out / "prm")
        names, step_rewards, labels = [], [], []
        for problem, texts in zip(
            problems, sample_texts(CHECKPOINT, problems, experiment), strict=True
        ):
            prompts = [PROMPT.format(question=problem.question)] * len(texts)
            for scored in process.score_steps(prompts, texts):
                error = first_wrong_step(problem, scored.steps)
                n_right = len(scored.steps) if error is None else error
                names += [problem.id] * len(scored.steps)
                step_rewards += scored.rewards or []
                labels += [index < n_right for index in range(len(scored.steps))]
        quality = PrmQuality(
            auc=auc(step_rewards, labels) or 0.5,
            ci95=auc_interval(names, step_rewards, labels) or (0.0, 1.0),
            steps=len(labels),
        )
        write_text(file, json.dumps(quality._asdict()))
    fields = json.loads(file.read_text())
    return PrmQuality(fields["auc"], tuple(fields["ci95"]), fields["steps"])


def _test_problems(experiment: Experiment, seed: int) -> list[Problem]:
    """Return the held-out problems of a training seed; no training problem has their numbers."""
    return make_problems("test", experiment.test_problems, TEST_PROBLEM_SEED + seed, KIND)
