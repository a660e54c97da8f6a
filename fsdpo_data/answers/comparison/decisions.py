"""The decision about two answers whose values differ: by other readings, or undecided.

An answer that was not read is not a wrong answer. It stays undecided if a fair reader could still
find it equal to the gold.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

from fsdpo_data.answers import VerdictStatus, tree
from fsdpo_data.answers.comparison.assignments import assignments_by_name, is_function_name
from fsdpo_data.answers.comparison.doubts import find_doubt
from fsdpo_data.answers.comparison.exact_values import integer_value
from fsdpo_data.answers.comparison.letter_products import differ_in_order
from fsdpo_data.answers.comparison.periodic_sets import compare_periodic_sets, parameter_names
from fsdpo_data.answers.comparison.real_set_parser import parse_real_set
from fsdpo_data.answers.comparison.real_sets import NotASetError
from fsdpo_data.answers.comparison.relations import INEQUALITY_OPS, without_domain_condition
from fsdpo_data.answers.comparison.symbols import (
    all_names,
    free_symbols,
    indexed_names,
    rename_symbols,
)
from fsdpo_data.answers.comparison.unproven import find_unproven
from fsdpo_data.answers.comparison.values import AnswerComparer
from fsdpo_data.answers.comparison.windows import INTEGER_NAMES
from fsdpo_data.answers.lexicon.units import (
    PERCENT,
    are_opposites,
    are_same_things,
    is_currency,
)
from fsdpo_data.answers.parsing.prose import (
    UNDEFINED,
    are_different_words,
    is_known_word,
    may_choose_letter,
    plain_words,
    single_letter,
)
from fsdpo_data.answers.parsing.read import (
    MAX_READ,
    ParsedAnswer,
    read,
    with_natural_logarithms,
)
from fsdpo_data.answers.parsing.readings import (
    MAX_TEXT_CHARS,
    Reading,
    find_constants,
    find_islands,
    has_prose,
    is_denied,
    is_malformed,
)
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Value, Words

#: Values whose parts a sentence may state in any form.
_COMPOUND_TYPES = (
    tree.ValueList, tree.Matrix, tree.Relation, tree.SetMembership, tree.Connective,
    tree.SetBuilder, tree.Piecewise,
)  # fmt: skip
#: Powers of ten between units of one kind: with SI prefixes, erg and joule, square and cubic units.
_UNIT_POWERS = (2, 3, 4, 6, 7, 9, 12, 15)
_CURRENCY_POWERS = (2,)  #: Powers of ten between a currency and its coins.
_VARIABLES = frozenset("xyzn")  #: Letters that are no unit.
_PARAMETERS = frozenset(("t", "s", "lambda"))  #: Letters of the parameter of a line.
_COORDINATES = "xyzw"  #: First letters of the names of coordinates.
_MAX_RENAMED = 2  #: Most symbols that may have other names on the other side.
#: A name directly before an argument in brackets, such as ``\\operatorname{Re}(3+2i)``.
_CALL = re.compile(r"(?s)\\?(?:[A-Za-z]{1,8}|[a-z]{4,12}\{[A-Za-z]{1,8}\})[(\[].{1,80}[)\]]")
#: Steps that drop no content of a text.
_LOSSLESS_STEPS = frozenset(("unwrapped", "label", "conclusion"))


class Decision(NamedTuple):
    """The result of a comparison."""

    status: VerdictStatus  #: ``correct``, ``incorrect`` or ``undecided``.
    rule: str  #: Name of the rule that decided.
    unread: str = ""  #: For ``undecided``: the part of a side that was not read, with its side.


def decide_by_readings(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer, *, rule: str
) -> Decision:
    """Decide about two answers whose complete values differ; the first check that decides counts.

    Args:
        gold: The gold answer.
        answer: The answer of the response.
        comparer: The comparer of this pair, with the rest of its budget.
        rule: The rule by which the values differ.
    """
    for check in _CHECKS:
        decision = check(gold, answer, comparer)
        if decision is not None:
            return decision._replace(rule=decision.rule or rule)
    return Decision("incorrect", rule)


#: An answer that no check can make equal; the rule by which the values differ stays.
_INCORRECT = Decision("incorrect", "")


def _check_form(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """An answer that is too long or malformed is wrong."""
    if len(answer.text) > MAX_READ:
        return _INCORRECT
    is_refused = (
        isinstance(answer.value, Words) and not gold.unread and is_malformed(answer.cleaned)
    )
    return _INCORRECT if is_refused else None


def _check_labelled_parts(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """The parts of a gold with labels, "width 5, length 10", are compared one by one."""
    if not gold.labelled_parts:
        return None
    are_equal = _compare_labelled_parts(gold, answer, comparer)
    if are_equal is None:
        return None
    return Decision("correct" if are_equal else "incorrect", "labelled-parts")


def _check_forms(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """A gold in several forms, all of which the answer equals or none."""
    if not gold.forms:
        return None
    are_equal = [comparer.is_equal(form, answer.value) for form in gold.forms]
    if all(are_equal):
        return Decision("correct", "forms")
    is_value = not answer.unread and not isinstance(answer.value, Words)
    is_different = is_value and not any(are_equal)
    return _INCORRECT if is_different and not find_unproven(gold.value, answer.value) else None


def _check_dimensions(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Dimensions, "3 by 5", have no other reading."""
    return _INCORRECT if gold.dimensions and answer.dimensions else None


