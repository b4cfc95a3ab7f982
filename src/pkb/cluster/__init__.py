"""Many evaluations: a plan of tasks, carried out on this machine or on many. See docs/sweeps.md."""
