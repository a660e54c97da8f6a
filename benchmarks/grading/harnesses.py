"""Grade the same responses with the graders of several projects.

    python -m venv .venv-harnesses
    .venv-harnesses/bin/pip install -r benchmarks/grading/harnesses-requirements.txt
    git clone https://github.com/NVIDIA/NeMo-Skills ../sources/NeMo-Skills
    git -C ../sources/NeMo-Skills checkout 0b012df8a09cd4730d31b16e90a0d8f13d145fb8
    git clone https://github.com/QwenLM/Qwen2.5-Math ../sources/Qwen2.5-Math
    git -C ../sources/Qwen2.5-Math checkout a45202bd16f1ec06f433442dc1152d0074773465
    python benchmarks/grading/harnesses.py --pools DIR --math500 FILE --out runs/harnesses

DIR has `gsm8k/candidates.jsonl.gz`, `math500/candidates.jsonl.gz` and `prime/*.jsonl.gz`: responses
with the verdicts of their authors. FILE is MATH-500, whose golds and solutions replace the golds of
the pool. Each grader is the code of its project, in a process of its own. An answer that takes more
than `--seconds` ends the process, and a new one grades the next answer. Failures count as wrong.

The verdicts are in `--out`, so a second call continues an interrupted one. `--grader` selects
graders. `--grader fsdpo` needs neither the environment nor the repositories.

The table has the score of each grader on each pool, and its verdicts on `adjudicated.jsonl`:
disagreements that a reader decided without knowledge of the verdicts. Its rows come from the pools
of staged-benchmark-2026/StrictPRMBench (CC-BY-4.0) and PRIME-RL/PRIME (Apache-2.0).
"""

import gzip
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from harness_worker import LOADERS
from typer import Option

from fsdpo_data.core.jsonl_log import JsonlLog, encode_line
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.core.statistics import mean_rate

WORKER = Path(__file__).with_name("harness_worker.py")
REQUIREMENTS = Path(__file__).with_name("harnesses-requirements.txt")
ADJUDICATED = Path(__file__).with_name("adjudicated.jsonl")
OWN_GRADER = "fsdpo"
AUTHORS = "authors"  #: Name of the verdicts that the files of the pools have.
#: Commits of the repositories that have no package with their grader.
COMMITS = {
    "NeMo-Skills": "0b012df8a09cd4730d31b16e90a0d8f13d145fb8",
    "Qwen2.5-Math": "a45202bd16f1ec06f433442dc1152d0074773465",
}
#: Pools of graders that are made for one task; the other graders grade all pools.
POOLS_OF = {"lm-eval gsm8k": ("gsm8k",), "lm-eval minerva_math": ("math500", "gaokao2023en")}
POOL_TITLES = {"gsm8k": "GSM8K", "math500": "MATH-500", "gaokao2023en": "GaoKao 2023 en"}
START_SECONDS = 120.0  #: Time in which a grader must start.
BATCH_ROWS = 50  #: Verdicts that are written to disk together.


class PoolRow(NamedTuple):
    """A response of a pool."""

    key: str  #: Pool, model and row, which identify the response.
    pool: str  #: A key of ``POOL_TITLES``.
    model: str  #: The model; empty if the pool has one policy.
    problem: str  #: The problem within its pool.
    question: str  #: The question.
    gold: str  #: The gold answer.
    solution: str  #: The solution of the benchmark; empty if unknown.
    response: str  #: The response.
    authors_correct: bool  #: The verdict of the file.


class MetricVerdicts(NamedTuple):
    """The verdicts of one metric of a grader."""

    name: str  #: The grader, and its metric if it has several.
    correct: Mapping[str, bool | None]  #: Verdicts by key of the row; None for undecided.

    def has(self, row: PoolRow) -> bool:
        """Whether the grader graded a response."""
        return row.key in self.correct

    def accepts(self, row: PoolRow) -> bool:
        """Whether the grader counts a response as correct."""
        return bool(self.correct[row.key])


def main(
    pools: Annotated[Path, Option(help="Directory of the pools.")],
    math500: Annotated[Path, Option(help="MATH-500 as JSON lines with solutions.")],
    out: Annotated[Path, Option(help="Directory of the verdicts.")],
    python: Annotated[Path, Option(help="Python with the other graders.")] = Path(
        ".venv-harnesses/bin/python"
    ),
    sources: Annotated[Path, Option(help="Directory of the repositories.")] = Path("../sources"),
    grader: Annotated[list[str] | None, Option(help="Only these graders.")] = None,
    workers: Annotated[int, Option(help="Processes per grader.")] = 1,
    seconds: Annotated[float, Option(help="Time limit of an answer.")] = 20.0,
) -> None:
    """Grade the pools with all graders, and print the table."""
    rows = read_pools(pools, math500)
    out.mkdir(parents=True, exist_ok=True)
    names = grader or [*LOADERS]
    check_sources(sources, names)
    if names != [OWN_GRADER]:
        check_packages(python)
    with progress() as bar:
        for name in names:
            interpreter = sys.executable if name == OWN_GRADER else str(python)
            source = [str(sources / name)] if name in COMMITS else []
            command = [interpreter, str(WORKER), name, *source]
            grade_rows(command, rows_of(name, rows), verdict_file(out, name), workers, seconds, bar)
    print_table(rows, read_metrics(out, rows, names), read_lines(ADJUDICATED))


