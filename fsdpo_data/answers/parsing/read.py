"""Read an answer: its value and other possible readings. Texts outside the grammar are words.

A :class:`ParsedAnswer` computes each of them at most once.
"""

import re
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeGuard

from fsdpo_data.answers.lexicon.languages import read_number_word, read_scaled_number
from fsdpo_data.answers.lexicon.numbers import make_decimal, read_number
from fsdpo_data.answers.lexicon.vocabulary import contains_any, has_foreign_script
from fsdpo_data.answers.lexicon.words import DATE_OR_TIME_MARKERS, SMALL_NUMBERS, read_date_or_time
from fsdpo_data.answers.parsing.clean import MAX_LENGTH, clean
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, tokenize
from fsdpo_data.answers.parsing.parser import parse_answer, vector_components
from fsdpo_data.answers.parsing.prose import (
    UNDETERMINED,
    is_name_with_suffix,
    phrase_value,
    plain_text,
    plain_words,
    reals_except,
    replace_relation_words,
    unwrap_text,
)
from fsdpo_data.answers.parsing.quantities import combine_quantities
from fsdpo_data.answers.parsing.readings import (
    MAX_TEXT_CHARS,
    Reading,
    find_islands,
    has_formulas,
    propose_readings,
    split_dimensions,
    split_forms,
    split_labelled_parts,
    split_outside_brackets,
)
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import (
    Call,
    Connective,
    Const,
    DateOrTime,
    Matrix,
    Node,
    Num,
    NumberInBase,
    Piecewise,
    Quantity,
    Ratio,
    Relation,
    Sym,
    Value,
    ValueList,
    Words,
    add,
    is_node,
    list_values,
    map_children,
    multiply,
    negate,
    substitute,
)

#: Maximum number of characters of an answer that is parsed. The longest gold answer of the
#: benchmarks has 250.
MAX_READ = 2_500
#: Maximum number of characters of an answer with a label, as in "Area = 5".
_MAX_LABELLED = 300
_MAX_UNREAD = 100  #: Characters of a part of a longer answer that was not read.
_PATTERNS = compile_patterns(read_module_table(__file__)["patterns"])
_LABEL = _PATTERNS["label"]

_VECTOR_TERM = rf"{_PATTERNS['vector_factor'].pattern}{_PATTERNS['vector'].pattern}"
_VECTOR_SUM = re.compile(
    rf"(?s)(?:(?P<name>[^=+]{{1,40}})=)?"
    rf"(?P<sum>\s*[-+]?\s*{_VECTOR_TERM}(?:\s*[-+]\s*{_VECTOR_TERM}){{1,4}})"
)
_VECTOR_TERMS = re.compile(
    rf"(?s)(?P<sign>[-+])?\s*(?P<factor>{_PATTERNS['vector_factor'].pattern})"
    rf"(?P<vector>{_PATTERNS['vector'].pattern})"
)
_NUMERALS = re.compile(r"[\d.]+").fullmatch
#: Maximum number of characters of a date, a time, a number in a base or a set phrase.
MAX_SPECIAL = 120
_MAX_CACHED_CHARS = 400  #: Maximum length of a text in the cache.
_CACHE_SIZE = 8_192  #: Maximum number of answers in the cache.
_DECIMAL_COMMA = re.compile(r"(-?)(\d+),(\d{1,2}|\d{4,15})(?![\d,.])")
#: A number with spaces between its thousands and a decimal comma: "1 234,56".
_SPACED_NUMBER = re.compile(r"(?P<sign>-?)(?P<whole>\d{1,3}(?: \d{3})+),(?P<decimals>\d+)")
_DROPPED = re.compile(r"(?<![A-Za-z0-9])\s|\s(?![A-Za-z0-9])|\\!|\\(?:left|right)(?![A-Za-z])")


