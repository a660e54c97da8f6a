"""Bounds on what comparing two answers may cost."""


class BudgetExceededError(ArithmeticError):
    """Comparing took more operations than are granted."""


class NumberTooLargeError(ArithmeticError):
    """A number is too large to be written out or calculated with."""


class Budget:
    """Counts operations; the count, not the clock, decides, so verdicts are reproducible.

    Args:
        operations: How many are granted.

    Attributes:
        decided_by: The tier that said the last word, where that is not the count's: ``symbolic``.
    """

    __slots__ = ("decided_by", "left")

    def __init__(self, operations: int) -> None:
        self.left = operations
        self.decided_by = ""

    def spend(self, operations: int) -> None:
        """Count ``operations``, or raise BudgetExceededError if none are left."""
        self.left -= operations
        if self.left < 0:
            raise BudgetExceededError("too many operations")
