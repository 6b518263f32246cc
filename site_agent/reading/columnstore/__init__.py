"""Prepared columns: a table's snapshot clustered by patient, where a bounded total costs no more than a plain one."""
