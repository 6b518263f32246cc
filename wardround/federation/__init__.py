"""Layer 2, the shared words and the ledger: no gRPC."""
