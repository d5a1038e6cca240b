"""How long a step takes: from the machine's figures, or fitted to a server's own steps."""
