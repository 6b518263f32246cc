"""Layer 1, the mathematics: no I/O, no clock, no network, no logging."""
