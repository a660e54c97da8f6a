"""Responses that other tools recorded: grade them, or replay them through the decoders."""
