"""Continuations of unfinished solutions: sampled in batches, each beginning once.

The unit that survives a stop is a beginning with its N continuations, one line of a
:class:`~fsdpo_data.dataset.run.RunDir` inside the directory of the dataset they are for.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers import Grader
from fsdpo_data.answers.pool import open_grader
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Outcome, Solution
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ID_VERSION, ModelRef, digest
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.options import Option
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec, add_tokens
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.manifest_sections import ContinuationStats
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.stage import DatasetDraft, StageOptions
from fsdpo_data.engines.load import EngineSelection
from fsdpo_data.engines.options import DeclaredSampling, SamplerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights, served_weights
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.grade import UNFINISHED_THINKING_GRADED as WITH_THINKING
from fsdpo_data.stages.grade import GradingInput, gold_answers, grade_responses
from fsdpo_data.stages.sample import sample_missing

log = logging.getLogger(__name__)

Prefix = tuple[str, str]  #: Id and text of what is to be continued.
GradedContinuations = list[
    tuple[dict[str, Any], Outcome]
]  #: Continuations, and what became of them.
#: Takes ids of beginnings, each with a solution that begins so; yields the continuations of each.
ContinuationGrader = Callable[[Sequence[tuple[str, Solution]]], Iterator[GradedContinuations]]


def prefix_id(text: str) -> str:
    """Return the id of a prompt with the first steps of a solution behind it."""
    return digest("beginning", ID_VERSION, text)


def step_prefixes(text: str, steps: Sequence[str]) -> Iterator[Prefix]:
    """Yield (id, text to continue) behind every step but the last of what follows a prompt."""
    for step in steps[:-1]:
        text += step
        yield prefix_id(text), text


@dataclass(frozen=True)
class ContinuationSampler:
    """Who continues, and how."""

    model: ModelRef
    sampling: SamplingSpec  #: How; ``n`` is the number of continuations.
    engine: Mapping[str, str]  #: What runs it, and in which precision; part of the dataset's spec.
    make_sampler: Callable[[], Sampler]  #: Called only if some are owed: loading a model is slow.
    batch: int = 256
    phase: str = "continue"  #: What it does, for whoever watches.

    def spec(self) -> dict[str, Any]:
        """Return what decides the continuations, as plain values."""
        return {
            "model": asdict(self.model),
            "sampling": self.sampling.to_json_values(),
            "engine": dict(self.engine),
        }

    @property
    def id(self) -> str:
        """Digest of who continues and how; continuation 3 of 4 is continuation 3 of 8."""
        how = {key: value for key, value in self.sampling.to_json_values().items() if key != "n"}
        return digest("continuing", ID_VERSION, self.model, how)

    @contextlib.contextmanager
    def run(
        self,
        draft: DatasetDraft,
        folder: str,
        wanted: Callable[[], Iterable[Prefix]],
        shard: JobShard = UNSHARDED,
    ) -> Iterator[RunDir]:
        """Open the continuations in a folder of a new dataset, and sample what is owed of them.

        ``wanted`` yields the beginnings; it is called twice, so that they need not be held.
        """
        config = {"sampling": self.sampling.to_json_values(), "model": asdict(self.model)}
        # The draft's directory is claimed: whatever is in the folder is of the same spec.
        with RunDir.open(draft.root / folder, config, resume=True) as run:
            keys = shard.select(list(dict.fromkeys(key for key, _ in wanted())))
            owed = _first_of(set(keys) - run.line_spans.keys(), wanted())
            how = (self.sampling, self.make_sampler, self.batch)
            sample_missing(run, keys, owed, *how, phase=self.phase, progress=draft.progress)
            yield run

    @contextlib.contextmanager
    def open_grader(
        self, draft: DatasetDraft, run: RunDir, workers: int | None
    ) -> Iterator[ContinuationGrader]:
        """Give what grades the continuations of a run, as the solutions of the dataset were."""
        spec, golds = draft.manifest.spec, gold_answers(draft.current_files("problems"))
        count = len(run.line_spans) * self.sampling.n
        with open_grader(partial(get_grader, spec.grader), count, workers) as grader:
            yield partial(_grade_continuations, run, golds, grader, spec.thinking == WITH_THINKING)

    def record_cost(self, run: RunDir, manifest: Manifest) -> ContinuationStats:
        """Return what the continuations cost, and add it to what the dataset has cost."""
        tokens: int | None = 0
        seconds = 0.0
        for record in run.read_records(run.line_spans):
            for each in record["completions"]:
                tokens = add_tokens(tokens, each["n_tokens"])
                seconds += each["seconds"]
        spent = ContinuationStats(
            n=self.sampling.n,
            prefixes=len(run.line_spans),
            continuations=len(run.line_spans) * self.sampling.n,
            tokens=UNKNOWN if tokens is None else tokens,
            seconds=round(seconds, 3),
        )
        cost = manifest.cost
        if cost.tokens != UNKNOWN:
            cost.tokens = UNKNOWN if tokens is None else cost.tokens + tokens
        cost.seconds = round(cost.seconds + spent.seconds, 3)
        return spent


def _first_of(keys: set[str], found: Iterable[Prefix]) -> Iterator[Prefix]:
    """Yield the first beginning of each key."""
    for key, text in found:
        if key in keys:
            keys.remove(key)
            yield key, text


def _grade_continuations(
    run: RunDir,
    golds: Mapping[str, str],
    grader: Grader,
    whole: bool,
    asked: Sequence[tuple[str, Solution]],
) -> Iterator[GradedContinuations]:
    """Grade the continuations of beginnings, each joined with what it continues.

    ``golds`` are answers by problem id; ``whole`` is that of :func:`~.grade.grade_responses`.
    """
    keys = [key for key, _ in asked]
    responses: list[GradingInput] = []
    for (_, solution), record in zip(asked, run.read_records(keys), strict=True):
        before = record["prompt"][len(solution.prompt) :]
        for each in record["completions"]:
            text = before + each["text"]
            thought = find_thinking(solution.prompt, text)
            responses.append((golds[solution.problem_id], thought, text, each["finish_reason"]))
    verdicts = iter(grade_responses(grader, responses, whole=whole))
    for record in run.read_records(keys):  # again, so that they need not be held
        yield [(each, next(verdicts).status) for each in record["completions"]]


def continuation_sampling(manifest: Manifest, n: int, **changes: Any) -> SamplingSpec:
    """Return how ``n`` continuations are sampled: as the solutions, but for changes."""
    sampled = manifest.spec.sampling.to_dict() | {"n": n}
    known = {key: value for key, value in sampled.items() if value != UNKNOWN}
    return SamplingSpec(**{**known, "stop": tuple(known["stop"]), **changes})


_AS_SAMPLED = Option(panel="Asking", default_text="as the solutions were sampled")


@dataclass(frozen=True, kw_only=True)
class ContinuationOptions(DeclaredSampling, StageOptions, SamplerOptions):
    """The options of stages that continue solutions.

    Attributes:
        model: Who continues.
        temperature: 0 is greedy.
        top_p: Nucleus mass.
        max_tokens: Tokens per continuation.
    """

    model: Annotated[str | None, Option(default_text="the model that sampled")] = None
    temperature: Annotated[float | None, _AS_SAMPLED] = None
    top_p: Annotated[float | None, _AS_SAMPLED] = None
    max_tokens: Annotated[int | None, _AS_SAMPLED] = None

    def continuation_sampler(self, n: int) -> ContinuationSampler:
        """Resolve the model that gives ``n`` continuations; its weights are loaded when needed.

        Raises:
            InputError: if the model is not the one that sampled.
            Unavailable: if the engine is not installed, or there is no such model.
        """
        if self.engine == "openai" and self.api == "chat":
            raise self.field_error(
                "api", "a conversation cannot go on in the middle of a text. Use completions."
            )
        manifest = read_manifest(Path(self.data))
        how = continuation_sampling(manifest, n, **self.sampling_overrides)
        return self.sampler_for(self._who_continues(manifest), how)

    @property
    def sampling_overrides(self) -> dict[str, Any]:
        """How to sample, as far as the options say."""
        return self.declared_sampling | {"seed": self.seed}

    def sampler_for(
        self, model: ResolvedWeights, sampling: SamplingSpec, phase: str = "continue"
    ) -> ContinuationSampler:
        """Return what asks a model; its weights are loaded when they are needed."""
        host = EngineSelection.select(self)
        return ContinuationSampler(
            model.ref,
            sampling,
            host.spec_entry,
            lambda: host.load("sampler", model),
            batch=self.batch_size or host.batch_size,
            phase=phase,
        )

    def _who_continues(self, manifest: Manifest) -> ResolvedWeights:
        """Resolve the model; unless it is named, it must be the one that sampled the solutions."""
        sampled = manifest.spec.model
        if self.replay is not None and self.model is None:
            return ResolvedWeights(ModelRef(sampled.name, sampled.revision), "")
        name = self.model or sampled.name
        model = served_weights(name) if self.engine == "openai" else resolve_weights(name)
        if model.ref.revision != sampled.revision:
            found = f"{model.ref.name} at {model.ref.revision}"
            if self.model is None:
                raise InputError(
                    f"{self.data} was sampled from {sampled.name} at {sampled.revision}; "
                    f"that name is now {found}. Name the model that continues: `model`."
                )
            log.warning("the solutions are not of %s, which continues them", found)
        return model
