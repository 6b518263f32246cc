"""Error bars of noised numbers; lower bounds and exact losses for audits."""
