"""The command line: loads a role only when asked."""
