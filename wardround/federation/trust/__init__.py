"""Who signs: identities, certificates, ledger entries, and the files of enrolment."""
