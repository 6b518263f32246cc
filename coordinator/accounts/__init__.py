"""What the study may still lose, and the report of it."""
