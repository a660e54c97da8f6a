"""Whole answers: lists, sets, intervals, relations, ratios, matrices. All of it or nothing."""

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
_LEADING, _MATRICES = word_set(_TABLE["leading"]), word_set(_TABLE["matrices"])
_SYSTEMS = word_set("cases aligned align gathered")  #: Environments that hold a list of equations.


class AnswerParser(QuantityParser):
    """Reads a whole answer."""

    def parse_answer(self) -> Value:
        """Read all tokens; Unreadable if something is left, or makes no sense."""
        value = self.parse_value()
        self.accept(".")
        if not self.is_at_end():
            raise UnparsableAnswerError(f"left over: {self.peek().text}")
        return value

    def parse_value(self) -> Value:
        """Read alternatives: ``a or b``, each a list."""
        parts, logical = [self._parse_list()], False
        while self.accept_word("or") or self.accept("vee"):
            logical = self.tokens[self.position - 1].text == "vee"
            parts.append(self._parse_list())
        if len(parts) == 1:
            return parts[0]
        statements = all(map(_is_statement, parts)) or _have_different_names(parts)
        if statements or (logical and all(map(_is_formula, parts))):
            return tree.Connective("or", tuple(parts))
        return tree.ValueList("", tuple(item for part in parts for item in tree.list_values(part)))

    def _parse_list(self) -> Value:
        items = [self._parse_item()]
        joined = True
        while self._accept_separator():
            following = self._parse_item()
            items.append(following)
            joined = joined and self._last_separator != ","
        cases = _combine_cases(items)
        if cases is not None or len(items) == 1:
            return cases or items[0]
        logical = self._last_separator == "wedge" and all(map(_is_formula, items))
        if logical or (joined and all(map(_is_statement, items))):
            return tree.Connective("and", tuple(items))
        return tree.ValueList("", _distribute_equations(tuple(items)))

    _last_separator = ""

    def _accept_separator(self) -> bool:
        if self.is_at_end():
            return False
        if self.accept(",", ";"):
            self._last_separator = ","
            if self.peek_word() == "or":
                return False
            self.accept_word("and")
            self.accept("&")
            if self.is_at_end():
                raise UnparsableAnswerError("a list that ends in a comma")
            return True
        if self.accept_word("and") or self.accept("wedge"):
            self._last_separator = self.tokens[self.position - 1].text
            return True
        return False

    def _parse_item(self) -> Value:
        """Read one value or a chain of relations, and the condition under which it holds."""
        value = self._parse_statement()
        return self._parse_branch(value, prose=True) if self.is_condition_next() else value

    def _parse_statement(self) -> Value:
        while self.peek_word() in _LEADING:
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
        spelled = self.peek_word() == "in" and self.peek_sign(1) in (
            "(",
            "[",
            "lset",
            "mathbb",
            "]",
        )
        sign = self.accept_word("in") if spelled else self.accept("in", "notin")
        return (
            tree.SetMembership(parts[0], self._parse_set_operand(), sign == "notin")
            if sign
            else parts[0]
        )

    def _parse_set_operand(self) -> Value:
        """Read what something is an element of; a plain Z is the set of integers."""
        token = self.peek()
        if token.kind == "let" and token.text in "ZNQRC":
            self.position += 1
            return self._parse_number_set(token.text * 2)
        return self._parse_operand()

    def _parse_operand(self) -> Value:
        """Read sets joined by union, intersection and difference."""
        if self.peek_sign() in ("approx", "sim", "="):  # "≈ 3.14", "= 5"
            self.position += 1
        value, joined = self._parse_quantity_or_ratio(), 0
        while not self.is_at_end() and (op := self._peek_set_operation(value)):
            self.position += 1
            self.enter_level()
            value = tree.Connective(op, (value, self._parse_quantity_or_ratio()))
            joined += 1
        self.depth -= joined
        return value

    def _peek_set_operation(self, value: Value) -> str | None:
        """Return the operation on sets that follows ``value``, None if none does."""
        if (
            self.peek_word() == "u"
            and self.peek_sign(1) in ("(", "[", "lset")
            and not tree.is_node(value)
        ):
            return "union"
        if self.peek_sign() == "-":
            sets = tree.ValueList | tree.SetBuilder | tree.Connective
            return "minus" if isinstance(value, sets) or is_number_set(value) else None
        return _SET_OPS.get(self.peek_sign()) or _SET_WORDS.get(self.peek_word())

    def _parse_quantity_or_ratio(self) -> Value:
        """Read a quantity or a ratio of two or more."""
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
        """Read what stands in brackets; set braces hold a list or a set-builder."""
        builder = opener == "{" and self.peek().kind == "let" and self.peek_sign(1) in ("|", ":")
        if opener == "lset" and self.peek().text == "array":
            self.take()
            return self._parse_system()
        if opener == "lset" or builder:  # "{x | x > 2}" has no backslashes
            return self._parse_set()
        return super().parse_bracket(opener)

    def _parse_set(self) -> Value:
        """Read ``{1, 2}`` or ``{x | x > 2}``."""
        if self.accept("rset", "}"):
            return tree.ValueList("{}", ())
        head = self.parse_inside(bars_close=True)
        given = self.parse_inside(bars_close=False) if self.accept("|", ":", ";") else None
        self.expect("rset", "}")
        if given is None:
            return tree.ValueList("{}", tree.list_values(head))
        return tree.SetBuilder(head, tree.list_values(given))

    def parse_primary(self) -> Value:
        """Read a matrix or what an expression begins with."""
        if self.peek().kind == "begin":
            return self._parse_matrix()
        return super().parse_primary()

    def _parse_system(self) -> Value:
        r"""Read the equations, or the branches, of ``\begin{cases} … \end{cases}``."""
        items: list[Value] = []
        while self.peek().kind != "end":
            value = self._parse_item()
            comma = self.accept(",", ";")
            ends = self.peek_sign() == "\\" or self.peek().kind == "end"
            if self.accept("&") or (comma and not ends and not isinstance(value, tree.Relation)):
                value = self._parse_branch(value, prose=False)
            items.append(value)
            if not self.accept("\\"):
                break
            self.accept("&")
        if self.take().kind != "end":
            raise UnparsableAnswerError("a system with cases")
        return _combine_cases(items) or tree.ValueList("", tuple(items))

    def _parse_branch(self, value: Value, prose: bool) -> Value:
        """Read on after a value that holds under a condition; "otherwise" is None."""
        condition = None if self.accept_word("otherwise", "else") else self._parse_condition(prose)
        if not prose:
            self.accept(".")
        if isinstance(value, tree.Relation) and value.ops == ("=",):
            return tree.Relation(
                (value.parts[0], tree.Piecewise(((value.parts[1], condition),))), ("=",)
            )
        return tree.Piecewise(((value, condition),))

    def _parse_condition(self, prose: bool) -> Value:
        """Read when a branch holds; in an environment, what is no relation is words."""
        self.accept_word("if", "for", "when", "where")
        self.accept("&")
        start, depth = self.position, self.depth
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
        self.position, self.depth = start, depth
        words: list[str] = []
        while self.peek_sign() != "\\" and self.peek().kind not in ("end", "eof"):
            words.append(self.take().text.lower())
        return tree.Words(tuple(word for word in words if word not in ("is", ",", "{", "}", ".")))

    def _parse_matrix(self) -> Value:
        name = self.take().text
        if name in _SYSTEMS:
            return self._parse_system()
        if name not in _MATRICES:
            raise UnparsableAnswerError(f"the environment {name}")
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
            raise UnparsableAnswerError("an uneven matrix")
        if name == "vmatrix":
            return _expand_determinant([[as_node(entry) for entry in each] for each in rows])
        return tree.Matrix(tuple(rows))


