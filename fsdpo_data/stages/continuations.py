"""Continuations of unfinished solutions: sampled in durable batches, each beginning once.

The unit that survives a stop is a beginning with its N continuations, one line of a
:class:`~fsdpo_data.dataset.run.RunDir` inside the directory of the dataset they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import orjson

from fsdpo_data.core.identity import ID_VERSION, ModelRef, digest
from fsdpo_data.core.job_shard import WHOLE, JobShard
from fsdpo_data.core.options import Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.derive import Draft
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import Spent
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.stages.options import StageOptions

#: Id and text of what is to be continued.
Beginning = tuple[str, str]


def beginning_id(text: str) -> str:
    """Return the id of a prompt with the first steps of a solution behind it."""
    return digest("beginning", ID_VERSION, text)


def beginnings(text: str, steps: Sequence[str]) -> Iterator[Beginning]:
    """Yield (id, text to continue) behind every step but the last.

    Args:
        text: The prompt.
        steps: The steps of a solution.
    """
    for step in steps[:-1]:
        text += step
        yield beginning_id(text), text


@dataclass(frozen=True)
class Continuer:
    """Who continues, and how.

    Attributes:
        model: The model, as resolved.
        sampling: How; ``n`` is the number of continuations.
        engine: What runs it, and in which precision; part of the dataset's spec.
        make_sampler: Called only if continuations are owed: loading a model is slow.
        batch: Beginnings per durable batch.
    """

    model: ModelRef
    sampling: SamplingSpec
    engine: Mapping[str, str]
    make_sampler: Callable[[], Sampler]
    batch: int = 256

    def spec(self) -> dict[str, Any]:
        """Return what decides the continuations, as plain values."""
        return {
            "model": asdict(self.model),
            "sampling": asdict(self.sampling),
            "engine": dict(self.engine),
        }

    @property
    def id(self) -> str:
        """Digest of who continues and how; continuation 3 of 4 is continuation 3 of 8."""
        how = {key: value for key, value in asdict(self.sampling).items() if key != "n"}
        return digest("continuing", ID_VERSION, self.model, how)

    def open(self, draft: Draft, folder: str) -> AbstractContextManager[RunDir]:
        """Open the continuations in a folder of a new dataset."""
        config = {"sampling": asdict(self.sampling), "model": asdict(self.model)}
        # The draft's directory is claimed: whatever is in the folder is of the same spec.
        return RunDir.open(draft.root / folder, config, resume=True)

    def sample_owed(
        self,
        run: RunDir,
        wanted: Callable[[], Iterable[Beginning]],
        progress: Progress,
        shard: JobShard = WHOLE,
    ) -> None:
        """Continue what has no continuations yet.

        Args:
            run: Where they are kept.
            wanted: Yields the beginnings; called twice, so that they need not be held.
            progress: Told of every batch.
            shard: Which of them.
        """
        keys = set(shard.of(list(dict.fromkeys(key for key, _ in wanted()))))
        owed = len(keys - run.spans.keys())
        if not owed:
            return
        progress.phase("load", 1)
        sampler = self.make_sampler()
        progress.phase("continue", len(keys), done=len(keys) - owed)
        chunk: dict[str, str] = {}
        for key, prompt in wanted():
            if key in keys and key not in run.spans:
                chunk[key] = prompt
            if len(chunk) == self.batch:
                self._sample(run, sampler, chunk, progress)
                chunk = {}
        if chunk:
            self._sample(run, sampler, chunk, progress)

    def _sample(
        self, run: RunDir, sampler: Sampler, chunk: Mapping[str, str], progress: Progress
    ) -> None:
        results = sampler.sample(list(chunk.values()), self.sampling)
        run.append(
            [
                (key, prompt, done)
                for (key, prompt), done in zip(chunk.items(), results, strict=True)
            ]
        )
        tokens = sum(each.n_tokens for completions in results for each in completions)
        progress.advance(len(chunk), tokens)


def continuations(run: RunDir, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the record of each beginning: ``prompt`` and ``completions``."""
    with run.completions.open("rb") as file:
        for key in keys:
            start, length = run.spans[key]
            file.seek(start)
            yield orjson.loads(file.read(length))


def cost(run: RunDir, sampling: SamplingSpec) -> Spent:
    """Return what continuations cost."""
    tokens, seconds = 0, 0.0
    for record in continuations(run, run.spans):
        for each in record["completions"]:
            tokens += each["n_tokens"]
            seconds += each["seconds"]
    return Spent(
        n=sampling.n,
        beginnings=len(run.spans),
        continuations=len(run.spans) * sampling.n,
        tokens=tokens,
        seconds=round(seconds, 3),
    )


def add_cost(manifest: Manifest, spent: Spent) -> None:
    """Add what continuations cost to what the dataset has cost."""
    manifest.cost.tokens += spent.tokens
    manifest.cost.seconds = round(manifest.cost.seconds + spent.seconds, 3)


def continuation_sampling(manifest: Manifest, n: int, **changes: Any) -> SamplingSpec:
    """Return how continuations are sampled: as the solutions were, but for what is changed.

    Args:
        manifest: Of the dataset whose solutions are continued.
        n: Continuations per beginning.
        changes: Fields of :class:`SamplingSpec`; those that are None are left as they were.
    """
    sampled = manifest.spec.sampling.plain()
    spec = SamplingSpec(**{**sampled, "stop": tuple(sampled["stop"]), "n": n})
    return replace(spec, **{key: value for key, value in changes.items() if value is not None})


_AS_SAMPLED = Option(panel="Asking", default="as the solutions were sampled")


@dataclass(frozen=True, kw_only=True)
class ContinueOptions(StageOptions, SamplerOptions):
    """The options of stages that continue solutions.

    Attributes:
        model: Who continues.
        temperature: 0 is greedy.
        top_p: Nucleus mass.
        max_tokens: Tokens per continuation.
    """

    model: Annotated[str | None, Option(default="the model that sampled")] = None
    temperature: Annotated[float | None, _AS_SAMPLED] = None
    top_p: Annotated[float | None, _AS_SAMPLED] = None
    max_tokens: Annotated[int | None, _AS_SAMPLED] = None
