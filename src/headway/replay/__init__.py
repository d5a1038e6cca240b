"""Driver 3: recorded traffic through the engine's own scheduler, as it was or otherwise."""
