"""Tests of imports: step labels become training rows, or are quarantined with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import real_tokenizers
from paired_data import paired_dataset
from recorded_imports import import_label_rows
from step_label_rows import APS, MADE_UP, YES, dialogue, tree

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.exchange.export import export
from fsdpo_data.exchange.formats import get_step_label_format, step_label_formats
from fsdpo_data.exchange.importing import quarantine_path
from fsdpo_data.exchange.row_import import ImportResult
from fsdpo_data.exchange.step_label_rows import read_prm800k


def run_import(source: Path, name: str, out: Path) -> tuple[ImportResult, list[dict[str, Any]]]:
    result = import_label_rows(source, name, out)
    return result, lines(out)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["trl-stepwise", "math-shepherd", "prm800k", "processbench"])
def test_what_is_exported_comes_back(tmp_path: Path, name: str) -> None:
    dataset = paired_dataset(tmp_path)
    file = export(dataset, name, tmp_path / "export").file
    result, rows = run_import(file, name, tmp_path / "rows.jsonl")
    solutions = pl.read_parquet(dataset / "solutions/*.parquet").to_dicts()
    assert result.n_rows == result.n_solutions == len(solutions) and not result.quarantined
    for row, solution in zip(rows, solutions, strict=True):
        # ProcessBench says nothing of the steps after the first wrong one.
        n_labels = 1 if name == "processbench" and not solution["labels"][0] else 2
        assert row["labels"] == solution["labels"][:n_labels]
        assert row["prompt"] == solution["prompt"]
        steps = [step.strip() for step in row["completions"]]
        assert steps == [step.strip() for step in solution["completions"][:n_labels]]


def prm800k_row(chain: list[tuple[str, int, list[str]]], finish_reason: str) -> dict[str, Any]:
    """Return a row with a chain of (step, rating, other right steps)."""
    steps = [
        {
            "completions": [
                {"text": step, "rating": rating},
                *({"text": other, "rating": 1} for other in other_steps),
            ],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for step, rating, other_steps in chain
    ]
    question = {"problem": "q", "ground_truth_answer": "7"}
    return {"question": question, "label": {"steps": steps, "finish_reason": finish_reason}}


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        pytest.param(
            "processbench",
            {"problem": "q", "steps": ["a.", "b.", "c."], "label": 1},
            [["a.\n\n", "b.\n\n"]],
            id="cut after the error",
        ),
        pytest.param(
            "processbench",
            {"problem": "q", "steps": ["a.", "b.", "c."], "label": 2},
            [["a.\n\n", "b.\n\n", "c."]],
            id="error in the last step",
        ),
        pytest.param(
            "processbench",
            {"problem": "q", "steps": ["a.", "b."], "label": -1},
            [["a.\n\n", "b."]],
            id="no error",
        ),
        pytest.param(
            "prm800k",
            prm800k_row([("a.", 1, ["x."]), ("b.", -1, [])], "found_error"),
            [["x.\n"], ["a.\n", "b.\n"]],
            id="PRM800K with an error",
        ),
        pytest.param(
            "prm800k",
            prm800k_row([("a.", 1, []), ("b.\n\n# Answer\n\n7", -1, [])], "found_error"),
            [["a.\n", "b.\n\n# Answer\n\n7"]],
            id="PRM800K with a wrong answer",
        ),
        pytest.param(
            "versaprm",
            {
                "question": "q",
                "chain_of_thoughts": [
                    {
                        "steps": ["a.", "b.", "c."],
                        "labels": [1, -1, -1],
                        "augs": [{"aug_idx": 1, "aug_step": "d.", "aug_type": 1}],
                    }
                ],
            },
            [["a.\n", "b.\n"], ["a.\n", "d.\n"]],
            id="VersaPRM",
        ),
    ],
)
def test_a_cut_solution_ends_like_any_step(
    tmp_path: Path, name: str, row: dict[str, Any], expected: list[list[str]]
) -> None:
    # Otherwise the missing separator would tell a reward model where the first error is.
    _, rows = run_import(write(tmp_path / "source.jsonl", row), name, tmp_path / "rows.jsonl")
    assert [row["completions"] for row in rows] == expected


@pytest.mark.parametrize("tokenizer_name", ["qwen2", "llama3", "mistral"])
def test_cut_solutions_are_scored_at_the_tokens_of_complete_ones(
    shared: Path, tmp_path: Path, tokenizer_name: str
) -> None:
    pytest.importorskip("torch")
    from fsdpo_data.engines.step_tokens import StepTokenizer

    tokenizer = real_tokenizers.load(shared / "tokenizers" / tokenizer_name)
    source = shared / "data/stepwise/processbench/gsm8k.json"
    _, rows = run_import(source, "processbench", tmp_path / "rows.jsonl")
    encoder = StepTokenizer(tokenizer)
    n_cut = 0
    for row, fields in zip(rows, json.loads(source.read_text()), strict=True):
        *first_steps, last_step = (step.strip() for step in fields["steps"])
        steps = [*(step + "\n\n" for step in first_steps), last_step]
        complete_solution = encoder.encode(Prompt(""), steps, add_eos=False)
        cut = encoder.encode(Prompt(""), row["completions"], add_eos=False)
        n_steps = len(cut.score_positions)
        assert cut.score_positions == complete_solution.score_positions[:n_steps]
        n_tokens = len(cut.input_ids)
        assert cut.input_ids.tolist() == complete_solution.input_ids[:n_tokens].tolist()
        n_cut += n_steps < len(fields["steps"])
    assert n_cut > 100


def test_math_shepherd_as_published(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/openr/samples_math-shepherd.jsonl"
    result, rows = run_import(source, "math-shepherd", tmp_path / "rows.jsonl")
    assert result.n_rows == result.n_solutions == 7
    first = rows[0]
    assert first["problem"].endswith("than clarinet lessons in a year?")
    assert first["completions"][0].startswith("Step 1: Janet spends 3 hours + 5 hours")
    assert first["completions"][-1].endswith("The answer is: 13520")
    assert not any("ки" in step for row in rows for step in row["completions"])
    tags = [row["input"].count("ки") for row in lines(source)]
    assert [len(row["labels"]) for row in rows] == tags
    assert not any(row["labels"][-1] for row in rows)  # all seven end wrong


def has_rating(step: dict[str, Any]) -> bool:
    return any(completion["rating"] is not None for completion in step["completions"] or [])


def test_prm800k_as_published(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/openr/samples_prm800k.jsonl"
    result, rows = run_import(source, "prm800k", tmp_path / "rows.jsonl")
    assert result.n_rows == 6 and not result.quarantined
    published = lines(source)
    rated = sum(
        completion["rating"] is not None
        for row in published
        for step in row["label"]["steps"]
        for completion in step["completions"] or []
    )
    followed = sum(
        step["chosen_completion"] is not None for row in published for step in row["label"]["steps"]
    )
    ends = sum(
        row["label"]["steps"][-1]["chosen_completion"] is not None
        or row["label"]["steps"][-1]["human_completion"] is not None
        or not has_rating(row["label"]["steps"][-1])  # the rater gave up
        for row in published
    )
    assert result.n_solutions == rated - followed + ends
    assert {rating for row in rows for rating in row["ratings"]} == {-1, 0, 1}
    assert all(
        label == (rating >= 0)
        for row in rows
        for label, rating in zip(row["labels"], row["ratings"], strict=True)
    )
    assert rows[0]["completions"][0].startswith("Let's call the price of a pencil p")
    assert rows[0]["answer"] == "29"


def prm800k_step(*ratings: int | None, chosen: int | None = 0) -> dict[str, Any]:
    completions = [{"text": f"step {rating}", "rating": rating} for rating in ratings]
    return {"completions": completions, "chosen_completion": chosen, "human_completion": None}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (prm800k_step(None), [[1, 0]]),
        (prm800k_step(None, -1), [[1, 0, -1]]),
        (prm800k_step(-1, chosen=None), [[1, 0, -1]]),
        (prm800k_step(None, chosen=None), [[1, 0]]),
        (prm800k_step(1, -1), [[1, 0, -1], [1, 0, 1]]),
    ],
)
def test_rated_steps_before_an_unrated_one_count(
    tmp_path: Path, last: dict[str, Any], expected: list[list[int]]
) -> None:
    row = {
        "question": {"problem": "1 + 1?", "ground_truth_answer": "2"},
        "label": {"steps": [prm800k_step(1), prm800k_step(0), last]},
    }
    file = tmp_path / "prm800k.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    result, rows = run_import(file, "prm800k", tmp_path / "rows.jsonl")
    assert not result.quarantined and [row["ratings"] for row in rows] == expected


@pytest.mark.parametrize(("file", "count"), [("gsm8k", 400), ("math", 1000)])
def test_processbench_as_published(shared: Path, tmp_path: Path, file: str, count: int) -> None:
    source = shared / f"data/stepwise/processbench/{file}.json"
    result, rows = run_import(source, "processbench", tmp_path / "rows.jsonl")
    assert result.n_rows == result.n_solutions == count
    published = json.loads(source.read_text(encoding="utf-8"))
    for row, published_row in zip(rows, published, strict=True):
        first = row["labels"].index(False) if False in row["labels"] else -1
        assert first == published_row["label"]


def test_step_dpo_exports_come_back_to_the_step_that_differs(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    file = export(dataset, "step-dpo-10k", tmp_path / "export").file
    result, rows = run_import(file, "step-dpo-10k", tmp_path / "rows.jsonl")
    pairs = pl.read_parquet(dataset / "pairs/*.parquet").to_dicts()
    assert result.n_solutions == 2 * result.n_rows == 2 * len(pairs)
    for pair, chosen, rejected in zip(pairs, rows[::2], rows[1::2], strict=True):
        assert chosen["prompt"] == rejected["prompt"] == pair["prompt"]
        assert chosen["completions"] == [pair["chosen_steps"][0].rstrip()]
        assert rejected["completions"] == [pair["rejected_steps"][0].rstrip()]
        assert (chosen["labels"], rejected["labels"]) == ([True], [False])


@pytest.mark.parametrize(
    ("initial", "steps"),
    [
        ("Let's think step by step. \nStep 1:", ["Let's think step by step. \nStep 1: x"]),
        ("Let's think step by step. Step 1:", ["Let's think step by step. Step 1: x"]),
        ("Hm.\nStep 1: a\nb\nStep 2:", ["Hm.\nStep 1: a\nb\n", "Step 2: x"]),
        ("Step 1: a\n", ["Step 1: a\n", " x"]),
        ("", [" x"]),
        ("\n", ["\n x"]),
        ("Step 1: a \nStep 2:", ["Step 1: a \n", "Step 2: x"]),
    ],
)
def test_step_dpo_prefixes_as_published(tmp_path: Path, initial: str, steps: list[str]) -> None:
    """Read all formats of the shared prefix unchanged; ignore the texts after the step."""
    row = {"dataset": "MATH_Rephrased", "prompt": "q", "initial_reason_steps": initial,
           "chosen": " x", "rejected": " y ", "full_chosen": " x\nz", "full_rejected": " y",
           "answer": "1"}  # fmt: skip
    source = write(tmp_path / "source.jsonl", row, {**row, "rejected": " \n"})
    result, (right, wrong) = run_import(source, "step-dpo-10k", tmp_path / "rows.jsonl")
    assert right["completions"] == steps
    assert wrong["completions"] == [*steps[:-1], steps[-1].replace("x", "y ")]
    assert right["labels"] == [True] * len(steps)
    assert wrong["labels"] == [*right["labels"][:-1], False]
    assert right["problem"] == "q" and right["answer"] == "1"
    assert [quarantined_row.reason for quarantined_row in result.quarantined] == [
        "rejected is empty"
    ]


def test_step_dpo_texts_as_published(shared: Path, tmp_path: Path) -> None:
    """The published sample has no prefixes. With the shortest prefix, each text is one step."""
    rows = lines(shared / "data/train/math_step_dpo_10k/sample_10_rows_3_fields.jsonl")
    initial = {"initial_reason_steps": "Let's think step by step. \nStep 1:", "answer": "?"}
    source = write(tmp_path / "source.jsonl", *({**row, **initial} for row in rows))
    result, imported_rows = run_import(source, "step-dpo-10k", tmp_path / "rows.jsonl")
    assert result.n_solutions == 20 and result.steps == {True: 10, False: 10}
    for row, right, wrong in zip(rows, imported_rows[::2], imported_rows[1::2], strict=True):
        for side, solution in (("chosen", right), ("rejected", wrong)):
            assert solution["completions"] == [initial["initial_reason_steps"] + row[side]]


def test_trl_rows_stay_as_they_are(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/trl/zen_standard_stepwise_supervision.jsonl"
    result, rows = run_import(source, "trl-stepwise", tmp_path / "rows.jsonl")
    assert rows == lines(source)
    assert result.n_solutions == 19


def test_trl_rows_may_say_how_sure_a_label_is(tmp_path: Path) -> None:
    row = {"prompt": "p", "completions": ["a", "b"], "labels": [0.625, False]}
    result, rows = run_import(
        write(tmp_path / "s.jsonl", row), "trl-stepwise", tmp_path / "r.jsonl"
    )
    assert rows == [row] and result.steps == {True: 1, False: 1}


def test_unreadable_rows_are_quarantined(tmp_path: Path) -> None:
    good = {"input": "q Step 1: 1 + 1 ки", "label": "q Step 1: 1 + 1 +", "task": "t"}
    bad = [
        {**good, "label": "q Step 1: 1 + 2 +"},
        {**good, "label": "q Step 1: 1 + 1 ?"},
        {**good, "input": "q 1 ки", "label": "q 1 +"},
        {**good, "input": good["input"] + " more", "label": good["label"] + " more"},
        {"input": 5, "label": ""},
        {"text": "x"},
        ["no", "object"],
    ]
    source = write(tmp_path / "source.jsonl", good, *bad)
    out = tmp_path / "rows.jsonl"
    result, rows = run_import(source, "math-shepherd", out)
    assert len(rows) == 1 and rows[0]["labels"] == [True]
    aside = lines(quarantine_path(out))
    assert [row["row"] for row in aside] == [2, 3, 4, 5, 6, 7, 8]
    assert [row["reason"] for row in aside[:4]] == [
        "`input` and `label` have different texts",
        "`input` and `label` have different texts",
        'expected one "Step 1:" after the problem, found none',
        "there is text after the last step tag",
    ]
    assert result.n_rows == 8


def test_an_interrupted_import_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"prompt": "p", "completions": ["a"], "labels": [True]}
    source, out = write(tmp_path / "source.jsonl", good, {}), tmp_path / "rows.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr("fsdpo_data.exchange.importing.write_atomic", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            import_label_rows(source, "trl-stepwise", out)
    assert not out.exists()
    assert run_import(source, "trl-stepwise", out)[1] and quarantine_path(out).exists()


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        (
            "trl-stepwise",
            {"prompt": "p", "completions": ["a"], "labels": []},
            "1 steps and 0",
        ),
        ("trl-stepwise", {"prompt": "p", "completions": ["a"], "labels": [1.7]}, "label 1.7"),
        ("processbench", {"problem": "p", "steps": ["a"], "label": 1}, "label 1 of 1 steps"),
        (
            "processbench",
            {"problem": "p", "steps": ["a"], "label": -1, "final_answer_correct": False},
            "the label has no wrong step, but the final answer is wrong",
        ),
        (
            "processbench",
            {"problem": "p", "steps": ["a"], "label": -1, "final_answer_correct": "partly"},
            "final_answer_correct 'partly', expected true or false",
        ),
        (
            "rlhflow",
            {"conversations": [{"role": "system", "content": "Be brief."}]},
            "a turn of 'system', expected user and assistant",
        ),
        ("prm800k", {"question": {}, "label": {"steps": []}}, "the field 'problem' is missing"),
        ("processbench", {"problem": ["p"], "steps": ["a"], "label": -1}, "expected a text"),
        ("trl-stepwise", {"prompt": "p", "completions": ["\ud800"], "labels": [1]}, "surrogate"),
    ],
)
def test_a_file_with_nothing_of_the_form(
    tmp_path: Path, name: str, row: dict[str, Any], reason: str
) -> None:
    source = write(tmp_path / "source.jsonl", row)
    with pytest.raises(InputError, match=f"none of its 1 rows has the format {name}.*{reason}"):
        import_label_rows(source, name, tmp_path / "rows.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]


def test_refusals(tmp_path: Path) -> None:
    source = write(tmp_path / "source.jsonl", {})
    with pytest.raises(InputError, match=r"expected a new file ending in \.jsonl"):
        import_label_rows(source, "prm800k", source)


def rated_row(*ratings: Any) -> dict[str, Any]:
    steps = [
        {
            "completions": [{"text": "a", "rating": rating}],
            "chosen_completion": 0,
            "human_completion": None,
        }
        for rating in ratings
    ]
    return {"question": {"problem": "q"}, "label": {"steps": steps}}


def chain(label: Any) -> dict[str, Any]:
    return {"question": "q", "chain_of_thoughts": [{"steps": ["a"], "labels": [label]}]}


@pytest.mark.parametrize(("name", "row", "expected"), MADE_UP)
def test_forms_of_others(
    tmp_path: Path, name: str, row: dict[str, Any], expected: list[tuple[str, list[str], list[Any]]]
) -> None:
    result, rows = run_import(write(tmp_path / "source.jsonl", row), name, tmp_path / "rows.jsonl")
    assert not result.quarantined
    for row_out, (problem, steps, labels) in zip(rows, expected, strict=True):
        assert row_out["problem"].strip() == problem
        assert [step.rstrip("\n") for step in row_out["completions"]] == steps
        assert row_out["labels"] == labels


def test_every_form_has_a_row_of_its_own() -> None:
    native = {"trl-stepwise", "math-shepherd", "prm800k", "processbench", "step-dpo-10k"}
    assert {name for name, _, _ in MADE_UP} == step_label_formats().keys() - native


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("rlhflow", dialogue("q", "+", "a"), "2 turns of the user and 1 of the assistant"),
        ("rlhflow", dialogue("q", "yes"), "label 'yes', expected"),
        ("rlhflow", dialogue("a whole solution", "+"), "0 steps and 0 labels"),
        ("openr", {"question": "q", "process": "a b", "labels": [1]}, "has no step tag"),
        (
            "openr",
            {"question": "q", "process": "a ки b", "labels": [1]},
            "text after the last step tag",
        ),
        ("openr", {"question": "q", "process": "a ки", "labels": [-1]}, "label -1, expected"),
        (
            "openr",
            {"question": "q", "process": "a ки"},
            "does not have the format openr: the field 'labels' is missing",
        ),
        ("er-prm", {"text": "q: a ки", "value": [1]}, 'expected one "Step 1:" .* found none'),
        (
            "er-prm",
            {"text": "Do Step 1: x. Step 1: a ки", "value": [1]},
            'expected one "Step 1:" .* found 2',
        ),
        (
            "prmbench",
            {"modified_question": "q", "modified_process": ["a"], "error_steps": [2]},
            r"error_steps \[2\] of 1 steps",
        ),
        (
            "versaprm",
            {"question": "q", "chain_of_thoughts": [{"steps": ["a"], "labels": [None]}]},
            "no chain with a label for each step",
        ),
        ("genprm", dialogue("Question: q\n\na", ""), "0 steps and 0 labels"),
        (
            "thinkprm",
            {"problem": "q", "prefix": "a\nb", "traj_gt_labels": ["+"]},
            "2 steps and 1 labels",
        ),
        (
            "thinkprm",
            {"problem": "q", "prefix": "a\nb", "traj_gt_labels": ["+", "-", "+"]},
            "2 steps and 3 labels",
        ),
        (
            "thinkprm",
            {"problem": "q", "prefix": "a\nb\nc\nd", "traj_gt_labels": ["-", "+"]},
            "4 steps and 2 labels",
        ),
        (
            "math-aps",
            {**APS, "reasoning_steps": [{"solution_prefix": "other", "mc_value": 1}]},
            "does not have the format math-aps",
        ),
        ("math-aps", {**APS, "reasoning_steps": tree("q", 1)}, "no step in the row has a label"),
        ("processbench", {"problem": "q", "steps": '["a", "b"]', "label": -1}, "are one text"),
        ("processbench", {"problem": "q", "steps": ["a", "b"], "label": 0.5}, "label 0.5 of 2"),
        ("processbench", {"problem": "q", "steps": ["a", "\n"], "label": -1}, "a step is blank"),
        ("trl-stepwise", {"prompt": "q", "completions": "ab", "labels": [1, 0]}, "are one text"),
        ("trl-stepwise", {"prompt": "q", "completions": ["a", ""], "labels": [1, 0]}, "is blank"),
        ("genprm", dialogue("Question: q", YES), "the problem or a step is blank"),
        ("prm800k", rated_row(float("nan")), "rating nan, expected -1, 0 or 1"),
        ("prm800k", rated_row(2), "rating 2, expected"),
        ("versaprm", chain("1"), "rating '1', expected"),
        ("versaprm", chain(0.9), "rating 0.9, expected"),
        (
            "prmbench",
            {"modified_question": "q", "modified_process": ["a", "b"], "error_steps": [1.5]},
            r"error_steps \[1.5\] of 2 steps",
        ),
    ],
)
def test_reasons_of_invalid_rows(
    tmp_path: Path, name: str, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        run_import(write(tmp_path / "source.jsonl", row), name, tmp_path / "rows.jsonl")


def test_published_step_labels(shared: Path, tmp_path: Path) -> None:
    """Compare the numbers of rows, solutions, right steps, wrong steps and quarantined rows."""
    counts = {
        "rlhflow stepwise/rlhflow/readme_conversations": (2, 1, 6, 0, 1),
        "openr newer/stepwise/openr_prm_trainer": (1, 1, 3, 1, 0),
        "math-aps stepwise/openr/samples_math-aps": (3, 124, 228, 62, 0),
        "math-aps stepwise/openr/samples_math-aps-tree": (3, 242, 597, 27, 0),
        "versaprm newer/stepwise/versaprm_train_form": (11, 44, 249, 23, 0),
        "prmbench newer/stepwise/prmbench": (45, 43, 404, 91, 2),
        "er-prm newer/stepwise/erprm_soft": (1, 1, 5, 0, 0),
    }
    for source_name, expected in counts.items():
        name, _, path = source_name.partition(" ")
        out = tmp_path / f"{path.rpartition('/')[2]}.jsonl"
        result, rows = run_import(shared / f"data/{path}.jsonl", name, out)
        steps = (result.steps[True], result.steps[False])
        assert (result.n_rows, len(rows), *steps, len(result.quarantined)) == expected, source_name


@pytest.mark.parametrize("is_flat", [False, True])
def test_pieces_of_math_aps_join_inside_sentences(tmp_path: Path, is_flat: bool) -> None:
    pieces = ["We get 2 +", " 3 = 5.", "\n\n So it is 5."]
    steps: Any = tree("q", 1, tree(pieces[0], 1, tree(pieces[1], 1, tree(pieces[2], 1))))
    if is_flat:
        ends = [0, 1, 2, 3]
        texts = ["q" + "\n\n" * bool(end) + "".join(pieces[:end]) for end in ends]
        steps = [{"solution_prefix": text, "mc_value": 1} for text in texts]
    source = write(tmp_path / "source.jsonl", {**APS, "question": "q", "reasoning_steps": steps})
    _, [row] = run_import(source, "math-aps", tmp_path / "rows.jsonl")
    assert row["completions"] == pieces


@pytest.mark.parametrize("number", ["12", "1.5", "1,000", "1x", "1st"])
def test_a_prefix_that_ends_inside_a_number_is_a_solution_of_its_own(
    tmp_path: Path, number: str
) -> None:
    texts = {"The answer is 1": 0.0, f"The answer is {number}": 1.0}
    steps = [
        {"solution_prefix": f"What is 2 plus 2{text}", "mc_value": value}
        for text, value in texts.items()
    ]
    row = {**APS, "question": "What is 2 plus 2", "reasoning_steps": steps}
    source = write(tmp_path / "source.jsonl", row)
    _, rows = run_import(source, "math-aps", tmp_path / "rows.jsonl")
    assert {row["completions"][0]: row["labels"] for row in rows} == {
        text: [value] for text, value in texts.items()
    }


def test_every_leaf_of_a_published_tree_is_a_solution(shared: Path, tmp_path: Path) -> None:
    """In the flat format, a leaf is a prefix that no other prefix extends."""
    flat = lines(shared / "data/stepwise/openr/samples_math-aps.jsonl")
    texts = [
        {prefix["solution_prefix"].strip() for prefix in row["reasoning_steps"]} for row in flat
    ]
    ends = [text for row in texts for text in row if sum(o.startswith(text) for o in row) == 1]
    assert len(ends) == 124
    source = shared / "data/stepwise/openr/samples_math-aps-tree.jsonl"
    _, rows = run_import(source, "math-aps", tmp_path / "rows.jsonl")

    def leaves(node: dict[str, Any]) -> int:
        return sum(map(leaves, node["children"])) if node["children"] else 1

    assert len(rows) == sum(leaves(row["reasoning_steps"]) for row in lines(source))


def test_a_published_critique(shared: Path, tmp_path: Path) -> None:
    """The published rows are prompts; the first row and its response form a dialogue."""
    row = lines(shared / "data/newer/stepwise/genprm_demo.jsonl")[0]
    turns = [turn["content"] for turn in row["messages"] if turn["role"] == "user"]
    source = write(tmp_path / "source.jsonl", dialogue(*turns, row["model_output"][0]))
    _, [solution] = run_import(source, "genprm", tmp_path / "rows.jsonl")
    assert solution["problem"].startswith("Jo adds up") and solution["problem"].endswith(
        "Kate's sum?"
    )
    assert solution["completions"][0].startswith("First, we need to calculate")
    assert solution["labels"] == [True]


def test_a_manifest_says_what_the_labels_mean(tmp_path: Path) -> None:
    source = write(tmp_path / "source.jsonl", MADE_UP[0][1], {"x": 1})
    import_label_rows(source, "rlhflow", tmp_path / "rows.jsonl")
    manifest = json.loads((tmp_path / "rows.manifest.json").read_text())
    revision = f"sha256:{file_sha256(source)}"
    assert manifest["source"] == {"name": "source.jsonl", "revision": revision}
    assert manifest["labels"] == get_step_label_format("rlhflow").step_labels.settings.meaning
    assert manifest["rows"] == {"read": 2, "written": 1, "set_aside": 1}
    assert manifest["steps"] == {"right": 1, "wrong": 1}
    for name, entry in step_label_formats().items():
        # 0 is neutral to some: each says what it is here
        meaning = entry.step_labels.settings.meaning
        assert ("neutral" in meaning) == (name in ("prm800k", "versaprm"))


def test_a_chain_that_ends_before_an_unrated_step_is_not_finished(tmp_path: Path) -> None:
    row = prm800k_row([("a.", 1, []), ("b.", 1, []), ("# Answer\n\n7", 1, [])], "solution")
    row["label"]["steps"][1]["completions"][0]["rating"] = None
    [solution] = read_prm800k(row)
    assert solution.steps == ["a."] and solution.goes_on
