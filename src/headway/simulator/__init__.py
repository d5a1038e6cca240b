"""Driver 2: the engine's scheduler under a clock that jumps, and models of how long steps take."""
