"""Parser of complete answers: lists, sets, intervals, relations, ratios, matrices.

An answer is parsed completely or not at all.
"""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.names import as_node, is_number_set
from fsdpo_data.answers.parsing.quantities import QuantityParser
from fsdpo_data.answers.tree import Node, Value
from fsdpo_data.core.toml_tables import read_toml

_TABLE = read_toml(__file__)
_RELATIONS: dict[str, str] = _TABLE["relations"]
_SET_OPS: dict[str, str] = _TABLE["sets"]
_SET_WORDS: dict[str, str] = _TABLE["sets_in_words"]
_LEADING_WORDS = word_set(_TABLE["leading"])
_MATRIX_ENVIRONMENTS = word_set(_TABLE["matrices"])
#: Environments that contain a list of equations or branches.
_SYSTEM_ENVIRONMENTS = word_set("cases aligned align gathered")
_MAX_DETERMINANT_ROWS = 4  #: Maximum number of rows of a determinant that is expanded.
_UNIT_VECTORS = ("basisi", "basisj", "basisk")  #: The unit vectors, as ``clean`` writes them.


class AnswerParser(QuantityParser):
    """Parser of a complete answer."""

    _last_separator = ""  #: The last separator of a list: ",", "and" or "wedge".

    def parse_answer(self) -> Value:
        """Parse all tokens.

        Raises:
            UnparsableAnswerError: The tokens are not a complete answer of this grammar.
        """
        value = self.parse_value()
        self.accept(".")
        if not self.is_at_end():
            raise UnparsableAnswerError(
                f"the token {self.peek().text} follows the end of the answer"
            )
        return value

    def parse_value(self) -> Value:
        """Parse alternatives: ``a or b``; each of them may be a list."""
        parts = [self._parse_list()]
        has_logical_or = False
        while self.accept_word("or") or self.accept("vee"):
            has_logical_or = self.tokens[self.position - 1].text == "vee"
            parts.append(self._parse_list())
        if len(parts) == 1:
            return parts[0]
        are_statements = all(map(_is_statement, parts)) or _have_different_names(parts)
        if are_statements or (has_logical_or and all(map(_is_formula, parts))):
            return tree.Connective("or", tuple(parts))
        return tree.ValueList("", tuple(item for part in parts for item in tree.list_values(part)))

    def _parse_list(self) -> Value:
        """Parse a list of values or statements, or a single one."""
        items = [self._parse_item()]
        has_comma = False
        while self._accept_separator():
            following = self._parse_item()
            items.append(following)
            has_comma = has_comma or self._last_separator == ","
        cases = _combine_cases(items)
        if cases is not None or len(items) == 1:
            return cases or items[0]
        is_logical = self._last_separator == "wedge" and all(map(_is_formula, items))
        if is_logical or (not has_comma and all(map(_is_statement, items))):
            return tree.Connective("and", tuple(items))
        return tree.ValueList("", _distribute_equations(tuple(items)))

    def _accept_separator(self) -> bool:
        """Step over a separator of list items, and store it in ``_last_separator``."""
        if self.is_at_end():
            return False
        if self.accept(",", ";"):
            self._last_separator = ","
            if self.peek_word() == "or":
                return False
            self.accept_word("and")
            self.accept("&")
            if self.is_at_end():
                raise UnparsableAnswerError("the list ends in a comma")
            return True
        if self.accept_word("and") or self.accept("wedge"):
            self._last_separator = self.tokens[self.position - 1].text
            return True
        return False

    def _parse_item(self) -> Value:
        """Parse a value or a chain of relations, with its condition."""
        value = self._parse_statement()
        return self._parse_branch(value, prose=True) if self.is_condition_next() else value

    def _parse_statement(self) -> Value:
        """Parse a value, a chain of relations or a set membership."""
        while self.peek_word() in _LEADING_WORDS:
            self.position += 1
        parts = [self._parse_operand()]
        ops: list[str] = []
        while (sign := self.peek_sign()) in _RELATIONS:
            self.position += 1
            ops.append(_RELATIONS[sign])
            parts.append(self._parse_operand())
        if ops:
            return tree.Relation(tuple(parts), tuple(ops))
        if self.is_at_end():
            return parts[0]
        is_word = self.peek_word() == "in" and self.peek_sign(1) in (
            "(",
            "[",
            "lset",
            "mathbb",
            "]",
        )
        sign = self.accept_word("in") if is_word else self.accept("in", "notin")
        if not sign:
            return parts[0]
        return tree.SetMembership(parts[0], self._parse_set_operand(), negated=sign == "notin")

    def _parse_set_operand(self) -> Value:
        """Parse the set of a membership; a plain letter Z is the set of integers."""
        token = self.peek()
        if token.kind == "let" and token.text in "ZNQRC":
            self.position += 1
            return self._parse_number_set(token.text * 2)
        return self._parse_operand()

    def _parse_operand(self) -> Value:
        """Parse a value, or sets joined by union, intersection and difference."""
        if self.peek_sign() in ("approx", "sim", "="):  # "≈ 3.14", "= 5"
            self.position += 1
        value = self._parse_quantity_or_ratio()
        operation_count = 0
        while not self.is_at_end() and (op := self._peek_set_operation(value)):
            self.position += 1
            self.enter_level()
            value = tree.Connective(op, (value, self._parse_quantity_or_ratio()))
            operation_count += 1
        self.depth -= operation_count
        return value

    def _peek_set_operation(self, value: Value) -> str | None:
        """Return the set operation that follows ``value``, or None."""
        if (
            self.peek_word() == "u"
            and self.peek_sign(1) in ("(", "[", "lset")
            and not tree.is_node(value)
        ):
            return "union"
        if self.peek_sign() == "-":
            is_set = isinstance(value, tree.ValueList | tree.SetBuilder | tree.Connective)
            return "minus" if is_set or is_number_set(value) else None
        return _SET_OPS.get(self.peek_sign()) or _SET_WORDS.get(self.peek_word())

    def _parse_quantity_or_ratio(self) -> Value:
        """Parse a quantity, or a ratio of two or more numbers."""
        first = self.parse_quantity()
        if not tree.is_node(first) or self.is_at_end():
            return first
        parts = [as_node(first)]
        while (self.peek_sign() == ":" and not self.bars_close) or (
            self.peek_word() == "to" and self.peek().kind == "word"
        ):
            self.position += 1
            parts.append(as_node(self.parse_sum()))
        return tree.Ratio(tuple(parts)) if len(parts) > 1 else first

    def parse_bracket(self, opener: str) -> Value:
        """Parse the content and the end of a bracket, including sets and systems of equations."""
        # "{x | x > 2}" has no backslashes.
        is_builder = opener == "{" and self.peek().kind == "let" and self.peek_sign(1) in ("|", ":")
        if opener == "lset" and self.peek().text == "array":
            self.take()
            return self._parse_system()
        if opener == "lset" or is_builder:
            return self._parse_set()
        return super().parse_bracket(opener)

    def _parse_set(self) -> Value:
        """Parse ``{1, 2}`` or ``{x | x > 2}``; the opening brace is already taken."""
        if self.accept("rset", "}"):
            return tree.ValueList("{}", ())
        head = self.parse_inside(bars_close=True)
        has_conditions = bool(self.accept("|", ":", ";"))
        conditions = self.parse_inside(bars_close=False) if has_conditions else None
        self.expect("rset", "}")
        if conditions is None:
            return tree.ValueList("{}", tree.list_values(head))
        return tree.SetBuilder(head, tree.list_values(conditions))

    def parse_primary(self) -> Value:
        """Parse a matrix or another operand."""
        if self.peek().kind == "begin":
            return self._parse_matrix()
        return super().parse_primary()

    def _parse_system(self) -> Value:
        r"""Parse the equations or branches of ``\begin{cases} … \end{cases}``."""
        items: list[Value] = []
        while self.peek().kind != "end":
            value = self._parse_item()
            has_comma = bool(self.accept(",", ";"))
            is_row_end = self.peek_sign() == "\\" or self.peek().kind == "end"
            if self.accept("&") or (
                has_comma and not is_row_end and not isinstance(value, tree.Relation)
            ):
                value = self._parse_branch(value, prose=False)
            items.append(value)
            if not self.accept("\\"):
                break
            self.accept("&")
        if self.take().kind != "end":
            raise UnparsableAnswerError("the environment has no end")
        return _combine_cases(items) or tree.ValueList("", tuple(items))

    def _parse_branch(self, value: Value, prose: bool) -> Value:
        """Parse the condition of a branch; the condition "otherwise" is None.

        Args:
            value: The value or equation of the branch.
            prose: Whether the branch is part of a sentence, not of an environment.
        """
        condition = None if self.accept_word("otherwise", "else") else self._parse_condition(prose)
        if not prose:
            self.accept(".")
        if isinstance(value, tree.Relation) and value.ops == ("=",):
            piecewise = tree.Piecewise(((value.parts[1], condition),))
            return tree.Relation((value.parts[0], piecewise), ("=",))
        return tree.Piecewise(((value, condition),))

    def _parse_condition(self, prose: bool) -> Value:
        """Parse the condition of a branch; in an environment, other text becomes ``Words``."""
        self.accept_word("if", "for", "when", "where")
        self.accept("&")
        start = self.position
        depth = self.depth
        try:
            condition = self._parse_statement()
            if prose:
                return condition
            self.accept(",", ";", ".")
            if self.peek_sign() == "\\" or self.peek().kind == "end":
                return condition
        except UnparsableAnswerError:
            if prose:
                raise
        self.position = start
        self.depth = depth
        words: list[str] = []
        while self.peek_sign() != "\\" and self.peek().kind not in ("end", "eof"):
            words.append(self.take().text.lower())
        return tree.Words(tuple(word for word in words if word not in ("is", ",", "{", "}", ".")))

    def _parse_matrix(self) -> Value:
        """Parse an environment: a matrix, a determinant or a system of equations."""
        name = self.take().text
        if name in _SYSTEM_ENVIRONMENTS:
            return self._parse_system()
        if name not in _MATRIX_ENVIRONMENTS:
            raise UnparsableAnswerError(f"the environment {name} is not supported")
        rows: list[tuple[Value, ...]] = []
        row: list[Value] = []
        while self.peek().kind != "end":
            row.append(self.parse_quantity())
            if self.accept("&"):
                continue
            rows.append(tuple(row))
            row = []
            if not self.accept("\\"):
                break
        if self.take().kind != "end" or len({len(row) for row in rows}) != 1:
            raise UnparsableAnswerError(
                "the rows of the matrix differ in length, or the matrix has no end"
            )
        if name == "vmatrix":
            return _expand_determinant([[as_node(entry) for entry in row] for row in rows])
        return tree.Matrix(tuple(rows))


