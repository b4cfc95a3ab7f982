"""The judge: owns seeds, clocks, comparison and verdict, and never imports a candidate."""
