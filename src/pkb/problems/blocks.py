"""How the `exact` truths of several problems are cut up."""

BLOCKS = 8
"""A number and not a size, so that tests at small sizes take every path that production sizes take."""
