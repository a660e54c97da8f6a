"""Answer extraction: boxes, announced answers, and answers that nothing marks."""
