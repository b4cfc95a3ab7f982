"""Ground truth, comparison with it, and what a difference looks like."""
