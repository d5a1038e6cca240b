"""Driver 2: the engine's own scheduler under a clock that jumps, with a model of how long steps take."""
