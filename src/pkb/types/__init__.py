"""Plain data shared by every part: frozen dataclasses and enums, standard library only."""
