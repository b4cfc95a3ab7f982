"""Candidates from language models: what is asked (prompts made of parts), and what comes back (the code in an answer)."""
