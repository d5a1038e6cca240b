"""Which wall binds a server, what is wrong with it, and what would help."""
