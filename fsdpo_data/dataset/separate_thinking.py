"""Solutions whose thinking a server returned in a field of its own, so that their text lacks it.

A policy that learns from such a text learns to answer without thinking. The tags of the thinking
depend on the chat template of the model. Where this template was known, the text has the thinking.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord

#: Reason in messages.
THINKING_IS_MISSING = (
    "the thinking of the solution is in a field of its own, so the text lacks it, and a trainer "
    "would teach the model to answer without thinking"
)
_COLUMNS = ("solution_id", "prompt", "completions")
#: Engines whose completions are all that the model wrote.
_COMPLETE_ENGINES = ("transformers", "vllm", "ray")
_ID_COLUMNS = ("solution_id", "chosen_id", "rejected_id")  #: Columns that name a solution.


def may_lack_thinking(manifest: Manifest) -> bool:
    """Return whether texts of a dataset may lack their thinking, as those of a server may."""
    engine = manifest.get(SAMPLE_STAGE, SampleRecord).options.engine
    return engine.name not in _COMPLETE_ENGINES and engine.api != "completions"


def find_solutions_without_thinking(root: Path, manifest: Manifest) -> set[str]:
    """Return the ids of solutions whose text lacks their thinking.

    A copy without its solutions is not read.
    """
    files = manifest.config_paths(root, "solutions")
    if not may_lack_thinking(manifest) or not all(file.exists() for file in files):
        return set()
    ids = set()
    for file in files:
        # Thinking that never ends is the text itself.
        rows = scan_rows("solutions", [file]).filter(pl.col("thinking_closed")).select(_COLUMNS)
        for solution_id, prompt, steps in collect_rows(rows).iter_rows():
            if find_thinking(prompt, "".join(steps)).closed is None:
                ids.add(solution_id)
    return ids


def is_thinking_missing(row: Mapping[str, Any], solution_ids: Collection[str]) -> bool:
    """Return whether a solution, or a pair of solutions, is among those without their thinking."""
    return any(row.get(column) in solution_ids for column in _ID_COLUMNS)
