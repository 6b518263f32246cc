"""What fails after rows were read closes its table: for every question alike, until its source has changed.

Whether a question fails may depend on a row, and whoever asks chooses which rows are looked at. So a failure must not
be an answer that can be had again with another filter: the first one closes the table, in a signed entry, before the
site says that it failed. From then on nothing about the table is charged or read. A lost connection closes nothing;
but readings that began and never ended are counted, because a row that ends connections, or this process, is a failure
like any other.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from dataclasses import dataclass, field

from site_agent.answering.reminders import Reminders
from site_agent.reading.batches import Fingerprinted
from site_agent.reading.dataset import Dataset, check_form
from site_agent.store.closed_tables import ClosedTables
from wardround.federation.errors import FederationError, SchemaRefused, SourceAway
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plain_text import escaped
from wardround.federation.plan.task import Failed
from wardround.federation.study.study import Table

MOST_UNENDED = 5
"""So many readings of a table that began and never ended close it: a server that is restarted now and then does not."""

GONE = "gone"
"""The state of a source that cannot be looked at now; it is never written down."""

_AWAY = "the source of the table %s cannot be reached or is being changed; trying again"
_UNSOUND = "questions about the table %s are not answered; fix its file: %s"
_STILL_CLOSED = "the table %s is closed; fix its source, or run: wardround site reopen"

log = logging.getLogger("wardround.site")


@dataclass(frozen=True, slots=True)
class Closing:
    """Which tables of one site may be asked, and what a failure does to them.

    `key` is the site's own secret: what the ledger says about the state of a file is nothing to anybody else.
    """

    tables: ClosedTables
    dataset: Dataset
    key: bytes = field(repr=False)
    reminders: Reminders = field(default_factory=Reminders, repr=False)
    _unwritten: dict[str, str] = field(default_factory=dict, repr=False)

    def is_open(self, table: Table) -> bool:
        """Whether the table answers questions; a source that has changed since opens it again."""
        if (owed := self._unwritten.get(table.name)) is not None:
            self._close(table, owed)
            return False
        closed, unended = self.tables.standing(table.name)
        if closed is None and unended < MOST_UNENDED:
            return True
        state = self.state(table)
        if state == GONE:
            self.reminders.say(_AWAY % table.name)
            return False
        if closed is None:
            self._close(table, state)
            return False
        if self.tables.reopen_changed(table.name, source=state):
            log.warning("the table %s is open again: its source has changed", table.name)
            return True
        self.reminders.say(_STILL_CLOSED % table.name)
        return False

    def state(self, table: Table) -> str:
        """A keyed digest of the source's state, empty where it cannot see changes."""
        if not isinstance(self.dataset, Fingerprinted):
            return ""
        try:
            found = self.dataset.fingerprint(table)
        except FederationError:
            return GONE
        if not found.sees_changes:
            return ""
        return hmac.new(self.key, b"wardround source\n" + found.text.encode(), hashlib.sha256).hexdigest()

    def failed(self, plan_id: str, form: AnswerLayout | StepLayout, *, before: str) -> Failed:
        """The source failed when rows may have been read; `before` is the state it was in when that began."""
        after = self.state(form.table)
        if after == GONE:
            return self.away(plan_id, form.table, SourceAway(unread=True))
        if after != before or not self._is_as_agreed(form):
            # It was being changed, or ended; which is counted, because a row may have ended it.
            return self.away(plan_id, form.table, SourceAway())
        self._close(form.table, before)
        return Failed(plan_id)

    def _is_as_agreed(self, form: AnswerLayout | StepLayout) -> bool:
        """Whether the source is there and has the schema it had when the plan was charged."""
        try:
            check_form(self.dataset, form)
        except (SchemaRefused, SourceAway):
            return False
        return True

    def away(self, plan_id: str, table: Table, away: SourceAway) -> Failed:
        """The source could not be reached, before or while rows were read."""
        if away.unread:
            self.tables.take_back(plan_id)
        if away.private:
            # A file that is not sound; what stands there names the file and the line, and no value.
            self.reminders.say(_UNSOUND % (table.name, escaped(away.private)))
        else:
            self.reminders.say(_AWAY % table.name)
        return Failed(plan_id)

    def _close(self, table: Table, state: str) -> None:
        # Remembered first: while there is no room to write it down, the table answers nothing either.
        self._unwritten[table.name] = state
        self.tables.close(table.name, source=state)
        del self._unwritten[table.name]
        # Nothing else: why it failed, and for which question, may be a row's doing.
        log.error("the table %s is closed: a question could not read it to the end", table.name)
        self.reminders.note(_STILL_CLOSED % table.name)
