"""The coordinator's one room with a database: named transactions and reads that return words, never rows."""
