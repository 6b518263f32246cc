"""Answers as text, JSON, pandas and pictures."""