def check_sources(sources: Path, names: Sequence[str]) -> None:
    """Refuse repositories of these graders at another commit.

    Raises:
        SystemExit: if a repository is missing or at another commit.
    """
    for name, commit in COMMITS.items():
        if name not in names:
            continue
        command = ["git", "-C", str(sources / name), "rev-parse", "HEAD"]
        head = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if head != commit:
            raise SystemExit(f"{sources / name} is at {head or 'no commit'}. Check out {commit}.")


def check_packages(python: Path) -> None:
    """Refuse an environment whose packages have other versions.

    Raises:
        SystemExit: if a version differs from `harnesses-requirements.txt`.
    """
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    for package, version in required_versions():
        command = [str(python), "-c", code, package]
        installed = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if installed != version:
            raise SystemExit(f"{python} has {package} {installed or 'missing'}, not {version}.")


def required_versions() -> list[tuple[str, str]]:
    """Return the packages with a required version."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==") for line in lines if "==" in line]
    return [(package, version) for package, version in pinned]


def read_pools(pools: Path, math500: Path) -> list[PoolRow]:
    """Read the responses of all pools, with the golds of the benchmark for MATH-500."""
    problems = {problem["problem"]: problem for problem in read_lines(math500)}
    rows = []
    for pool in ("gsm8k", "math500"):
        for row in read_gzip(pools / pool / "candidates.jsonl.gz"):
            problem = problems[row["question"]] if pool == "math500" else {}
            rows.append(
                PoolRow(
                    key=f"{row['problem_id']}/{row['candidate_index']}",
                    pool=pool,
                    model="",
                    problem=row["problem_id"],
                    question=row["question"],
                    gold=problem.get("answer", row["gold"]),
                    solution=problem.get("solution", ""),
                    response=row["response"],
                    authors_correct=row["vendor_correct"],
                )
            )
    for file in sorted((pools / "prime").glob("*.jsonl.gz")):
        model = file.name.removesuffix("-gaokao2023en.jsonl.gz")
        for index, row in enumerate(read_gzip(file)):
            rows.append(
                PoolRow(
                    key=f"{model}/{index}",
                    pool="gaokao2023en",
                    model=model,
                    problem=f"gaokao2023en_{index:03}",
                    question=row["question"],
                    gold=row["gold"],
                    solution="",
                    response=row["response"],
                    authors_correct=row["vendor_correct"],
                )
            )
    # Golds of GaoKao 2023 en that are empty; no grader can grade their responses.
    return [row for row in rows if row.gold.strip()]


def read_gzip(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a compressed file."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def rows_of(name: str, rows: Sequence[PoolRow]) -> list[PoolRow]:
    """Return the rows that a grader grades."""
    pools = POOLS_OF.get(name, tuple(POOL_TITLES))
    return [row for row in rows if row.pool in pools]


def verdict_file(out: Path, name: str) -> Path:
    """Return the file of the verdicts of a grader."""
    return out / f"{name.replace(' ', '-').lower()}.jsonl"


class GraderProcess:
    """A process that grades one row at a time, with a time limit.

    Args:
        command: The command line of the worker.
        seconds: Time limit of a row.
    """

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def grade(self, row: PoolRow) -> dict[str, Any]:
        """Return the line of the verdict on a row; start the process if there is none."""
        process = self._process or self._start()
        line = {name: getattr(row, name) for name in ("pool", "question", "gold", "solution")}
        process.stdin.write(json.dumps(line | {"response": row.response}) + "\n")
        process.stdin.flush()
        reply, is_late = read_line(process, self._seconds)
        if reply:
            verdict: dict[str, Any] = json.loads(reply)
            return verdict
        self.close()
        failure = "timed out" if is_late else "the process ended"
        return {"correct": {}, "seconds": self._seconds if is_late else 0.0, "failure": failure}

    def _start(self) -> "subprocess.Popen[str]":
        """Start the process, and wait until its grader is loaded.

        Raises:
            SystemExit: if the process ends.
        """
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        if not read_line(self._process, START_SECONDS)[0]:
            raise SystemExit(f"The grader does not start: {' '.join(self._command)}")
        return self._process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError):  # of a line that the process did not read
                process.stdin.close()
            process.stdout.close()
            process.wait()


def read_line(process: "subprocess.Popen[str]", seconds: float) -> tuple[str, bool]:
    """Return a line of a process, and whether the process was killed because it was late."""
    late = threading.Event()

    def end_process() -> None:
        """Kill the process, which ends the wait for its line."""
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end_process)
    timer.start()
    line: str = process.stdout.readline()
    timer.cancel()
    return line, late.is_set()


def grade_rows(
    command: Sequence[str],
    rows: Sequence[PoolRow],
    file: Path,
    workers: int,
    seconds: float,
    bar: Progress,
) -> None:
    """Grade rows whose verdicts are not in a file, and append their verdicts."""
    with JsonlLog.open(file, lambda line: line["key"]) as log:
        missing = [row for row in rows if row.key not in log.line_spans]
        bar.phase(command[2], total=len(rows), done=len(rows) - len(missing))
        batch: dict[str, bytes] = {}
        with grade_in_processes(command, missing, workers, seconds) as verdicts:
            for key, verdict in verdicts:
                batch[key] = encode_line({"key": key} | verdict)
                if len(batch) == BATCH_ROWS:
                    log.append(batch)
                    batch = {}
                bar.advance(1)
        log.append(batch)


@contextmanager
def grade_in_processes(
    command: Sequence[str], rows: Sequence[PoolRow], workers: int, seconds: float
) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Yield the verdicts of several processes, in the order in which they are ready."""
    to_grade: queue.SimpleQueue[PoolRow] = queue.SimpleQueue()
    graded: queue.SimpleQueue[tuple[str, dict[str, Any]] | BaseException] = queue.SimpleQueue()
    for row in rows:
        to_grade.put(row)
    processes = [GraderProcess(command, seconds) for _ in range(workers)]

    def work(process: GraderProcess) -> None:
        """Grade rows until there are none."""
        try:
            while True:
                row = to_grade.get_nowait()
                graded.put((row.key, process.grade(row)))
        except queue.Empty:
            process.close()
        except BaseException as error:
            graded.put(error)

    def read_verdicts() -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield one verdict per row."""
        for _ in rows:
            verdict = graded.get()
            if isinstance(verdict, BaseException):
                raise verdict
            yield verdict

    for process in processes:
        threading.Thread(target=work, args=(process,), daemon=True).start()
    try:
        yield read_verdicts()
    finally:
        for process in processes:
            process.close()


def read_metrics(out: Path, rows: Sequence[PoolRow], names: Sequence[str]) -> list[MetricVerdicts]:
    """Read the verdicts of these graders and of the authors."""
    metrics = []
    for name in names:
        lines = read_verdicts(verdict_file(out, name))
        keys = [row.key for row in rows_of(name, rows)]
        suffixes = next(lines[key]["correct"] for key in keys if not lines[key]["failure"])
        for suffix in suffixes:
            metrics.append(
                MetricVerdicts(
                    name=f"{name}, {suffix}" if suffix else name,
                    correct={key: lines[key]["correct"].get(suffix, False) for key in keys},
                )
            )
    authors = MetricVerdicts(AUTHORS, {row.key: row.authors_correct for row in rows})
    return [*metrics, authors]


def read_verdicts(file: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of a file of verdicts, by key."""
    return {line["key"]: line for line in read_lines(file)}


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    with file.open(encoding="utf-8") as stream:
        return list(map(json.loads, stream))


