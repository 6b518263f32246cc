"""The seam to a coordinator: the protocol, gRPC, waiting."""
