"""Driver 3: recorded traffic through the engine's scheduler, as it was or under other settings."""
