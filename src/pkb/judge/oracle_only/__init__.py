"""Work for oracle ranks without a candidate: `pkb lint`, `pkb probe`, times of references."""
