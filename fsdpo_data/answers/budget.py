"""Limits on the cost of one comparison of two answers."""


class BudgetExceededError(ArithmeticError):
    """The comparison needs more operations than its budget allows."""


class NumberTooLargeError(ArithmeticError):
    """The number is too large to write out or to calculate with."""


class Budget:
    """A counter of the operations that one comparison may still use.

    Verdicts are reproducible, because the count limits a comparison and not the clock.

    Args:
        operations: The number of operations that the comparison may use.

    Attributes:
        left: The number of operations that remain.
        unread: What kept the comparison from a decision, such as the limit of a side, or "".
    """

    __slots__ = ("left", "unread")

    def __init__(self, operations: int) -> None:
        self.left = operations
        self.unread = ""

    def spend(self, operations: int) -> None:
        """Subtract ``operations`` from the budget.

        Raises:
            BudgetExceededError: The budget has fewer operations left.
        """
        self.left -= operations
        if self.left < 0:
            raise BudgetExceededError("too many operations")
