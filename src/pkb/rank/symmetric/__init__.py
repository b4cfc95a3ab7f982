"""Symmetric memory for CPU ranks: shared memory behind torch's API."""
