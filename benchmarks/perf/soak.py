"""Build, kill, go on, validate, over and over: does anything wear out?

The harness stands with the proofs: ``tests/support/soak_harness.py``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from soak_harness import main

if __name__ == "__main__":
    main()
