"""Tests of option models: strict in Python, lax from texts, and errors that name the field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field

from fsdpo_data.core.command_line import command_parameters, make_options, parse_fields
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import NotWith, OnlyWith, Option, Options


class OvenSpec(Options):
    """An oven."""

    degrees: Annotated[float, Field(ge=0, lt=500)] = 180.0
    """Temperature, with a `timer`."""
    timer: int | None = None
    """Minutes; needs `degrees`."""
    kind: Literal["gas", "electric"] = "gas"
    """Kind of the oven."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a timer of a cold oven."""
        if self.timer and not self.degrees:
            raise self.field_error("timer", "give `degrees` too.")
        if self.timer == 13:
            raise InputError("`timer=13` brings bad luck.")


class BakeOptions(Options):
    """Bake."""

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    """The cakes."""
    sheet: Path | None = None
    """A file."""
    counts: Sequence[Annotated[int, Field(ge=1)]] = ()
    """Numbers of cakes."""
    spice: Annotated[str, Option(choices={"mint": 1, "clove": 2})] = "mint"
    """A spice."""
    oven: OvenSpec = OvenSpec(degrees=200.0)
    """The oven."""
    hidden_oven: Annotated[OvenSpec, Option(has_flag=False)] = OvenSpec()
    """Another oven."""


class PicnicOptions(Options):
    """Have a picnic."""

    basket: bool = False
    """Take a basket."""
    blanket: bool = False
    """Take a blanket."""
    count: Annotated[int, OnlyWith("basket", "blanket"), NotWith("rain")] = 2
    """Number of cakes."""
    rain: bool = False
    """It rains."""
    sun: bool = True
    """The sun shines."""
    hat: Annotated[bool, NotWith("sun")] = False
    """Take a hat."""
    oven: Annotated[OvenSpec, OnlyWith("rain")] = OvenSpec(degrees=200.0)
    """The oven at home."""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"count": 3},
            "PicnicOptions.count = 3: only `basket` or `blanket` reads this option. Give `basket` "
            "or `blanket`, or leave this option out.",
        ),
        (
            {"count": 3, "basket": True, "rain": True},
            "PicnicOptions.count = 3: with `rain`, nothing reads this option. Leave one of them "
            "out.",
        ),
        (
            {"hat": True, "sun": False},
            "PicnicOptions.hat = True: with `sun=False`, nothing reads this option. Leave one of "
            "them out.",
        ),
        (
            {"oven": OvenSpec(degrees=200.0, kind="electric")},
            "PicnicOptions.oven.kind = 'electric': only `rain` reads this option. Give `rain`, or "
            "leave this option out.",
        ),
    ],
)
def test_an_option_that_a_call_does_not_read_is_refused(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        PicnicOptions(**values)
    assert str(refused.value) == message


def test_an_option_that_a_call_reads_or_that_has_its_default_is_accepted() -> None:
    options = PicnicOptions(count=3, blanket=True)
    assert options.replace(count=2, rain=True, oven=OvenSpec(degrees=100.0)).rain
    assert PicnicOptions(count=2, oven=OvenSpec(degrees=200.0)).count == 2


def test_python_values_are_strict_and_texts_are_converted() -> None:
    with pytest.raises(InputError, match=r"^BakeOptions\.counts = '3': expected a whole number\.$"):
        BakeOptions(data="a", counts=["3"])  # type: ignore[list-item, arg-type]
    options = make_options(BakeOptions, {"data": ["a"], "counts": ["3", "4"], "degrees": "90"})
    assert options.counts == (3, 4) and options.oven.degrees == 90.0
    with pytest.raises(InputError, match=r"^BakeOptions\.counts = 'few': expected a whole number"):
        make_options(BakeOptions, {"data": ["a"], "counts": ["few"]})


def test_lists_numpy_numbers_and_paths_become_the_types_of_the_field() -> None:
    options = BakeOptions(data="a", counts=[np.int64(3)], sheet="b.txt")  # type: ignore[list-item, arg-type]
    assert (options.data, options.counts, options.sheet) == ((Path("a"),), (3,), Path("b.txt"))
    assert type(options.counts[0]) is int
    assert hash(options) == hash(options.replace(counts=(3,)))
    assert type(OvenSpec(degrees=np.float32(7)).degrees) is float  # type: ignore[arg-type]


def test_only_datasets_may_be_urls() -> None:
    assert BakeOptions(data="s3://bucket/cakes").data == ("s3://bucket/cakes",)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"BakeOptions\.sheet = 's3://b/c': expected a local path"):
        BakeOptions(data="a", sheet="s3://b/c")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"BakeOptions\.data = .*without a password") as error:
        BakeOptions(data="s3://user:secret@bucket/cakes")  # type: ignore[arg-type]
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OvenSpec(degrees=-1), "OvenSpec.degrees = -1: expected at least 0 and less than"),
        (lambda: OvenSpec(degrees=float("nan")), "OvenSpec.degrees = nan: expected a finite numb"),
        (lambda: BakeOptions(data="a\udcff"), "BakeOptions.data = 'a\\udcff': expected valid UTF"),
        (lambda: OvenSpec(timer=True), "OvenSpec.timer = True: expected a whole number."),
        (lambda: OvenSpec(kind="gaz"), "OvenSpec.kind = 'gaz': expected one of gas, electric. Nea"),
        (lambda: OvenSpec(timer=1, degrees=0), "OvenSpec.timer = 1: give `degrees` too."),
        (
            lambda: OvenSpec(timr=1),
            "OvenSpec.timr = 1: OvenSpec has no parameter with this name. N",
        ),
        (lambda: BakeOptions(), "BakeOptions needs the argument `data` (the cakes). Add it."),
        (lambda: BakeOptions(data=3), "BakeOptions.data = 3: expected a list."),
        (lambda: BakeOptions(data=[3]), "BakeOptions.data = 3: expected a text or a path."),
        (lambda: BakeOptions(data="a", counts=[2, 0]), "BakeOptions.counts = 0: expected at least"),
        (
            lambda: BakeOptions(data="a", spice="mind"),
            "BakeOptions.spice = 'mind': expected one of",
        ),
        (lambda: BakeOptions(data="a", oven=1), "BakeOptions.oven = 1: expected OvenSpec(…)."),
        (
            lambda: OvenSpec().replace(degrees=500),
            "OvenSpec.degrees = 500: expected at least 0 and",
        ),
    ],
)
def test_an_error_names_field_value_and_expectation(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).startswith(message)


