"""Kill every command that writes, fill its disk, start it again: is anything lost?

The harness stands with the proofs: ``tests/support/kill_harness.py``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from kill_harness import main

if __name__ == "__main__":
    main()
