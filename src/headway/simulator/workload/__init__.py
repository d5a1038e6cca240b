"""Who asks for what, and when: drawn from distributions, or read from a file."""
