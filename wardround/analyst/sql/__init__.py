"""From SQL to a query and its presentation."""
