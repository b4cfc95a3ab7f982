"""Candidates before they run: reading, static rules, building."""
