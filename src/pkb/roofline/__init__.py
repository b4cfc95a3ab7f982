"""How near to the hardware's limit: peaks, bounds and the physical floor."""
