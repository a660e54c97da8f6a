"""Imported solutions in a temporary file, problem by problem.

The solutions of a problem may be anywhere in a file, and a dataset has them together. Solutions
therefore go to an unnamed temporary file, one per line, and memory holds only their positions.
"""

from array import array
from collections.abc import Mapping
from typing import IO, Any

import orjson

from fsdpo_data.core.completion_records import dump_completion, load_completions
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.identity import text_key
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.sampling import Completion


class SolutionSpool:
    """Problems in memory, with their prompts and solutions in a temporary file.

    Attributes:
        problems: The problems by id, in the order of the input.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Store everything in ``file``, which is empty."""
        self._file = file
        self.problems: dict[str, Problem] = {}
        self._prompt_offsets: dict[str, int] = {}  # by problem id
        self._prompt_keys: dict[str, bytes] = {}  # digests of the prompts, by problem id
        self._solution_offsets: dict[str, array[int]] = {}  # by problem id

    @property
    def counts(self) -> dict[str, int]:
        """The number of solutions by problem id."""
        return {key: len(offsets) for key, offsets in self._solution_offsets.items()}

    def add(self, problem: Problem, prompt: str, solution: Completion) -> None:
        """Store a solution of a problem, and the prompt if it is the first one.

        Raises:
            UnusableRowError: if the problem has another prompt; a dataset has one per problem.
        """
        problem_id = problem.id
        key = text_key(prompt)
        if self._prompt_keys.setdefault(problem_id, key) != key:
            raise UnusableRowError("the problem has another prompt in an earlier row")
        if problem_id not in self.problems:
            self.problems[problem_id] = problem
            self._prompt_offsets[problem_id] = self.write({"prompt": prompt})
            self._solution_offsets[problem_id] = array("Q")
        self._solution_offsets[problem_id].append(self.write(dump_completion(solution)))

    def prompt(self, problem_id: str) -> str:
        """Return the prompt of a problem."""
        return str(self.read(self._prompt_offsets[problem_id])["prompt"])

    def solutions(self, problem_id: str) -> list[Completion]:
        """Return the solutions of a problem, in the order of the input."""
        offsets = self._solution_offsets[problem_id]
        return load_completions([self.read(offset) for offset in offsets])

    def write(self, record: Mapping[str, Any]) -> int:
        """Append a record to the file; return its offset."""
        offset = self._file.seek(0, 2)
        self._file.write(encode_line(record))
        return offset

    def read(self, offset: int) -> Any:
        """Return the record at an offset."""
        self._file.seek(offset)
        return orjson.loads(self._file.readline())
