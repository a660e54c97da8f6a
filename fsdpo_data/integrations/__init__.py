"""Sampling, grading and scoring as steps of other programs' pipelines.

``row_mappers`` has classes for ``ray.data.Dataset.map_batches``, and imports no Ray. The module
``datatrove`` makes each of them a step of a datatrove pipeline, and needs datatrove.
"""

from fsdpo_data.integrations.row_mappers import (
    AnswerGrader,
    RowMapper,
    SolutionSampler,
    StepScorer,
)

__all__ = ["AnswerGrader", "RowMapper", "SolutionSampler", "StepScorer"]
