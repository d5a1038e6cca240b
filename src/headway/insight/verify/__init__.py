"""Whether what a server says to a request depends on who shares the batch."""
