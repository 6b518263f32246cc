"""Layer 3, the wire: messages, their codec, channels and the error table."""

import os

# gRPC writes every failed handshake to standard error in its own words, also for a hospital's IT department
# that is told the same in one sentence. It reads this when it is loaded, so it must be said before.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
