"""The Xet half of the loopback Hub: a store in a folder, which the real hf-xet client fills.

The Hub tells a client where its store is and gives it a short-lived token. Here the store is a
folder (hf-xet's own ``local://``), so no part of the client is replaced; only its network is.
"""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Bytes of a record of a shard, and of the hash that a record begins with.
_RECORD, _HASH = 48, 32
_END = b"\xff" * _HASH


class XetStore:
    """A store of large files, in a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.url = f"local://{self._folder.name}"

    def close(self) -> None:
        """Throw the files away."""
        self._folder.cleanup()

    def connection(self) -> dict[str, object]:
        """Return what the Hub answers to a client that wants to write."""
        return {"accessToken": "xet", "exp": int(time.time()) + 3600, "casUrl": self.url}

    def read(self, sha256: str, size: int) -> bytes | None:
        """Return a file by its SHA-256; None if it has not been uploaded."""
        shards = Path(self._folder.name).glob("xet/xorbs/shards/*.mdb")
        hashes = (hash_ for shard in shards for sha, hash_ in _files(shard) if sha == sha256)
        xet_hash = next(hashes, None)
        return None if xet_hash is None else self._download(xet_hash, size)

    def _download(self, xet_hash: str, size: int) -> bytes:
        import hf_xet

        target = Path(self._folder.name) / "downloaded"
        far = 1 << 40  # the token never runs out
        with hf_xet.XetSession().new_file_download_group(
            endpoint=self.url, token="xet", token_expiry_unix_secs=far
        ) as group:
            group.start_download_file(hf_xet.XetFileInfo(xet_hash, size), str(target))
        return target.read_bytes()


def _files(shard: Path) -> Iterator[tuple[str, str]]:
    """Yield (SHA-256, Xet hash) of the files that a shard tells of.

    A file is a record with its hash, flags and number of segments, a record for each segment, then
    by the flags a record to verify each segment, and one that begins with the SHA-256.
    """
    data, offset = shard.read_bytes(), _RECORD  # after the header
    while data[offset : offset + _HASH] != _END:
        flags, segments = struct.unpack_from("<II", data, offset + _HASH)
        verified, extended = flags >> 31 & 1, flags >> 30 & 1
        last = offset + _RECORD * (1 + segments * (1 + verified))
        if extended:
            yield _hex(data, last), _hex(data, offset)
        offset = last + _RECORD * extended


def _hex(data: bytes, offset: int) -> str:
    """Return a hash as text: four words, each with its lowest byte first."""
    return "".join(f"{word:016x}" for word in struct.unpack_from("<4Q", data, offset))
