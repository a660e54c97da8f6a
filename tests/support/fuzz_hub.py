"""Change what a Hub answers, and check that `fsdpo-data pull` ends in a message.

    python tests/support/fuzz_hub.py --mutations 100
    python tests/support/fuzz_hub.py --mutations 1 --first 42

A server on the loopback has a sealed dataset. Half of the mutations change a file of the
repository, mostly the manifest, whose digests are made to match half of the time. The other
mutations change the body of an answer to ``/api``. Each pull may succeed or end in a message. These
are faults:

- ``traceback``: the command raised an exception;
- ``hung``: the command used more than 30 seconds;
- ``unnoticed``: the pulled dataset is not valid;
- ``left``: the command was refused, and left a dataset at the target.

A mutation depends only on the seed and its number. The exit code is 1 if there are faults.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from fuzz_harness import reseal
from fuzz_mutations import mutate
from hub_server import TOKEN, HubServer, client_env, running_hub

LIMIT_SECONDS = 30
FAULTS = ("traceback", "hung", "unnoticed", "left")
REPO = "org/data"


class _HungError(BaseException):
    """The time of a command is over."""


def _stop(signal_number: int, frame: FrameType | None) -> None:
    raise _HungError


def make_files(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a small dataset with pairs, by path."""
    from paired_data import paired_dataset

    paired_dataset(folder, problems=4)
    root = folder / "pairs"
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    }


def change_repo(hub: HubServer, files: Mapping[str, bytes], folder: Path, seed: str) -> str:
    """Put the dataset with one change on the server; return the description of the change."""
    rng = random.Random(seed)
    hub.changed_bodies.clear()
    changed_files = dict(files)
    if rng.random() < 0.5:
        part = rng.choice(("/api/datasets/", "/api/datasets/org/data/revision"))
        hub.changed_bodies[part] = lambda body: mutate(body, rng, ".json")
        description = f"answers to {part}"
    else:
        path = "manifest.json" if rng.random() < 0.7 else rng.choice(sorted(files))
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        file = folder / path
        file.write_bytes(mutate(files[path], rng, file.suffix))
        if rng.random() < 0.5:
            reseal(folder, file)
        changed_files = {name: (folder / name).read_bytes() for name in files}
        description = path
    hub.repos.clear()
    hub.add("dataset", REPO, changed_files)
    return description


def run_mutation(hub: HubServer, files: Mapping[str, bytes], folder: Path, seed: str) -> str:
    """Pull a changed dataset; return the outcome, and print a fault with its output."""
    from in_process import run_in_process

    description = change_repo(hub, files, folder / "repo", seed)
    out = folder / "out"
    os.environ["HF_HUB_CACHE"] = str(folder / "cache")
    signal.alarm(LIMIT_SECONDS)
    try:
        code, output = run_in_process(["fsdpo_data", "pull", REPO, "--out", str(out)])
    finally:
        signal.alarm(0)
    outcome = "accepted" if code == 0 else "refused"
    if "_HungError" in output:
        outcome = "hung"
    elif code is None or "Traceback (most recent call last)" in output:
        outcome = "traceback"
    elif code == 0 and run_in_process(["fsdpo_data", "validate", str(out)]).code:
        outcome = "unnoticed"
    elif code and out.exists():
        outcome = "left"
    if outcome in FAULTS:
        print(f"--first {seed.rpartition('/')[2]}: {outcome}: {description}: {output[-2500:]}")
    return outcome


def main() -> None:
    """Pull changed datasets, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _stop)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, running_hub() as hub:
        folder = Path(name)
        # The Hub client reads its endpoint at its import.
        os.environ.update(client_env(hub.url, folder / "home", HF_TOKEN=TOKEN))
        files = make_files(folder / "made")
        for number in range(options.first, options.first + options.mutations):
            mutation_folder = folder / str(number)
            mutation_folder.mkdir()
            counts[run_mutation(hub, files, mutation_folder, f"{options.seed}/{number}")] += 1
    fault_counts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in FAULTS)
    print(f"{counts.total()} mutations: {counts['refused']} refused, {fault_counts}")
    sys.exit(any(counts[outcome] for outcome in FAULTS))


if __name__ == "__main__":
    main()
