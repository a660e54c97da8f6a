"""Tests of commands made from option classes, and of flags in error messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.cli.console import new_app
from fsdpo_data.cli.options import command
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.options import Group, Option, Options


class PieceSpec(Options):
    """The pieces."""

    n: Annotated[int, Field(ge=1)] = 8
    """How many `pieces`, at least."""


class CutOptions(Options):
    """Cut a cake.

    With a knife.

    Examples:
        cake cut it
    """

    data: Annotated[Path, Option(positional=True)]
    """The cake."""
    pieces: Annotated[PieceSpec, Group(flags={"n": "samples"})] = PieceSpec()
    """The pieces."""
    style: Annotated[Literal["fair", "greedy"], Option(panel="Taste")] = "fair"
    """How."""
    names: Annotated[Sequence[str], Option(panel="Taste", choices={"ann": 1, "bob": 2})] = ()
    """Of the guests."""
    share_one_prompt_for_all: bool = True
    """Whether."""
    resume: bool = False
    """Go on."""
    out: Path | None = None
    """Where."""


def app_of(done: list[CutOptions], error: FsdpoError | None = None) -> typer.Typer:
    app = new_app("cake", "Cakes.")

    @command(app, CutOptions)
    def cut(options: CutOptions) -> None:
        done.append(options)
        if error:
            raise error

    app.command("other")(lambda: None)
    return app


def ran(*line: str, error: FsdpoError | None = None) -> tuple[list[CutOptions], str, str]:
    done: list[CutOptions] = []
    result = CliRunner().invoke(app_of(done, error), ["cut", *line], env={"COLUMNS": "80"})
    return done, result.output, str(result.exception)


def test_fields_become_parameters() -> None:
    done, _, _ = ran("cake", "--samples", "3", "--names", "ann", "--names", "bob", "--resume")
    expected = CutOptions(
        data=Path("cake"), pieces=PieceSpec(n=3), names=("ann", "bob"), resume=True
    )
    assert done == [expected]
    off = "--no-share-one-prompt-for-all"
    assert not ran("cake", off)[0][0].share_one_prompt_for_all


def test_one_word_serves_for_a_list_of_one() -> None:
    assert CutOptions(data=Path("x"), names="ann").names == ("ann",)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_shows_complete_flags(flag: str) -> None:
    _, output, _ = ran(flag)
    assert "Cut a cake." in output and "cake cut it" in output and "Taste" in output
    off = "--no-share-one-prompt-for-all"
    for word in ("DATA", "--samples N", "--style fair | greedy", off, "--resume", "--out PATH"):
        assert word in output, word
    assert "[default: 8]" in output and "[required]" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("x", "--samples", "0"), "--samples 0: expected at least 1."),
        (
            ("x", "--style", "fare"),
            "--style fare: expected one of fair, greedy. Nearest: fair.",
        ),
        (("x", "--names", "bop"), "--names bop: expected one of ann, bob. Nearest: bob."),
    ],
)
def test_bounds_and_choices(line: Sequence[str], message: str) -> None:
    assert message in ran(*line)[2]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("too few.", field="Spec.n", value=0), "--samples 0: too few."),
        (InputError("not there.", field="data", value="x"), "DATA x: not there."),
        (InputError("kept.", field="Other.field", value=1), "Other.field = 1: kept."),
        (InputError("Set `resume=True`."), "Set --resume."),
        (InputError("Choose another `out`; `n=1`."), "Choose another --out; --samples 1."),
        (
            InputError("`share_one_prompt_for_all=False`, `unknown=2`."),
            "--no-share-one-prompt-for-all, --unknown 2.",
        ),
    ],
)
def test_errors_name_flags(error: FsdpoError, message: str) -> None:
    assert ran("x", error=error)[2] == message


def test_the_library_names_fields() -> None:
    with pytest.raises(InputError, match=r"PieceSpec\.n = 0: expected at least 1\."):
        CutOptions(data=Path("x"), pieces=PieceSpec(n=0))


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["cake", "cut", "a cake"])
    app = new_app("cake", "Cakes.")

    @command(app, CutOptions)
    def cut(options: CutOptions) -> None:
        raise KeyboardInterrupt

    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["cut", "a cake"])
    assert result.exit_code == 130 and "cake cut 'a cake' --resume" in result.output


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--samples", "four", "expected a whole number."),
        ("--limit", "1.5", "expected a whole number."),
        ("--temperature", "warm", "expected a number."),
    ],
)
def test_an_error_names_the_flag_the_value_and_the_expectation(
    flag: str, value: str, message: str
) -> None:
    result = CliRunner().invoke(data_app, ["build", flag, value], env={"COLUMNS": "200"})
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"{flag} {value}: {message}"
