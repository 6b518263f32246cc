"""What a schedule of releases costs, by every accountant: facts in, epsilon out, nothing stored.

A report, never an admission: which question may run is decided by `wardround.privacy.budget.filter`,
the only bound here that holds against an analyst who chooses each question by earlier answers.
"""
