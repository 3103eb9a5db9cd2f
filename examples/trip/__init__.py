"""Planning a trip: the outside world, a client for it, and agents that use it."""