def _combine_cases(items: list[Value]) -> Value | None:
    """Return values with conditions as one piecewise function; None if no value has a condition.

    Raises:
        UnparsableAnswerError: Only one or only some of the values have a condition.
    """
    heads = {item.parts[0] for item in items if isinstance(item, tree.Relation)}
    bodies = [item.parts[-1] if isinstance(item, tree.Relation) else item for item in items]
    pieces = [body for body in bodies if isinstance(body, tree.Piecewise)]
    branches = [branch for piece in pieces for branch in piece.branches]
    if not branches:
        return None
    if len(branches) == 1 or len(heads) > 1 or len(pieces) < len(bodies):
        raise UnparsableAnswerError("only some of the values have a condition")
    cases = tree.Piecewise(tuple(branches))
    return tree.Relation((heads.pop(), cases), ("=",)) if heads else cases


def _expand_determinant(rows: list[list[Node]]) -> Node:
    """Expand a determinant along its first row."""
    if len(rows) != len(rows[0]) or len(rows) > _MAX_DETERMINANT_ROWS:
        raise UnparsableAnswerError(
            f"the determinant is not square, or has more than {_MAX_DETERMINANT_ROWS} rows"
        )
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for column, entry in enumerate(rows[0]):
        minor = _expand_determinant([[*row[:column], *row[column + 1 :]] for row in rows[1:]])
        cofactor = minor if column % 2 == 0 else tree.negate(minor)
        terms.append(tree.multiply([entry, cofactor]))
    return tree.add(terms)


