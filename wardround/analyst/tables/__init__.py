"""Answers as tables: in text, HTML, pandas and Arrow."""
