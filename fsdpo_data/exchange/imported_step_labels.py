"""Published step labels, as solutions of a dataset or as training rows.

No answer is graded, because many published solutions end at their first wrong step.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import RELEASE, EngineRef, ModelRef, SourceRef, json_sha256
from fsdpo_data.core.sampling import UNKNOWN, DeclaredSampling, SamplingSpec
from fsdpo_data.dataset.stage_records import NO_GRADER, GradeSettings, SampleSettings
from fsdpo_data.exchange.formats import FORMATS, ExchangeFormat
from fsdpo_data.exchange.imported_pairs import ImportedPairStage
from fsdpo_data.exchange.prompt_questions import PromptQuestions
from fsdpo_data.exchange.response_formats import Fields, RecordedResponse
from fsdpo_data.exchange.row_import import ImportedFile, ImportSource, RowImport
from fsdpo_data.models.prompts import get_template
from fsdpo_data.stages.import_labels import ImportCounts
from fsdpo_data.stages.sample import RECORDED_STEPS, BuildSettings
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_data.steps.rewards import OUTCOME_LABELS

ENGINE = "step-labels"  #: Name in the manifest in place of the engine that sampled the solutions.
_DEFAULT_TEMPLATE = "problem"  #: Template of problems without a recorded prompt.


class StepLabelImport(RowImport):
    """The import of rows in one format of step labels."""

    def __init__(
        self,
        label_format: ExchangeFormat,
        template: str | None,
        write: Callable[[RecordedResponse, str], None],
    ) -> None:
        """Prepare an import.

        Args:
            label_format: The format.
            template: Template that turns problems into prompts; None for the default. Formats with
                prompts keep theirs, and may have this template.
            write: Receives each solution with its prompt.
        """
        super().__init__()
        assert label_format.step_labels is not None
        self.label_format = label_format
        self.settings = label_format.step_labels.settings
        if label_format.step_labels.has_pairs:
            self.stages = [ImportedPairStage()]
        self.template = get_template(template or _DEFAULT_TEMPLATE)
        self._has_prompts = False  # whether the rows have prompts of their own
        self._prompt_questions = PromptQuestions(self.template if template else None)
        self._n_without_space = 0  # solutions with steps that no white space separates
        self._write = write

    def format_of_row(self, fields: Fields) -> ExchangeFormat:
        """Return the format of all rows."""
        return self.label_format

    def store(
        self, response: RecordedResponse, row_format: ExchangeFormat, file: ImportedFile
    ) -> bool:
        """Write a solution, and count its labels."""
        self._has_prompts |= bool(response.prompt)
        if response.prompt and response.prompt == response.question:
            question = self._prompt_questions.find(response.prompt)
            response = replace(response, question=question)
        self._write(response, response.prompt or self.template.render(response.question))
        labels = response.completion.imported_labels or ()
        self.result.steps.update(label >= RIGHT_STEP_LABEL for label in labels)
        self._n_without_space += any(
            not step[-1:].isspace() and not next_step[:1].isspace()
            for step, next_step in pairwise(response.steps)
        )
        return True

    def warnings(self) -> Iterator[str]:
        """Yield what a user may overlook in the rows."""
        yield from self._prompt_questions.warnings()
        if self._n_without_space * 2 > self.result.n_solutions:
            yield (
                f"{self._n_without_space:,} of {self.result.n_solutions:,} solutions have steps "
                "without white space between them, so the end of a step joins the next word. "
                "Datasets of TRL are like this, because its trainer adds a line end to each step. "
                "Use `step_separator=newline`."
            )

    def no_rows_error(self, source: ImportSource) -> InputError:
        """Return the error for a source without a usable row."""
        message = (
            f"{source.location}: none of its {self.result.n_rows} rows has the format "
            f"{self.label_format.name}."
        )
        if self.quarantined:
            message += f" The first problem: {self.quarantined[0].reason}."
        return InputError(message)

    def make_spec(self, revision: str, n_samples: int) -> BuildSettings:
        """Return the spec of the dataset."""
        if self.label_format.name not in FORMATS:
            revision = self.identify_texts(revision)  # the options name the fields of the texts
        elif self.settings.changes_text:
            # The texts differ from those of another import of these rows, so the ids do, too.
            options = self.settings.model_dump(
                include={"format", "step_separator", "first_error_only"}
            )
            revision = json_sha256([revision, options])
        template = self._prompt_questions.template if self._has_prompts else self.template
        return BuildSettings(
            sample=SampleSettings(
                model=ModelRef(UNKNOWN, UNKNOWN),
                template=template.ref,
                sampling=SamplingSpec(n=n_samples),
                unknown_fields=DeclaredSampling().unknown_fields,
                engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=revision),
                segmenter=RECORDED_STEPS,
            ),
            grade=GradeSettings(grader=NO_GRADER, labels=OUTCOME_LABELS),
            step_labels=self.settings,
        )

    @property
    def label_counts(self) -> ImportCounts:
        """The counts of the step labels."""
        return ImportCounts(rows=self.result.n_rows)

    def provenance_json(self, source: SourceRef) -> bytes:
        """Return the manifest of training rows: their source, and the meaning of their labels."""
        result = self.result
        manifest = {
            "made_by": RELEASE,
            "source": {"name": source.name, "revision": source.revision},
            "format": self.label_format.name,
            "labels": self.settings.meaning,
            "loses": self.settings.drops,  # the fields of the source that are not imported
            "template": self.template.name,
            "rows": {
                "read": result.n_rows,
                "written": result.n_solutions,
                "set_aside": len(result.quarantined),
            },
            "steps": {"right": result.steps[True], "wrong": result.steps[False]},
        }
        return json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n"


def make_training_row(solution: RecordedResponse, prompt: str) -> dict[str, Any]:
    """Return the row of a training file for one solution."""
    row: dict[str, Any] = {
        "prompt": prompt,
        "completions": solution.steps,
        "labels": solution.completion.imported_labels,
    }
    if not solution.prompt:
        row |= {"problem": solution.question, "answer": solution.gold}
    if solution.completion.imported_ratings is not None:
        row["ratings"] = solution.completion.imported_ratings
    return row
