"""Prefix sharing: a prompt is computed once for all of its solutions.

A row of L tokens holds prompts, each followed by its solutions. These segments form a prefix tree:
a solution attends to its prompt and to itself, and to no other solution.

A mask over L × L could express this, but most of its scores would be computed for nothing. T
solutions would cost T times as much as necessary. The attention skips these scores. All other
layers act on single tokens, so they do not change.

- ``tree`` packs prompts and solutions into a row, with the positions of the tokens.
- ``masks`` makes the masks of a tree.
- ``attention`` computes the attention over a tree.
- ``model_attention`` sets the attention of a model, and makes its inputs.
- ``probe`` tests whether a model can share prompts.
"""
