"""Answers composed from parts of a response: a number with its unit or name.

The parts are read separately, and their trees are joined. The text of a composed answer is shown in
verdicts and compared with the text of the gold, but never parsed.
"""

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, tokenize
from fsdpo_data.answers.parsing.read import ParsedAnswer, read
from fsdpo_data.answers.parsing.units import parse_unit
from fsdpo_data.answers.tree import Value


def compose_answer(text: str, value: Value) -> ParsedAnswer:
    """Return an answer whose value is known; its text has no other readings."""
    answer = ParsedAnswer(text)
    answer.number = value if isinstance(value, tree.Num | tree.Quantity) else None
    answer.value = value
    answer.with_letter_units = value
    answer.alternatives = (value,)
    return answer


def add_unit(number: ParsedAnswer, unit_text: str) -> ParsedAnswer:
    """Return a number with the unit after it; unchanged if one of them is not what it seems."""
    node = number.value
    if not tree.is_node(node):
        return number
    try:
        cursor = TokenCursor(tokenize(unit_text), letter_units=True)
        unit = parse_unit(cursor, node)
    except UnparsableAnswerError:
        return number
    if unit is None or not cursor.is_at_end():
        return number
    return compose_answer(f"{number.text} {unit_text}", tree.Quantity(node, unit))


def add_name(answer: ParsedAnswer, name: str) -> ParsedAnswer:
    """Return an answer as an equation with the name before it: "y = 2"."""
    return compose_answer(
        f"{name} = {answer.text}", tree.Relation((read(name), answer.value), ("=",))
    )
