"""What is read from a hospital's rows, whichever source they are in."""
