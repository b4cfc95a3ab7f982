"""What inspect-ai finds of ours by itself (the entry point `inspect_ai` of the package): two tasks and a scripted model."""

from pkb.generate.scripted import scripted
from pkb.generate.tasks import agent, oneshot

__all__ = ["agent", "oneshot", "scripted"]
