"""Tables in DuckDB."""
