"""`site recover`: a ledger that froze, or came from a backup, goes on where the site's own signatures prove it was.

What the coordinator keeps of this site's chain comes back, under the site's own signature and without a gap. What may
lie beyond is charged as all that is left, unless a steward states that the coordinator's reservations are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from site_agent.answering.pipeline import request_text
from site_agent.serving.configuration import SiteConfiguration
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.folder_account import bring_into_account
from site_agent.serving.link import OTHER_STUDY, GrpcLink
from site_agent.serving.steward import person
from site_agent.store.ledger import SiteLedger, utc_today
from site_agent.store.rebuilding import SIGNED_SINCE, Given, OldLedger, rebuild
from wardround.federation.errors import ConfigurationMistaken, PlanRefused
from wardround.federation.ledger.entry_body import decode_body, facts_in, text_in
from wardround.federation.ledger.folder_copy import MARK
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.plan.plan import form_of, price
from wardround.federation.plan.task import SignedTask
from wardround.federation.private_files import STAGED, sync_folder
from wardround.federation.study.study import Study
from wardround.federation.trust.entry import EMPTY, Entry, Head, follow_each_other
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import BlockFact, StepFact
from wardround.privacy.budget.filter import epsilon_charged

_NEW_NAME = "Ask the consortium for an invitation under a new name (docs/deploy.md says what that costs)."


class Keeper(Protocol):
    """What a coordinator gives back to a site that lost it."""

    def returned_chain(self, *, after: int) -> tuple[Entry, ...]:
        """The next entries of the site's ledger."""

    def returned_plan(self, plan_id: str) -> tuple[SignedTask, bytes]:
        """A plan, and what the site released for it."""

    def reserved(self) -> Iterator[str]:
        """The plans that were charged at the site."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """How many entries came back, and what was charged for what may lie beyond them."""

    head: Head
    back: int
    charged: float


def recover(path: Path, *, complete: bool, report: Callable[[str], None] = lambda _: None) -> Recovered:
    """Recover the site in this folder, which is not served meanwhile."""
    folder = open_folder(path)
    with serving_lock(folder.path), closing(GrpcLink(folder)) as link:
        greeting = link.greet()
        if greeting.study_hash != folder.study().study_hash:
            raise ConfigurationMistaken(OTHER_STUDY)
        if greeting.standing is None:
            raise ConfigurationMistaken("The coordinator is of a version that gives nothing back; upgrade it first.")
        return recover_with(folder, link.calls, greeting.standing.known, complete=complete, report=report)


def recover_with(
    folder: SiteFolder, kept: Keeper, known: Head, *, complete: bool, report: Callable[[str], None] = lambda _: None
) -> Recovered:
    """The same with what a coordinator keeps that knows the site's ledger up to a place."""
    configuration, study, identity = folder.configuration(), folder.study(), folder.identity()
    staged = folder.path / f"{STAGED}{LEDGER_FILE}"
    for left in folder.path.glob(f"{STAGED}{LEDGER_FILE}*"):
        left.unlink()
    # Whether it is this site's at all.
    SiteLedger(folder.ledger, identity=identity).close()
    with closing(OldLedger(folder.ledger)) as old:
        own = old.entries()
        place, back = _history(own, kept, known, identity.public)
        head = (back or own[:place])[-1].head
        if own[-1].kind == "recovered" and not back and place == len(own):
            # Killed before the last step.
            _replace(folder, None)
            return Recovered(own[-1].head, 0, 0.0)
        report("reading what the coordinator charged")
        lost = _unknown(old, kept, back, study) if complete else None
        report("bringing back what this site signed")
        charged = rebuild(
            old,
            staged,
            identity=identity,
            account=text_in(decode_body(own[0].body), "dataset"),
            kept=place,
            back=back,
            give=lambda plan_id: _given(kept, configuration, study, plan_id),
            cap=configuration.policy.cap,
            lost=lost,
            said={"by": person(), "date": _today(), "sequence": head.sequence, "digest": head.digest},
        )
    with closing(SiteLedger(staged, identity=identity)) as made:
        # First the shared account, as with every charge.
        bring_into_account(folder, configuration, study, made.charges())
    _replace(folder, staged)
    return Recovered(head, len(back), epsilon_charged(charged, delta=configuration.policy.cap.delta))


def _history(own: list[Entry], kept: Keeper, known: Head, key: PublicIdentity) -> tuple[int, list[Entry]]:
    """How much of our own chain stays, and the entries that follow it, at least as far as the coordinator knows it.

    All that it was ever shown come back, or what is signed next would contradict them.
    """
    place = len(own) - (own[-1].kind == "frozen")
    heads = {entry.head for entry in own} | {EMPTY}
    while True:
        page = kept.returned_chain(after=place)
        if not page and known in heads and known.sequence <= place:
            return place, []
        if page and (page[0].sequence, page[0].previous) == (place + 1, own[place - 1].digest):
            break
        place -= 1
        if own[place].kind not in SIGNED_SINCE:
            raise ConfigurationMistaken(
                f"The coordinator does not keep every entry that this site signed up to {known.sequence}, or this "
                f"folder answered questions of its own since it was copied; it cannot be recovered. {_NEW_NAME}"
            )
    back = list(page)
    while page := kept.returned_chain(after=back[-1].sequence):
        back += page
    proved = known in heads or known in {entry.head for entry in back}
    if not proved or not follow_each_other(back) or not all(entry.signed_by(key) for entry in back):
        raise ConfigurationMistaken(
            f"What the coordinator keeps of this site's ledger has a gap before entry {known.sequence}, or is not "
            f"signed by this site; it cannot be recovered. {_NEW_NAME}"
        )
    return place, back


def _unknown(old: OldLedger, kept: Keeper, back: list[Entry], study: Study) -> Cost:
    """What the coordinator charged here and this site does not know, a training once."""
    known, paid, lost = old.plans(), old.blocks(), Cost.zero()
    for entry in back:
        body = decode_body(entry.body)
        if entry.kind in ("charged", "refused"):
            known.add(text_in(body, "plan_id"))
        if entry.kind == "charged":
            paid |= {fact.block for fact in facts_in(body) if isinstance(fact, BlockFact | StepFact)}
    for plan_id in kept.reserved():
        if plan_id in known:
            continue
        try:
            charge = price(kept.returned_plan(plan_id)[0].task.plan, study)
        except PlanRefused:
            # This site refuses it, too.
            continue
        if charge.block not in paid:
            lost += charge.cost
        if charge.block:
            paid.add(charge.block)
    return lost


def _given(kept: Keeper, configuration: SiteConfiguration, study: Study, plan_id: str) -> Given:
    task, payload = kept.returned_plan(plan_id)
    plan = task.task.plan
    cost = epsilon_charged(price(plan, study).cost, delta=configuration.policy.cap.delta)
    return Given(task, payload, request_text(plan, form_of(plan, study), cost))


def _replace(folder: SiteFolder, staged: Path | None) -> None:
    """Put the new ledger in the place of the old one, in one step; the old one stays beside it."""
    if staged is not None:
        beside = folder.path / f"before-recovery-{_today()}.sqlite"
        beside.unlink(missing_ok=True)
        beside.hardlink_to(folder.ledger)
        staged.replace(folder.ledger)
    (folder.path / MARK).unlink(missing_ok=True)
    sync_folder(folder.path)


def _today() -> str:
    return utc_today().isoformat()
