"""Before a launch: what fits, how fast, for how much, and the flags to use."""
