"""The commands of ``fsdpo-data``: each module of this folder adds its commands to :data:`app`.

:mod:`fsdpo_data.cli.app` imports all modules, so a new module needs no line elsewhere.
"""

from fsdpo_data.cli.console import new_app
from fsdpo_data.cli.stage_commands import StageGroup

app = new_app(
    "fsdpo-data", "Builds, checks, imports, exports and publishes the datasets.", StageGroup
)
