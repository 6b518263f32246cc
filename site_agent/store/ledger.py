"""The site's ledger: what was spent, what was kept, and in which order.

Order is the guarantee. A charge is durable before any row is read; a release is durable before any byte of it is
sent, and only bytes read back from the disk are sent. A plan is charged once and has one answer for ever. A site
whose chain lacks an entry it once signed (a restored snapshot, a cloned machine) freezes, and is silent.

The budget belongs to the dataset and its account lives in this file. Folders of several studies over one dataset
name a shared account besides (`shared_account`), which is charged before this one.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable
from pathlib import Path

from site_agent.store import askers, charges, closed_tables, departed, outbox, requests
from site_agent.store.askers import AskerStanding, Asking, KnownAnalysts
from site_agent.store.charges import (
    Charged,
    freeze_if_proved,
    frozen_reason,
    refuse_if_frozen,
    refuse_unless_contained,
)
from site_agent.store.closed_tables import ClosedTables
from site_agent.store.departed import HistoryLine
from site_agent.store.outbox import Kept
from site_agent.store.recollection import Recollection, recollect
from site_agent.store.requests import Request, RequestState
from wardround.federation.errors import (
    AwaitingApproval,
    ConfigurationMistaken,
    InvariantBroken,
    LedgerCorrupt,
    MalformedMessage,
    Mistaken,
    PlanRefused,
    SiteFrozen,
    UnknownTask,
)
from wardround.federation.forms.release import Release
from wardround.federation.ledger import accounts, chain, site_tables
from wardround.federation.ledger.attesting import FROM_THE_BEGINNING, attest_rows
from wardround.federation.ledger.entry_body import Plain, asked_body, cap_body, cap_in, decode_body, newer, text_in
from wardround.federation.ledger.rewriting import Read, rewrite
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, Database, Durability, lost
from wardround.federation.plan.plan import Charge
from wardround.federation.plan.task import Declined, Released, SignedTask
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity, PublicIdentity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap


def utc_today() -> datetime.date:
    """The calendar date, which is all that a release says about time."""
    return datetime.datetime.now(datetime.UTC).date()


class SiteLedger:
    """One site's durable memory; a steward's command may open it beside the serving agent."""

    def __init__(
        self,
        place: Path,
        *,
        identity: Identity,
        keeping: Durability = Durability.DURABLE,
        today: Callable[[], datetime.date] = utc_today,
        database: Database | None = None,
    ) -> None:
        self._identity = identity
        self._today = today
        self._database = database or Database(
            _file(place), schema=site_tables.SCHEMA, later=site_tables.LATER, keeping=keeping, existing=True
        )
        with self._database.reading() as connection:
            opened, last = chain.entry_at(connection, 1), chain.entry_at(connection, chain.head(connection).sequence)
        if opened is None or last is None:
            raise lost(self._database.path, "has no entries")
        body = decode_body(opened.body)
        if text_in(body, "key") != identity.public.key or not last.signed_by(identity.public):
            raise LedgerCorrupt("The ledger was not signed by this folder's identity.")
        self.name = text_in(body, "name")
        self.study_hash = text_in(body, "study_hash")
        self.dataset = text_in(body, "dataset")
        self._coordinator = PublicIdentity(text_in(body, "coordinator_key"))
        self.tables = ClosedTables(self._database, identity, today)
        self.analysts = KnownAnalysts(self._database, identity, today)
        with self._database.reading() as connection:
            self._arrived = outbox.last_arrived(connection)
            self._newest = outbox.newest_receipt(connection)

    @classmethod
    def create(
        cls,
        place: Path,
        *,
        identity: Identity,
        name: str,
        study_hash: str,
        dataset: str,
        coordinator_key: str,
        keeping: Durability = Durability.DURABLE,
        today: Callable[[], datetime.date] = utc_today,
    ) -> SiteLedger:
        """Begin a ledger with its `opened` entry; repeating an init that was cut short does no harm."""
        path = _file(place)
        body = {
            "role": "site",
            "name": name,
            "study_hash": study_hash,
            "dataset": dataset,
            "key": identity.public.key,
            "coordinator_key": coordinator_key,
        }
        database = Database(path, schema=site_tables.SCHEMA, later=site_tables.LATER, keeping=keeping)
        with database.transaction() as connection:
            ours = chain.begin(connection, identity, body, later=FROM_THE_BEGINNING)
        if not ours:
            database.close()
            raise ConfigurationMistaken(f"{path} is already the ledger of another site, study or key.")
        return cls(path, identity=identity, today=today, database=database)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    # --- the budget ---------------------------------------------------------------------------------------

    def set_cap(self, cap: Cap) -> None:
        """Write the dataset's cap down when it changed. A frozen ledger stays as it is."""
        body = cap_body(self.dataset, cap)
        with self._database.transaction() as connection:
            latest = chain.last(connection, "capped")
            unchanged = latest is not None and cap_in(decode_body(latest.body)) == cap
            if unchanged or frozen_reason(connection) is not None:
                return
            accounts.open_account(connection, self.dataset, cap.allowance())
            chain.append(connection, self._identity, kind="capped", body=body)

    def cap(self) -> Cap:
        """The cap in force; `ConfigurationMistaken` before the first."""
        with self._database.reading() as connection:
            return charges.cap_in_force(connection)

    def spent(self) -> Cost:
        """Everything ever charged to the dataset."""
        with self._database.reading() as connection:
            found = accounts.balances(connection).get(self.dataset)
        return Cost.zero() if found is None else found.spent

    def charges(self) -> list[Charged]:
        """Everything that was charged, plan by plan."""
        with self._database.reading() as connection:
            return charges.charged(connection)

    def charged(self, plan_id: str) -> bool:
        """Whether this plan was paid for."""
        with self._database.reading() as connection:
            return charges.is_paid(connection, plan_id)

    def is_abandoned(self, plan_id: str) -> bool:
        """Whether a plan without a release was paid before a recovery."""
        with self._database.reading() as connection:
            return charges.is_abandoned(connection, plan_id)

    # --- the write order ----------------------------------------------------------------------------------

    def reconcile(self, standing: Standing) -> None:
        """Compare the chain with what the coordinator holds of it, before any task is taken.

        Raises:
            SiteFrozen: it lacks an entry that this site signed; it is frozen from now on.
            UnprovedHead: it lacks a place that nobody proves to be its own; nothing was done.
        """
        with self._database.transaction() as connection:
            frozen = (proof := standing.proof) is not None and freeze_if_proved(connection, self._identity, proof)
        # Outside the block: raising inside would undo the freezing.
        if frozen:
            raise SiteFrozen
        with self._database.reading() as connection:
            refuse_unless_contained(connection, standing.known)

    def look(self, signed: SignedTask) -> tuple[Kept | None, bool, AskedBy | None]:
        """What was kept for this plan, whether it was paid for, and who asked it first.

        For every task, before anything else is done with it: a refusal, too, would grow a forked chain.

        Raises:
            UnprovedHead: the chain lacks the head that the task names.
        """
        plan_id = signed.task.plan.plan_id
        with self._database.reading() as connection:
            refuse_unless_contained(connection, signed.task.head)
            kept = outbox.find(connection, plan_id)
            paid = kept is None and charges.is_paid(connection, plan_id)
            return kept, paid, askers.first_asked(connection, plan_id, signed.asked_by)

    def find(self, plan_id: str) -> Kept | None:
        """What was kept for this plan, read from the disk; it may be sent again and again."""
        with self._database.reading() as connection:
            refuse_if_frozen(connection)
            return outbox.find(connection, plan_id)

    def spend(self, charge: Charge, asking: Asking, *, head: Head, table: str = "") -> None:
        """Transaction 1: charge a plan, once; a repeat is free. Durable when this returns.

        The first round of a training charges all of it, and each further one nothing. Who asked, and that `table` is
        about to be read, are written down with it.

        Raises:
            UnprovedHead: the chain does not contain `head`; nothing was charged.
            BudgetExceeded: nothing was charged.
            PlanRefused: another plan took this round of its training; nothing was charged.
            AwaitingApproval: it is not known who asks, and no steward approved it; nothing was charged.
        """
        with self._database.transaction() as connection:
            refuse_unless_contained(connection, head)
            self._charge(connection, charge, asking, table)

    def keep(self, release: Release) -> Released:
        """Transaction 2: store a release and its signed entry, once, and return what the disk holds.

        A second release for the plan is dropped and the first one returned, so noise is never drawn twice.
        """
        if release.site != self.name:
            raise InvariantBroken(private="a release names another site")
        with self._database.transaction() as connection:
            refuse_if_frozen(connection)
            if not outbox.is_released(connection, release.plan_id):
                outbox.store_release(connection, self._identity, release)
                closed_tables.end(connection, release.plan_id)
        match self.find(release.plan_id):
            case Released() as kept:
                return kept
            case _:
                raise LedgerCorrupt(private="a committed release cannot be read back")

    def refuse(self, asking: Asking, reason: RefusalReason) -> Declined:
        """Store a signed refusal, once; impossible after the charge, which is never given back."""
        with self._database.transaction() as connection:
            refuse_if_frozen(connection)
            self._refuse(connection, asking.plan.plan_id, reason, asking)
        match self.find(asking.plan.plan_id):
            case Declined() as kept:
                return kept
            case _:
                raise LedgerCorrupt(private="a committed refusal cannot be read back")

    def recollection(self, known: Head, recovered: Entry) -> Recollection:
        """What a coordinator from a backup, which knows our chain up to a place, may have forgotten."""
        return recollect(self._database, known=known, recovered=recovered)

    def undelivered(self) -> list[Kept]:
        """What has no receipt yet, oldest first; nothing at all once frozen."""
        with self._database.reading() as connection:
            if frozen_reason(connection) is not None:
                return []
            kept = (outbox.find(connection, plan_id) for plan_id in outbox.undelivered(connection))
            return [word for word in kept if word is not None]

    def delivered(self, plan_id: str, receipt: Entry) -> None:
        """Store the coordinator's receipt, after which the bytes are not sent unasked again."""
        with self._database.transaction() as connection:
            kept = outbox.find(connection, plan_id)
            if kept is None:
                raise UnknownTask(private="a receipt for a plan that was never answered")
            if not outbox.is_receipt_for(kept, receipt, site=self.name, coordinator=self._coordinator):
                raise MalformedMessage("A receipt is not about what this site sent.")
            outbox.store_receipt(connection, plan_id, receipt)
        self._arrived = max(self._arrived, kept.entry.sequence)
        self._newest = newer(self._newest, receipt)

    def newest_receipt(self) -> Entry | None:
        """The last thing that the coordinator signed for us, by which it can find out that it is an older copy."""
        return self._newest

    def unshown(self, before: Entry) -> tuple[Entry, ...]:
        """The entries before one that the coordinator may not have seen: they follow the last that has a receipt."""
        with self._database.reading() as connection:
            return tuple(chain.entries(connection, after=self._arrived, before=before.sequence))

    # --- the steward --------------------------------------------------------------------------------------

    def standing(self, asked_by: AskedBy | None, *, block: str) -> AskerStanding:
        """What is known of who asks a plan, or a round of this training."""
        with self._database.reading() as connection:
            return askers.standing(connection, asked_by, block=block)

    def hold(self, signed: SignedTask, *, summary: str) -> RequestState:
        """Keep a task until a data steward decides, and say what was decided; nothing is spent."""
        plan_id, asked_on = signed.task.plan.plan_id, self._today().isoformat()
        with self._database.transaction() as connection:
            refuse_if_frozen(connection)
            if charges.is_paid(connection, plan_id) or outbox.is_refused(connection, plan_id):
                # Answered meanwhile, so nobody is to decide; who asks again is given that answer.
                return requests.state(connection, plan_id)
            return requests.hold(connection, self._identity, signed, summary=summary, asked_on=asked_on)

    def rewrite_messages(self, read: Read) -> None:
        """Bring requests that an earlier version stored as messages into canonical form; `read` reads one."""
        rewrite(self._database, requests.TASKS, read)

    def attest_rows(self) -> None:
        """Sign what an earlier version wrote into tables and into no entry."""
        attest_rows(self._database, self._identity, site_tables.TAKEN_OVER)

    def requests(self) -> list[Request]:
        """Every plan that ever waited for a steward, oldest first."""
        with self._database.reading() as connection:
            return requests.listed(connection)

    def decide(self, plan_id: str, *, approve: bool, by: str) -> None:
        """Approve or deny, signed with who did; a denial is at once the refusal that the agent will deliver."""
        state, date = RequestState.APPROVED if approve else RequestState.DENIED, self._today().isoformat()
        with self._database.transaction() as connection:
            refuse_if_frozen(connection)
            if charges.is_paid(connection, plan_id) or outbox.find(connection, plan_id):
                raise Mistaken(f"plan {plan_id} was already answered.")
            requests.decide(connection, self._identity, plan_id, state, by=by, date=date)
            if not approve:
                self._refuse(connection, plan_id, RefusalReason.DENIED)

    def decided(self) -> list[SignedTask]:
        """The tasks that a steward decided and whose answer is still owed; none once frozen."""
        with self._database.reading() as connection:
            owed = [] if frozen_reason(connection) is not None else requests.decided(connection)
        return [request.signed() for request in owed]

    def history(self) -> list[HistoryLine]:
        """Everything that ever left, or is about to."""
        with self._database.reading() as connection:
            return departed.history(connection)

    def head(self) -> Head:
        """Where the chain ends."""
        with self._database.reading() as connection:
            return chain.head(connection)

    def contains(self, place: Head) -> bool:
        """Whether the chain went through a place."""
        with self._database.reading() as connection:
            return chain.contains(connection, place)

    def frozen(self) -> str | None:
        """Why the site is frozen, or None."""
        with self._database.reading() as connection:
            return frozen_reason(connection)

    def _charge(self, connection: sqlite3.Connection, charge: Charge, asking: Asking, table: str) -> None:
        paid = charges.facts_paid(connection, charge.plan_id)
        if paid is not None:
            if not charge.is_paid_by(paid):
                raise InvariantBroken(private="a plan was charged before under other facts")
            return
        if outbox.is_refused(connection, charge.plan_id):
            raise PlanRefused("the site already refused this plan.")
        charge = charges.due(connection, charge)
        if charge.cost != Cost.zero():
            accounts.pay(connection, self.dataset, charge.cost, cap=charges.cap_in_force(connection))
        asked = self._asked(connection, charge, asking)
        charges.store_charge(connection, self._identity, charge, account=self.dataset, asked=asked)
        if table:
            closed_tables.begin(connection, charge.plan_id, table)

    def _asked(self, connection: sqlite3.Connection, charge: Charge, asking: Asking) -> dict[str, Plain]:
        """Who asked a plan that is charged now, and who approved it, written down beside the chain."""
        if asking.plan.plan_id != charge.plan_id:
            raise InvariantBroken(private="a charge names another plan than was asked")
        date, asked_by = self._today().isoformat(), askers.first_asked(connection, charge.plan_id, asking.asked_by)
        approved_by = requests.approved_by(connection, self._identity, charge.plan_id, date=date)
        # Looked at again: a steward may have given the name another key since.
        standing = askers.standing(connection, asked_by, block=charge.block)
        if approved_by is None and standing is AskerStanding.UNKNOWN:
            raise AwaitingApproval
        askers.meet(connection, self._identity, asked_by, date=date)
        askers.note(connection, Asking(asking.plan, asked_by))
        return asked_body(asked_by) | ({} if approved_by is None else {"approved_by": approved_by})

    def _refuse(
        self, connection: sqlite3.Connection, plan_id: str, reason: RefusalReason, asking: Asking | None = None
    ) -> None:
        if charges.is_paid(connection, plan_id):
            raise InvariantBroken(private="a plan was about to be refused after its charge")
        if outbox.find(connection, plan_id) is not None:
            return
        if asking is not None:
            askers.note(connection, asking)
        date, asked = self._today().isoformat(), askers.asked_digest(connection, plan_id)
        outbox.store_refusal(connection, self._identity, plan_id=plan_id, code=reason.value, date=date, asked=asked)


def _file(place: Path) -> Path:
    return place if place.suffix == ".sqlite" else place / LEDGER_FILE
