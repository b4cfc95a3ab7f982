"""Many evaluations: a plan of tasks, worked off on this machine or on many. See docs/sweeps.md."""
