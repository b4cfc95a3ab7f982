"""The benchmark: one file a problem. `get(13)`, `get("gemm_allreduce")`, `select("1-8,13")`."""

from pkb.problems.registry import Registry, default_registry, get, select

__all__ = ["Registry", "default_registry", "get", "select"]
