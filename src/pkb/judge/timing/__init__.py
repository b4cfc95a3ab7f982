"""Times of both sides, and what may be concluded from them."""
