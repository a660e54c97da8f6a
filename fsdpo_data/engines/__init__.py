"""Engines that run models: samplers, scorers, their options, and their placement on a cluster."""
