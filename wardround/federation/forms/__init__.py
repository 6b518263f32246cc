"""What an answer is made of: grids, parts, totals and releases."""
