"""Units of measure: their names, kinds and sizes, and when two of them agree."""

from collections.abc import Sequence
from fractions import Fraction

from fsdpo_data.answers.tree import Unit
from fsdpo_data.core.toml_tables import read_toml

#: Sizes and names of units, what is derived of what, and words that exclude each other.
_TABLE = read_toml(__file__)

#: One-letter units; read as units only where letters cannot be variables.
LETTER_UNITS = frozenset("msghLlJNWVATKCM")
#: Short names of units that are read in any case.
_ANY_CASE = frozenset(("lbs", "gal", "mph", "hrs", "min"))


def _factor(size: str) -> Fraction:
    top, _, bottom = size.partition("/")
    return Fraction(top) / Fraction(bottom or 1)


def _build() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for dimension, sizes in _TABLE["units"].items():
        derived = _TABLE["derived"].get(dimension, {"of": {dimension: 1}, "size": "1"})
        dims, scale = tuple(derived["of"].items()), _factor(derived["size"])
        for size, names in sizes.items():
            for name in (each.replace("_", " ") for each in names.split()):
                unit = Unit(name, dims, _factor(size) * scale)
                units[name] = unit
                if len(name) > 2 and not name.endswith("s"):
                    units.setdefault(name + "s", unit)
    units["centuries"] = units["century"]
    return units


UNITS = _build()
PERCENT, DOLLAR, CENT, DEGREE = UNITS["%"], UNITS["$"], UNITS["cent"], UNITS["°"]
UNIT_SIGNS = {sign: UNITS[name] for sign, name in _TABLE["signs"].items()}
#: Units by the signs and commands that stand after a number.
UNIT_MARKS = UNIT_SIGNS | {sign: UNITS[name] for sign, name in _TABLE["marks"].items()}
#: Currencies by the codes that stand before a number.
CURRENCIES = {code: UNITS[name] for code, name in _TABLE["currencies"].items()}


def find_unit(word: str) -> Unit | None:
    """Return the unit called ``word``; long names in any case, short ones as they are."""
    lower = word.lower()
    unit = UNITS.get(word)
    return UNITS.get(lower) if unit is None and (len(word) > 3 or lower in _ANY_CASE) else unit


def unit_power(unit: Unit, power: int) -> Unit:
    """Return ``unit`` to ``power``."""
    dims = tuple((name, exponent * power) for name, exponent in unit.dims)
    return Unit(f"{unit.label}^{power}", dims, unit.factor**power)


def multiply_units(left: Unit, right: Unit) -> Unit:
    """Return the product of two units."""
    powers = dict(left.dims)
    for name, exponent in right.dims:
        powers[name] = powers.get(name, 0) + exponent
    dims = tuple(sorted((name, power) for name, power in powers.items() if power))
    return Unit(f"{left.label}·{right.label}", dims, left.factor * right.factor)


def counted_unit(words: str) -> Unit:
    """Return the unit of counted things: it agrees with any other name of things."""
    return Unit(words, words=_unit_words(words))


RANK_DIMS = (("place", 1),)  #: Dimension of places in an order: "6th", "sixth caller".
RANK_WORDS = frozenset(
    ("th", "place", "position", "rank", "spot")
)  #: Places that are their number.
PART_DIMS = (("part", 1),)  #: Dimension of parts of a whole: "5 thirds".
#: Words that exclude each other.
_OPPOSITES = tuple(
    {word: at for at, same in enumerate(group.split()) for word in same.split("=")}
    for group in _TABLE["opposites"]
)


def are_opposites(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether what was said with two numbers excludes each other: "5 miles north / south"."""
    for group in _OPPOSITES if left and right else ():
        said = [group[word] for word in left if word in group]
        other = [group[word] for word in right if word in group]
        if said and other and list(dict.fromkeys(said)) != list(dict.fromkeys(other)):
            return True
    return False


def qualify_unit(unit: Unit, words: tuple[str, ...]) -> Unit:
    """Return ``unit`` with what was said after it."""
    return Unit(unit.label, unit.dims, unit.factor, _unit_words(" ".join(words))) if words else unit


def _unit_words(words: str) -> tuple[str, ...]:
    return tuple(words.lower().replace(" - ", "-").split())


#: Dimensions that do not exclude each other: "square units" of a length in centimetres,
#: degrees of an angle or of a temperature.
_GENERIC = {"unit": ("length",), "degree": ("celsius", "fahrenheit")}
_MONEY_TOO = frozenset(("pound", "pounds"))  #: Names of a mass that are a currency as well.


def unit_ratio(left: Unit, right: Unit) -> Fraction | None:
    """Return how many ``right`` one ``left`` is, or None if they differ in kind."""
    if not left.dims and not right.dims:
        return Fraction(1)
    if (left.dims == PART_DIMS and not right.dims) or (right.dims == PART_DIMS and not left.dims):
        return Fraction(1) if left.label == right.label else None
    if left.dims == right.dims:
        return left.factor / right.factor
    if _generic(left.dims, right.dims) or _generic(right.dims, left.dims):
        return Fraction(1)
    for money, other in ((left, right), (right, left)):
        if money.dims == UNITS["£"].dims and other.label in _MONEY_TOO:
            return money.factor if money is left else 1 / money.factor
    return None


def _generic(broad: tuple[tuple[str, int], ...], narrow: tuple[tuple[str, int], ...]) -> bool:
    if len(broad) != 1 or len(narrow) != 1:
        return False
    (name, power), (other, other_power) = broad[0], narrow[0]
    return power == other_power and other in _GENERIC.get(name, ())
