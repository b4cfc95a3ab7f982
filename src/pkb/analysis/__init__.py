"""What a set of verdicts says together: failure modes, scores, comparisons. Reads verdicts, runs nothing."""
