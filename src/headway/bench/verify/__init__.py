"""The same prompts alone and under load."""
