"""Logs of servers: the lines in which they tell their state, as readings over time."""
