"""Grade responses with one grader, one at a time; `harnesses.py` starts this script.

    python benchmarks/grading/harness_worker.py GRADER [SOURCE]

The script reads one JSON row per line from stdin: `pool`, `question`, `gold`, `solution` and
`response`. It writes one JSON line per row: the verdicts by metric, the seconds, and the failure
if the grader raised. A verdict is true, false, or null for undecided. SOURCE is a checkout of the
repository of the grader. Each grader runs its own functions for extraction and comparison, with
the settings that its project uses.
"""

import ctypes
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  #: Option of prctl(2): the signal at the end of the parent.
MAX_MEMORY_BYTES = 6 << 30  #: Address space of the process; an answer may be 10^(10^10).

Row = Mapping[str, str]
#: A function that returns the verdicts on a row, by metric.
GradingFunction = Callable[[Row], dict[str, bool | None]]
#: Names of data sets in Qwen2.5-Math, by pool.
QWEN_DATA_NAMES = {"gsm8k": "gsm8k", "math500": "math", "gaokao2023en": "gaokao2023en"}


class Memory:
    """Results of a comparison by its arguments, with the time that repeated calls save.

    Many responses to a problem have the same answer. The seconds of a row contain the time of the
    first call with its arguments, so the cache changes no time.
    """

    saved_seconds = 0.0  #: Time that the results of earlier calls saved, of all instances.

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._results: dict[tuple[Any, ...], tuple[Any, float]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Return the result for arguments."""
        if arguments in self._results:
            result, seconds = self._results[arguments]
            Memory.saved_seconds += seconds
            return result
        start = time.perf_counter()
        result = self._function(*arguments)
        self._results[arguments] = (result, time.perf_counter() - start)
        return result


def load_fsdpo(source: Path) -> GradingFunction:
    """Return our grader, from the checkout with this script."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from fsdpo_data import grade

    decided = {"correct": True, "incorrect": False, "no_answer": False}
    return lambda row: {"": decided.get(grade(row["gold"], row["response"]).status)}


def load_math_verify(source: Path) -> GradingFunction:
    """Return Math-Verify with its default settings."""
    from math_verify import parse, verify

    @cache
    def parse_gold(gold: str) -> Any:
        """Parse a gold in a box, because a price among golds contains a dollar sign."""
        return parse(f"$\\boxed{{{gold}}}$")

    return lambda row: {"": bool(verify(parse_gold(row["gold"]), parse(row["response"])))}


def load_lm_eval_gsm8k(source: Path) -> GradingFunction:
    """Return the task `gsm8k` of lm-evaluation-harness, with its filters and its metric."""
    from datasets import Dataset
    from lm_eval.api.instance import Instance
    from lm_eval.api.task import ConfigurableTask

    data = Dataset.from_list([{"question": "1 + 1?", "answer": "#### 2"}])
    config = load_lm_eval_config("gsm8k/gsm8k.yaml")
    config["custom_dataset"] = lambda **settings: {"train": data, "test": data}
    task = ConfigurableTask(config=config)

    def grade(row: Row) -> dict[str, bool | None]:
        """Filter a response, and compute the metric for each filter."""
        doc = {"question": row["question"], "answer": f"#### {row['gold']}"}
        instance = Instance("generate_until", doc, ("", {}), 0)
        instance.resps = [row["response"]]
        task._instances = [instance]
        task.apply_filters()
        return {
            name: bool(task.process_results(doc, [answer])["exact_match"])
            for name, answer in instance.filtered_resps.items()
        }

    return grade


def load_lm_eval_minerva_math(source: Path) -> GradingFunction:
    """Return the task `minerva_math` of lm-evaluation-harness, with both metrics.

    `exact_match` needs the sentence "Final Answer: The final answer is …". The third verdict,
    `is_equiv of the box`, compares the last box of the response with the functions of the task.
    """
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    config = load_lm_eval_config("minerva_math/minerva_math500.yaml")

    @cache
    def read_problem(question: str, solution: str) -> dict[str, str]:
        """Return the row of a problem, as the task prepares it."""
        data = Dataset.from_list([{"problem": question, "solution": solution}])
        problem: dict[str, str] = config["process_docs"](data)[0]
        return problem

    functions = config["process_results"].__globals__
    functions["is_equiv"] = Memory(functions["is_equiv"])

    def is_box_equal(problem: Mapping[str, str], response: str) -> bool:
        """Compare the last box of a response with the gold."""
        box = functions["last_boxed_only_string"](response)
        if box is None:
            return False
        answer = functions["normalize_final_answer"](functions["remove_boxed"](box))
        return bool(functions["is_equiv"](answer, problem["answer"]))

    def grade(row: Row) -> dict[str, bool | None]:
        """Compute the metrics of a response."""
        solution = row["solution"] or f"The answer is $\\boxed{{{row['gold']}}}$."
        problem = read_problem(row["question"], solution)
        values = config["process_results"](problem, [row["response"]])
        verdicts: dict[str, bool | None] = {name: bool(value) for name, value in values.items()}
        return verdicts | {"is_equiv of the box": is_box_equal(problem, row["response"])}

    return grade


def load_lm_eval_config(path: str) -> dict[str, Any]:
    """Return the configuration of a task of lm-evaluation-harness."""
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    config: dict[str, Any] = load_yaml(Path(lm_eval.tasks.__file__).parent / path)
    return config


def load_nemo_skills(source: Path) -> GradingFunction:
    """Return the grader of NeMo-Skills, with the settings of its `MathEvaluatorConfig`."""
    sys.path.insert(0, str(source))
    from nemo_skills.evaluation.math_grader import extract_answer, math_equal

    def grade(row: Row) -> dict[str, bool | None]:
        """Extract the last box of a response, and compare its text with the gold."""
        answer = extract_answer(row["response"])
        return {"": bool(math_equal(row["gold"], answer, numeric_precision=15, timeout_seconds=10))}

    return grade


def load_qwen_math(source: Path) -> GradingFunction:
    """Return the grader of Qwen2.5-Math, with its reader of golds."""
    sys.path[:0] = [str(source / "evaluation"), str(source / "evaluation/latex2sympy")]
    from grader import math_equal
    from parser import parse_ground_truth, run_execute

    compare = Memory(math_equal)

    def grade(row: Row) -> dict[str, bool | None]:
        """Extract the answer of a response, and compare it with the gold."""
        data_name = QWEN_DATA_NAMES[row["pool"]]
        example = {
            "gsm8k": {"answer": f"#### {row['gold']}"},
            "math": {"solution": row["solution"]},
            "gaokao2023en": {"answer": row["gold"]},
        }[data_name]
        gold = parse_ground_truth(example, data_name)[1]
        answer, _ = run_execute(None, row["response"], "cot", data_name)
        return {"": compare(answer, gold)}

    return grade


#: Functions that load a grader from a checkout of its repository.
LOADERS: dict[str, Callable[[Path], GradingFunction]] = {
    "fsdpo": load_fsdpo,
    "lm-eval gsm8k": load_lm_eval_gsm8k,
    "lm-eval minerva_math": load_lm_eval_minerva_math,
    "Math-Verify": load_math_verify,
    "NeMo-Skills": load_nemo_skills,
    "Qwen2.5-Math": load_qwen_math,
}


def grade_row(grade: GradingFunction, row: Row) -> dict[str, Any]:
    """Grade a row, and return the line of its verdict."""
    start = time.perf_counter()
    saved_seconds = Memory.saved_seconds
    correct: dict[str, bool | None] = {}
    failure = ""
    try:
        correct = grade(row)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"[:200]
    seconds = time.perf_counter() - start + Memory.saved_seconds - saved_seconds
    return {"correct": correct, "seconds": seconds, "failure": failure}


def main() -> None:
    """Grade the rows of stdin."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # this process ends with its parent
    # Graders print; only verdicts go to the pipe.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    grade = LOADERS[sys.argv[1]](Path(sys.argv[2] if len(sys.argv) > 2 else "."))
    pipe.write(json.dumps({"ready": True}) + "\n")
    pipe.flush()
    for line in sys.stdin:
        pipe.write(json.dumps(grade_row(grade, json.loads(line))) + "\n")
        pipe.flush()


if __name__ == "__main__":
    main()