def _check_nouns(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Equal numbers of things with other names may be the same things."""
    nouns = _find_other_nouns(gold.value, answer.value, comparer)
    return Decision("undecided", "names", f"the nouns {nouns}") if nouns else None


def _check_readings(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Another reading of a side equals the other side."""
    guarded: Reading | None = None
    for gold_value, answer_value, reading in _reading_pairs(gold, answer):
        if reading.is_denied or not comparer.is_equal(gold_value, answer_value):
            continue
        if differ_in_order(gold_value, answer_value):
            return Decision("undecided", "order", "the gold: the order of its letters")
        # A gold has no superfluous part, so every part of it counts.
        is_lossless = reading.step in _LOSSLESS_STEPS or bool(reading.quantified_names)
        is_part_of_gold = answer_value is answer.value and not is_lossless
        if not reading.is_guarded and not is_part_of_gold:
            return Decision("correct", reading.step)
        guarded = guarded or reading
    if guarded is None:
        return None
    return Decision("undecided", "guarded", f"“{guarded.dropped.strip()}”")


def _check_bounds(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """A bound, "at least 5", and its number."""
    if _is_bound(gold, answer, comparer) or _is_bound(answer, gold, comparer):
        return Decision("undecided", "guarded", f"“{answer.plain}”")
    return None


def _check_repetitions(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """A list that repeats a value, and the same values once."""
    if _differ_in_repetitions(gold.value, answer.value, comparer):
        return Decision("undecided", "order", "the repetitions of a value")
    return None


def _check_renamed(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Sides that are equal with other names of their symbols, which must be bound."""
    renamed = _find_renamed(gold, answer, comparer)
    if not renamed:
        return None
    domains = parameter_names(gold.value), parameter_names(answer.value)
    is_free = domains[0] & all_names(answer.value) or domains[1] & all_names(gold.value)
    is_bound = all(domains) and renamed in domains and not is_free
    if is_bound or renamed <= gold.quantified[1] | answer.quantified[1]:
        return Decision("correct", "renamed")
    return Decision("undecided", "names", f"the names {', '.join(sorted(renamed))}")


def _check_notations(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """A notation with two meanings, one of which makes the sides equal."""
    part = find_doubt(gold, answer, comparer)
    return Decision("undecided", "notation", part) if part else None


def _check_names(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Names, functions, units and parameters whose meaning the texts do not give."""
    natural = [with_natural_logarithms(side.value) for side in (gold, answer)]
    if natural != [gold.value, answer.value] and comparer.is_equal(*natural):
        return Decision("undecided", "names", "the base of log")
    unclear = (
        _unclear_names(gold.value, answer.value)
        or _unread_call_or_unit(gold, answer)
        or _unclear_parameter(gold.value, answer.value, comparer)
        or _unclear_choice(gold, answer)
        or _unlisted_members(gold.value, answer.value, comparer)
    )
    return Decision("undecided", "names", unclear) if unclear else None


def _check_unread(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """A side that was not read completely, and may equal the other side."""
    if _states_no_part(gold, answer, comparer):
        return _INCORRECT
    unread = _unread_side(gold, answer)
    return Decision("undecided", "unread", unread) if unread else None


def _check_unproven(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Two equations or inequalities that differ in form, and for which no difference is proven."""
    unproven = find_unproven(gold.value, answer.value)
    return Decision("undecided", "unproven", unproven) if unproven else None


#: The checks in their order; each returns None if it does not decide.
_CHECKS = (
    _check_form, _check_labelled_parts, _check_forms, _check_dimensions, _check_nouns,
    _check_readings, _check_bounds, _check_repetitions, _check_renamed, _check_notations,
    _check_names, _check_unread, _check_unproven,
)  # fmt: skip


def _find_other_nouns(gold: Value, answer: Value, comparer: AnswerComparer) -> str:
    """Return the names of things of which equal numbers are counted, "48 clips" and "48 hats".

    The result is "" if two sides differ in more than names of things.
    """
    counts = [_counted_units(gold), _counted_units(answer)]
    other_units = [
        [unit for unit in left if not any(are_same_things(unit, other) for other in right)]
        for left, right in (counts, counts[::-1])
    ]
    nouns = [unit.label for units in other_units for unit in units]
    are_excluded = any(
        are_opposites(unit.words, other.words) for unit in counts[0] for other in counts[1]
    )
    if not nouns or are_excluded:
        return ""
    sides = map(_without_nouns, (gold, answer), other_units)
    return " and ".join(f"“{noun}”" for noun in nouns) if comparer.is_equal(*sides) else ""


def _counted_units(value: Value) -> list[tree.Unit]:
    """Return the names of counted things in a value, its items and its sides."""
    match value:
        case tree.Quantity():
            is_counted = bool(value.unit.words) and not value.unit.dims
            return [value.unit] if is_counted else []
        case tree.ValueList(items=parts) | tree.Relation(parts=parts):
            return [unit for part in parts for unit in _counted_units(part)]
    return []


def _without_nouns(value: Value, units: list[tree.Unit]) -> Value:
    """Return a value in which some names of things are left out."""
    match value:
        case tree.Quantity() if value.unit in units:
            return value.node
        case tree.ValueList():
            items = tuple(_without_nouns(item, units) for item in value.items)
            return tree.ValueList(value.brackets, items)
        case tree.Relation():
            sides = tuple(_without_nouns(side, units) for side in value.parts)
            return tree.Relation(sides, value.ops)
    return value


def _differ_in_repetitions(gold: Value, answer: Value, comparer: AnswerComparer) -> bool:
    """Whether the gold is a list that repeats a value, as a double root, and the answer is not."""
    if not (isinstance(gold, tree.ValueList) and isinstance(answer, tree.ValueList)):
        return False
    if gold.brackets or answer.brackets or len(gold.items) <= len(answer.items):
        return False
    gold_set = tree.ValueList("{}", gold.items)
    return comparer.is_equal(gold_set, tree.ValueList("{}", answer.items))


def _unclear_names(gold: Value, answer: Value) -> str:
    """Return a name or words of a side that may mean what the other side is, or "".

    A name alone is not comparable with a value: it may be a choice, or be defined in the question.
    Words after an expression may be letters of it.
    """
    for side, value, other in (("gold", gold, answer), ("answer", answer, gold)):
        if isinstance(value, tree.NumberInBase) and isinstance(other, tree.Num):
            return f"the {side}: its base" if value.digits == format_value(other) else ""
        if unknown := _unknown_functions(value) - _unknown_functions(other):
            return f"the {side}: {min(unknown)}"
        if value == UNDEFINED and other == tree.ValueList("{}", ()):
            return f"the {side}: what does not exist"
        is_other_value = not isinstance(other, tree.Sym | Words)
        if isinstance(value, tree.Sym) and is_other_value and value.name not in _names(other):
            return f"the {side}: the name {value.name}"
        if applied := (_applied_names(value) - _applied_names(other)) & all_names(other):
            return f"the {side}: the argument of {min(applied)}"
        if isinstance(value, tree.ValueList | tree.Matrix) and _may_be_vector(other):
            return f"the {side}: its unit vectors"
        words = _unknown_words(value)
        if words and (_names(value) or _names(other)):
            return f"the {side}: “{' '.join(words)}”"
    return ""


def _may_be_in_other_units(side: ParsedAnswer, other: Value) -> bool:
    """Whether letters after a number may be a unit that no table has: "60 G" and "6 mT"."""
    if not (isinstance(other, tree.Quantity) and other.unit.dims):
        return False
    value = side.with_letter_units
    letters = free_symbols(value) if tree.is_node(value) else frozenset()
    if not letters or letters & _VARIABLES:
        return False
    return not any(isinstance(part, tree.Add | tree.Call) for part in tree.walk(value))


def _unread_call_or_unit(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return a side that is a call, "B(2,3)", or has an unknown unit, if the other is one value."""
    for name, side, other in (("gold", gold, answer), ("answer", answer, gold)):
        is_unread = isinstance(side.value, Words) and not any(map(tree.is_node, side.alternatives))
        is_call = is_unread and _CALL.fullmatch(side.cleaned) and tree.is_node(other.value)
        if is_call or _may_be_in_other_units(side, other.value):
            return f"the {name}: “{side.plain}”"
    return ""


def _unclear_choice(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return an answer that may state the choice of the gold with its value, "C - 12", or ""."""
    letter = single_letter(gold.plain)
    return f"the answer: “{answer.plain}”" if may_choose_letter(letter, answer.plain) else ""


def _applied_names(value: Value) -> frozenset[str]:
    """Return the functions in an equation that defines none, as y in ``y'(t) + y(t) = 0``."""
    is_equation = isinstance(value, tree.Relation) and not isinstance(value.parts[0], tree.Call)
    sides = value.parts if isinstance(value, tree.Relation) and is_equation else ()
    parts = [part for side in sides if tree.is_node(side) for part in tree.walk(side)]
    return frozenset(
        part.name for part in parts if isinstance(part, tree.Call) and is_function_name(part.name)
    )


def _may_be_vector(value: Value) -> bool:
    """Whether letters of an expression may be the unit vectors i and j."""
    return tree.is_node(value) and {tree.Const("i"), tree.Sym("j")}.issubset(tree.walk(value))


def _unclear_parameter(gold: Value, answer: Value, comparer: AnswerComparer) -> str:
    """Return a parameter over which both sides run, if no rule compares them, or ""."""
    letters = [_letters_of_points(side) for side in (gold, answer)]
    are_lines = _has_assignments(gold, answer) or isinstance(gold, tree.Relation)
    if all(letters) and (letters[0] != letters[1] or are_lines or letters[0] & _PARAMETERS):
        return f"the points over {min(letters[0])}"
    sides = [without_domain_condition(side) for side in (gold, answer)]
    has_domain = any(map(parameter_names, sides))
    names = [all_names(side) & INTEGER_NAMES | parameter_names(side) for side in sides]
    if not all(names) or not (has_domain or names[0].isdisjoint(names[1])):
        return ""
    is_compared = compare_periodic_sets(gold, answer, comparer.budget) is not None
    return "" if is_compared else f"the values over all {min(names[0])}"


def _unlisted_members(gold: Value, answer: Value, comparer: AnswerComparer) -> str:
    """Return a set with conditions whose members no rule lists, if the other side is a list, or "".

    ``{x in Z | 1 <= x <= 3}`` may be ``{1, 2, 3}``. A set of real numbers was compared.
    """
    for side, value, other in (("gold", gold, answer), ("answer", answer, gold)):
        if not (isinstance(other, tree.ValueList) and other.brackets in ("", "{}")):
            continue
        try:
            if _may_list(value, other):
                parse_real_set(value, comparer.budget)
        except NotASetError:
            return f"the {side}: the members of its set"
    return ""


def _may_list(value: Value, members: tree.ValueList) -> bool:
    """Whether a set with conditions may have these members; without bounds it has no last one."""
    if isinstance(value, tree.SetBuilder):
        has_bounds = any(
            isinstance(condition, tree.Relation) and condition.parts[0] != value.head
            for condition in value.conditions
        )
        return has_bounds or tree.Sym("ldots") in members.items
    if isinstance(value, tree.ValueList) and parameter_names(value):
        bounds = (item for item in value.items if isinstance(item, tree.Relation))
        return any(INEQUALITY_OPS.issuperset(bound.ops) for bound in bounds)
    return False


def _letters_of_points(value: Value) -> frozenset[str]:
    """Return the letters in the coordinates of ``(1 + t, 2)``, ``x = 1 + t, y = 2``, or a line."""
    if isinstance(value, tree.Relation) and set(value.ops) == {"="}:
        if len(value.parts) > 2:  # (x - 1)/2 = (y - 3)/4 = z
            return all_names(value) if all_names(value.parts[-1]) else frozenset()
        value = value.parts[1]
    if isinstance(value, tree.ValueList) and _has_assignments(value):
        bodies = [item.parts[-1] for item in value.items if isinstance(item, tree.Relation)]
        return frozenset().union(*map(all_names, bodies))
    is_point = isinstance(value, tree.ValueList) and value.brackets == "()"
    return all_names(value) if is_point or isinstance(value, tree.Matrix) else frozenset()


def _has_assignments(*sides: Value) -> bool:
    """Whether one of the sides names its coordinates: ``x = t, y = 2t``."""
    names = [assignments_by_name(side) for side in sides if isinstance(side, tree.ValueList)]
    return any(side and all(name[0] in _COORDINATES for name in side) for side in names)


def _unknown_functions(value: Value) -> frozenset[str]:
    """Return what a constant contains and the grader does not evaluate: functions and dots."""
    if not tree.is_node(value):
        return frozenset()
    calls = [part for part in tree.walk(value) if isinstance(part, tree.Call)]
    functions = {
        f"the function {call.name}"
        for call in calls
        if is_function_name(call.name) or _is_unclear_remainder(call)
    }
    dots = {"its dots"} if "ldots" in free_symbols(value) else set()
    return frozenset(functions | dots)


def _is_unclear_remainder(call: tree.Call) -> bool:
    """Whether a call is the remainder of a number that is not an integer: 1/3 mod 7 may be 5."""
    return call.name == "mod" and not free_symbols(call) and integer_value(call) is None


def _find_renamed(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> frozenset[str]:
    """Return the names of a side without which the two sides are equal; empty if none are."""
    gold_value, gold_quantified = gold.quantified
    answer_value, _ = answer.quantified
    names = sorted(_names(gold_value) - _names(answer_value))
    other_names = sorted(_names(answer_value) - _names(gold_value))
    if not 0 < len(names) == len(other_names) <= _MAX_RENAMED:
        return frozenset()
    for order in permutations(names):
        renamed = rename_symbols(answer_value, dict(zip(other_names, order, strict=True)))
        if comparer.is_equal(gold_value, renamed):
            return frozenset(names if gold_quantified.issuperset(names) else other_names)
    return frozenset()


def _names(value: Value) -> frozenset[str]:
    """Return the names of the symbols of a value, also of relations and memberships."""
    match value:
        case tree.Relation():
            return frozenset().union(*map(_names, value.parts))
        case tree.SetMembership():
            return _names(value.left)
        case tree.ValueList():
            return frozenset().union(*map(_names, value.items))
    return free_symbols(value) | indexed_names(value)


def _unknown_words(value: Value) -> tuple[str, ...]:
    """Return the words after an expression that name no known unit."""
    if isinstance(value, tree.Relation):
        value = value.parts[-1]
    if not isinstance(value, tree.Quantity) or value.unit.dims:
        return ()
    return value.unit.words


def _is_bound(side: ParsedAnswer, other: ParsedAnswer, comparer: AnswerComparer) -> bool:
    """Whether a side is a bound, "at least 5", and the other side is its number."""
    value = side.value
    if not isinstance(value, tree.ValueList) or "infty" in side.cleaned:
        return False
    numbers = [item for item in value.items if not _is_infinite(item)]
    has_one_bound = len(value.items) == 2 and len(numbers) == 1
    return has_one_bound and comparer.is_equal(numbers[0], other.value)


def _is_infinite(value: Value) -> bool:
    return tree.is_node(value) and tree.Const("inf") in tree.walk(value)


def _compare_labelled_parts(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> bool | None:
    """Compare "width 5, length 10" with an answer by labels, or with a list in the same order.

    Returns None if the answer has other labels, or states the values in another order.
    """
    parts = gold.labelled_parts
    answer_parts = answer.labelled_parts
    if isinstance(answer.value, tree.ValueList):
        assignments = assignments_by_name(answer.value)
        answer_parts = {name.lower(): value for name, value in assignments.items()}
    if parts.keys() == answer_parts.keys():
        return all(comparer.is_equal(value, answer_parts[label]) for label, value in parts.items())
    items = answer.value.items if isinstance(answer.value, tree.ValueList) else ()
    has_order = isinstance(answer.value, tree.ValueList) and answer.value.brackets in ("", "()")
    if (
        has_order
        and len(items) == len(parts)
        and all(map(comparer.is_equal, parts.values(), items))
    ):
        return True
    return None


def _reading_pairs(
    gold: ParsedAnswer, answer: ParsedAnswer
) -> Iterator[tuple[Value, Value, Reading]]:
    """Yield the pairs of values to compare, the best-ranked readings first.

    One of the two sides is always read as a whole. Otherwise "3 more red" would equal "3 more
    blue".
    """
    if not isinstance(gold.value, Words):
        for value, reading in answer.readings:
            if _can_be(reading, gold.value):
                yield gold.value, value, reading
    if not isinstance(answer.value, Words):
        for value, reading in gold.readings:
            if _can_be(reading, answer.value):
                yield value, answer.value, reading


def _can_be(reading: Reading, other: Value) -> bool:
    """Whether a reading may be compared with the complete value of the other side."""
    if reading.step == "parts":
        return isinstance(other, _COMPOUND_TYPES)
    # "y = 9" is not "x = 9", so the last side of an equation alone is not an equation.
    return reading.step != "last-side" or not isinstance(other, tree.Relation)


def _states_no_part(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> bool:
    """Whether a gold of words has formulas, all were read, and the answer equals none of them.

    A sentence in the answer may state the gold in other words, so the answer must be a value.
    """
    if not gold.unread or answer.unread or isinstance(answer.value, Words):
        return False
    if len(gold.text) < MAX_TEXT_CHARS and _is_constant(answer.value):
        constants = find_constants(gold.unwrapped)
        values = [read(constant) for constant in constants or ()]
        if constants and not any(isinstance(value, Words) for value in values):
            return not any(comparer.is_equal(value, answer.value) for value in values)
    if not gold.islands:
        return False
    answer_items = (answer.value, *tree.list_values(answer.value))
    gold_items = [item for value in gold.islands for item in (value, *tree.list_values(value))]
    return not any(
        comparer.is_equal(gold_item, answer_item)
        for gold_item in gold_items
        for answer_item in answer_items
    )


def _is_constant(value: Value) -> bool:
    """Whether a value is a number, with or without a unit."""
    node = value.node if isinstance(value, tree.Quantity) else value
    return tree.is_node(node) and not free_symbols(node)


def _unread_side(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return the part of a side that was not read, with the name of the side, or ""."""
    if gold.unread:
        return unread_gold(gold, answer)
    if isinstance(gold.value, Words):
        return _undecided_words(gold, answer)
    if _may_have_another_unit(gold.value, answer.value):
        return "the gold: its unit"
    # "True, false, false" answers a list, and denies nothing.
    if is_denied(answer.plain) and not isinstance(gold.value, tree.ValueList):
        return ""
    if not (part := answer.unread):
        is_open = isinstance(answer.value, Words) and len(answer.alternatives) == 1
        is_open = is_open and not is_known_word(answer.plain)
        return f"the answer: “{answer.plain}”" if is_open else ""
    if has_prose(answer.plain) and not isinstance(gold.value, _COMPOUND_TYPES):
        # A sentence whose formulas were all read states none that equals the gold.
        islands = find_islands(answer.unwrapped)
        if islands and not any(isinstance(read(island), Words) for island in islands):
            return ""
    return f"the answer: “{part}”"


def _may_have_another_unit(gold: Value, answer: Value) -> bool:
    """Whether a gold number without a unit may be the answer in another unit: 8.7e8 and 8.7e6 m."""
    if not (isinstance(gold, tree.Num) and isinstance(answer, tree.Quantity)):
        return False
    number = answer.node
    is_measure = bool(answer.unit.dims) and answer.unit.dims != PERCENT.dims
    if not is_measure or not isinstance(number, tree.Num) or 0 in (number.value, gold.value):
        return False
    if gold.decimal_places is None and gold.value.denominator == 1:
        return False  # a count or an exact number has no hidden unit
    ratio = gold.value / number.value
    powers = _CURRENCY_POWERS if is_currency(answer.unit) else _UNIT_POWERS
    return any(ratio in (Fraction(10) ** k, Fraction(10) ** -k) for k in powers)


def unread_gold(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return the part of a gold that was not read, or "" if no part can equal the answer.

    A sentence without formulas, such as "I have no idea", does not equal a gold with formulas.
    """
    if not gold.unread:
        return ""
    if max(len(gold.text), len(answer.text)) > MAX_READ:
        return f"the gold: “{gold.unread}”"
    is_prose = isinstance(answer.value, Words) and not answer.unread
    has_common_word = set(plain_words(gold.plain)) & set(plain_words(answer.plain))
    return "" if is_prose and not has_common_word else f"the gold: “{gold.unread}”"


def _undecided_words(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return the words of a side that may mean the other side, or "".

    Words differ from each other if a closed list has both, such as yes and no. Other words may be
    names of one thing.
    """
    if not isinstance(answer.value, Words):
        return "" if is_known_word(gold.plain) else f"the gold: “{gold.plain}”"
    if _is_denial(gold, answer) or are_different_words(gold.plain, answer.plain):
        return ""
    return f"the words: “{gold.plain}” and “{answer.plain}”"


def _is_denial(gold: ParsedAnswer, answer: ParsedAnswer) -> bool:
    """Whether an answer denies the words of the gold, or has none of them: "I have no idea"."""
    gold_words = set(plain_words(gold.plain))
    answer_words = set(plain_words(answer.plain))
    is_related = bool(gold_words & answer_words)
    is_part = gold_words < answer_words or answer_words < gold_words
    other_words = " ".join(gold_words ^ answer_words)
    return is_denied(other_words if is_part else answer.plain) and (is_part or not is_related)
