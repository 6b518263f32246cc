"""The site's role: runs inside a hospital, dials out only, sends releases."""
