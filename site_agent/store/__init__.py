"""The one room with a database driver: what a site's ledger and its shared account remember, by named transactions."""
