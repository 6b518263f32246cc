"""The tables of a site's ledger; here, beside the chain, because `verify` reads them without loading the role.

The database repeats the rules of the code: no release without a charge, one release for a plan, no refusal of
what was charged, and nothing that left is ever changed.
"""

from wardround.federation.ledger import accounts, chain

_OWN = """
CREATE TABLE charges (
    plan_id  TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE releases (
    plan_id  TEXT PRIMARY KEY REFERENCES charges (plan_id),
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence),
    payload  BLOB NOT NULL
) STRICT;
CREATE TRIGGER releases_are_never_changed BEFORE UPDATE ON releases
BEGIN SELECT RAISE(ABORT, 'a release is never changed'); END;
CREATE TRIGGER releases_are_never_removed BEFORE DELETE ON releases
BEGIN SELECT RAISE(ABORT, 'a release is never removed'); END;
CREATE TABLE refusals (
    plan_id  TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence),
    date     TEXT NOT NULL
) STRICT;
CREATE TRIGGER refusals_are_never_changed BEFORE UPDATE ON refusals
BEGIN SELECT RAISE(ABORT, 'a refusal is never changed'); END;
CREATE TRIGGER what_was_charged_is_not_refused BEFORE INSERT ON refusals
WHEN EXISTS (SELECT 1 FROM charges WHERE plan_id = NEW.plan_id)
BEGIN SELECT RAISE(ABORT, 'a charged plan is not refused'); END;
CREATE TRIGGER what_was_refused_is_not_charged BEFORE INSERT ON charges
WHEN EXISTS (SELECT 1 FROM refusals WHERE plan_id = NEW.plan_id)
BEGIN SELECT RAISE(ABORT, 'a refused plan is not charged'); END;
-- The coordinator's signed entry about a release or a refusal of ours; its chain is not this one.
CREATE TABLE receipts (
    plan_id   TEXT PRIMARY KEY,
    sequence  INTEGER NOT NULL,
    previous  TEXT NOT NULL,
    kind      TEXT NOT NULL,
    body      TEXT NOT NULL,
    signature BLOB NOT NULL
) STRICT;
CREATE TABLE requests (
    plan_id  TEXT PRIMARY KEY,
    task     BLOB NOT NULL,
    summary  TEXT NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied')),
    asked_on TEXT NOT NULL
) STRICT;
"""

SCHEMA = chain.SCHEMA + accounts.SCHEMA + _OWN

_LATER = """
-- the rounds of trainings: a block is paid once it has a row, and each of its places is taken by one plan
CREATE TABLE IF NOT EXISTS steps (
    block   TEXT NOT NULL,
    place   INTEGER NOT NULL CHECK (place >= 0),
    plan_id TEXT NOT NULL UNIQUE REFERENCES charges (plan_id),
    PRIMARY KEY (block, place)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS steps_are_never_changed BEFORE UPDATE ON steps
BEGIN SELECT RAISE(ABORT, 'a step is never changed'); END;
CREATE TRIGGER IF NOT EXISTS steps_are_never_removed BEFORE DELETE ON steps
BEGIN SELECT RAISE(ABORT, 'a step is never removed'); END;
-- the study's tables that answer nothing until they are opened again, each by the entry that closed it
CREATE TABLE IF NOT EXISTS closed_tables (
    name     TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence)
) STRICT, WITHOUT ROWID;
-- paid plans without a release: which table they read, and how often a reading began and did not end by itself
CREATE TABLE IF NOT EXISTS readings (
    plan_id TEXT PRIMARY KEY REFERENCES charges (plan_id),
    name    TEXT NOT NULL,
    begun   INTEGER NOT NULL CHECK (begun >= 0)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS a_closed_table_is_not_read BEFORE INSERT ON readings
WHEN EXISTS (SELECT 1 FROM closed_tables WHERE name = NEW.name)
BEGIN SELECT RAISE(ABORT, 'a closed table is not read'); END;
CREATE TRIGGER IF NOT EXISTS a_closed_table_releases_nothing BEFORE INSERT ON releases
WHEN EXISTS (SELECT 1 FROM readings JOIN closed_tables USING (name) WHERE plan_id = NEW.plan_id)
BEGIN SELECT RAISE(ABORT, 'a closed table releases nothing'); END;
-- the key by which an analyst is known here, and the entry that says since when
CREATE TABLE IF NOT EXISTS pins (
    analyst  TEXT PRIMARY KEY,
    key      TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence)
) STRICT, WITHOUT ROWID;
-- what was asked and by whom, in canonical form, of every plan that was charged, held or refused; nobody signed where
-- `asked_by` is empty; `hour` is local time and a hint: it decides nothing and never leaves
CREATE TABLE IF NOT EXISTS plans (
    plan_id  TEXT PRIMARY KEY,
    plan     BLOB NOT NULL,
    asked_by BLOB NOT NULL,
    hour     TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS plans_are_never_changed BEFORE UPDATE OF plan_id, plan, asked_by ON plans
BEGIN SELECT RAISE(ABORT, 'what was asked is never changed'); END;
CREATE TRIGGER IF NOT EXISTS plans_are_never_removed BEFORE DELETE ON plans
BEGIN SELECT RAISE(ABORT, 'what was asked is never removed'); END;
-- a steward's last word on a plan, by the entry that says it
CREATE TABLE IF NOT EXISTS decisions (
    plan_id  TEXT PRIMARY KEY REFERENCES requests (plan_id),
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence)
) STRICT, WITHOUT ROWID;
"""

LATER = _LATER + chain.LATER
"""What older ledgers gain when they are opened: trainings, closed tables, who asked, and where the chain ends."""

TAKEN_OVER = {
    "requests": "SELECT plan_id, summary, state, asked_on FROM requests",
    "refusals": "SELECT plan_id, date FROM refusals",
}
"""What entries of earlier versions do not say of these tables."""
