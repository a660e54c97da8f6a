"""A store on disk for the log-probabilities of the reference policy.

The store keeps one log-probability per token, because every loss can be computed from these. The
key of a solution depends on its content: model, tokenizer, precision, prompt and steps. Runs with
another β, γ, T or pairing of the same solutions therefore share a store. No reference model is in
memory while the policy trains.

The name of a file is the SHA-256 of its content. Several processes can therefore add to a store at
the same time, and incomplete or changed files are detected.
"""

import io
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fsdpo_data.core.errors import InputError, RunMismatchError, SchemaError, StoreError
from fsdpo_data.core.files import rename_durably, store_errors, write_atomic
from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows, parquet_errors, scan_parquet

#: Name of the file with the fingerprint of the reference model.
HEADER_FILE = "reference.json"
#: The next step for a file that cannot be used.
_REMOVE_ADVICE = "Remove the file; its log-probabilities are computed again."
_NAME_DIGITS = 32  #: Hex digits of the SHA-256 in a file's name.


@dataclass(frozen=True, slots=True)
class ReferenceKey:
    """The key of a solution in a store. The fields are also columns of the parquet files."""

    solution: str  #: Digest of everything that determines the log-probabilities.
    prompt: str  #: Digest of the prompt. It serves to explain a mismatch.
    text: str  #: Digest of the steps. It serves to explain a mismatch.


class ReferenceStore:
    """A directory of reference log-probabilities.

    Args:
        folder: The directory. It is created if it is missing.
        fingerprint: Identifies the reference model: model, tokenizer and precision.

    Raises:
        RunMismatchError: if the directory belongs to another reference model. The message names
            the differences.
        StoreError: if the directory cannot be read or written.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, str]) -> None:
        self.folder = folder
        self.fingerprint = dict(fingerprint)
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        header = folder / HEADER_FILE
        if not header.exists():
            content = json.dumps(dict(fingerprint), indent=2) + "\n"
            self._write_file(HEADER_FILE, content.encode())
            return
        stored = self._read_header()
        changed_keys = sorted(
            key for key in stored.keys() | fingerprint if stored.get(key) != fingerprint.get(key)
        )
        if changed_keys:
            differences = "; ".join(
                f"{key} is {stored.get(key)} in the store, {fingerprint.get(key)} in this run"
                for key in changed_keys
            )
            raise RunMismatchError(
                f"{folder} contains log-probabilities of another reference model: {differences}. "
                "Choose another reference_cache, or leave it out."
            )

    def _read_header(self) -> dict[str, Any]:
        """Return the fingerprint of the stored log-probabilities; StoreError if it is damaged."""
        header = self.folder / HEADER_FILE
        try:
            return dict(read_json(header))
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{header} cannot be read ({error}), remove {self.folder}; it is computed again."
            ) from None

    @property
    def digest(self) -> str:
        """Digest of all files of the store."""
        return digest([file.name for file in self._shard_files()])

    def key(self, prompt: str, steps: Sequence[str], *, ends_with_eos: bool) -> ReferenceKey:
        """Return the key of a solution.

        Args:
            prompt: The rendered prompt.
            steps: The steps of the solution.
            ends_with_eos: Whether an end-of-sequence token follows the last step.
        """
        return ReferenceKey(
            solution=digest("reference", self.fingerprint, prompt, list(steps), ends_with_eos),
            prompt=digest(prompt),
            text=digest(list(steps), ends_with_eos),
        )

    def load(self, keys: Sequence[ReferenceKey]) -> dict[str, np.ndarray]:
        """Return the stored log-probabilities of ``keys``, by ``ReferenceKey.solution``.

        Solutions that are not stored are left out.

        Raises:
            StoreError: if a file was changed.
            RunMismatchError: if the store is not empty, but does not contain any of the prompts.
        """
        solutions = {key.solution for key in keys}
        logprobs: dict[str, np.ndarray] = {}
        stored_prompts: set[str] = set()
        stored_texts: set[str] = set()
        for file in self._shard_files():
            if file_sha256(file)[:_NAME_DIGITS] != file.stem:
                raise StoreError(
                    f"{file} was changed since it was written (its SHA-256 is not its name). "
                    f"{_REMOVE_ADVICE}"
                )
            with parquet_errors(str(file), StoreError, _REMOVE_ADVICE):
                rows = _read_shard(file)
                stored_prompts.update(rows["prompt"])
                stored_texts.update(rows["text"])
                # A set: `is_in` would build a table of all keys for each file.
                is_wanted = [solution in solutions for solution in rows["solution"]]
                matches = rows.filter(pl.Series(is_wanted, dtype=pl.Boolean))
            arrays = (values.to_numpy() for values in matches["logprobs"])
            logprobs |= zip(matches["solution"], arrays, strict=True)
        if stored_prompts and not any(key.prompt in stored_prompts for key in keys):
            raise self._other_data_error(any(key.text in stored_texts for key in keys))
        return logprobs

    def _other_data_error(self, has_same_solutions: bool) -> RunMismatchError:
        """Return the error for a store with none of the prompts."""
        if has_same_solutions:
            reason = (
                "the prompts differ: the store has the same solutions under other prompts. Was "
                "another template used?"
            )
        else:
            reason = "the data differ: the store has neither its prompts nor its solutions."
        return RunMismatchError(
            f"{self.folder} contains reference log-probabilities, but none for this data: {reason} "
            "Choose another reference_cache, or leave it out."
        )

    def save(self, rows: Iterable[tuple[ReferenceKey, Sequence[float]]]) -> None:
        """Write log-probabilities to a new file of the store.

        Raises:
            StoreError: if the file cannot be written.
        """
        key_columns = [field.name for field in fields(ReferenceKey)]
        table = pl.DataFrame(
            [(key.solution, key.prompt, key.text, logprobs) for key, logprobs in rows],
            schema={**dict.fromkeys(key_columns, pl.String), "logprobs": pl.List(pl.Float32)},
            orient="row",
        )
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        content = buffer.getvalue()
        self._write_file(f"{sha256(content).hexdigest()[:_NAME_DIGITS]}.parquet", content)

    def _write_file(self, name: str, content: bytes) -> None:
        """Write a file of the store atomically."""
        # Other processes and runs may write the same file. Each writes a file of its own first.
        with store_errors(self.folder):
            process_file = self.folder / f"{name}.{socket.gethostname()}.{os.getpid()}"
            write_atomic(process_file, content)
            rename_durably(process_file, self.folder / name)

    def _shard_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


def _read_shard(file: Path) -> "pl.DataFrame":
    """Return the rows of a file of a store.

    Raises:
        StoreError: if the file is damaged.
    """
    try:
        return collect_rows(scan_parquet([file]))
    except (InputError, SchemaError):
        raise StoreError(f"{file} is damaged. {_REMOVE_ADVICE}") from None
