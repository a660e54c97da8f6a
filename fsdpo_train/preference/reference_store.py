"""A store on disk for the log-probabilities of the reference policy.

The store keeps one log-probability per token, because every loss can be computed from these. The
key of a solution is a digest of the model, the precision and the token ids. Runs with another β, γ,
T or pairing of the same solutions therefore share a store, and a run with another model or template
computes its own log-probabilities. No reference model is in memory while the policy trains.

The name of a file is the SHA-256 of its content. Several processes can therefore add to a store at
the same time, and incomplete or changed files are detected.
"""

import io
import os
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from fsdpo_data.core.errors import InputError, SchemaError, StoreError
from fsdpo_data.core.files import rename_durably, store_errors, write_atomic
from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows, parquet_errors, scan_parquet
from fsdpo_data.engines.step_tokens import EncodedSolution

#: The next step for a file that cannot be used.
_REMOVE_ADVICE = "Remove the file; its log-probabilities are computed again."
_NAME_DIGITS = 32  #: Hex digits of the SHA-256 in a file's name.


class ReferenceStore:
    """A directory of reference log-probabilities.

    Args:
        folder: The directory. It is created if it is missing.
        fingerprint: Identifies the reference model: model and precision.

    Raises:
        StoreError: if the directory cannot be written.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, str]) -> None:
        self.folder = folder
        self.fingerprint = dict(fingerprint)
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def digest(self) -> str:
        """Digest of all files of the store."""
        return digest([file.name for file in self._shard_files()])

    def key(self, tokens: EncodedSolution) -> str:
        """Return the key of a solution: a digest of everything that determines its values."""
        ids_sha256 = sha256(tokens.input_ids.tobytes()).hexdigest()
        return digest("reference", self.fingerprint, tokens.completion_start, ids_sha256)

    def load(self, keys: Collection[str]) -> dict[str, np.ndarray]:
        """Return the stored log-probabilities by key, without the solutions that are not stored.

        Raises:
            StoreError: if a file was changed.
        """
        keys = set(keys)
        logprobs: dict[str, np.ndarray] = {}
        for file in self._shard_files():
            if file_sha256(file)[:_NAME_DIGITS] != file.stem:
                raise StoreError(
                    f"{file} was changed since it was written (its SHA-256 is not its name). "
                    f"{_REMOVE_ADVICE}"
                )
            with parquet_errors(str(file), StoreError, _REMOVE_ADVICE):
                rows = _read_shard(file)
                # A set: `is_in` would build a table of all keys for each file.
                is_wanted = [key in keys for key in rows["solution"]]
                matches = rows.filter(pl.Series(is_wanted, dtype=pl.Boolean))
            arrays = (values.to_numpy() for values in matches["logprobs"])
            logprobs |= zip(matches["solution"], arrays, strict=True)
        return logprobs

    def save(self, rows: Iterable[tuple[str, Sequence[float]]]) -> None:
        """Write log-probabilities by key to a new file of the store.

        Raises:
            StoreError: if the file cannot be written.
        """
        table = pl.DataFrame(
            [*rows],
            schema={"solution": pl.String, "logprobs": pl.List(pl.Float32)},
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