def format_score(metric: MetricVerdicts, rows: Sequence[PoolRow]) -> str:
    """Return the score of a grader on a pool, with problems as the independent units, in percent.

    A grader of another task has a dash.
    """
    if not all(map(metric.has, rows)):
        return "–"
    score = mean_rate([metric.accepts(row) for row in rows], [row.problem for row in rows])
    assert score.value is not None and score.ci95 is not None  # there are rows
    low, high = score.ci95
    return f"{100 * score.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def adjudicated_counts(
    adjudicated: Sequence[Mapping[str, Any]], correct: Mapping[str, bool | None]
) -> tuple[int, int, int, int, int]:
    """Count the verdicts of a grader on adjudicated rows.

    Rows that the reader left open have ``equal`` None, and do not count.

    Returns:
        The rows, and the right, wrongly accepted, wrongly rejected and undecided verdicts.
    """
    verdicts = [
        (correct[row["response_id"]], row["equal"])
        for row in adjudicated
        if row["equal"] is not None and row["response_id"] in correct
    ]
    return (
        len(verdicts),
        sum(verdict is equal for verdict, equal in verdicts),
        verdicts.count((True, False)),
        verdicts.count((False, True)),
        sum(verdict is None for verdict, _ in verdicts),
    )


def print_table(
    rows: Sequence[PoolRow],
    metrics: Sequence[MetricVerdicts],
    adjudicated: Sequence[Mapping[str, Any]],
) -> None:
    """Print the scores of all graders, and their verdicts on adjudicated rows."""
    print(", ".join(f"{package} {version}" for package, version in required_versions()))
    for name, commit in COMMITS.items():
        print(f"{name} at commit {commit}")
    by_pool = {pool: [row for row in rows if row.pool == pool] for pool in POOL_TITLES}
    titles = "".join(f"{title:>20}" for title in POOL_TITLES.values())
    names = ("rows", "right", "wrongly accepted", "wrongly rejected", "undecided")
    print(f"{'score % [95 %]':<44}{titles}" + "".join(f"{name:>18}" for name in names))
    for metric in metrics:
        scores = "".join(f"{format_score(metric, by_pool[pool]):>20}" for pool in POOL_TITLES)
        counts = adjudicated_counts(adjudicated, metric.correct)
        print(f"{metric.name:<44}{scores}" + "".join(f"{count:>18}" for count in counts))


if __name__ == "__main__":
    typer.run(main)
