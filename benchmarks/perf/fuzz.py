"""Change bytes and values in every kind of file that is read: is it refused, or read, or fatal?

The harness stands with the proofs: ``tests/support/fuzz_harness.py``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from fuzz_harness import main

if __name__ == "__main__":
    main()
