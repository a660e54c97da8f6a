"""Units of measure: their names, kinds and sizes, and when two of them agree."""

from __future__ import annotations

from fractions import Fraction

from fsdpo_data.answers.tree import Unit

#: dimension -> (size in the base unit, names); a name without a trailing s also stands for its
#: plural.
_TABLE: dict[str, tuple[tuple[str, str], ...]] = {
    "length": (
        ("1", "m meter metre"), ("1000", "km kilometer kilometre kms"),
        ("1/100", "cm centimeter centimetre cms"), ("1/10", "dm decimeter decimetre"),
        ("1/1000", "mm millimeter millimetre"), ("1/1000000", "micron micrometer um"),
        ("1/1000000000", "nm nanometer nanometre"), ("1e-10", "angstrom Angstrom"),
        ("0.0254", "inch inches ins"),
        ("0.3048", "ft foot feet"), ("0.9144", "yd yard yds"), ("1609.344", "mi mile"),
        ("9460730472580800", "ly lightyear"), ("149597870700", "au AU"),
    ),
    "mass": (
        ("1", "kg kilogram kilo kgs"), ("1/1000", "g gram gm gms"), ("1/1000000", "mg milligram"),
        ("1000", "tonne"), ("0.45359237", "lb pound lbs"), ("0.028349523125", "oz ounce"),
        ("907.18474", "ton"),
    ),
    "time": (
        ("1", "s sec second secs"), ("60", "min minute mins"), ("3600", "h hr hour hrs"),
        ("86400", "day"), ("604800", "wk week"), ("1/1000", "ms millisecond"),
        ("1/1000000000", "ns nanosecond"), ("1/1000000", "microsecond"),
    ),
    "months": (("1", "month"), ("12", "yr year yrs"), ("120", "decade"), ("1200", "century")),
    "volume": (
        ("1", "L l liter litre"), ("1/1000", "mL ml milliliter millilitre"),
        ("3.785411784", "gal gallon"), ("0.946352946", "qt quart"), ("0.473176473", "pt pint"),
        ("0.2365882365", "cup"),
    ),
    "usd": (("1", "$ dollar dollars buck usd USD"), ("1/100", "cent cents penny pennies ¢")),
    "eur": (("1", "€ euro EUR"),),
    "gbp": (("1", "£ sterling GBP quid"), ("1/100", "pence")),
    "yen": (("1", "¥ yen yuan CNY RMB JPY"),),
    "rupee": (("1", "rupee Rs INR"),),
    "percent": (("1", "% percent"),),
    "degree": (("1", "° degree deg"), ("1/60", "arcmin arcminute"), ("1/3600", "arcsec arcsecond")),
    "radian": (("1", "rad radian"),),
    "celsius": (("1", "°C celsius Celsius"),),
    "fahrenheit": (("1", "°F fahrenheit Fahrenheit"),),
    "kelvin": (("1", "kelvin Kelvin K"),),
    "energy": (
        ("1", "J joule"), ("1000", "kJ kilojoule"), ("1.602176634e-19", "eV"),
        ("1.602176634e-16", "keV"), ("1.602176634e-13", "MeV"), ("1.602176634e-10", "GeV"),
        ("4.184", "cal calorie"), ("4184", "kcal"), ("1e-7", "erg"), ("3600000", "kWh"),
    ),
    "force": (("1", "N newton"), ("1000", "kN"), ("1e-5", "dyne")),
    "pressure": (
        ("1", "Pa pascal"), ("1000", "kPa"), ("1000000", "MPa"), ("101325", "atm"),
        ("133.322", "mmHg torr"),
    ),
    "power": (("1", "W watt"), ("1000", "kW kilowatt"), ("1000000", "MW megawatt")),
    "frequency": (("1", "Hz hertz"), ("1000", "kHz"), ("1000000", "MHz"), ("1e9", "GHz")),
    "voltage": (("1", "V volt"), ("1/1000", "mV"), ("1000", "kV")),
    "current": (("1", "A amp ampere"), ("1/1000", "mA")),
    "resistance": (("1", "ohm Ohm"), ("1000", "kohm")),
    "charge": (("1", "C coulomb"),),
    "field": (("1", "T tesla"),),
    "amount": (("1", "mol mole"),),
    "concentration": (("1", "M molar"),),
    "area": (("1", "acre"), ("2.4710538147", "hectare ha")),
    "speed": (("0.44704", "mph"), ("1/3.6", "kph kmph"), ("0.514444", "knot")),
    "solar": (("1", "Msun"),),
    "data": (("1", "GB gigabyte"), ("1/1000", "MB megabyte"), ("1000", "TB terabyte")),
    "unit": (("1", "unit units"),),
}  # fmt: skip

