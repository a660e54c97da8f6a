"""The losses of preference training and of process reward models, one registration each."""
