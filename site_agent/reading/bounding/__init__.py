"""From the rows of units to a tally, over arrays and in bounded memory."""
