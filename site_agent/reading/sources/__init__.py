"""Where rows live: one module for each kind of source, and nothing of a driver outside it."""
