"""Answers, models and budgets as pictures, by matplotlib, which is an extra and loads only when something is drawn."""
