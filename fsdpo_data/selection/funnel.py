"""Filters that keep problems and solutions one after the other, and count the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdpo_data.core.entities import COUNTED_OUTCOMES, GRADED_OUTCOMES
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.statistics import Mean
from fsdpo_data.dataset.statistics import clustered_accuracy
from fsdpo_data.selection.random_order import mix_keys
from fsdpo_data.selection.row_index import is_graded


class RowStats(FileModel):
    """Statistics of the rows before or after a selection."""

    problems: int  #: Number of problems.
    solutions: int  #: Number of solutions.
    outcomes: dict[str, int]  #: Solutions by outcome.
    accuracy: Mean  #: Accuracy of the solutions.
    mixed_problems: int  #: Problems with correct and incorrect solutions.
    unique_solutions: int  #: Distinct texts, counted per problem.
    mean_steps: float | None  #: Mean number of steps of a solution; None without solutions.
    mean_tokens: float | None  #: Mean number of tokens, if known.


class SelectionSize(FileModel):
    """The number of rows that a filter of a selection drops, or that a split has."""

    problems: int  #: Problems; a filter also drops those without a solution that is left.
    solutions: int  #: Solutions.


@dataclass
class Funnel:
    """The problems and solutions that are left. A problem without solutions is dropped.

    Attributes:
        problems: Rows of problems from :func:`~fsdpo_data.selection.row_index.build_index`.
        solutions: Rows of solutions from the same function.
        dropped: The dropped rows of each filter, by its option, in order.
    """

    problems: pl.DataFrame
    solutions: pl.DataFrame
    dropped: dict[str, SelectionSize] = field(default_factory=dict)

    def drop_unsolved_problems(self) -> None:
        """Drop the problems that have no solutions before any filter, for example after failures.

        They have no part in a sample, and a filter of equal questions keeps a solved problem.
        """
        if self.problems.height > self.solutions["problem"].n_unique():
            self._replace("unsolved", self.problems, self.solutions)

    def keep_problems(self, name: str, condition: pl.Expr | pl.Series) -> None:
        """Keep the problems that a condition holds for, and their solutions.

        Args:
            name: Name of the filter for the counts.
            condition: A condition on the rows of ``problems``; null counts as false.
        """
        problems = self.problems.filter(condition)
        solutions = self.solutions.join(
            problems.select("problem"), on="problem", how="semi", maintain_order="left"
        )
        self._replace(name, problems, solutions)

    def keep_solutions(self, name: str, condition: pl.Expr | pl.Series) -> None:
        """Keep the solutions that a condition holds for, and the problems with a solution."""
        solutions = self.solutions.filter(condition)
        self._replace(name, self.problems, solutions)

    def _replace(self, name: str, problems: pl.DataFrame, solutions: pl.DataFrame) -> None:
        problems = problems.join(
            solutions.select("problem").unique(), on="problem", how="semi", maintain_order="left"
        )
        self.dropped[name] = SelectionSize(
            problems=self.problems.height - problems.height,
            solutions=self.solutions.height - solutions.height,
        )
        self.problems = problems
        self.solutions = solutions

    def keep_sample(self, size: float, seed: int) -> None:
        """Keep a random sample of the problems, with all of their solutions.

        Args:
            size: Number of problems; a number below 1 is a fraction of the problems.
            seed: Seed of the sample.
        """
        n_problems = round(size * self.problems.height) if size < 1 else int(size)
        numbers = mix_keys(self.problems["question_key"], seed, "sample")
        # Problems with the same question have the same number, so their order decides.
        order = (
            self.problems.select("problem").with_columns(number=numbers).sort("number", "problem")
        )
        sample = order.head(n_problems)["problem"]
        self.keep_problems("sample", pl.col("problem").is_in(sample.implode()))

    def keep_per_problem(self, limit: int, stratum: str, seed: int) -> None:
        """Keep at most ``limit`` solutions of each problem.

        The solutions are a random choice. With a stratum, each value of the stratum gets the same
        number of solutions, as far as the problem has them. Solutions without a verdict come last,
        because they have no labels.

        Args:
            limit: Maximum number of solutions of a problem.
            stratum: ``outcome``, ``answer`` or ``none``.
            seed: Seed of the choice.
        """
        is_correct = pl.col("outcome") == "correct"
        strata = {
            "outcome": is_correct.cast(pl.Int8),
            "answer": pl.col("answer") if stratum == "answer" else pl.lit(0),
            "none": pl.lit(0),
        }
        has_verdict = pl.col("outcome").is_in(list(GRADED_OUTCOMES))
        rows = self.solutions.select("problem", stratum=strata[stratum], has_verdict=has_verdict)
        rows = rows.with_columns(
            number=mix_keys(self.solutions["order"], seed, "per-problem")
        ).with_row_index("position")
        rank = pl.col("number").rank("ordinal").over("problem", "has_verdict", "stratum")
        rows = rows.with_columns(rank=rank).sort(
            *("problem", "has_verdict", "rank", "number", "position"),
            descending=[False, True, False, False, False],
        )
        rows = rows.with_columns(place=pl.int_range(pl.len()).over("problem"))
        row_numbers = rows.sort("position")["place"]
        self.keep_solutions("per_problem", row_numbers < limit)

    def rows(self) -> RowStats:
        """Return the statistics of the rows that are left."""
        return row_stats(self.problems, self.solutions)


def row_stats(problems: pl.DataFrame, solutions: pl.DataFrame) -> RowStats:
    """Return the statistics of indexed problems and solutions."""
    outcomes = solutions.group_by("outcome").len().iter_rows()
    by_problem = solutions.group_by("problem", maintain_order=True).agg(
        correct=(pl.col("outcome") == "correct").sum(),
        graded=is_graded().sum(),
        n_counted=pl.col("outcome").is_in(COUNTED_OUTCOMES).sum(),
    )
    by_problem = by_problem.filter(pl.col("n_counted") > 0)
    correct, graded, n_counted = by_problem.select("correct", "graded", "n_counted")
    return RowStats(
        problems=problems.height,
        solutions=solutions.height,
        outcomes=dict(sorted(outcomes)),
        accuracy=clustered_accuracy(correct.to_list(), n_counted.to_list()),
        mixed_problems=int(((correct > 0) & (correct < graded)).sum()),
        unique_solutions=solutions.select(pl.struct("problem", "text").n_unique()).item(),
        mean_steps=_rounded_mean(solutions["steps"]),
        mean_tokens=_rounded_mean(solutions["n_tokens"]),
    )


def _rounded_mean(values: pl.Series) -> float | None:
    mean = values.mean()
    return None if mean is None else round(float(mean), 2)  # type: ignore[arg-type]
