"""Layer 3, the wire: messages, their codec, channels and the error table."""
