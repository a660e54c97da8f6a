"""Import step scores with recorded outputs: positions of steps, checks, files of scores."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import quarantine_counts, read_sample_settings, reward_statistics_of
from made_runs import written
from recorded_imports import import_file, lines

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError
from fsdpo_data.stages.score import ScoreRecord

CHAT = "system\nYou are Qwen.\nuser\n2+2?\n\nThink.\nassistant\n"
CHAT_PARTS = CHAT.split("\n\n")
RESPONSE = "Let us see:\n\n1. Add: 2 + 2.\n\n2. The answer is 4.\n"
STEPS = ["Add: 2 + 2.", "The answer is 4."]


def candidate_row(**fields: Any) -> dict[str, Any]:
    """Return a row that lists its steps, without numbers and blank lines."""
    return {
        "problem_id": "p0",
        "candidate_index": 0,
        "question": "2+2?",
        "gold": "4",
        "response": RESPONSE,
        "steps": STEPS,
        "step_scores": [0.5, 0.25],
        **fields,
    }


def search_row(**fields: Any) -> dict[str, Any]:
    """Return a row of search-and-learn."""
    return {
        "problem": "2+2?",
        "answer": "4",
        "completions": ["2 + 2\n\nis 4.", "It is 5."],
        "scores": [[0.5, 0.75], [0.25]],
        **fields,
    }


def test_listed_steps_are_found_in_the_response(tmp_path: Path) -> None:
    """The steps join to the response, and the scores stay with their steps."""
    file = written(tmp_path / "theirs.jsonl", [candidate_row()])
    manifest, [row] = import_file(file, tmp_path / "out", prm_name="org/prm")
    assert row["completions"] == [
        "Let us see:\n\n1. Add: 2 + 2.\n\n",
        "2. The answer is 4.\n",
    ]
    assert row["step_rewards"] == [0.5, 0.25] and row["outcome"] == "correct"
    assert read_sample_settings(manifest).segmenter == "recorded"
    record = manifest.get("score", ScoreRecord)
    assert record.options.prm.name == "org/prm"
    rewards = reward_statistics_of(tmp_path / "out")
    assert (rewards.scored, rewards.unscored) == (1, 0)


@pytest.mark.parametrize(
    ("steps", "scores"),
    [
        ([CHAT + STEPS[0], STEPS[1]], [0.5, 0.25]),
        # A blank line in the question splits the prompt. Its first part is not a step.
        ([CHAT_PARTS[0], CHAT_PARTS[1] + STEPS[0], STEPS[1]], [0.9, 0.5, 0.25]),
    ],
)
def test_the_chat_prompt_in_the_first_steps_is_removed(
    tmp_path: Path, steps: list[str], scores: list[float]
) -> None:
    file = written(tmp_path / "theirs.jsonl", [candidate_row(steps=steps, step_scores=scores)])
    _, [row] = import_file(file, tmp_path / "out")
    assert "".join(row["completions"]) == RESPONSE and row["step_rewards"] == [0.5, 0.25]


def test_the_scores_of_a_file_are_joined_by_key(tmp_path: Path) -> None:
    """Other columns of the file and its order have no effect; a response without scores is put
    aside.
    """
    rows = [candidate_row(candidate_index=k, response=RESPONSE + "!" * k) for k in range(4)]
    file = tmp_path / "theirs.jsonl.gz"
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    scores = [
        {"problem_id": "p0", "candidate_index": k, "step_scores": [k / 4, 1]} for k in (2, 0, 1)
    ]
    score_file = written(tmp_path / "scores.jsonl", scores)
    manifest, imported = import_file(file, tmp_path / "out", scores=score_file)
    assert [row["step_rewards"][0] for row in imported] == [0, 0.25, 0.5]
    assert quarantine_counts(manifest) == {"no step scores": 1}
    for broken in (scores[0], {"step_scores": [1]}, {"problem_id": "p0", "candidate_index": 9}):
        with pytest.raises(InputError, match="row 4 has no step scores, or repeats"):
            import_file(file, tmp_path / "none", scores=written(score_file, [*scores, broken]))
    plain = written(tmp_path / "plain.jsonl", [{"question": "1?", "answer": "1", "response": "1"}])
    with pytest.raises(InputError, match="no key: the row has no fields that identify"):
        import_file(plain, tmp_path / "none", scores=score_file)


def test_a_file_of_scores_scores_each_response_once(tmp_path: Path) -> None:
    """Two files may use the same numbers for other problems."""
    other = candidate_row(question="3+3?", gold="6")
    file = written(tmp_path / "theirs.jsonl", [candidate_row(), other])
    scores = {"problem_id": "p0", "candidate_index": 0, "step_scores": [0.5, 1]}
    score_file = written(tmp_path / "scores.jsonl", [scores])
    _, [row] = import_file(file, tmp_path / "out", scores=score_file)
    assert row["question"] == "2+2?"
    [unusable] = lines(tmp_path / "out/quarantine.jsonl")
    assert (unusable["row"], "an earlier response has the same key" in unusable["reason"]) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    "mark",
    [
        "<|im_end|>\n",
        " ки",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
        "[END]",
        "\\end{proof}",
        " $\\blacksquare$",
        "<end_of_turn>\n<start_of_turn>model",
        "</s> USER:",
    ],
)
def test_a_mark_after_the_last_step_belongs_to_it(tmp_path: Path, mark: str) -> None:
    row = candidate_row(response=RESPONSE + mark)
    _, [imported] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert imported["completions"][-1] == "2. The answer is 4.\n" + mark


def test_words_after_the_last_step_belong_to_it_without_scores(tmp_path: Path) -> None:
    row = candidate_row(response=RESPONSE + "I hope this helps!", step_scores=None)
    _, [imported] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert imported["completions"][-1] == "2. The answer is 4.\nI hope this helps!"


def test_a_row_that_cannot_be_used_takes_no_scores(tmp_path: Path) -> None:
    rows = [candidate_row(steps=["Another step."]), candidate_row(gold=""), candidate_row()]
    scores = {"problem_id": "p0", "candidate_index": 0, "step_scores": [0.5, 1]}
    score_file = written(tmp_path / "scores.jsonl", [scores])
    file = written(tmp_path / "theirs.jsonl", rows)
    _, [row] = import_file(file, tmp_path / "out", scores=score_file)
    assert row["step_rewards"] == [0.5, 1]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"step_scores": [0.5]}, "number of step scores differs: 1 scores for 2 steps"),
        ({"step_scores": [0.5, 1e40]}, "step score that is not a finite number: 1e+40"),
        ({"step_scores": [0.5, None]}, "step score that is not a finite number: None"),
        ({"step_scores": [True, 0.5]}, "step score that is not a finite number: True"),
        ({"step_scores": "high"}, "step scores: 'high' is not a list of numbers"),
        ({"steps": [5, 6]}, "steps: '[5, 6]' is not a list of texts"),
        ({"steps": ["Add", "5?"]}, "a step is not in the response: step 2, '5?'"),
        ({"steps": [*STEPS[::-1]]}, "a step is not in the response: step 2, 'Add: 2 + 2.'"),
        ({"steps": [STEPS[0], " "]}, "a step is not in the response: step 2, ' '"),
        ({"steps": [], "step_scores": []}, "a response has no steps: expected at least one step"),
        (
            {"steps": STEPS[:1], "step_scores": [0.5]},
            "the response goes on after its last step: '2. The answer is 4.'",
        ),
        (
            {"steps": None, "step_scores": None},
            "some rows have steps: expected steps or step scores in all rows, or in none",
        ),
    ],
)
def test_unusable_scores_are_quarantined_with_their_row(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    rows = [
        candidate_row(),
        candidate_row(candidate_index=1, **fields),
        candidate_row(candidate_index=2),
    ]
    manifest, imported = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    [unusable] = lines(tmp_path / "out/quarantine.jsonl")
    assert len(imported) == 2
    assert (unusable["row"], unusable["reason"]) == (2, reason)
    assert quarantine_counts(manifest) == {reason.partition(":")[0]: 1}


def test_scores_may_have_any_size(tmp_path: Path) -> None:
    """Some reward models give logits."""
    scores = ([3.5, 2.0], [9.0, -4.0])
    rows = [
        candidate_row(candidate_index=k, step_scores=values, response=RESPONSE + "!" * k)
        for k, values in enumerate(scores)
    ]
    manifest, imported = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert [row["step_rewards"] for row in imported] == [[3.5, 2.0], [9.0, -4.0]]
    assert not manifest.rewards_are_probabilities
    assert manifest.reward_meaning == "value of any size"
    fd.open_dataset(tmp_path / "out").validate()


def test_search_and_learn(tmp_path: Path) -> None:
    """Blank lines separate the steps; a blank piece between or after them may have a score."""
    rows = [
        search_row(),
        search_row(
            problem="3+3?", completions=["6\n\n", "It\n\n\n\nis 6"], scores=[[0.5, 1], [0, 1]]
        ),
        search_row(problem="4+4?", scores=[[0.5], [0.25]]),
        search_row(
            problem="5+5?",
            completions=["10", "It\n\n\n\nis 10"],
            scores=[[0.5], [0.875, 0.125, 0.375]],
        ),
    ]
    manifest, imported = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert [(row["completions"], row["step_rewards"]) for row in imported] == [
        (["2 + 2\n\n", "is 4."], [0.5, 0.75]),
        (["It is 5."], [0.25]),
        (["6\n\n"], [0.5]),
        (["It\n\n\n\n", "is 6"], [0, 1]),
        (["It is 5."], [0.25]),
        (["10"], [0.5]),
        (["It\n\n\n\n", "is 10"], [0.875, 0.375]),
    ]
    [unusable] = lines(tmp_path / "out/quarantine.jsonl")
    assert unusable["row"] == 3 and unusable["reason"].endswith(
        "differs: 1 scores for 2 steps (sample 0)"
    )
    assert read_sample_settings(manifest).sampling.n == 2


def test_the_score_of_a_response_is_not_a_step_score(tmp_path: Path) -> None:
    file = written(tmp_path / "theirs.jsonl", [search_row(scores=[0.5, 0.25])])
    manifest, imported = import_file(file, tmp_path / "out")
    assert len(imported) == 2 and not manifest.is_written("step_rewards")
    assert read_sample_settings(manifest).segmenter == "auto@1"


def test_one_list_of_scores_for_several_responses_is_refused(tmp_path: Path) -> None:
    row = {"question": "2+2?", "answer": "4", "responses": ["4", "5"]}
    rows = [{**row, "step_scores": scores} for scores in ([0.5, 0.25], [[0.5], [0.25]])]
    file = written(tmp_path / "rows.jsonl", rows)
    manifest, imported = import_file(file, tmp_path / "out", prm_name="org/prm")
    assert [row["step_rewards"] for row in imported] == [[0.5], [0.25]]
    assert quarantine_counts(manifest) == {"step scores": 2}
    [first, _] = lines(tmp_path / "out/quarantine.jsonl")
    assert "0.5 is one number; expected a list of numbers for each response" in first["reason"]


def test_a_reward_model_without_step_scores_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "theirs.jsonl", [search_row(scores=[0.5, 0.25])])
    with pytest.raises(InputError, match="no response has step scores"):
        import_file(file, tmp_path / "out", prm_name="org/prm")


def test_a_csv_file_has_lists_as_json(tmp_path: Path) -> None:
    row = {
        "question": "2+2?",
        "answer": "4",
        "responses": ["It is\n4.", "5."],
        "step_scores": [[0.5], [0.25]],
        "correct": [True, False],
    }
    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(row)
        texts = [v if isinstance(v, str) else json.dumps(v) for v in row.values()]
        writer.writerow(texts)
        writer.writerow([*texts[:2], "['4', '5']", *texts[3:]])
    manifest, imported = import_file(file, tmp_path / "out", segmenter="blank-line")
    columns = ("completions", "step_rewards", "imported_correct")
    values = [tuple(row[name] for name in columns) for row in imported]
    assert values == [(["It is\n4."], [0.5], True), (["5."], [0.25], False)]
    assert quarantine_counts(manifest) == {"a list is not JSON": 1}


def test_fields_are_named(tmp_path: Path) -> None:
    row = {"question": "2+2?", "answer": "4", "response": RESPONSE, "parts": STEPS, "p": [1, 0]}
    file = written(tmp_path / "theirs.jsonl", [row])
    _, [imported] = import_file(file, tmp_path / "a", steps_field="parts", scores_field="p")
    assert imported["step_rewards"] == [1, 0] and len(imported["completions"]) == 2
    # Without listed steps, the segmenter splits the response, and must give as many steps.
    with pytest.raises(InputError, match="First problem: number of step scores differs: 2 scores"):
        import_file(file, tmp_path / "b", scores_field="p")
    manifest, [imported] = import_file(
        file, tmp_path / "c", steps_field="parts", segmenter="newline"
    )
    assert (
        imported["step_rewards"] is None and read_sample_settings(manifest).segmenter == "newline@1"
    )
    assert len(imported["completions"]) == 3


def test_imported_scores_make_pairs(tmp_path: Path) -> None:
    """Stages read imported rewards as they read rewards of ``score``."""
    rows = [
        candidate_row(),
        candidate_row(
            candidate_index=1,
            response=RESPONSE.replace("4", "5"),
            steps=[STEPS[0], "The answer is 5."],
            step_scores=[0.25, 0],
        ),
    ]
    import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    data = fd.open_dataset(tmp_path / "out")
    pairs = data.pair(out=tmp_path / "pairs")
    [pair] = pl.read_parquet(pairs.path / "pairs/*.parquet").to_dicts()
    assert (pair["chosen_rewards"], pair["rejected_rewards"]) == ([0.5, 0.25], [0.25, 0])
