"""What an answer is made of: parts with their norms, totals with their noise, and what a statistic is."""
