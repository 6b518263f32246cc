"""What describes: the loss of a ledger by every accountant, for the dearest patient."""
