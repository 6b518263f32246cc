"""The agreement: tables, columns, bounds and budget, as a file and as words."""
