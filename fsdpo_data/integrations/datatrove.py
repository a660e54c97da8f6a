"""A step of datatrove pipelines that maps documents with a row mapper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from fsdpo_data.integrations.row_mappers import Row, RowMapper


class MapDocuments(PipelineStep):  # type: ignore[misc]
    """Maps the documents of a datatrove pipeline with a sampler, a grader or a scorer.

    The text of a document is the question, and the response after sampling. All other columns are
    in its metadata. Every task of the executor loads the model once.

    Example:
        pipeline = [
            JsonlReader("problems", text_key="question"),
            MapDocuments(SolutionSampler("tiny", fd.SamplingSpec(n=8))),
            MapDocuments(AnswerGrader()),
            JsonlWriter("runs/sampled", adapter=document_row),
        ]

    Args:
        mapper: The mapper of rows.
        batch_size: Documents per call of the mapper.
    """

    type = "🧮 - FSDPO"

    def __init__(self, mapper: RowMapper, batch_size: int = 256) -> None:
        self.name = type(mapper).__name__
        super().__init__()
        self.mapper = mapper
        self.batch_size = batch_size

    def run(
        self, data: Iterator[Document] | None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Yield the mapped documents of a task."""
        documents: Iterator[Document] = iter(data or ())
        try:
            while batch := list(islice(documents, self.batch_size)):
                with self.track_time("batch"):
                    rows = list(self.mapper.map_rows([_row(document) for document in batch]))
                for row in rows:
                    self.stat_update("rows")
                    yield self._document(row)
        finally:
            self.mapper.close()

    def _document(self, row: Row) -> Document:
        """Return the document of a row; each solution of a problem has an id of its own."""
        document_id = row.pop("id")
        if "sample_index" in self.mapper.new_columns:
            document_id = f"{document_id}/{row['sample_index']}"
        return Document(text=row.pop("response"), id=document_id, metadata=row)


def _row(document: Document) -> Row:
    """Return the row of a document: its metadata, its id, and its text as question or response."""
    text_column = "response" if "question" in document.metadata else "question"
    return {**document.metadata, text_column: document.text, "id": document.id}


def document_row(_writer: Any, document: Document) -> Row:
    """Return the row that a writer of datatrove should write, for its argument ``adapter``.

    `fsdpo-data import DIR --from outputs` reads such rows.
    """
    return _row(document)