def vector_components(value: Value) -> Value:
    """Return a sum of unit vectors such as ``3i + 4j`` as ``(3, 4)``; other values unchanged."""
    if isinstance(value, tree.Relation):
        return tree.Relation(tuple(map(vector_components, value.parts)), value.ops)
    names = {part.name for part in tree.walk(value) if isinstance(part, tree.Sym)}
    unit_vectors = names.intersection(_UNIT_VECTORS)
    if not tree.is_node(value) or not unit_vectors:
        return value
    axes = _UNIT_VECTORS if _UNIT_VECTORS[2] in unit_vectors else _UNIT_VECTORS[:2]
    zeros: dict[str, Node] = dict.fromkeys(_UNIT_VECTORS, tree.Num(Fraction(0)))
    components = [tree.substitute(value, zeros | {axis: tree.ONE}) for axis in axes]
    return tree.ValueList("()", tuple(components))


def _is_statement(value: Value) -> bool:
    """Whether ``value`` is a statement other than an equation: it restricts a variable."""
    return isinstance(value, tree.SetMembership | tree.Connective) or (
        isinstance(value, tree.Relation) and value.ops != ("=",)
    )


def _have_different_names(values: list[Value]) -> bool:
    """Whether the values are equations for different variables, as in "x = 1 or y = 2"."""
    equations = [value.parts for value in values if isinstance(value, tree.Relation)]
    names = {
        symbol.name.partition("_")[0]
        for symbol, *_, last in equations
        if isinstance(symbol, tree.Sym) and tree.Sym not in map(type, tree.walk(last))
    }
    return len(names) == len(values)


def _is_formula(value: Value) -> bool:
    """Whether ``value`` is a logical formula: a letter, a negation, or a combination of them."""
    is_negation = isinstance(value, tree.Call) and value.name == "not"
    is_implication = isinstance(value, tree.Relation) and value.ops[0] in ("->", "<->")
    return isinstance(value, tree.Sym | tree.Connective) or is_negation or is_implication


def _distribute_equations(items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return ``x_1, x_2 = 2, 3`` as two equations; return other items unchanged."""
    name_count = 0
    while name_count < len(items) and isinstance(items[name_count], tree.Sym):
        name_count += 1
    equation = items[name_count] if name_count < len(items) else None
    if not name_count or not isinstance(equation, tree.Relation) or equation.ops != ("=",):
        return items
    values = (equation.parts[1], *items[name_count + 1 :])
    if len(values) != name_count + 1 or not isinstance(equation.parts[0], tree.Sym):
        return items
    names = (*items[:name_count], equation.parts[0])
    return tuple(tree.Relation(pair, ("=",)) for pair in zip(names, values, strict=True))
