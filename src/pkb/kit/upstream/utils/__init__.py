"""The package that candidates written for upstream import. The rank puts its parent folder on `sys.path`."""
