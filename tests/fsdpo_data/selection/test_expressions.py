"""Conditions of users: rows that fit, and errors that name the column or the function."""

from __future__ import annotations

import polars as pl
import pytest

from fsdpo_data.core.errors import InputError
from fsdpo_data.selection.expressions import ROW_FUNCTIONS, metadata_column, parse_condition

ROWS = pl.DataFrame(
    {
        "n": [1, 2, None],
        "count": pl.Series([3, 0, 1], dtype=pl.UInt32),
        "hash": pl.Series([2**64 - 1, 9, 5], dtype=pl.UInt64),
        "text": ["a", "b", "Wait"],
        "steps": [["a"], ["b", "c"], []],
        "rewards": [[0.1], [0.2], [0.3]],
    }
)
ARGUMENTS = {
    "n": "abs ceil exp floor ln log10 log2 sign sqrt",
    "n, 2": "coalesce greatest ifnull mod nullif pow power",
    "text": "char_length length lower ltrim octet_length reverse rtrim trim upper",
    "text, 'a'": "concat ends_with regexp_like starts_with strpos",
    "text, 1": "left right",
    "text, 1, 2": "substr",
    "text, 'a', 'b'": "replace",
    "' ', text, 'a'": "concat_ws",
    "steps": "array_length",
    "steps, 'a'": "array_contains",
    "steps, 1": "array_get",
    "steps, ' '": "array_to_string",
    "rewards": "array_mean array_sum",
    "n AS FLOAT": "cast try_cast",
    "n > 1, 1, 2": "if",
    "n * 1.0, 1": "round",
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("n < 2", [True, False, False]),
        ("n IN (1, 2) AND NOT text = 'a'", [False, True, False]),
        ("text LIKE '%ai%'", [False, False, True]),
        ("array_length(steps) > 1 OR n IS NULL", [False, True, True]),
        ("text = 'sum(' OR n = 1", [True, False, False]),
        ("count - 1 > 1", [True, False, False]),
        ("1 - count < 0", [True, False, False]),
        ("array_length(steps) - 2 < 0", [True, False, True]),
        ("array_length(steps) - LENGTH (replace(text, ')', 'xyz')) >= 0", [True, True, False]),
        ("length(concat(text, ')', length(text))) = 3", [True, True, False]),
        ("1 < n AND n < 3 OR (n = 1) = (text = 'a < b < c')", [False, True, False]),
        ("n BETWEEN 1 AND 2 AND greatest(n, 2) < if(n < 2, 1, 3)", [False, True, False]),
        ("n <=> 1 OR NOT n = 2 = TRUE", [True, False, False]),
        ("hash > 5 AND count <> 0", [True, False, False]),
        ("1 = 1", [True, True, True]),
        ("NULL", [False, False, False]),
    ],
)
def test_a_condition_holds_row_by_row(text: str, fits: list[bool]) -> None:
    condition = parse_condition(text, "X.filter")
    assert condition.evaluate(ROWS).to_list() == fits
    halves = [condition.evaluate(ROWS[:1]), condition.evaluate(ROWS[1:])]
    assert pl.concat(halves).to_list() == fits


def test_every_function_of_the_list_works() -> None:
    functions = {name: values for values, names in ARGUMENTS.items() for name in names.split()}
    assert set(functions) == ROW_FUNCTIONS
    for name, values in functions.items():
        condition = parse_condition(f"{name}({values}) IS NOT NULL", "X.filter")
        assert len(condition.evaluate(ROWS)) == 3, name


@pytest.mark.parametrize(
    "text",
    ["n > sum(n)", "count(*) > 1", "n > max (n)", "n > (SELECT 1)", "rank() OVER (ORDER BY n) > 1"],
)
def test_functions_of_several_rows_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a function of one row\. The functions are abs"):
        parse_condition(text, "X.filter")


@pytest.mark.parametrize("text", ["", "n >", "n, text", "read_csv('/etc/passwd')", "*"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"X\.filter"):
        condition = parse_condition(text, "X.filter")
        condition.check_names(ROWS.columns)
        condition.evaluate(ROWS)


@pytest.mark.parametrize("text", ["1 < n < 3", "n > 5 OR (1 <= (n) <= 3)", "1 < n > 0"])
def test_a_chain_of_comparisons_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="BETWEEN a AND c"):
        parse_condition(text, "X.filter")


def test_errors_name_the_column_and_the_type() -> None:
    condition = parse_condition("tex = 'a'", "X.filter")
    with pytest.raises(InputError, match=r"no column 'tex'.*Nearest: text"):
        condition.check_names(ROWS.columns)
    with pytest.raises(InputError, match="does not fit the columns"):
        parse_condition("text > 1", "X.filter").evaluate(ROWS)
    with pytest.raises(InputError, match="expected a condition that is true or false, got Int64"):
        parse_condition("n + 1", "X.filter").evaluate(ROWS)


def test_a_field_of_the_metadata_is_a_column_of_its_type() -> None:
    rows = [{"level": 1, "mixed": 1, "flag": True}, {"level": 2.5, "mixed": "a"}, {}]
    assert metadata_column(rows, "level").to_list() == [1.0, 2.5, None]
    assert metadata_column(rows, "mixed").to_list() == ["1", "a", None]
    assert metadata_column(rows, "flag").to_list() == [True, None, None]
    assert metadata_column(rows, "none").to_list() == [None, None, None]


def test_integers_of_the_metadata_stay_exact() -> None:
    rows = [{"key": 2**53}, {"key": 2**53 + 1}, {}]
    condition = parse_condition(f"key = {2**53 + 1}", "X.filter")
    column = metadata_column(rows, "key")
    assert condition.evaluate(column.to_frame()).to_list() == [False, True, False]
    assert metadata_column([{"key": 2**64}], "key").to_list() == [2.0**64]
