"""The `pkb` command. One file a command; each imports what it needs only when it is called, so that help is instant."""
