"""Mappers of rows, as Ray Data calls them: a table in, a table out."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from random_model import save_random_prm

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError
from fsdpo_data.integrations import AnswerGrader, RowMapper, SolutionSampler, StepScorer
from fsdpo_data.models.resolve import resolve

PROBLEMS = pa.table({"question": ["2+2?", "3+4?"], "answer": ["4", "7"], "level": [1, None]})


def test_a_table_passes_through_all_mappers(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "prm", Path(resolve("tiny").path))
    sampling = fd.SamplingSpec(n=2, max_tokens=24)
    mappers: list[RowMapper] = [
        SolutionSampler("tiny", sampling, device="cpu"),
        AnswerGrader(),
        StepScorer(str(prm), device="cpu"),
    ]
    table, no_rows = PROBLEMS, PROBLEMS.slice(0, 0)
    for mapper in mappers:
        table, no_rows = mapper(table), pickle.loads(pickle.dumps(mapper))(no_rows)
        assert table.schema == no_rows.schema
        assert set(mapper.new_columns) <= set(table.column_names)
        mapper.close()
    assert table["question"].to_pylist() == ["2+2?", "2+2?", "3+4?", "3+4?"]
    assert table["level"].to_pylist() == [1, 1, None, None]
    template = fd.load_template("tiny")
    assert template.render("2+2?") == table["prompt"][0].as_py()
    prompts = [template.render(question) for question in ("2+2?", "3+4?")]
    spec = fd.SamplingSpec(n=2, max_tokens=24, stop=template.stop)
    samples = fd.load_sampler("tiny", device="cpu").sample(prompts, spec)
    assert table["response"].to_pylist() == [
        completion.text for completions in samples for completion in completions
    ]
    for row in table.to_pylist():
        assert "".join(row["steps"]) == row["response"]
        assert len(row["step_rewards"]) == len(row["steps"])


@pytest.mark.parametrize(
    ("response", "finish_reason", "outcome"),
    [
        ("I take 3. So it is 4.", "stop", "correct"),
        ("I take 3. So it is 4.", "length", "no_answer"),  # the rest is missing
        ("<think>It is 4.", "stop", "no_answer"),
    ],
)
def test_the_grader_reads_what_a_build_reads(
    response: str, finish_reason: str, outcome: str
) -> None:
    row = {"answer": "4", "response": response, "prompt": "2+2?", "finish_reason": finish_reason}
    (graded,) = AnswerGrader().map_rows([row])
    assert graded["outcome"] == outcome
    assert {**graded, **row} == graded


def test_a_prompt_may_open_the_thinking() -> None:
    response = "Perhaps 5.</think>It is 4."
    verdict = fd.grade("4", response, prompt="2+2?<think>\n")
    assert (verdict.status, verdict.answer) == ("correct", "4")


def test_a_template_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="template"):
        fd.load_template("tiny", "no-such-template")
