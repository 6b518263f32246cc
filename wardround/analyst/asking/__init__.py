"""Asking: the client, and what it needs of several packages at once."""
