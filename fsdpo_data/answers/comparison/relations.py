"""Equations and definitions of functions: their domains, sides and names."""

from fractions import Fraction

from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.assignments import is_constant_assignment, is_function_name
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import all_names, free_symbols, rename_symbols
from fsdpo_data.answers.comparison.windows import INTEGER_NAMES
from fsdpo_data.answers.lexicon.units import unit_ratio
from fsdpo_data.answers.tree import (
    Call,
    Mul,
    Node,
    Num,
    Quantity,
    Relation,
    SetMembership,
    Sym,
    Unit,
    Value,
    ValueList,
    add,
    has_plus_minus,
    is_node,
    multiply,
    negate,
    plus_minus_values,
    substitute,
    walk,
)

#: Operators of inequalities. For each of them, ``a op b`` if and only if ``a - b op 0``.
INEQUALITY_OPS = frozenset(("<", ">", "<=", ">=", "!="))
#: Names of arbitrary constants.
_CONSTANT_NAMES = frozenset(("C", "K", "c", "k", "C_1", "c_1", "A"))


def expand_equalities(value: Value, other: Value) -> Value:
    """Return ``x = y = 5`` as ``x = 5, y = 5`` if the other value is a list of equations."""
    is_chain = isinstance(value, Relation) and len(value.ops) > 1 and set(value.ops) == {"="}
    if not (is_chain and isinstance(value, Relation) and isinstance(other, ValueList)):
        return value
    are_equations = all(isinstance(item, Relation) and item.ops == ("=",) for item in other.items)
    if not are_equations or len(other.items) != len(value.ops):
        return value
    return ValueList(
        "", tuple(Relation((part, value.parts[-1]), ("=",)) for part in value.parts[:-1])
    )


def rename_argument(value: Value, other: Value) -> Value:
    """Return ``d(h) = 3h, h > 0`` in the argument of another definition, ``d(t) = 3t, t > 0``."""
    if not (isinstance(value, ValueList) and isinstance(other, ValueList)):
        return value
    heads = [
        side.items[0].parts[0]
        for side in (other, value)
        if side.items and isinstance(side.items[0], Relation)
    ]
    are_definitions = all(isinstance(head, Call) and is_function_name(head.name) for head in heads)
    if len(heads) < 2 or not are_definitions:
        return value
    new_name, name = map(_argument_name, heads)
    if not (new_name and name) or new_name == name or new_name in all_names(value):
        return value
    items = tuple(rename_symbols(item, {name: new_name}) for item in value.items)
    return ValueList(value.brackets, items)


def definition_bodies(gold: Relation, answer: Relation) -> tuple[Value, Value] | None:
    """Return the right sides of two definitions of a function, in the same variable.

    One side must be ``f(x) = ...``; the other may be ``y = ...``. The result is None if the
    relations are not definitions of the same function.
    """
    if gold.ops != ("=",) or answer.ops != ("=",):
        return None
    left = gold.parts[0]
    right = answer.parts[0]
    if not isinstance(left, Call) and not isinstance(right, Call):
        return None
    if not isinstance(left, Call | Sym) or not isinstance(right, Call | Sym):
        return None
    if left.name != right.name and "y" not in (left.name, right.name):
        return None
    if any(isinstance(head, Call) and not is_function_name(head.name) for head in (left, right)):
        return None
    if left != right and not all(
        isinstance(head, Sym) or _argument_name(head) for head in (left, right)
    ):
        return None  # f(2) is not f(3)
    body = answer.parts[1]
    gold_variable = _argument_name(left)
    answer_variable = _argument_name(right)
    if gold_variable and answer_variable and gold_variable != answer_variable:
        if gold_variable in all_names(body):
            return None  # in "f(w) = 2x", x is another name
        body = rename_symbols(body, {answer_variable: gold_variable})
    return gold.parts[1], body


def _argument_name(head: Value) -> str:
    """Return the ``x`` of ``f(x)``, or "" if the argument is not one symbol.

    A capital letter, as in the expectation ``E(X)``, names an object.
    """
    if isinstance(head, Call) and len(head.args) == 1 and isinstance(head.args[0], Sym):
        name = head.args[0].name
        return "" if name[0].isupper() else name
    return ""


def without_domain_condition(value: Value) -> Value:
    """Return ``1/x`` for ``1/x, x != 0``: the condition only repeats the natural domain.

    Any other condition belongs to the answer: ``y = 2x, x > 0`` is half of the line ``y = 2x``.
    """
    if not (isinstance(value, ValueList) and value.brackets == "" and len(value.items) > 1):
        return value
    statement, *conditions = value.items
    head: Value | None = None
    body = statement
    if isinstance(statement, Relation) and statement.ops == ("=",):
        head = statement.parts[0]
        body = statement.parts[-1]
    if is_node(body) and all(_is_natural_domain(head, body, item) for item in conditions):
        return statement
    return value


def insert_definitions(value: Value) -> Value:
    """Return ``2/5`` for ``a/b, a = 2, b = 5``; other values are unchanged."""
    if not (isinstance(value, ValueList) and value.brackets == "" and len(value.items) > 1):
        return value
    formula, *definitions = value.items
    names: dict[str, Node] = {}
    for definition in definitions:
        if not isinstance(definition, Relation) or definition.ops != ("=",):
            return value
        name, meaning = definition.parts
        if not isinstance(name, Sym) or not is_node(meaning):
            return value
        names[name.name] = meaning
    is_defined = is_node(formula) and names.keys() <= free_symbols(formula)
    return substitute(formula, names) if is_node(formula) and is_defined else value


