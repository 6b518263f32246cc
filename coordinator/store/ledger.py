"""The coordinator's ledger: one file, one study, one signing key.

The study's allowance is fixed when the ledger is opened for the first time and never looks at an answer. The chain
says what happened; the coordinator's own tables say where things stand, so that nothing has to be added up to go on.
Each row is written in the same transaction as the entry it repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator.store.kept_answers import AnswerStore
from coordinator.store.members import MemberStore
from coordinator.store.recovery import RecoveryStore
from coordinator.store.rounds import RoundStore
from coordinator.store.submissions import SubmissionStore
from coordinator.store.tasks import TaskStore
from coordinator.store.trainings import TrainingStore
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.attesting import FROM_THE_BEGINNING, attest_rows
from wardround.federation.ledger.entry_body import cap_body, decode_body, text_in
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, Database, Durability, lost
from wardround.federation.study.study import Study
from wardround.federation.trust.identity import Identity

# A file is known by this very text, comments too, so it stays: what it calls a plan's message is canonical bytes now.
_OWN = """
CREATE TABLE sites (
    name            TEXT PRIMARY KEY,
    key             TEXT NOT NULL UNIQUE,
    patients        INTEGER NOT NULL CHECK (patients >= 0),
    dataset         TEXT NOT NULL,
    study_signature BLOB NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('active', 'frozen', 'revoked')),
    -- the last place of the site's own chain that the coordinator has given a receipt for
    head_sequence   INTEGER NOT NULL DEFAULT 0,
    head_digest     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- every place of a site's chain that the coordinator has seen; two digests at one place are a fork