def _combine_cases(items: list[Value]) -> Value | None:
    """Return values under conditions as one function by cases; None if there are no conditions.

    Raises:
        Unreadable: Some hold under conditions and some do not, or there is one only.
    """
    heads = {item.parts[0] for item in items if isinstance(item, tree.Relation)}
    bodies = [item.parts[-1] if isinstance(item, tree.Relation) else item for item in items]
    branches = [
        branch for each in bodies if isinstance(each, tree.Piecewise) for branch in each.branches
    ]
    if not branches:
        return None
    if (
        len(branches) == 1
        or len(heads) > 1
        or not all(isinstance(x, tree.Piecewise) for x in bodies)
    ):
        raise UnparsableAnswerError("a value under a condition")
    cases = tree.Piecewise(tuple(branches))
    return tree.Relation((heads.pop(), cases), ("=",)) if heads else cases


_MAX_ROWS = 4  #: Largest determinant that is written out.


def _expand_determinant(rows: list[list[Node]]) -> Node:
    """Expand a determinant along its first row."""
    if len(rows) != len(rows[0]) or len(rows) > _MAX_ROWS:
        raise UnparsableAnswerError("a determinant too large")
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for at, entry in enumerate(rows[0]):
        minor = _expand_determinant([[*row[:at], *row[at + 1 :]] for row in rows[1:]])
        terms.append(tree.multiply([entry, minor] if at % 2 == 0 else [entry, tree.negate(minor)]))
    return tree.add(terms)


