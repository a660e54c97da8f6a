"""Step-annotated mathematical reasoning data: sample, segment, grade, label, seal.

Importing this package is cheap: no torch, transformers, vllm, datasets or sympy, as
``tests/fsdpo_data/cli/test_light.py`` proves. Heavy libraries load inside the call that needs them.
"""

__version__ = "0.1.0"
