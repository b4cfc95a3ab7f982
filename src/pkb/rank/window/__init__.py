"""The window of a batch: arguments that are unreadable before it opens, and digests of outputs that close it."""
