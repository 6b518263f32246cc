"""Who belongs to the study: authority, invitations, roster, and the coordinator's folder."""
