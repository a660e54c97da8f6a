"""Audits of graders: where two graders disagree, and the effect on the scores."""