_BASIS = ("basisi", "basisj", "basisk")  #: The unit vectors, as ``clean`` writes them.


def vector_components(value: Value) -> Value:
    """Read ``3i + 4j`` with unit vectors as ``(3, 4)``."""
    if isinstance(value, tree.Relation):
        return tree.Relation(tuple(map(vector_components, value.parts)), value.ops)
    met = {part.name for part in tree.walk(value) if isinstance(part, tree.Sym)}.intersection(
        _BASIS
    )
    if not tree.is_node(value) or not met:
        return value
    axes = _BASIS if _BASIS[2] in met else _BASIS[:2]
    zeros: dict[str, Node] = dict.fromkeys(_BASIS, tree.Num(Fraction(0)))
    return tree.ValueList(
        "()", tuple(tree.substitute(value, zeros | {axis: tree.ONE}) for axis in axes)
    )


def _is_statement(value: Value) -> bool:
    """Whether ``value`` says where a variable lies, not just what it is."""
    return isinstance(value, tree.SetMembership | tree.Connective) or (
        isinstance(value, tree.Relation) and value.ops != ("=",)
    )


def _have_different_names(values: list[Value]) -> bool:
    """Whether each gives another letter a value: in "x = 1 or y = 2" nobody says both."""
    said = [value.parts for value in values if isinstance(value, tree.Relation)]
    named = {
        name.name.partition("_")[0]
        for name, *_, last in said
        if isinstance(name, tree.Sym) and tree.Sym not in map(type, tree.walk(last))
    }
    return len(named) == len(values)


def _is_formula(value: Value) -> bool:
    """Whether ``value`` can be true or false: a letter, its negation, what is made of them."""
    negated = isinstance(value, tree.Call) and value.name == "not"
    arrow = isinstance(value, tree.Relation) and value.ops[0] in ("->", "<->")
    return isinstance(value, tree.Sym | tree.Connective) or negated or arrow


def _distribute_equations(items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Read ``x_1, x_2 = 2, 3`` as two equations."""
    names = 0
    while names < len(items) and isinstance(items[names], tree.Sym):
        names += 1
    middle = items[names] if names < len(items) else None
    if not names or not isinstance(middle, tree.Relation) or middle.ops != ("=",):
        return items
    values = (middle.parts[1], *items[names + 1 :])
    if len(values) != names + 1 or not isinstance(middle.parts[0], tree.Sym):
        return items
    heads = (*items[:names], middle.parts[0])
    return tuple(tree.Relation(pair, ("=",)) for pair in zip(heads, values, strict=True))
