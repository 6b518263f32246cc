"""How far a command is that takes longer than a moment."""
