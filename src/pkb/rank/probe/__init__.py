"""What ranks do for `pkb probe`."""