def test_a_group_keeps_its_default_and_knows_what_is_stated() -> None:
    options = make_options(BakeOptions, {"data": ["a"], "timer": "5"})
    assert options.oven == OvenSpec(degrees=200.0, timer=5)
    assert options.oven.model_fields_set == {"degrees", "timer"}
    assert options.model_fields_set == {"data", "oven"}
    assert options.replace(spice="clove").model_fields_set == {"data", "oven", "spice"}


def test_an_error_in_a_group_names_the_path() -> None:
    with pytest.raises(InputError) as error:
        make_options(BakeOptions, {"data": ["a"], "degrees": "0", "timer": "4"})
    assert error.value.field == "BakeOptions.oven.timer"


def test_hidden_fields_are_no_parameters_of_a_command() -> None:
    assert [*command_parameters(BakeOptions)] == [
        *("data", "sheet", "counts", "spice", "degrees", "timer", "kind")
    ]


def test_the_docstring_has_the_help_of_the_fields() -> None:
    assert "\nAttributes:\n    degrees: Temperature, with a `timer`.\n" in (OvenSpec.__doc__ or "")
    assert command_parameters(BakeOptions)["timer"].help == "Minutes; needs `degrees`."


def test_a_dictionary_for_a_group_keeps_the_other_defaults_of_the_group() -> None:
    options = parse_fields(BakeOptions, {"data": "a", "oven": {"timer": 5}})
    assert options.oven == OvenSpec(degrees=200.0, timer=5)
