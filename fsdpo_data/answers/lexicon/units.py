"""Units of measure: names, dimensions and sizes, and rules for comparing them."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from fsdpo_data.answers.tables import read_module_table
from fsdpo_data.answers.tree import Unit

#: Sizes and names of units, derived dimensions, and groups of opposite words.
_TABLE = read_module_table(__file__)

#: One-letter units. They are units only if a letter cannot be a variable.
LETTER_UNITS = frozenset("msghdLlJNWVATKCMHF")
_SI = _TABLE["si"]
#: A prefix with a unit of one letter, such as ``pC``. They are units only where a letter is one.
SHORT_UNITS = frozenset(
    prefix.split()[0] + letter
    for prefix in _SI["prefixes"]
    for letter in _SI["symbols"].split()
    if len(letter) == 1
) - frozenset(_SI["common"].split())
#: Short names of units that match in upper and lower case.
_ANY_CASE = frozenset(("lbs", "gal", "mph", "hrs", "min"))


def _parse_size(size: str) -> Fraction:
    """Parse a size such as ``1/1000`` or ``4046.86``."""
    numerator, _, denominator = size.partition("/")
    return Fraction(numerator) / Fraction(denominator or 1)


def _build_units() -> dict[str, Unit]:
    """Return the units of the table by name, with their regular plurals."""
    units: dict[str, Unit] = {}
    for dimension, sizes in _TABLE["units"].items():
        derived = _TABLE["derived"].get(dimension, {"of": {dimension: 1}, "size": "1"})
        dims = tuple(derived["of"].items())
        scale = _parse_size(derived["size"])
        for size, names in sizes.items():
            for name in names.split():
                _add_unit(units, Unit(name.replace("_", " "), dims, _parse_size(size) * scale))
    units["centuries"] = units["century"]
    for name, unit in _prefixed_units(units):
        units.setdefault(name, unit)
    return units


def _prefixed_units(units: Mapping[str, Unit]) -> Iterator[tuple[str, Unit]]:
    """Yield the SI units with each prefix, by symbol and by name, with their plurals."""
    for prefix_names, power in _SI["prefixes"].items():
        size = Fraction(10) ** power
        for prefix, names in zip(prefix_names.split(), (_SI["symbols"], _SI["names"]), strict=True):
            for name in names.split():
                unit = units[name]
                label = prefix + name
                if label in _SI["excluded"].split():
                    continue
                prefixed_unit = Unit(label, unit.dims, unit.factor * size)
                yield label, prefixed_unit
                if label not in SHORT_UNITS and not label.endswith("s"):
                    yield label + "s", prefixed_unit


def _add_unit(units: dict[str, Unit], unit: Unit) -> None:
    """Add a unit under its name and, unless another unit has that name, its plural."""
    name = unit.label
    units[name] = unit
    if len(name) > 2 and not name.endswith("s"):
        units.setdefault(name + "s", unit)


UNITS = _build_units()  #: Units by name.
PERCENT = UNITS["%"]
DOLLAR = UNITS["$"]
DEGREE = UNITS["°"]
RADIAN = UNITS["rad"]
#: Units by the sign or LaTeX command before or after a number, e.g. ``$`` or ``%``.
UNIT_SIGNS = {sign: UNITS[name] for sign, name in _TABLE["signs"].items()}
#: ``UNIT_SIGNS``, and the signs and commands that are units only after a number, e.g. ``"``.
UNIT_SIGNS_AFTER_NUMBER = UNIT_SIGNS | {sign: UNITS[name] for sign, name in _TABLE["marks"].items()}
#: Currencies by the code before a number.
CURRENCIES = {code: UNITS[name] for code, name in _TABLE["currencies"].items()}


#: Dimensions of currencies.
_CURRENCY_DIMS = frozenset(unit.dims for unit in CURRENCIES.values())


def is_currency(unit: Unit) -> bool:
    """Whether a unit is a currency or one of its coins."""
    return unit.dims in _CURRENCY_DIMS


#: The size of a degree in kelvins, and 0 degrees in kelvins, by the dimension of a temperature.
_TEMPERATURES = {
    UNITS["kelvin"].dims: (Fraction(1), Fraction(0)),
    UNITS["celsius"].dims: (Fraction(1), Fraction("273.15")),
    UNITS["fahrenheit"].dims: (Fraction(5, 9), Fraction("459.67") * Fraction(5, 9)),
}


def temperature_scale(unit: Unit) -> tuple[Fraction, Fraction] | None:
    """Return the size of a degree and its zero in kelvins, or None if it is no temperature."""
    return _TEMPERATURES.get(unit.dims)


def find_unit(word: str) -> Unit | None:
    """Return the unit with a name, or None; only long names match in upper and lower case."""
    lower = word.lower()
    unit = UNITS.get(word)
    return UNITS.get(lower) if unit is None and (len(word) > 3 or lower in _ANY_CASE) else unit


def unit_power(unit: Unit, power: int) -> Unit:
    """Return a unit raised to a power."""
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
    """Return the unit of counted things; see :func:`are_same_things`."""
    return Unit(words, words=_unit_words(words))


RANK_DIMS = (("place", 1),)  #: The dimension of ranks: "6th", "sixth caller".
#: Nouns after an ordinal that is not a rank: "twelfth part", "third degree".
PART_WORDS = frozenset(("part", "degree", "power", "root", "order", "dimension"))
PART_DIMS = (("part", 1),)  #: The dimension of fractions in words: "5 thirds".
#: Groups of opposite words. Each maps a word to the number of its meaning in the group.
_OPPOSITES = tuple(
    {
        word: meaning
        for meaning, synonyms in enumerate(group.split())
        for word in synonyms.split("=")
    }
    for group in _TABLE["opposites"]
)


def are_same_things(left: Unit, right: Unit) -> bool:
    """Whether two names of counted things may be one, in any number: "clips", "red clip"."""
    left_nouns, right_nouns = ({_singular(word) for word in unit.words} for unit in (left, right))
    return left_nouns <= right_nouns or right_nouns <= left_nouns


#: The singular of irregular plurals.
_SINGULARS = {
    plural: singular for singular, plural in (pair.split("=") for pair in _TABLE["plurals"].split())
}


def _singular(word: str) -> str:
    """Return a stem that a noun and its plural have in common: "box" and "boxes", "knif"."""
    stem = _without_plural_s(_SINGULARS.get(word, word))
    for ending, stem_ending in (("ie", "y"), ("ve", "f"), ("fe", "f")):
        if stem.endswith(ending):
            return stem.removesuffix(ending) + stem_ending
    return _without_plural_s(stem.removesuffix("e"))  # "buses" and "bus"


def _without_plural_s(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def are_opposites(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether the words of two quantities are opposites: "5 miles north" and "5 miles south"."""
    if not (left and right):
        return False
    for group in _OPPOSITES:
        left_meanings = [group[word] for word in left if word in group]
        right_meanings = [group[word] for word in right if word in group]
        if not (left_meanings and right_meanings):
            continue
        if list(dict.fromkeys(left_meanings)) != list(dict.fromkeys(right_meanings)):
            return True
    return False