#: One-letter units; read as units only where letters cannot be variables.
_LETTERS = frozenset("msghLlJNWVATKCM")
#: Areas, volumes and speeds in terms of lengths.
_DERIVED = {
    "volume": ((("length", 3),), Fraction(1, 1000)),
    "area": ((("length", 2),), Fraction("4046.8564224")),
    "speed": ((("length", 1), ("time", -1)), Fraction(1)),
    "frequency": ((("time", -1),), Fraction(1)),
    "concentration": ((("amount", 1), ("length", -3)), Fraction(1000)),
    "force": ((("length", 1), ("mass", 1), ("time", -2)), Fraction(1)),
    "energy": ((("length", 2), ("mass", 1), ("time", -2)), Fraction(1)),
    "power": ((("length", 2), ("mass", 1), ("time", -3)), Fraction(1)),
    "pressure": ((("length", -1), ("mass", 1), ("time", -2)), Fraction(1)),
    "charge": ((("current", 1), ("time", 1)), Fraction(1)),
    "voltage": ((("current", -1), ("length", 2), ("mass", 1), ("time", -3)), Fraction(1)),
    "resistance": ((("current", -2), ("length", 2), ("mass", 1), ("time", -3)), Fraction(1)),
}


def _factor(size: str) -> Fraction:
    top, _, bottom = size.partition("/")
    return Fraction(top) / Fraction(bottom or 1)


def _build() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for dimension, entries in _TABLE.items():
        dims, scale = _DERIVED.get(dimension, (((dimension, 1),), Fraction(1)))
        for size, names in entries:
            for name in names.split():
                unit = Unit(name, dims, _factor(size) * scale)
                units[name] = unit
                if len(name) > 2 and not name.endswith("s"):
                    units.setdefault(name + "s", unit)
    units["centuries"] = units["century"]
    return units


UNITS = _build()
PERCENT, DOLLAR, CENT, DEGREE = UNITS["%"], UNITS["$"], UNITS["cent"], UNITS["°"]
SIGNS = {
    "%": PERCENT,
    "$": DOLLAR,
    "euro": UNITS["€"],
    "pounds": UNITS["£"],
    "cents": CENT,
    "yen": UNITS["¥"],
    "rupees": UNITS["rupee"],
}
#: Currencies by the codes that stand before a number.
CURRENCIES = {"usd": DOLLAR, "us": DOLLAR, "eur": UNITS["€"], "gbp": UNITS["£"],
              "rs": UNITS["Rs"], "inr": UNITS["Rs"], "cny": UNITS["¥"], "rmb": UNITS["¥"],
              "jpy": UNITS["¥"]}  # fmt: skip


def unit_named(word: str) -> Unit | None:
    """Return the unit called ``word``; long names in any case, short ones as they are."""
    unit = UNITS.get(word)
    if unit is None and len(word) > 3:
        unit = UNITS.get(word.lower())
    if unit is None and word.lower() in ("lbs", "gal", "mph", "hrs", "min"):
        unit = UNITS.get(word.lower())
    return unit


def is_letter_unit(word: str) -> bool:
    """Whether ``word`` is a unit that is written like a variable."""
    return word in _LETTERS


def raised(unit: Unit, power: int) -> Unit:
    """Return ``unit`` to ``power``."""
    dims = tuple((name, exponent * power) for name, exponent in unit.dims)
    return Unit(f"{unit.label}^{power}", dims, unit.factor**power)


