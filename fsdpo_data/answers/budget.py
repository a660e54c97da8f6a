"""Bounds on what comparing two answers may cost."""

from __future__ import annotations


class OutOfBudget(ArithmeticError):
    """Comparing took more operations than are granted."""


class TooLarge(ArithmeticError):
    """A number is too large to be written out or calculated with."""


class Budget:
    """Counts operations; the count, not the clock, decides, so verdicts are reproducible.

    Args:
        operations: How many are granted.
    """

    __slots__ = ("left",)

    def __init__(self, operations: int) -> None:
        self.left = operations

    def spend(self, operations: int) -> None:
        """Count ``operations``.

        Raises:
            OutOfBudget: None are left.
        """
        self.left -= operations
        if self.left < 0:
            raise OutOfBudget("too many operations")