def qualify_unit(unit: Unit, words: tuple[str, ...]) -> Unit:
    """Return a unit with the words after it, e.g. "north", in place of its old words."""
    return Unit(unit.label, unit.dims, unit.factor, _unit_words(" ".join(words))) if words else unit


def _unit_words(words: str) -> tuple[str, ...]:
    return tuple(words.lower().replace(" - ", "-").split())


#: Generic dimensions, and the dimensions that they include: "square units" of a length in
#: centimetres, degrees of an angle or of a temperature.
_GENERIC = {"unit": ("length",), "degree": ("celsius", "fahrenheit")}
_MASS_OR_CURRENCY = frozenset(("pound", "pounds"))  #: Names of both a mass and a currency.


def unit_ratio(left: Unit, right: Unit) -> Fraction | None:
    """Return the size of ``left`` in units of ``right``, or None if they are not comparable."""
    if not left.dims and not right.dims:
        return Fraction(1) if are_same_things(left, right) else None
    if (left.dims == PART_DIMS and not right.dims) or (right.dims == PART_DIMS and not left.dims):
        return Fraction(1) if left.label == right.label else None
    if left.dims == right.dims:
        return left.factor / right.factor
    if _includes(left.dims, right.dims) or _includes(right.dims, left.dims):
        return Fraction(1)
    pound = UNITS["£"].dims
    if left.dims == pound and right.label in _MASS_OR_CURRENCY:
        return left.factor
    if right.dims == pound and left.label in _MASS_OR_CURRENCY:
        return 1 / right.factor
    return None


def _includes(broad: tuple[tuple[str, int], ...], narrow: tuple[tuple[str, int], ...]) -> bool:
    """Whether a generic dimension includes another dimension, with the same power."""
    if len(broad) != 1 or len(narrow) != 1:
        return False
    broad_name, broad_power = broad[0]
    narrow_name, narrow_power = narrow[0]
    return broad_power == narrow_power and narrow_name in _GENERIC.get(broad_name, ())
