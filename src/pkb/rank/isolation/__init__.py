"""What keeps a candidate's processes from everything that is not theirs."""
