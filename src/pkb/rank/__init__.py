"""What runs inside the processes of a side: torch, the standard library, `pkb.types` and (oracle only) `pkb.problems`."""
