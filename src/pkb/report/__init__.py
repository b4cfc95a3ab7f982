"""Results to look at: a static site made from stored runs. Reads the store, runs nothing; see docs/report.md."""
