"""Comparison of a gold with an answer: text first, then plain numbers, then parsed values."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, product

from fsdpo_data.answers import Verdict, tree
from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison.decisions import Decision, decide_by_readings, unread_gold
from fsdpo_data.answers.comparison.doubts import find_doubt_about_equal
from fsdpo_data.answers.comparison.expressions import within_tolerance
from fsdpo_data.answers.comparison.letter_products import differ_in_order
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.comparison.values import AnswerComparer
from fsdpo_data.answers.lexicon.numbers import numbers_agree
from fsdpo_data.answers.lexicon.units import are_opposites
from fsdpo_data.answers.parsing.prose import (
    UNDEFINED,
    are_anagrams,
    are_letters,
    are_roman_numerals,
    chosen_letter,
    letter_before_number,
    name_different_values,
    normalize_words,
    plain_words,
    same_words,
    single_letter,
    truth_values,
)
from fsdpo_data.answers.parsing.read import MAX_READ, ParsedAnswer, read, read_answer
from fsdpo_data.answers.parsing.readings import is_narrowed, split_words_and_formulas
from fsdpo_data.answers.tree import Num, Quantity, Relation, Value, ValueList, Words, is_node

#: A letter that names a vector; a product of vectors is not a product of numbers.
_VECTOR = re.compile(r"\\(?:mathbf|boldsymbol|vec)\s*\{?\s*([A-Za-z])")
#: Budget of one pair, in operations modulo a prime; they take about 30 ms.
MAX_OPERATIONS = 60_000
#: Minutes, points or cents, and tenths of a yuan or corners.
_UNCLEAR_UNIT = re.compile(r"\d\s*([分角])\W*$")
#: Words that replace several phrases, such as "да" for yes.
_FIXED_WORDS = (UNDEFINED, *(Words((word,)) for word in ("yes", "no", "true", "false")))


def compare_answers(
    gold: ParsedAnswer | str,
    answer: ParsedAnswer | str,
    tolerance: float | None = None,
    *,
    is_marked: bool = True,
) -> Verdict:
    """Compare two bare answers and return the verdict; no text raises an exception.

    The verdict is ``undecided`` if a side was not read and a fair reader could find both equal. An
    answer that the response does not mark (``is_marked``) is read only as a whole, and is incorrect
    if it was not read.

    With a ``tolerance``, an answer may also differ from a number in two ways. It may round to the
    gold at the digits that the gold shows, or have at most this relative error. A tolerance of 0
    allows only the first.
    """
    try:
        gold_answer = read_answer(gold) if isinstance(gold, str) else gold
        response_answer = read_answer(answer) if isinstance(answer, str) else answer
        return _compare_read(gold_answer, response_answer, tolerance, is_marked=is_marked)
    except Exception as error:  # a text that no rule foresees is not a wrong answer
        return failed_verdict(error, answer if isinstance(answer, str) else answer.text)


def failed_verdict(error: Exception, answer: str | None = None) -> Verdict:
    """Return the verdict on a text for which a rule raised an exception."""
    return Verdict(
        status="undecided", answer=answer, rule="error", unread=f"the grader: {error!r}"[:200]
    )


def _compare_read(
    gold_answer: ParsedAnswer,
    response_answer: ParsedAnswer,
    tolerance: float | None,
    *,
    is_marked: bool,
) -> Verdict:
    """Compare two answers by text, as plain numbers, and as parsed values."""
    if not gold_answer.text.strip():
        return Verdict("gold_unparsed", response_answer.text, "empty-gold")
    if not response_answer.text.strip():
        return Verdict("no_answer", response_answer.text, "empty-answer")
    verdict = _compare_numbers(gold_answer, response_answer, tolerance)
    if verdict is not None:
        return verdict
    if _have_unclear_units(gold_answer, response_answer):
        units = f"the unit: “{gold_answer.text}” and “{response_answer.text}”"
        decision = Decision("undecided", "unit", units)
    elif gold_answer.key == response_answer.key:
        return Verdict(
            status="correct",
            answer=response_answer.text,
            rule="text",
            gold_form=gold_answer.key,
            answer_form=gold_answer.key,
        )
    else:
        try:
            decision = _compare_parsed(gold_answer, response_answer, tolerance, is_marked=is_marked)
        except (BudgetExceededError, NumberTooLargeError):
            decision = Decision("timed_out", "budget")
    return Verdict(
        status=decision.status,
        answer=response_answer.text,
        rule=decision.rule,
        gold_form=gold_answer.form,
        answer_form=response_answer.form,
        unread=decision.unread,
    )


def _may_be_names(gold: ParsedAnswer, answer: ParsedAnswer) -> bool:
    """Whether both sides are lists of different letters, such as "T, F"."""
    return are_letters(gold.plain) and are_letters(answer.plain)


def _have_unclear_units(gold: ParsedAnswer, answer: ParsedAnswer) -> bool:
    """Whether one side has the unit 分 or 角, and the other side another unit."""
    if gold.text.isascii() and answer.text.isascii():
        return False
    units = [_UNCLEAR_UNIT.search(side.text) for side in (gold, answer)]
    if units[0] and units[1]:
        return units[0][1] != units[1][1]
    return bool((units[0] and _has_unit(answer.value)) or (units[1] and _has_unit(gold.value)))


def _compare_numbers(
    gold: ParsedAnswer, answer: ParsedAnswer, tolerance: float | None
) -> Verdict | None:
    """Return the verdict for a pair of plain numbers, None for other pairs."""
    left = gold.number
    right = answer.number
    if not isinstance(left, Num) or not isinstance(right, Num):
        return None
    is_equal = left is right or numbers_agree(left, right)
    if not is_equal and tolerance is not None:
        is_equal = within_tolerance(left, right, Fraction(tolerance), Budget(MAX_OPERATIONS))
    if not is_equal and "," in gold.text and "," in answer.text:
        return None  # both may be lists, such as "70,110"
    return Verdict(
        status="correct" if is_equal else "incorrect",
        answer=answer.text,
        rule="number",
        gold_form=gold.form,
        answer_form=answer.form,
    )


def _compare_parsed(
    gold: ParsedAnswer, answer: ParsedAnswer, tolerance: float | None, *, is_marked: bool
) -> Decision:
    """Return the decision about two answers that are not both plain numbers."""
    comparer = AnswerComparer(Budget(MAX_OPERATIONS), tolerance)
    is_equal, rule = _compare_values(gold, answer, comparer)
    if is_equal:
        if doubt := _doubt_about_equal(gold, answer, comparer):
            return doubt
        return Decision("correct", rule)
    if rule == "choice" or (gold.label and are_opposites(gold.label, answer.label)):
        return Decision("incorrect", rule)
    if is_marked:
        decision = decide_by_readings(gold, answer, comparer, rule=rule)
    else:
        unread = unread_gold(gold, answer) or _unread_statement(gold, answer, comparer)
        decision = Decision("undecided" if unread else "incorrect", rule, unread)
    if decision.status == "incorrect" and comparer.budget.unread:
        return Decision("undecided", "unread", comparer.budget.unread)
    return decision


def _compare_values(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> tuple[bool, str]:
    """Return whether the complete values of two answers are equal, and the rule that decided."""
    letters = [chosen_letter(side.plain) for side in (gold, answer)]
    if single_letter(gold.plain):
        letters[1] = letters[1] or letter_before_number(answer.plain)
    if all(letters):
        return letters[0] == letters[1], "choice"
    truths = [truth_values(side.plain) for side in (gold, answer)]
    if truths[0] and truths[0] == truths[1] and not _may_be_names(gold, answer):
        return True, "words"
    is_gold_words = isinstance(gold.value, Words)
    is_answer_words = isinstance(answer.value, Words)
    if same_words(gold.plain, answer.plain, either_is_text=is_gold_words or is_answer_words):
        return True, "words"
    if gold.value == answer.value and gold.value in _FIXED_WORDS:
        return True, "words"  # "yes" and "да"
    if gold.label and are_opposites(gold.label, answer.label):
        return False, "words"
    if is_gold_words and have_equal_words_and_formulas(gold.cleaned, answer.cleaned, comparer):
        return True, "words"
    if is_gold_words and is_answer_words:
        return False, "words"
    for gold_value, answer_value in _value_pairs(gold, answer):
        if comparer.is_equal(gold_value, answer_value):
            return True, comparison_rule(gold_value)
    if _are_equal_without_name(gold, answer, comparer):
        return True, "equation"
    if _is_concluded(gold, answer, comparer):
        return True, "conclusion"
    if _are_equal_with_letter_units(gold, answer, comparer):
        return True, "unit"
    if gold.dimensions and have_equal_dimensions(gold, answer, comparer):
        return True, "dimensions"
    if isinstance(gold.value, Num | Quantity) and answer.with_decimal_comma is not None:
        return comparer.is_equal(gold.value, answer.with_decimal_comma), "decimal-comma"
    if isinstance(answer.value, Num | Quantity) and isinstance(gold.with_decimal_comma, Quantity):
        return comparer.is_equal(gold.with_decimal_comma, answer.value), "decimal-comma"
    return False, comparison_rule(gold.value)


def _doubt_about_equal(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> Decision | None:
    """Return the decision about two equal values whose order or names differ, None without one."""
    is_number = [isinstance(side.value, Num) and "," in side.text for side in (gold, answer)]
    if (";" in gold.text or any(is_number)) and _is_reordered(gold, answer, comparer):
        return Decision("undecided", "order", "the gold: the order of its parts")
    truths = [truth_values(side.plain) for side in (gold, answer)]
    if all(truths) and truths[0] != truths[1]:
        if _may_be_names(gold, answer):
            return Decision("undecided", "order", "the gold: the order of its letters")
        return Decision("incorrect", "words")
    if are_anagrams(gold.plain, answer.plain):
        if are_roman_numerals(gold.plain, answer.plain):
            return Decision("incorrect", "words")
        return Decision("undecided", "names", f"the answer: “{answer.plain}”")
    if differ_in_order(gold.value, answer.value):
        return Decision("undecided", "order", "the gold: the order of its letters")
    vectors = [_VECTOR.findall(side.text) for side in (gold, answer)]
    if all(vectors) and vectors[0] != vectors[1] and "\\cdot" in gold.text:
        return Decision("undecided", "order", "the gold: a product of vectors")
    if doubt := find_doubt_about_equal(gold, answer):
        return Decision("undecided", "notation", doubt)
    if narrowed := _narrowed_side(gold, answer):
        return Decision("undecided", "guarded", narrowed)
    is_named = isinstance(gold.value, Relation) or isinstance(answer.value, Relation)
    if not is_named and name_different_values(gold.label, answer.label):
        return Decision("undecided", "names", f"the answer: “{' '.join(answer.label)}”")
    return None


def _narrowed_side(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return a side whose last words restrict its numbers, "x > 2 odd", if the other has none."""
    words = [_last_words(side.value) for side in (gold, answer)]
    if words[0] == words[1]:
        return ""
    for name, side, text in (("gold", gold, words[0]), ("answer", answer, words[1])):
        if is_narrowed(side.cleaned, text):
            return f"the {name}: “{text}”"
    return ""


