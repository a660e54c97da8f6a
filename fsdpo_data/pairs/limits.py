"""Fields that limit the pairs of every style: their checks and their help."""

from typing import Annotated

from pydantic import Field

MaxPairs = Annotated[
    int | None,
    Field(
        ge=1,
        description="Maximum number of pairs per problem. `full` prefers the largest margins, "
        "`step-dpo` the errors with the lowest rewards.",
    ),
]
AllowUnclosed = Annotated[
    bool,
    Field(
        description="Form pairs of solutions whose thinking never ends, too. By default they are "
        "left out, like truncated solutions."
    ),
]
