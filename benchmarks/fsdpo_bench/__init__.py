"""The benchmark harness: nine maths benchmarks, graded by the grader that makes the labels."""