class ParsedAnswer:
    """A gold answer, or an answer extracted from a response.

    Attributes:
        text: The text of the answer.
        number: The value if the text is a plain number, a sum of money or a percentage, else None.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.number: Num | Quantity | None = read_number(text)

    @cached_property
    def cleaned(self) -> str:
        """The text as plain ASCII LaTeX; a text over ``MAX_LENGTH`` is unchanged."""
        return self.text if len(self.text) > MAX_LENGTH else clean(self.text)

    @cached_property
    def plain(self) -> str:
        """The text without LaTeX wrappers, with single spaces."""
        return plain_text(self.cleaned)

    @cached_property
    def unwrapped(self) -> str:
        """The text without LaTeX wrappers, with the braces of its formulas."""
        return unwrap_text(self.cleaned)

    @cached_property
    def unread(self) -> str:
        """The part that was not read as the formula that it is; "" if all was read."""
        if self.number is not None:
            return ""
        if len(self.text) > MAX_READ:
            return self.text[:_MAX_UNREAD] + "…"
        if isinstance(self.value, Words):
            if len(self.alternatives) > 1:
                return ""
            is_formula = has_formulas(self.cleaned) or has_foreign_script(self.cleaned)
            return self.plain if is_formula and not is_name_with_suffix(self.plain) else ""
        return unread_words(self.value)

    @cached_property
    def readings(self) -> tuple[tuple[Value, Reading], ...]:
        """The values of parts of the text, the best-ranked one first."""
        is_read = not isinstance(self.value, Words)
        if self.number is not None or not (is_read or self.unread):
            return ()
        readings = propose_readings(self.cleaned, is_read=is_read)
        values = ((read(reading.text), reading) for reading in readings)
        return tuple(pair for pair in values if not isinstance(pair[0], Words))

    @cached_property
    def quantified(self) -> tuple[Value, frozenset[str]]:
        """The value without "for any constant c", and the names in those words."""
        for value, reading in self.readings:
            if reading.quantified_names:
                return value, reading.quantified_names
        return self.value, frozenset()

    @cached_property
    def forms(self) -> tuple[Value, ...]:
        """The values of a text that states one value in several forms: "0.5 or 1/2"."""
        if self.number is not None:
            return ()
        for forms in split_forms(self.cleaned):
            values = tuple(map(read, forms))
            if not any(isinstance(value, Words) for value in values):
                return values
        return ()

    @cached_property
    def labelled_parts(self) -> dict[str, Value]:
        """The values of "width 5, length 10" by label; empty for other texts."""
        is_labelled = isinstance(self.value, Words) or are_labelled_numbers(self.value)
        if not is_labelled or len(self.cleaned) > MAX_TEXT_CHARS:
            return {}
        values = {label: read(part) for label, part in split_labelled_parts(self.unwrapped).items()}
        return {} if any(isinstance(value, Words) for value in values.values()) else values

    @cached_property
    def dimensions(self) -> tuple[Value, ...]:
        """The lengths of "10 ft x 18 ft" or "10 by 18 feet"; empty for other texts."""
        if len(self.cleaned) > MAX_SPECIAL or self.number is not None:
            return ()
        parts = split_dimensions(self.unwrapped)
        values = [read(part) for part in parts]
        last = values[-1] if values else None
        if isinstance(last, Quantity):
            values = [
                Quantity(value, last.unit) if isinstance(value, Num) else value for value in values
            ]
        numbers = [value.node if isinstance(value, Quantity) else value for value in values]
        return tuple(values) if all(isinstance(number, Num) for number in numbers) else ()

    @cached_property
    def islands(self) -> tuple[Value, ...]:
        """The values of the formulas in an answer of words; empty if one of them was not read."""
        if not isinstance(self.value, Words) or len(self.cleaned) > MAX_TEXT_CHARS:
            return ()
        values = tuple(map(read, find_islands(self.unwrapped)))
        return () if any(isinstance(value, Words) for value in values) else values

    @cached_property
    def key(self) -> str:
        """A key for equality: two answers with the same key are equivalent."""
        if len(self.text) > MAX_LENGTH:
            return self.text
        if isinstance(self.number, Num):
            value = self.number.value
            return f" {value.numerator:x}/{value.denominator:x}"  # no text begins with a space
        text = self.cleaned.replace("dfrac", "frac").replace("tfrac", "frac")
        return _DROPPED.sub("", " ".join(text.split()))

    @cached_property
    def value(self) -> Value:
        """The value of the answer; ``Words`` if the text fits no grammar."""
        return read_cleaned(self.cleaned) if self.number is None else self.number

    @cached_property
    def with_letter_units(self) -> Value:
        """The value if letters after numbers are units: ``5m`` is five metres."""
        return read_cleaned(self.cleaned, letter_units=True)

    @cached_property
    def with_decimal_comma(self) -> Num | Quantity | None:
        """The value if its comma is a decimal comma: ``3,5`` is 3.5. None for other texts."""
        match = _DECIMAL_COMMA.match(self.cleaned)
        if match is None or len(self.cleaned) > MAX_SPECIAL:
            return None
        unit = self.cleaned[match.end() :]
        if not unit.strip():
            return make_decimal(match[2], match[3], sign=match[1])
        value = read_cleaned(f"{match[1]}{match[2]}.{match[3]}{unit}")
        return value if isinstance(value, Quantity) and value.unit.dims else None

    @cached_property
    def conclusion(self) -> Value | None:
        """The last statement of a chain of implications, "2a = 12 => a = 6"; None without one."""
        if len(self.cleaned) > MAX_TEXT_CHARS or not _PATTERNS["implication"].search(self.cleaned):
            return None
        return read(split_outside_brackets(self.cleaned, _PATTERNS["implication"])[-1])

    @cached_property
    def named_statement(self) -> Value | None:
        """The equation of a curve with a name, "l: y = 2x + 3"; None for other texts."""
        has_colon = ":" in self.cleaned and len(self.cleaned) <= MAX_SPECIAL
        match = _PATTERNS["named_statement"].fullmatch(self.unwrapped) if has_colon else None
        return read(match["statement"]) if match else None

    @cached_property
    def alternatives(self) -> tuple[Value, ...]:
        """The value, followed by other possible readings of the text."""
        return alternatives(self.cleaned, self.value)

    @cached_property
    def label(self) -> tuple[str, ...]:
        """The words before the value that name it: "maximum" in "Maximum: 5"."""
        text = self.unwrapped if len(self.cleaned) < _MAX_LABELLED else ""
        match = _LABEL.fullmatch(text)
        return tuple(text[: match.start(1)].lower().rstrip(":= ").split()) if match else ()

    @cached_property
    def form(self) -> str:
        """The parsed form of the value, as text."""
        return format_value(self.number if isinstance(self.number, Num) else self.value)


_read_short = lru_cache(_CACHE_SIZE)(ParsedAnswer)


def read_answer(text: str) -> ParsedAnswer:
    """Return a parsed answer; short answers are cached, because samples repeat them."""
    return ParsedAnswer(text) if len(text) > _MAX_CACHED_CHARS else _read_short(text)


def read(text: str) -> Value:
    """Clean and read an answer; a text that fits no grammar becomes ``Words``."""
    return read_cleaned(text if len(text) > MAX_LENGTH else clean(text))


def read_cleaned(cleaned: str, letter_units: bool = False) -> Value:
    """Read the result of ``clean``.

    Args:
        cleaned: An answer in plain ASCII LaTeX.
        letter_units: Whether a letter after a number is a unit: ``5m`` is five metres.
    """
    if len(cleaned) > MAX_READ:
        return Words((cleaned,))
    value = _read_special(cleaned)
    if value is not None:
        return value
    if "in" in cleaned:
        cleaned = _PATTERNS["domain"].sub(_format_domain, cleaned)
    if "bigcup" in cleaned:
        cleaned = _replace_union(cleaned)
    if cleaned.endswith(")"):
        cleaned = _PATTERNS["restriction"].sub(r" , \1", cleaned)
    if _PATTERNS["second_part"].search(cleaned) and (parts := _read_parts(cleaned)):
        return parts
    excluded = reals_except(cleaned)
    value = _parse(cleaned, letter_units) if excluded is None else _read_reals_except(excluded)
    if value is None:
        value = _read_vector_sum(cleaned)
    if value is None and (span := _find_span(cleaned)):
        value = _read_interval(span, letter_units)
    if value is None and len(cleaned) < _MAX_LABELLED:
        label = _LABEL.fullmatch(unwrap_text(cleaned))
        value = _parse(label[1].strip(), letter_units) if label else None
    return Words(plain_words(cleaned)) if value is None else value


def _parse(text: str, letter_units: bool) -> Value | None:
    """Parse a text with the grammar; return None if the text does not fit or is empty."""
    try:
        value = parse_answer(tokenize(replace_relation_words(text)), letter_units)
    except UnparsableAnswerError:
        return None
    return vector_components(value) if "\\basis" in text else value


def _read_special(text: str) -> Value | None:
    """Read texts outside the grammar: times, dates, numbers in a base, set phrases."""
    if len(text) > MAX_SPECIAL:
        return None
    value = phrase_value(plain_words(text)) if _PATTERNS["has_word"].search(text) else None
    if value is not None:
        return value
    plain = plain_text(text)
    number_word = read_number_word(plain)
    if number_word is not None:
        return Num(Fraction(number_word))
    if (number := _SPACED_NUMBER.fullmatch(plain)) is not None:
        return make_decimal(number["whole"].replace(" ", ""), number["decimals"], 0, number["sign"])
    if (scaled := read_scaled_number(plain)) is not None:
        return scaled
    if (date := _PATTERNS["iso_date"].fullmatch(plain)) is not None:
        return DateOrTime(day=int(date["day"]), month=int(date["month"]), year=int(date["year"]))
    if any(map(str.isalpha, text)) and contains_any(text, DATE_OR_TIME_MARKERS):
        date_or_time = read_date_or_time(" ".join(_drop_text_commands(text).split()))
        if date_or_time is not None:
            return date_or_time
    if division := _PATTERNS["division"].fullmatch(plain):
        parts = (Num(Fraction(int(division[name]))) for name in ("quotient", "remainder"))
        return ValueList("()", tuple(parts))
    if "_" in text or "base" in text:
        number = _PATTERNS["number_in_base"].fullmatch(re.sub(r"[\s,]|\\\\", "", plain_text(text)))
        if number is not None:
            return _parse_based_number(number)
    return None


def _drop_text_commands(text: str) -> str:
    """Return ``text`` without the commands around words."""
    return re.sub(r"\\(?:text|mbox|mathrm|textbf|boxed|fbox)\s*\{|[{}]|\\[,;:! ]|~", " ", text)


def _read_vector_sum(text: str) -> Value | None:
    """Read a sum of multiples of tuples or columns: ``(1, 2) + t(3, 4)``; None for other texts."""
    match = _VECTOR_SUM.fullmatch(text) if len(text) < _MAX_LABELLED else None
    if match is None:
        return None
    rows = []
    for term in _VECTOR_TERMS.finditer(match["sum"]):
        factor = term["factor"].strip().removesuffix("\\cdot").strip()
        scale = read_cleaned(f"{term['sign'] or ''}{factor or '1'}")
        vector = read_cleaned(term["vector"])
        if isinstance(vector, Matrix):
            vector = ValueList("()", tuple(entry for row in vector.rows for entry in row))
        if not (is_node(scale) and isinstance(vector, ValueList)):
            return None
        entries = [entry for entry in vector.items if is_node(entry)]
        if len(entries) < len(vector.items):
            return None
        rows.append([multiply([scale, entry]) for entry in entries])
    if len({len(row) for row in rows}) != 1:
        return None
    total = ValueList("()", tuple(add(list(column)) for column in zip(*rows, strict=True)))
    name = read_cleaned(match["name"]) if match["name"] else None
    return total if name is None else Relation((name, total), ("=",))


def _find_span(text: str) -> re.Match[str] | None:
    """Match a set of numbers in words, or with a sign but without a variable: "> 5"."""
    if len(text) > MAX_SPECIAL:
        return None
    return _PATTERNS["span"].fullmatch(" ".join(replace_relation_words(plain_text(text)).split()))


def _read_reals_except(excluded: str) -> Value | None:
    """Return the real numbers without the values of a text; None if the text was not read."""
    values = _parse(excluded, letter_units=False)
    if values is None:
        return None
    return Connective("minus", (Sym("RR"), ValueList("{}", list_values(values))))


def _read_interval(span: re.Match[str], letter_units: bool) -> Value | None:
    """Read "at least 5", "5 or more" or "from 0 to 1 inclusive" as an interval."""
    lower: Value | None = negate(Const("inf"))
    upper: Value | None = Const("inf")
    if span["kind"]:
        brackets = "[]" if span["kind"] == "inclusive" else "()"
        lower = _parse(span["start"], letter_units)
        upper = _parse(span["end"], letter_units)
    else:
        sign = span["sign"] or ("\\ge" if span["more"] else "\\le")
        bound = _parse(span["bound"] or span["limit"], letter_units)
        if sign == ">" or sign.startswith("\\g"):
            lower = bound
            brackets = "()" if sign == ">" else "[)"
        else:
            upper = bound
            brackets = "()" if sign == "<" else "(]"
    if not (_is_bound(lower) and _is_bound(upper)):
        return None
    return ValueList(brackets, (lower, upper))


def _is_bound(value: Value | None) -> TypeGuard[Node | Quantity]:
    """Whether a value can be the bound of an interval."""
    return isinstance(value, Quantity) or (value is not None and is_node(value))


def _parse_based_number(match: re.Match[str]) -> Value | None:
    """Return a number in a base, ``25_6`` or "25 base six"; None if a digit is too large."""
    base_text = match["base"]
    base = int(base_text) if base_text.isdigit() else SMALL_NUMBERS.get(base_text, 0)
    digits = match["digits"].upper()
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    if any(int(c) >= base for c in digits if c.isdigit()) or (base < 11 and not _NUMERALS(digits)):
        return None
    return NumberInBase(match["sign"] + (digits.lstrip("0") or "0"), base)


def _format_domain(match: re.Match[str]) -> str:
    r"""Return the domain of a parameter as ``, k \in \mathbb{Z}``."""
    numbers = match["set"] or match["set2"] or "Z"
    name = match["name"] or match["name3"]
    return f" , {name} \\in \\mathbb{{{numbers}}}{(match['part'] or '').strip()}"


def _replace_union(text: str) -> str:
    r"""Return a union of sets over all whole numbers as ``(k, k+1) , k \in \mathbb{Z}``."""
    union = _PATTERNS["union_over_integers"].fullmatch(text)
    if union is None:
        return text
    braced = _PATTERNS["braced_set"].fullmatch(union["set"])
    return f"{braced['set'] if braced else union['set']} , {union['name']} \\in \\mathbb{{Z}}"


def unread_words(value: Value) -> str:
    """Return the words inside a value that were not read, such as the condition of a case."""
    match value:
        case Words():
            return " ".join(value.words)
        case Piecewise():
            return " ".join(
                unread_words(condition) for _, condition in value.branches if condition
            ).strip()
        case Relation():
            return " ".join(map(unread_words, value.parts)).strip()
        case ValueList():
            return " ".join(map(unread_words, value.items)).strip()
    return ""


def are_labelled_numbers(value: Value) -> bool:
    """Whether a list such as "A: 4, B: 14" was read as ratios of a letter and a number."""
    return isinstance(value, ValueList) and all(
        isinstance(item, Ratio) and isinstance(item.parts[0], Sym) and len(item.parts) == 2
        for item in value.items
    )


def alternatives(cleaned: str, value: Value) -> tuple[Value, ...]:
    """Return all possible values of a text, first ``value``.

    For example, "5:45" is a ratio or a time, and "70,110" is a number or a list.
    """
    if len(cleaned) > MAX_READ:
        return (value,)  # a number of a million digits would take 10 ms per pattern
    if cleaned == "None":
        return (value, UNDETERMINED)  # no solution, or a question that cannot be answered
    if isinstance(value, Ratio) and len(value.parts) in (2, 3):
        date_or_time = read_date_or_time(_drop_text_commands(cleaned))
        return (value,) if date_or_time is None else (value, date_or_time)
    if clock := _PATTERNS["hours_and_minutes"].fullmatch(plain_text(cleaned)):
        time = read_date_or_time(f"{clock[1]}:{clock[2]:0>2}")
        return (value,) if time is None else (value, time)
    if matrix := _nested_rows(value):
        return (value, matrix)  # as Mathematica writes it
    natural = value if "\\log" in cleaned else with_natural_logarithms(value)
    if natural != value:
        return (value, natural)  # the "log(2)" of programs
    is_list = isinstance(value, Num) and _PATTERNS["list"].fullmatch(cleaned)
    if is_list or (cleaned[:1] == "(" and _PATTERNS["bracketed_numbers"].fullmatch(cleaned)):
        numbers = (Num(Fraction(int(part))) for part in re.findall(r"\d+", cleaned))
        return (value, ValueList("", tuple(numbers)))
    if isinstance(value, ValueList) and value.brackets == "":
        is_compound = bool(value.items) and " or " not in cleaned
        total = combine_quantities(value.items) if is_compound else None
        return (value,) if total is None else (value, total)
    if ";" in cleaned and cleaned.startswith("[") and (matrix := _read_rows(cleaned)):
        return (value, matrix)
    if number_set := _PATTERNS["bold_number_set"].fullmatch(cleaned):
        return (value, Sym(number_set[1] * 2))
    if is_node(value) and _PATTERNS["python_complex"].fullmatch(cleaned):
        return (value, substitute(value, {"j": Const("i")}))
    if point := _PATTERNS["labelled_point"].fullmatch(cleaned):
        return _labelled_point(cleaned, point, value)
    return (value, *_read_without_context(cleaned))


def _nested_rows(value: Value) -> Matrix | None:
    """Return "{{1, 2}, {3, 4}}" as a matrix; None for other values."""
    if not isinstance(value, ValueList) or value.brackets != "{}" or len(value.items) < 2:
        return None
    rows = [item.items for item in value.items if isinstance(item, ValueList)]
    is_matrix = len(rows) == len(value.items) and len({*map(len, rows)}) == 1
    has_braces = all(isinstance(item, ValueList) and item.brackets == "{}" for item in value.items)
    return Matrix(tuple(rows)) if is_matrix and has_braces else None


def with_natural_logarithms(value: Value) -> Value:
    """Return an expression in which ``log`` without a base is the natural logarithm."""
    return _natural_logarithms(value) if is_node(value) else value


def _natural_logarithms(node: Node) -> Node:
    if isinstance(node, Call) and node.name == "log" and len(node.args) == 1:
        return Call("ln", (_natural_logarithms(node.args[0]),))
    return map_children(node, _natural_logarithms)


def _read_rows(cleaned: str) -> Matrix | None:
    """Read "[1, 2; 3, 4]" as a matrix; return None for other texts."""
    rows = [read(f"({row})") for row in cleaned.strip("[] ").split(";")]
    entries = tuple(
        row.items for row in rows if isinstance(row, ValueList) and row.brackets == "()"
    )
    is_matrix = len(entries) == len(rows) > 1 and len(set(map(len, entries))) == 1
    return Matrix(entries) if is_matrix else None


def _labelled_point(cleaned: str, point: re.Match[str], value: Value) -> tuple[Value, ...]:
    """Read "P(5, 2)" as a point, and as a number of arrangements."""
    coordinates = read(point["coordinates"])
    if not (isinstance(coordinates, ValueList) and coordinates.brackets == "()"):
        return (value,)
    items = coordinates.items
    if point["name"] in "AP" and len(items) == 2 and all(isinstance(item, Num) for item in items):
        return (value, coordinates, Call("perm", items))  # type: ignore[arg-type]
    return (value, coordinates)


def _read_parts(cleaned: str) -> ValueList | None:
    """Read "(a) 5 (b) 7" as the tuple of its parts; return None for other texts."""
    prefix, *pieces = _PATTERNS["part"].split(cleaned)
    labels = tuple(first or second for first, second in zip(pieces[::3], pieces[1::3], strict=True))
    values = tuple(map(read, pieces[2::3]))
    if prefix or labels not in _part_labels(len(labels)) or len(labels) < 2:
        return None
    if any(isinstance(value, Words) for value in values):
        return None
    return ValueList("()", values)


def _part_labels(count: int) -> list[tuple[str, ...]]:
    """Return the first labels of parts: a, b, ...; 1, 2, ...; i, ii, ...."""
    return [labels[:count] for labels in (tuple("abcde"), tuple("12345"), ("i", "ii", "iii", "iv"))]


def _read_without_context(text: str) -> tuple[Value, ...]:
    """Read "(B) 5" without the letter of the choice, and "3/4 (or 0.75)" as both values."""
    if len(text) > _MAX_LABELLED:
        return ()
    aside = _PATTERNS["aside"].fullmatch(unwrap_text(text))
    if aside is not None:
        sides = (read(aside[1]), read(aside[3] or aside[4]))
        if any(isinstance(side, Words) for side in sides):
            return ()
        return (Relation(sides, ("~" if aside["rounded"] else "=",)),)
    choice = _PATTERNS["chosen"].fullmatch(text)
    value = read(choice[1]) if choice else None
    # The value of "(C) B" is a choice or the text of one, so the letter before it decides.
    return () if value is None or isinstance(value, Words | Sym) else (value,)
