"""The options of an import of recorded responses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.options import Group, NotWith, Option
from fsdpo_data.core.sampling import UNKNOWN, DeclaredSampling
from fsdpo_data.engines.options import Resume, Workers
from fsdpo_data.exchange.response_formats import ResponseReading
from fsdpo_data.problems.row_formats import FieldName
from fsdpo_data.steps.segment import SEGMENTERS

_OUTPUTS_PANEL = "Outputs"  #: Heading of the options of outputs, in the help.
OutputsFieldName = Annotated[
    str | None, Option(panel=_OUTPUTS_PANEL, metavar="FIELD", default_text="by format")
]


class ImportOutputsOptions(ResponseReading):
    """Turn responses that another program recorded into a sealed dataset."""

    file: Annotated[str | Path, Option(positional=True)]
    """JSON lines, JSON, parquet, CSV or TSV file, a directory of such files, a pattern, or org/name
    of a dataset on the Hub.
    """
    out: Annotated[str | Path, Option(in_digest=False)]
    """Directory of the new dataset."""
    template: Annotated[
        str | None, Option(default_text="the recorded prompt, or the question alone")
    ] = None
    """Prompt template of the problems. It replaces the prompts in the rows."""
    gold_field: Annotated[FieldName, NotWith("problems")] = None
    """Field with the gold answer."""
    problems: Annotated[Sequence[str], Option(panel=_OUTPUTS_PANEL)] = ()
    """Problems with gold answers, as for `build`, or a dataset. If given, every row takes
    its problem from here: by its question, or by a prompt that ends with the question.
    """
    requests: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    """File with the requests of a batch, matched by `custom_id`."""
    model_name: Annotated[
        str | None, Option(panel=_OUTPUTS_PANEL, default_text="the name in the file")
    ] = None
    """Name of the model that wrote the outputs."""
    split: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = "train"
    """Split of the problems."""
    sampling: Annotated[
        DeclaredSampling,
        Group(
            panel=_OUTPUTS_PANEL,
            default_text=UNKNOWN,
            help={
                "temperature": "Sampling temperature of the outputs.",
                "top_p": "Probability mass of nucleus sampling of the outputs.",
                "max_tokens": "Maximum number of tokens per solution in the sampling of the "
                "outputs.",
            },
        ),
    ] = DeclaredSampling()
    """Sampling settings that are known of the outputs."""
    segmenter: Annotated[
        str | None,
        Option(
            panel=_OUTPUTS_PANEL,
            choices=SEGMENTERS,
            default_text="the steps in the rows, or auto",
        ),
    ] = None
    """Rule that splits solutions into steps, as for `build`. It replaces the steps in the rows;
    step scores then need as many steps.
    """
    scores: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    """File with the step scores of one reward model. Its rows have the fields that identify a
    response, such as `problem_id` and `candidate_index`.
    """
    steps_field: OutputsFieldName = None
    """Field with the steps of a response."""
    scores_field: OutputsFieldName = None
    """Field with the step scores of a response, from 0 to 1."""
    prm_name: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = UNKNOWN
    """Name of the reward model that gave the step scores."""
    grade_thinking: Annotated[bool, Option(panel=_OUTPUTS_PANEL)] = False
    """If a solution has no text after its thinking, grade the answer that the thinking marks, for
    example in a box. By default such a solution has no answer.
    """
    workers: Workers = None
    """Number of processes that grade."""
    resume: Resume = False
    """Continue the run in `out`."""
    source: str = ""
    """`outputs`, as the command line names this import."""
