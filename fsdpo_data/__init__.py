"""Step-annotated mathematical reasoning data: sample, segment, grade, label, seal.

Importing this package is cheap: no torch, transformers, vllm, datasets or sympy
(``tests/test_imports.py`` proves it). Heavy libraries load inside the call that needs them.
"""

__version__ = "0.1.0"
