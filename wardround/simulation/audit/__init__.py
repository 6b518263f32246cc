"""Two worlds, with and without one patient, through the code that hospitals run."""