#: A condition such as ``x > b`` excludes the numbers up to ``b``. The body must have no value at
#: these distances below ``b`` (for ``x < b``, above ``b``).
_EXCLUDED_DISTANCES = (Fraction(1, 2), Fraction(1), Fraction(7, 3))


def _is_natural_domain(head: Value | None, body: Node, condition: Value) -> bool:
    """Whether a condition excludes only points at which ``body`` has no value.

    Examples are ``x != 0`` for ``1/x`` and ``x >= 1`` for ``sqrt(x - 1)``.
    """
    if isinstance(condition, SetMembership):
        if condition.right in (Sym("NN"), Sym("NN+")) and isinstance(condition.left, Sym):
            return _is_sequence(head, condition.left)
        is_whole = isinstance(condition.left, Sym) and condition.left.name in INTEGER_NAMES
        return condition.right == Sym("RR") and condition.left in walk(body) and not is_whole
    if not isinstance(condition, Relation) or len(condition.ops) != 1:
        return False
    name, bound = condition.parts
    op = condition.ops[0]
    if not (isinstance(name, Sym) and name.name in free_symbols(body) and op in INEQUALITY_OPS):
        return False
    if op == ">=" and bound in (Num(Fraction(0)), Num(Fraction(1))) and isinstance(head, Sym):
        return _is_sequence(head, name)
    excluded = list(plus_minus_values(bound)) if op in ("!=", "<", ">") else []
    if op != "!=" and isinstance(bound, Num):
        direction = 1 if op.startswith(">") else -1
        excluded += [Num(bound.value - direction * distance) for distance in _EXCLUDED_DISTANCES]
    for point in excluded:
        try:
            if is_node(point):
                # 0 is the index of the sample point, which gives all other symbols a value.
                Evaluator(0, Budget(10_000)).value(substitute(body, {name.name: point}))
            return False
        except UndefinedValueError:
            continue
    return bool(excluded)


def _is_sequence(head: Value | None, index: Sym) -> bool:
    """Whether the left side of a definition is a sequence with this index, such as ``a_n``."""
    return isinstance(head, Sym) and head.name.endswith(f"_{index.name}")


def square_out(relation: Relation) -> Relation:
    r"""Return ``y = \pm f(x)`` as ``(y - f(x)) (y + f(x)) = 0``; other relations are unchanged."""
    left, right = relation.parts
    if not (is_node(left) and is_node(right) and has_plus_minus(right)) or is_constant_assignment(
        relation
    ):
        return relation
    factors = [add([left, negate(value)]) for value in plus_minus_values(right) if is_node(value)]
    return Relation((multiply(factors), Num(Fraction(0))), ("=",))


def side_differences(gold: Relation, answer: Relation) -> tuple[Node, Node] | None:
    """Return left side minus right side of both relations.

    The result is None if a side is not an expression or if the units differ.
    """
    differences: list[Node] = []
    units: list[Unit] = []
    for relation in (gold, answer):
        quantities = [part for part in relation.parts if isinstance(part, Quantity)]
        units.extend(part.unit for part in quantities[:1])
        left, right = (
            part.node if isinstance(part, Quantity) else part for part in relation.parts[:2]
        )
        if not is_node(left) or not is_node(right):
            return None
        differences.append(add([left, negate(right)]))
    if len(units) == 2 and unit_ratio(units[0], units[1]) != 1:
        return None
    return differences[0], differences[1]


def arbitrary_constants(gold: Relation, answer: Relation) -> tuple[str, str] | None:
    """Return the constants C and K of two solutions ``y = Cx`` and ``y = Kx``.

    The result is None unless each side has one constant of its own.
    """
    sides = [all_names(side) for side in (gold, answer)]
    names = sides[0] - sides[1], sides[1] - sides[0]
    if not len(names[0]) == len(names[1]) == 1:
        return None
    constants = (min(names[0]), min(names[1]))
    is_arbitrary = _is_arbitrary(constants[0], gold) and _is_arbitrary(constants[1], answer)
    return constants if is_arbitrary else None


def _is_arbitrary(name: str, equation: Relation) -> bool:
    """Whether a name may be the arbitrary constant of an equation between variables.

    It is not in ``C = 2x + y``, ``sin A = x/y`` and ``QA = x + y``, which are about one C or A.
    """
    variables = all_names(equation) - _CONSTANT_NAMES
    if name not in _CONSTANT_NAMES or len(variables) < 2 or variables.isdisjoint("xyt"):
        return False
    constant = Sym(name)
    if constant == equation.parts[0] or (name == "A" and constant in equation.parts):
        return False
    for part in (part for side in equation.parts for part in walk(side)):
        if isinstance(part, Call) and constant in part.args:
            return False
        factors = part.factors if isinstance(part, Mul) else ()
        if constant in factors and any(map(_is_point, factors)) and name.isupper():
            return False
    return True


def _is_point(node: Node) -> bool:
    """Whether a factor is a letter that may name a point, as in ``QA``."""
    return isinstance(node, Sym) and node.name.isupper() and node.name not in _CONSTANT_NAMES
