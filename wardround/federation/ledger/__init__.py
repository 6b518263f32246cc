"""The ledger: entries that are chained, signed and never changed."""