def _last_words(value: Value) -> str:
    """Return the words after a relation that name no unit."""
    last = value.parts[-1] if isinstance(value, Relation) else None
    return " ".join(last.unit.words) if isinstance(last, Quantity) else ""


def _is_reordered(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> bool:
    """Whether two lists of plain numbers are equal only in another order.

    The parts of a gold with semicolons may be blanks, whose order counts, or roots.
    """
    sides = [_list_reading(side) for side in (gold, answer)]
    if not all(isinstance(side, ValueList) and side.brackets == "" for side in sides):
        return False
    gold_items, answer_items = (tree.list_values(side) for side in sides)
    if not all(isinstance(item, Num | Quantity) for item in (*gold_items, *answer_items)):
        return False
    return len(gold_items) == len(answer_items) and not all(
        map(comparer.is_equal, gold_items, answer_items)
    )


def _list_reading(side: ParsedAnswer) -> Value:
    """Return the list that a text may be, such as "70,110"; the value of another text."""
    lists = [value for value in side.alternatives if isinstance(value, ValueList)]
    return lists[0] if isinstance(side.value, Num) and lists else side.value


def _unread_statement(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return an answer in words that has the gold among its formulas, or "" if it has not."""
    if isinstance(gold.value, Words) or not isinstance(answer.value, Words):
        return ""
    states_gold = any(
        not reading.is_denied and comparer.is_equal(gold.value, value)
        for value, reading in answer.readings
    )
    return f"the answer: “{answer.plain}”" if states_gold else ""


def _value_pairs(gold: ParsedAnswer, answer: ParsedAnswer) -> Iterator[tuple[Value, Value]]:
    """Yield the values of both sides, then all pairs of their alternative readings."""
    yield gold.value, answer.value
    # The first pair of alternatives consists of the values themselves.
    yield from islice(product(gold.alternatives, answer.alternatives), 1, None)


def _are_equal_without_name(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> bool:
    """Whether one side is the equation of the other one with a name: "l: y = 2x + 3"."""
    statements = [side.named_statement for side in (gold, answer)]
    if statements[0] is not None and statements[1] is None:
        return comparer.is_equal(statements[0], answer.value)
    if statements[1] is not None and statements[0] is None:
        return comparer.is_equal(gold.value, statements[1])
    return False


def _is_concluded(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> bool:
    """Whether the last statement of the answer is the gold; a formula of logic has none."""
    conclusion = answer.conclusion
    if conclusion is None or gold.conclusion is not None:
        return False
    is_formula = isinstance(conclusion, tree.Sym | tree.Connective)
    return not is_formula and comparer.is_equal(gold.value, conclusion)


def _are_equal_with_letter_units(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> bool:
    """Whether two answers are equal if letters that cannot be variables are units.

    Letters cannot be variables if the other side is a number without letters, or if one of the
    sides spells out a unit.
    """
    names = [side.value.parts[0] for side in (gold, answer) if isinstance(side.value, Relation)]
    if len(names) == 2 and names[0] != names[1]:
        return False  # "A = 5 m" and "C = 5 m"
    gold_value = _assigned_value(gold.value)
    answer_value = _assigned_value(answer.value)
    if _has_letters(answer_value) and not _has_letters(gold_value):
        quantity = _assigned_value(answer.with_letter_units)
        return quantity != answer_value and comparer.is_equal(gold_value, quantity)
    if not (_has_unit(gold_value) or _has_unit(answer_value)):
        return False
    quantities = [_assigned_value(side.with_letter_units) for side in (gold, answer)]
    return quantities != [gold_value, answer_value] and comparer.is_equal(*quantities)


def _assigned_value(value: Value) -> Value:
    """Return the last side of an equation; other values are unchanged."""
    is_equation = isinstance(value, Relation) and set(value.ops) <= {"=", "~"}
    return value.parts[-1] if isinstance(value, Relation) and is_equation else value


def _has_unit(value: Value) -> bool:
    """Whether a value is a quantity with a known unit."""
    return isinstance(value, Quantity) and bool(value.unit.dims)


def have_equal_dimensions(
    gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer
) -> bool:
    """Whether two texts such as "10 ft x 18 ft" state the same lengths, in any order."""
    lengths = list(answer.dimensions)
    if len(lengths) != len(gold.dimensions):
        return False
    for length in gold.dimensions:
        match = next((other for other in lengths if comparer.is_equal(length, other)), None)
        if match is None:
            return False
        lengths.remove(match)
    return True


def have_equal_words_and_formulas(gold: str, answer: str, comparer: AnswerComparer) -> bool:
    """Whether two cleaned texts agree in words and formulas: "max at 1", "maximum at 1"."""
    gold_words, gold_formulas = split_words_and_formulas(gold[:MAX_READ])
    answer_words, answer_formulas = split_words_and_formulas(answer[:MAX_READ])
    if not 0 < len(gold_formulas) == len(answer_formulas) or len(gold_words) < 2:
        return False
    gold_normal = normalize_words(plain_words(" ".join(gold_words)))
    answer_normal = normalize_words(plain_words(" ".join(answer_words)))
    if gold_normal != answer_normal or not any(map(str.isalpha, gold_normal)):
        return False
    gold_values = [read(formula) for formula in gold_formulas]
    answer_values = [read(formula) for formula in answer_formulas]
    return all(map(comparer.is_equal, gold_values, answer_values))


def is_words(answer: str) -> bool:
    """Whether ``answer`` consists of words and is not a mathematical value."""
    return isinstance(read_answer(answer).value, Words)


def _has_letters(value: Value) -> bool:
    """Whether letters in ``value`` may be variables or units."""
    match value:
        case Quantity():
            return bool(free_symbols(value.node))
        case ValueList():
            return any(map(_has_letters, value.items))
        case Relation():
            return _has_letters(value.parts[-1])
        case Words():
            return True
    return is_node(value) and bool(free_symbols(value))


def comparison_rule(gold: Value) -> str:
    """Return the name of the comparison rule for a gold of this type."""
    match gold:
        case ValueList():
            return _LIST_RULES.get(gold.brackets, "tuple")
        case Relation():
            return "equation" if gold.ops == ("=",) else "inequality"
    return _RULES.get(type(gold), "expression")


#: Rules for lists, by their brackets.
_LIST_RULES = {"": "list", "{}": "set"}
#: Rules for other values, by type.
_RULES: dict[type, str] = {
    Num: "number", Quantity: "quantity", tree.Ratio: "ratio", tree.NumberInBase: "base",
    tree.Matrix: "matrix", tree.SetMembership: "set", tree.SetBuilder: "set",
    tree.Connective: "set", tree.DateOrTime: "time", Words: "words",
}  # fmt: skip