def product(left: Unit, right: Unit) -> Unit:
    """Return the product of two units."""
    powers = dict(left.dims)
    for name, exponent in right.dims:
        powers[name] = powers.get(name, 0) + exponent
    dims = tuple(sorted((name, power) for name, power in powers.items() if power))
    return Unit(f"{left.label}·{right.label}", dims, left.factor * right.factor)


def noun(words: str) -> Unit:
    """Return the unit of counted things: it agrees with any other name of things."""
    return Unit(words, words=_said(words))


#: Dimension of places in an order.
PLACE = (("place", 1),)
#: Dimension of parts of a whole: "5 thirds".
PART = (("part", 1),)
#: Words that exclude each other.
_OPPOSITES = tuple(
    {word: at for at, same in enumerate(group.split()) for word in same.split("=")}
    for group in """
    north=northward=northwards=northern south=southward=southwards=southern
      east=eastward=eastwards=eastern west=westward=westwards=western
      northeast northwest southeast southwest
    increase=increased=increasing=rise=rose=growth decrease=decreased=decreasing=drop=fall=decline
    profit=gain=gained=earned loss=lost | credit=deposit debit=withdrawal | surplus=excess deficit
    up=upward=upwards=uphill=upstream down=downward=downwards=downhill=downstream
    left=leftward right=rightward | above=over below=under=beneath
    clockwise counterclockwise=anticlockwise=counter-clockwise=anti-clockwise
    more=additional=extra less=fewer | faster=quicker slower | fast=ahead slow=behind
    before=earlier=early=ago after=later=late | older=elder younger | wide long deep
    longer shorter | wider=broader narrower | deeper higher shallower | thicker thinner
    heavier lighter | warmer=hotter=above colder=cooler=below | richer poorer
    taller=higher shorter=lower=deeper | larger=bigger smaller
    closer=nearer farther=further | ahead behind | forward=forwards backward=backwards
    inward=inwards=inside outward=outwards=outside | horizontal=horizontally vertical=vertically
    ascending descending | cheaper dearer=costlier | stronger weaker | better worse | best worst
    first last | maximum=max=most minimum=min=least | converging=convex diverging=concave
    positive=positively negative=negatively | real virtual | upright inverted | magnified diminished
    true false | won=win=wins=wins lost=loss=losses | boy=boys girl=girls | man=men woman=women
    male=males female=females | husband=husbands wife=wives | son=sons daughter=daughters
    brother=brothers sister=sisters | student=students teacher=teachers | heads tails
    adult=adults child=children | hot cold | empty full | odd even
    am=a.m pm=p.m | old=older young | bought sold | given received | attractive repulsive
    """.replace("\n    ", "|")
    .replace("|  ", " ")
    .split("|")
    if group.strip()
)


def opposed(left: Unit, right: Unit) -> bool:
    """Whether what was said after two numbers excludes each other: "5 miles north / south"."""
    for group in _OPPOSITES if left.words and right.words else ():
        said = {group[word] for word in left.words if word in group}
        other = {group[word] for word in right.words if word in group}
        if said and other and said != other:
            return True
    return False


def qualified(unit: Unit, words: tuple[str, ...]) -> Unit:
    """Return ``unit`` with what was said after it."""
    return Unit(unit.label, unit.dims, unit.factor, _said(" ".join(words))) if words else unit


def _said(words: str) -> tuple[str, ...]:
    return tuple(words.lower().replace(" - ", "-").split())


def ordinal(words: str) -> Unit:
    """Return the unit of places in an order: "6th", "sixth caller"."""
    return Unit(words, PLACE)


#: Dimensions that do not exclude each other: "square units" of a length in centimetres,
#: degrees of an angle or of a temperature.
_GENERIC = {"unit": ("length",), "degree": ("celsius", "fahrenheit")}
#: Names of a mass that are a currency as well.
_MONEY_TOO = frozenset(("pound", "pounds"))


def ratio(left: Unit, right: Unit) -> Fraction | None:
    """Return how many ``right`` one ``left`` is, or None if they differ in kind."""
    if not left.dims and not right.dims:
        return Fraction(1)
    if (left.dims == PART and not right.dims) or (right.dims == PART and not left.dims):
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
