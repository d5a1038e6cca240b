"""Load from outside: any OpenAI-compatible server is measured over HTTP, and by HTTP only."""
