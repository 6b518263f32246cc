"""The coordinator's role: plans, collects, accounts, combines; never sees a row."""
