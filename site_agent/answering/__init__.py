"""The one path from rows to the wire, and who may walk it."""
