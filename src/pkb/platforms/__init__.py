"""Where ranks run: `cpu`, `virtual` (several ranks on one GPU), `node` (a GPU for each rank)."""
