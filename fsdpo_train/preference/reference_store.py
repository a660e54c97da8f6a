"""Log-probabilities of the reference policy: computed once, kept on disk, read by key.

They are kept per token, which is what every loss can be made of, and keyed by content: model,
tokenizer, precision, prompt, steps. Another β, γ, T or pairing of the same solutions finds them
again. While the policy trains, no reference model is in memory.

A file of the store is named by the SHA-256 of its content, so that several processes may add to a
store at once, a torn file is never taken for a whole one, and a changed one is found out.
"""

import io
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from hashlib import sha256
from pathlib import Path

import numpy as np

from fsdpo_data.core.errors import RunMismatchError, StoreError
from fsdpo_data.core.files import rename_durably, store_errors, write_atomic
from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.core.lazy import pl
from fsdpo_train.trainer.run_directory import read_state

HEADER = "reference.json"  #: Name of the file that says whose log-probabilities a store holds.
_NAME = 32  #: Hex digits of the SHA-256 in a file's name.


@dataclass(frozen=True, slots=True)
class ReferenceKey:
    """A solution as a store knows it."""

    solution: str  #: Digest of everything that decides the log-probabilities.
    prompt: str  #: Digest of the prompt alone, to say what differs.
    text: str  #: Digest of the steps alone.


def reference_key(
    made_by: Mapping[str, str], prompt: str, steps: Sequence[str], end: bool
) -> ReferenceKey:
    """Return the key of a solution in a store of ``made_by``; ``end``: whether EOS follows."""
    whole = digest("reference", dict(made_by), prompt, list(steps), end)
    return ReferenceKey(whole, digest(prompt), digest(list(steps), end))


class ReferenceStore:
    """A directory of log-probabilities.

    ``made_by`` says what computes them, by name: model, tokenizer, precision.

    Raises:
        RunMismatchError: if the directory holds those of something else, naming what differs.
        StoreError: if it cannot be read or written.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, str]) -> None:
        self.folder = folder
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        header = folder / HEADER
        if not header.exists():
            return self._write(HEADER, (json.dumps(dict(made_by), indent=2) + "\n").encode())
        before = read_state(header, f"remove {folder}; it is computed again")
        changed = sorted(k for k in before.keys() | made_by if before.get(k) != made_by.get(k))
        if changed:
            said = (f"{key} is {before.get(key)} there, {made_by.get(key)} here" for key in changed)
            raise RunMismatchError(
                f"{folder} holds reference log-probabilities of something else: {'; '.join(said)}. "
                "Choose another reference_cache, or leave it out."
            )

    @property
    def digest(self) -> str:
        """Return the digest of all files, by their names."""
        return digest([file.name for file in self._files()])

    def load(self, wanted: Sequence[ReferenceKey]) -> dict[str, np.ndarray]:
        """Return the log-probabilities that are here, by ``ReferenceKey.solution``.

        Raises:
            StoreError: if a file was changed.
            RunMismatchError: if the store is not empty and knows none of the prompts.
        """
        solutions = {key.solution for key in wanted}
        found: dict[str, np.ndarray] = {}
        prompts: set[str] = set()
        texts: set[str] = set()
        for file in self._files():
            if file_sha256(file)[:_NAME] != file.stem:
                raise StoreError(
                    f"{file} was changed since it was written (its SHA-256 is not its name). "
                    "Remove it; what it held is computed again."
                )
            rows = pl.read_parquet(file, glob=False)
            prompts.update(rows["prompt"])
            texts.update(rows["text"])
            kept = rows.filter(pl.col("solution").is_in(list(solutions)))
            found |= zip(kept["solution"], (v.to_numpy() for v in kept["logprobs"]), strict=True)
        if prompts and not any(key.prompt in prompts for key in wanted):
            what = (
                "the prompts differ: the same solutions stand under other prompts there. Was "
                "another template used?"
                if any(key.text in texts for key in wanted)
                else "the data differ: neither its prompts nor its solutions are there."
            )
            raise RunMismatchError(
                f"{self.folder} holds reference log-probabilities, but none of this data: {what} "
                "Choose another reference_cache, or leave it out."
            )
        return found

    def save(self, rows: Iterable[tuple[ReferenceKey, Sequence[float]]]) -> None:
        """Add log-probabilities in a file of their own, or raise a StoreError if the disk fails."""
        text = {each.name: pl.String for each in fields(ReferenceKey)}
        table = pl.DataFrame(
            [(*astuple(key), values) for key, values in rows],
            schema={**text, "logprobs": pl.List(pl.Float32)},
            orient="row",
        )
        body = io.BytesIO()
        table.write_parquet(body)
        data = body.getvalue()
        self._write(f"{sha256(data).hexdigest()[:_NAME]}.parquet", data)

    def _write(self, name: str, data: bytes) -> None:
        """Write under a name of its own first: processes and runs may write the same at once."""
        with store_errors(self.folder):
            own = self.folder / f"{name}.{socket.gethostname()}.{os.getpid()}"
            write_atomic(own, data)
            rename_durably(own, self.folder / name)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))
