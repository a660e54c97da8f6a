"""Units of measure: SI prefixes, and sizes and dimensions as in Pint."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.lexicon.units import SHORT_UNITS, UNITS
from fsdpo_data.answers.parsing.read import read_answer
from fsdpo_data.answers.show import format_value

#: Our base dimensions and factors by Pint's base units. Pint measures mass in kilograms, too.
PINT_DIMENSIONS = {
    "meter": "length", "kilogram": "mass", "second": "time", "ampere": "current",
    "mole": "amount", "candela": "luminosity",
}  # fmt: skip
#: Base dimensions that Pint expresses by other ones, or that it does not have.
OWN_DIMENSIONS = frozenset((
    "months", "usd", "eur", "gbp", "yen", "rupee", "percent", "degree", "radian", "celsius",
    "fahrenheit", "kelvin", "solar", "data", "unit",
))  # fmt: skip
#: Names that Pint reads as another unit, with ours.
OTHER_MEANINGS = {
    "C": "coulomb", "M": "molar", "au": "astronomical unit", "cal": "calorie",
    "kilo": "kilogram", "kilos": "kilograms", "amps": "ampere", "ins": "inches",
    "mcd": "millicandela", "kmph": "kph", "kmphs": "kph",
}  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "equal", "different"),
    [
        (
            "56 pC",
            ["5.6e-11 C", "56 \\text{ pC}", "0.056 nC", "56 picocoulombs"],
            ["56 fC", "56 nC"],
        ),
        ("5 mL", ["0.005 L", "5 milliliters", "5 cm^3"], ["5 L", "0.05 L"]),
        ("3 \\text{ Mm}", ["3000 km", "3{,}000{,}000 m"], ["3 mm"]),
        ("5\\ \\mu\\text{F}", ["5000 \\text{ nF}", "5 microfarads"], ["5 mF"]),
        ("2 \\text{ T}", ["2 Wb/m^2", "2000 mT"], ["2 mT"]),
        ("12 kWh", ["43.2 MJ"], ["12 kW"]),
    ],
)
def test_units_with_prefixes(gold, equal, different):
    assert [answer for answer in equal if compare_answers(gold, answer).status != "correct"] == []
    assert [text for text in different if compare_answers(gold, text).status == "correct"] == []


def test_a_prefix_and_a_letter_without_a_space_are_variables():
    assert "pC" in SHORT_UNITS
    assert format_value(read_answer("56pC").value) == "56*p*C"
    assert compare_answers("3kT", "3Tk").status == "correct"
    assert compare_answers("5 pm", "17:00").status == "correct"


def test_the_units_have_the_sizes_and_dimensions_of_pint():
    pint = pytest.importorskip("pint", reason="Pint is not installed")
    registry = pint.UnitRegistry(non_int_type=Fraction)
    compared = 0
    differences = []
    for name, unit in UNITS.items():
        if OWN_DIMENSIONS & dict(unit.dims).keys() or not name.isascii() or "gauss" in name:
            continue
        pint_name = OTHER_MEANINGS.get(name, name).replace(" ", "_")
        try:
            quantity = registry.Quantity(Fraction(1), pint_name).to_base_units()
        except (pint.UndefinedUnitError, pint.DefinitionSyntaxError, ValueError):
            continue
        units = {key: int(power) for key, power in quantity._units.items()}
        if not units.keys() <= PINT_DIMENSIONS.keys():
            continue
        compared += 1
        dims = {PINT_DIMENSIONS[key]: power for key, power in units.items()}
        has_same_size = abs(unit.factor / quantity.magnitude - 1) < Fraction(1, 10**5)
        if dict(unit.dims) != dims or not has_same_size:
            differences.append(name)
    assert differences == []
    assert compared > 1_000


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("48 clips", "48 clip"),
        ("48 clips", "48"),
        ("48", "48 hats"),
        ("48 clips", "48 red clips"),
        ("14 (granola bars)", "14 bars"),
        ("48 red clips", r"48 \text{ clips}"),
        ("48 clips", "48 clips in all"),
        ("3 knives", "3 knife"),
        ("3 children", "3 child"),
        ("8 buses", "8 bus"),
        ("7 cookies", "7 cookie"),
        ("5 people", "5 persons"),
        ("10 points", "10 pts"),
        ("5 apples, 3 pears", "3 pears and 5 apples"),
    ],
)
def test_a_noun_in_another_number_is_the_same_noun(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer).status == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("48 clips", "48 hats"),
        ("48 clips", r"\text{48 hats}"),
        ("48 red clips", "48 blue clips"),
        ("14 (granola bars)", "14 soap bars"),
        ("12 students", "12 pupils"),
        ("x = 5 apples", "x = 5 pears"),
        ("x = 5 apples", "5 pears"),
        ("5 apples, 3 pears", "5 apples, 3 plums"),
        ("(5 apples, 3 pears)", "(5 apples, 3 plums)"),
        ("7 days", "7 sandwiches"),
        ("7 sandwiches", "7 days"),
    ],
)
def test_equal_numbers_of_unknown_things_are_undecided(gold: str, answer: str) -> None:
    verdict = compare_answers(gold, answer)
    assert (verdict.status, verdict.rule) == ("undecided", "names")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("48 clips", "72"),
        ("48 clips", "72 clips"),
        ("48 clips", "72 hats"),
        ("5 apples, 3 pears", "3 apples, 5 pears"),
        ("5 apples, 3 pears", "5 apples, 4 plums"),
        ("5 steps left", "5 steps right"),
    ],
)
def test_other_numbers_of_things_differ(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer).status == "incorrect"


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("0^\\circ C", "273.15 K", "correct"),
        ("32 degrees Fahrenheit", "0 degrees Celsius", "correct"),
        ("20^\\circ C", "20^\\circ F", "incorrect"),
        ("25^\\circ C", "25 K", "incorrect"),
        ("-40^\\circ C", "-40^\\circ F", "correct"),
        ("1 ha", "10000 m^2", "correct"),
        ("5 cc", "5 mL", "correct"),
        # Letters that no table knows as a unit may be one.
        ("6 mT", "60 G", "undecided"),
        ("6 mT", "60 m", "incorrect"),
        ("5 cm", "5x", "incorrect"),
    ],
)
def test_temperatures_and_unknown_units(gold: str, answer: str, status: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("1200000", r"12\text{ lakh}", "correct"),
        ("120000000", r"12\text{ crore}", "correct"),
        ("12000", r"\$12K", "correct"),
        ("1500000", r"\$1.5M", "correct"),
        ("12000000000", r"12\text{ bn}", "correct"),
        ("144", r"12\text{ Dutzend}", "correct"),
        ("12", r"12\text{ lakh}", "incorrect"),
        ("12", r"12\text{ bn dollars}", "incorrect"),
        ("12", r"\$12K", "incorrect"),
        ("12", r"12\text{ docenas}", "incorrect"),
        ("12000", r"\$12M", "incorrect"),
        ("12000", "12k", "undecided"),  # k may be a variable
        ("12000", "12 K", "undecided"),
        ("12000", r"\$12k", "undecided"),
        ("1200000", "12,00,000", "undecided"),
        ("12", r"12\text{ K}", "correct"),
        ("5bn", "5nb", "correct"),
    ],
)
def test_words_and_letters_of_scales(gold: str, answer: str, status: str) -> None:
    assert compare_answers(gold, answer).status == status
