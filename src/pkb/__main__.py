"""`python -m pkb`: the `pkb` command from a copy of the tree that nobody has installed."""

from pkb.cli.main import main

main()
