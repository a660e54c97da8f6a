"""Training on step-annotated data: SFT, process reward models, step-wise DPO."""
