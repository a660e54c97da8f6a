"""Mappers of rows: sample solutions, grade their answers, score their steps.

A mapper is a callable class for ``ray.data.Dataset.map_batches`` with ``batch_format="pyarrow"``.
``map_rows`` takes and yields dictionaries. A row is a problem until it is sampled, then a solution.
Models are loaded at the first row, so that an instance can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import fsdpo_data as fd
from fsdpo_data.core.lazy import pa
from fsdpo_data.engines.samplers import close_engine

if TYPE_CHECKING:
    from fsdpo_data.engines.samplers import Sampler
    from fsdpo_data.engines.scorers import Scorer
    from fsdpo_data.models.prompts import Template

Row: TypeAlias = dict[str, Any]  #: A problem or a solution, by column.

_ENGINES = ("_sampler", "_scorer")  #: Attributes of mappers with a loaded model.


class RowMapper:
    """Base class of mappers: rows in, rows with further columns out."""

    #: The columns that the mapper adds, with the names of their Arrow types.
    new_columns: ClassVar[dict[str, str]]

    def map_rows(self, rows: Sequence[Row]) -> Iterable[Row]:
        """Yield rows with the new columns, in the order of the input."""
        raise NotImplementedError

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the table of the mapped rows; Ray Data calls this for every batch."""
        fields = {field.name: field.type for field in table.schema}
        for name, type_name in self.new_columns.items():
            item_type = pa.type_for_alias(type_name.removeprefix("list of "))
            fields[name] = pa.list_(item_type) if type_name.startswith("list") else item_type
        rows = list(self.map_rows(table.to_pylist())) if table.num_rows else []
        return pa.Table.from_pylist(rows, schema=pa.schema(list(fields.items())))

    def close(self) -> None:
        """Free the memory of a model, if one was loaded."""
        for name in _ENGINES:
            close_engine(self.__dict__.pop(name, None))

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments without a loaded model; another process loads the model again."""
        return {name: value for name, value in self.__dict__.items() if name not in _ENGINES}


class SolutionSampler(RowMapper):
    """Samples solutions: a row with a ``question`` becomes one row per solution.

    The rows are the same as from ``fsdpo-data build`` with the same model, engine and sampling
    settings.

    Example:
        rows = SolutionSampler("tiny", fd.SamplingSpec(n=2)).map_rows([{"question": "2+2?"}])

    Args:
        model: Short name, ``org/name[@revision]`` on the Hub, or a directory.
        sampling: Sampling settings, without the stop strings of the template.
        template: Name of the prompt template; None for the template of the model.
        options: Options of ``fd.load_sampler``, such as ``engine`` and ``device``.
    """

    new_columns: ClassVar[dict[str, str]] = {
        "prompt": "string",
        "sample_index": "int32",
        "response": "string",
        "reasoning": "string",
        "finish_reason": "string",
        "n_tokens": "int32",
        "model": "string",
    }

    def __init__(
        self,
        model: str,
        sampling: fd.SamplingSpec | None = None,
        *,
        template: str | None = None,
        **options: Any,
    ) -> None:
        self._model = model
        self._sampling = sampling or fd.SamplingSpec()
        self._template_name = template
        self._options = options

    @cached_property
    def _template(self) -> Template:
        engine = fd.SamplerOptions(**self._options)
        return fd.load_template(self._model, self._template_name, engine=engine)

    @cached_property
    def _sampler(self) -> Sampler:
        return fd.load_sampler(self._model, **self._options)

    def map_rows(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield the solutions of each problem, in the order of the problems."""
        sampling = replace(self._sampling, stop=self._template.stop)
        prompts = [self._template.render(row["question"]) for row in rows]
        samples = self._sampler.sample(prompts, sampling)
        for row, prompt, completions in zip(rows, prompts, samples, strict=True):
            for index, completion in enumerate(completions):
                yield {
                    **row,
                    "prompt": prompt,
                    "sample_index": index,
                    "response": completion.text,
                    "reasoning": completion.reasoning,
                    "finish_reason": completion.finish_reason,
                    "n_tokens": completion.n_tokens,
                    "model": self._sampler.model.name,
                }


class AnswerGrader(RowMapper):
    """Grades the ``response`` of each row against the gold ``answer``.

    Example:
        rows = AnswerGrader().map_rows([{"answer": "4", "response": "2 + 2 = 4"}])

    Args:
        grader: Full name of the grader; None for the default of this release.
    """

    new_columns: ClassVar[dict[str, str]] = {"outcome": "string", "extracted_answer": "string"}

    def __init__(self, grader: str | None = None) -> None:
        self._grader = grader

    def map_rows(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield the rows with the outcome, and with the answer of the response."""
        for row in rows:
            verdict = fd.grade(
                row["answer"],
                row["response"],
                self._grader,
                prompt=row.get("prompt", ""),
                finish_reason=row.get("finish_reason", "stop"),
            )
            yield {**row, "outcome": verdict.status, "extracted_answer": verdict.answer}


class StepScorer(RowMapper):
    """Splits the ``response`` of each row into steps, and gives each step a reward.

    Example:
        rows = StepScorer("runs/prm").map_rows(
            [{"question": "2+2?", "prompt": "2+2?", "response": "It is 4."}]
        )

    Args:
        prm: Process reward model: a directory or ``org/name[@revision]``.
        segmenter: Rule that splits a response into steps.
        options: Options of ``fd.load_scorer``, such as ``engine`` and ``device``.
    """

    new_columns: ClassVar[dict[str, str]] = {
        "steps": "list of string",
        "step_rewards": "list of float",
    }

    def __init__(self, prm: str, *, segmenter: str = "auto", **options: Any) -> None:
        self._prm = prm
        self._segmenter = segmenter
        self._options = options

    @cached_property
    def _scorer(self) -> Scorer:
        return fd.load_scorer(self._prm, **self._options)

    def map_rows(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield the rows with steps and rewards; no rewards beyond the context of the model."""
        items = []
        for row in rows:
            steps = fd.segment(row["response"], self._segmenter, row["prompt"])
            items.append(fd.ScorerInput(row["prompt"], steps, row["question"]))
        for row, item, rewards in zip(rows, items, self._scorer.score(items), strict=True):
            yield {**row, "steps": item.steps, "step_rewards": rewards}