CREATE TABLE places (
    site     TEXT NOT NULL REFERENCES sites (name),
    sequence INTEGER NOT NULL,
    digest   TEXT NOT NULL,
    PRIMARY KEY (site, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE analysts (
    name  TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('active', 'revoked'))
) STRICT, WITHOUT ROWID;

-- a plan is here once it is reserved; `plan` is the plan's message, and the key the hash of what it says
CREATE TABLE rounds (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    plan_id     TEXT NOT NULL UNIQUE,
    plan        BLOB NOT NULL,
    analyst     TEXT NOT NULL,
    epsilon     REAL NOT NULL,
    delta       REAL NOT NULL,
    mu_squared  INTEGER NOT NULL,
    pure        INTEGER NOT NULL,
    slack       INTEGER NOT NULL,
    -- when the charge was made; only for the report, no rule depends on a clock
    reserved_at REAL NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('reserved', 'open', 'settled', 'answered')),
    opened_at   REAL,
    outcome     TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX rounds_by_state ON rounds (state);

CREATE TABLE tasks (
    plan_id       TEXT NOT NULL REFERENCES rounds (plan_id),
    site          TEXT NOT NULL REFERENCES sites (name),
    number        INTEGER NOT NULL,
    state         TEXT NOT NULL
        CHECK (state IN ('open', 'pending', 'released', 'refused', 'failed', 'missing')),
    -- how far the site's chain was known when the task was opened: its answer must come after that
    opened_after  INTEGER NOT NULL,
    PRIMARY KEY (plan_id, site)
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_by_site ON tasks (site, state, number);

-- what a site answered, once; `entry` is the digest of its signed entry, `receipt` the number of ours
CREATE TABLE submissions (
    plan_id TEXT NOT NULL,
    site    TEXT NOT NULL,
    entry   TEXT NOT NULL,
    code    TEXT NOT NULL,
    payload BLOB NOT NULL,
    receipt INTEGER NOT NULL REFERENCES entries (sequence),
    PRIMARY KEY (plan_id, site),
    FOREIGN KEY (plan_id, site) REFERENCES tasks (plan_id, site)
) STRICT;
CREATE TRIGGER submissions_are_never_changed BEFORE UPDATE ON submissions
BEGIN SELECT RAISE(ABORT, 'a submission is never changed'); END;
CREATE TRIGGER submissions_are_never_removed BEFORE DELETE ON submissions
BEGIN SELECT RAISE(ABORT, 'a submission is never removed'); END;

CREATE TABLE answers (
    plan_id TEXT PRIMARY KEY REFERENCES rounds (plan_id),
    answer  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER answers_are_never_changed BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'an answer is never changed'); END;
CREATE TRIGGER answers_are_never_removed BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'an answer is never removed'); END;

-- the TLS key each name on the roster was given a certificate for; any other key is a stranger's
CREATE TABLE tls_keys (
    name     TEXT PRIMARY KEY,
    key_hash TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- an invitation is known by the hash of its secret, and belongs to the first signing key that uses it
CREATE TABLE invitations (
    secret_hash TEXT PRIMARY KEY,
    site        TEXT NOT NULL,
    expires     REAL NOT NULL,
    used_by     TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
"""

SCHEMA = chain.SCHEMA + accounts.SCHEMA + _OWN

_LATER = """
-- a training that has begun, by what its rounds have in common whoever takes part, with those who do
CREATE TABLE IF NOT EXISTS trainings (
    lineage      TEXT PRIMARY KEY,
    block        TEXT NOT NULL UNIQUE,
    participants TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- the rounds of trainings: a block is paid once it has a row, and each of its places is taken by one plan
CREATE TABLE IF NOT EXISTS steps (
    block   TEXT NOT NULL REFERENCES trainings (block),
    place   INTEGER NOT NULL CHECK (place >= 0),
    plan_id TEXT NOT NULL UNIQUE REFERENCES rounds (plan_id),
    PRIMARY KEY (block, place)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS steps_are_never_changed BEFORE UPDATE ON steps
BEGIN SELECT RAISE(ABORT, 'a step is never changed'); END;
CREATE TRIGGER IF NOT EXISTS steps_are_never_removed BEFORE DELETE ON steps
BEGIN SELECT RAISE(ABORT, 'a step is never removed'); END;

-- participants that are not asked for a round, because they declined an earlier one of its training
CREATE TABLE IF NOT EXISTS left_out (
    plan_id TEXT NOT NULL REFERENCES rounds (plan_id),
    site    TEXT NOT NULL REFERENCES sites (name),
    code    TEXT NOT NULL,
    PRIMARY KEY (plan_id, site)
) STRICT, WITHOUT ROWID;

-- when a round was last opened, in the seconds that coordinators of this folder have served; a hint for its deadline
CREATE TABLE IF NOT EXISTS windows (
    plan_id TEXT PRIMARY KEY REFERENCES rounds (plan_id),
    opened  REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- for how many seconds coordinators have served this folder, one after the other; a hint
CREATE TABLE IF NOT EXISTS served (
    row     INTEGER PRIMARY KEY CHECK (row = 1),
    seconds REAL NOT NULL
) STRICT;

-- the sites' own chains, entry by entry as they signed them, as far as they showed them: a site that lost its ledger
-- gets them back, and one that came from an older copy is proved to be one
CREATE TABLE IF NOT EXISTS site_entries (
    site      TEXT NOT NULL REFERENCES sites (name),
    sequence  INTEGER NOT NULL CHECK (sequence > 0),
    previous  TEXT NOT NULL,
    kind      TEXT NOT NULL,
    body      TEXT NOT NULL,
    signature BLOB NOT NULL,
    digest    TEXT NOT NULL,
    PRIMARY KEY (site, sequence)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS site_entries_are_never_changed BEFORE UPDATE ON site_entries
BEGIN SELECT RAISE(ABORT, 'an entry is never changed'); END;
CREATE TRIGGER IF NOT EXISTS site_entries_are_never_removed BEFORE DELETE ON site_entries
BEGIN SELECT RAISE(ABORT, 'an entry is never removed'); END;

-- a receipt that this coordinator signed and whose entry its chain lacks: the ledger is an older copy
CREATE TABLE IF NOT EXISTS lacking (
    site      TEXT NOT NULL,
    sequence  INTEGER NOT NULL,
    previous  TEXT NOT NULL,
    kind      TEXT NOT NULL,
    body      TEXT NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (site, sequence)
) STRICT, WITHOUT ROWID;

-- the sites that are to come back since the last recovery; who is absent need not before anything is served
CREATE TABLE IF NOT EXISTS rejoins (
    site     TEXT PRIMARY KEY REFERENCES sites (name),
    state    TEXT NOT NULL CHECK (state IN ('awaited', 'absent', 'rejoined')),
    -- how far the site's own chain was known when this ledger came back
    sequence INTEGER NOT NULL,
    digest   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- plans that were forgotten, by the sites that recalled them and the entry that says so: whether the site charged it,
-- whether it brought the question, and the training that it is a round of
CREATE TABLE IF NOT EXISTS imports (
    plan_id  TEXT NOT NULL,
    site     TEXT NOT NULL REFERENCES sites (name),
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence),
    charged  INTEGER NOT NULL CHECK (charged IN (0, 1)),
    asks     INTEGER NOT NULL CHECK (asks IN (0, 1)),
    block    TEXT NOT NULL,
    PRIMARY KEY (plan_id, site)
) STRICT, WITHOUT ROWID;

-- plans whose answer, if there was one, cannot be made again, by the entry that says so; with a block all its rounds
CREATE TABLE IF NOT EXISTS lost (
    plan_id  TEXT PRIMARY KEY,
    block    TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE REFERENCES entries (sequence)
) STRICT, WITHOUT ROWID;

-- what a site last said in public about the questions it answers, in canonical form; no row where it said nothing
CREATE TABLE IF NOT EXISTS public_limits (
    site   TEXT PRIMARY KEY REFERENCES sites (name),
    limits BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- who asked a plan first, in the analyst's own signature and in canonical form; no row where nobody signed
CREATE TABLE IF NOT EXISTS askers (
    plan_id  TEXT PRIMARY KEY REFERENCES rounds (plan_id),
    asked_by BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS askers_are_never_changed BEFORE UPDATE ON askers
BEGIN SELECT RAISE(ABORT, 'who asked is never changed'); END;
CREATE TRIGGER IF NOT EXISTS askers_are_never_removed BEFORE DELETE ON askers
BEGIN SELECT RAISE(ABORT, 'who asked is never removed'); END;

-- the estimates of a long answer, compressed; the text in `answers` names the hash of every page
CREATE TABLE IF NOT EXISTS answer_pages (
    plan_id TEXT NOT NULL REFERENCES answers (plan_id),
    number  INTEGER NOT NULL,
    page    BLOB NOT NULL,
    PRIMARY KEY (plan_id, number)
) STRICT;
CREATE TRIGGER IF NOT EXISTS answer_pages_are_never_changed BEFORE UPDATE ON answer_pages
BEGIN SELECT RAISE(ABORT, 'an answer is never changed'); END;
CREATE TRIGGER IF NOT EXISTS answer_pages_are_never_removed BEFORE DELETE ON answer_pages
BEGIN SELECT RAISE(ABORT, 'an answer is never removed'); END;

-- how many sites the answer to a plan must have, where whoever asked it requires a number; 0 once somebody does not
CREATE TABLE IF NOT EXISTS required (
    plan_id TEXT PRIMARY KEY REFERENCES rounds (plan_id),
    sites   INTEGER NOT NULL CHECK (sites >= 0)
) STRICT, WITHOUT ROWID;
"""

LATER = _LATER + chain.LATER
"""What ledgers of before gain when they are opened."""

_TAKEN_OVER = {
    "analysts": "SELECT name, state FROM analysts",
    "tls_keys": "SELECT name, key_hash FROM tls_keys",
    "invitations": "SELECT secret_hash, site, expires, used_by FROM invitations",
    "accounts": "SELECT account, cap_mu_squared, cap_pure, cap_slack FROM accounts",
    "rounds": "SELECT plan_id, analyst, epsilon, delta, state FROM rounds",
    "tasks": "SELECT plan_id, site, opened_after, state = 'missing' FROM tasks",
    "places": "SELECT site, sequence, digest FROM places",
    "site_entries": "SELECT site, sequence, digest FROM site_entries",
}
"""What entries of earlier versions do not say of these tables."""


STUDY_ACCOUNT = "study"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The study, the identity that signs the entries, and what is stored, by what it is about.

    Whoever decides calls the stores, and never the database: they hand out words, and a `with` block of theirs is one
    transaction. An exception in such a block undoes it; what it returned from is durable.
    """

    database: Database
    study: Study
    identity: Identity
    members: MemberStore
    rounds: RoundStore
    trainings: TrainingStore
    tasks: TaskStore
    submissions: SubmissionStore
    answers: AnswerStore
    recovery: RecoveryStore

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment. Keep it short: nobody can commit while somebody reads."""
        with self.database.reading():
            yield

    def attest_rows(self) -> None:
        """Sign what an earlier version wrote into tables and into no entry."""
        attest_rows(self.database, self.identity, _TAKEN_OVER)

    def close(self) -> None:
        self.database.close()


def begin_ledger(folder: Path, *, study: Study, identity: Identity, keeping: Durability = Durability.DURABLE) -> Ledger:
    """The ledger of a new coordinator; only `init` and simulations begin one."""
    database = Database(folder / LEDGER_FILE, schema=SCHEMA, later=LATER, keeping=keeping)
    with database.transaction() as connection:
        if chain.entry_at(connection, 1) is None:
            opened = {"role": "coordinator", "name": study.name, "study_hash": study.study_hash}
            chain.begin(connection, identity, {**opened, "key": identity.public.key}, later=FROM_THE_BEGINNING)
            chain.append(connection, identity, kind="capped", body=cap_body(STUDY_ACCOUNT, study.cap))
    return _own(database, study, identity)


def open_ledger(folder: Path, *, study: Study, identity: Identity, keeping: Durability = Durability.DURABLE) -> Ledger:
    """The ledger in `folder`; commands beside a serving coordinator open it too.

    One that was begun for another study or under another key is `ConfigurationMistaken`: a budget cannot be
    changed by editing a file, and not by losing one.
    """
    database = Database(folder / LEDGER_FILE, schema=SCHEMA, later=LATER, keeping=keeping, existing=True)
    return _own(database, study, identity)


def _own(database: Database, study: Study, identity: Identity) -> Ledger:
    with database.reading() as connection:
        begun = chain.entry_at(connection, 1)
    if begun is None:
        raise lost(database.path, "has no entries")
    body = decode_body(begun.body)
    if text_in(body, "study_hash") != study.study_hash:
        raise ConfigurationMistaken(f"{database.path} was begun for another study; restore study.toml.")
    if text_in(body, "key") != identity.public.key:
        raise ConfigurationMistaken(f"{database.path} is signed by another identity; restore identity.pem.")
    members, trainings = MemberStore(database, identity), TrainingStore(database)
    rounds = RoundStore(database, identity, trainings, least=study.min_sites)
    return Ledger(
        database,
        study,
        identity,
        members=members,
        rounds=rounds,
        trainings=trainings,
        tasks=TaskStore(database, identity, rounds, trainings),
        submissions=SubmissionStore(database, identity, members, rounds),
        answers=AnswerStore(database, identity),
        recovery=RecoveryStore(database, identity),
    )
