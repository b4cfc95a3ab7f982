"""Inspection and build, correctness and races: one file a stage."""
