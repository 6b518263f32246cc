"""Whether a ledger is true, found out offline."""
