"""Change what a Hub answers, and check that `fsdpo-data pull` and `push` end in a message.

    python tests/support/fuzz_hub.py --mutations 100
    python tests/support/fuzz_hub.py --mutations 1 --first 42

A server on the loopback has a sealed dataset. Two of three mutations pull it. Half of them change a
file of the repository, mostly the manifest, whose digests are made to match half of the time. The
others change the body of an answer to ``/api``. Every third mutation pushes the dataset, and
changes the answers to one kind of request. Each command may succeed or end in a message. These are
faults:

- ``traceback``: the command raised an exception;
- ``hung``: the command used more than 30 seconds;
- ``unnoticed``: the pulled dataset is not valid;
- ``left``: the pull was refused, and left a dataset at the target.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from fuzz_harness import reseal
from fuzz_mutations import mutate
from hub_server import TOKEN, HubServer, client_env, running_hub

LIMIT_SECONDS = 30
FAULTS = ("traceback", "hung", "unnoticed", "left")
REPO = "org/data"
#: Parts of the requests of a push.
PUSH_REQUESTS = (
    "/api/", "/api/datasets/org/data", "/api/repos/create", "/refs", "/tree", "/preupload",
    "/commit/", "/tag/", "/info/lfs",
)  # fmt: skip


class _HungError(BaseException):
    """The time of a command is over."""


def _stop(signal_number: int, frame: FrameType | None) -> None:
    raise _HungError


def make_dataset(folder: Path) -> Path:
    """Make a small dataset with pairs; return its directory."""
    from paired_data import paired_dataset

    paired_dataset(folder, problems=4)
    return folder / "pairs"


def read_files(root: Path) -> Mapping[str, bytes]:
    """Return the files of a dataset by path."""
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


def run_pull(hub: HubServer, files: Mapping[str, bytes], folder: Path, seed: str) -> str:
    """Pull a changed dataset; return the outcome, and print a fault with its output."""
    from in_process import run_in_process

    description = change_repo(hub, files, folder / "repo", seed)
    out = folder / "out"
    outcome, output = _run(["fsdpo_data", "pull", REPO, "--out", str(out)])
    if outcome == "accepted" and run_in_process(["fsdpo_data", "validate", str(out)]).code:
        outcome = "unnoticed"
    if outcome == "refused" and out.exists():
        outcome = "left"
    _print_fault(seed, outcome, description, output)
    return outcome


def run_push(hub: HubServer, root: Path, seed: str) -> str:
    """Push to a Hub with changed answers; return the outcome, and print a fault."""
    rng = random.Random(seed)
    hub.repos.clear()
    if rng.random() < 0.5:
        hub.add("dataset", REPO, {"README.md": b"# Data"})
    part = rng.choice(PUSH_REQUESTS)
    hub.changed_bodies.clear()
    hub.changed_bodies[part] = lambda body: mutate(body, rng, ".json")
    outcome, output = _run(["fsdpo_data", "push", str(root), REPO])
    _print_fault(seed, outcome, f"answers to {part} of a push", output)
    return outcome


def _run(command: Sequence[str]) -> tuple[str, str]:
    """Run a command with a time limit; return the outcome and the output."""
    from in_process import run_in_process

    signal.alarm(LIMIT_SECONDS)
    try:
        code, output = run_in_process(command)
    finally:
        signal.alarm(0)
    if "_HungError" in output:
        return "hung", output
    if code is None or "Traceback (most recent call last)" in output:
        return "traceback", output
    return "refused" if code else "accepted", output


def _print_fault(seed: str, outcome: str, description: str, output: str) -> None:
    if outcome in FAULTS:
        print(f"--first {seed.rpartition('/')[2]}: {outcome}: {description}: {output[-2500:]}")


def main() -> None:
    """Pull and push with changed answers, and print the counts."""
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
        root = make_dataset(folder / "made")
        files = read_files(root)
        for number in range(options.first, options.first + options.mutations):
            mutation_folder = folder / str(number)
            mutation_folder.mkdir()
            os.environ["HF_HUB_CACHE"] = str(mutation_folder / "cache")
            seed = f"{options.seed}/{number}"
            if number % 3 == 2:
                counts[run_push(hub, root, seed)] += 1
            else:
                counts[run_pull(hub, files, mutation_folder, seed)] += 1
    fault_counts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in FAULTS)
    print(f"{counts.total()} mutations: {counts['refused']} refused, {fault_counts}")
    sys.exit(any(counts[outcome] for outcome in FAULTS))


if __name__ == "__main__":
    main()
