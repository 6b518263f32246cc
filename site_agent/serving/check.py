"""`site check`: what a hospital's IT department needs to know before, and when, something does not work.

Each finding is one sentence about one thing. Nothing is asked of a patient's table but its schema; files are read
once to see that they are sound, and no value in them is shown or decides a sentence.
"""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from protos.channels import proxy_uri
from site_agent.reading.columnstore.build import Report
from site_agent.reading.columnstore.prepared_dataset import FOLDER as PREPARED
from site_agent.reading.columnstore.prepared_dataset import PreparedFirst
from site_agent.reading.dataset import TableSource, kind_of
from site_agent.serving.configuration import SiteConfiguration
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.folder_account import account_path, account_standing, spending
from site_agent.serving.link import OTHER_STUDY, GrpcLink, expired
from site_agent.serving.open_dataset import site_dataset
from site_agent.serving.table_faults import table_fault
from site_agent.store.askers import Pinned
from site_agent.store.ledger import SiteLedger
from wardround.federation.errors import FederationError
from wardround.federation.ledger.folder_copy import backup_mark
from wardround.federation.private_files import STAGED, everything_in, exposed, name_of, replaceable
from wardround.federation.strict_toml import read_text, split_address
from wardround.federation.study.study import Study, Table
from wardround.federation.trust.certificates import load_certificate, validity
from wardround.federation.trust.enrolment import Standing

CONNECT_SECONDS = 5.0
CLOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that works or does not."""

    subject: str
    ok: bool
    text: str

    def document(self) -> dict[str, object]:
        """The finding for machines."""
        return {"subject": self.subject, "ok": self.ok, "text": self.text}


def check_site(path: Path, *, report: Report = lambda _: None) -> list[CheckFinding]:
    """Everything that can be said about the site in this folder; `report` hears what takes longer than a moment."""
    folder = open_folder(path)
    found: list[CheckFinding] = []
    try:
        configuration, study = folder.configuration(), folder.study()
    except FederationError as error:
        return [CheckFinding("configuration", ok=False, text=error.message)]
    found.append(CheckFinding("configuration", ok=True, text=f"{configuration.name} in study {study.name}"))
    found.append(CheckFinding("policy", ok=True, text=f"at most ε = {configuration.policy.text()}"))
    found.extend(_analysts(folder, configuration))
    found.append(_memory(configuration))
    found.extend(_permissions(folder, configuration))
    found.append(_guarded("ledger", lambda: _ledger(folder, configuration)))
    if (name := configuration.account) is not None:
        found.append(_guarded("account", lambda: _account(folder, configuration, name, study)))
    found.append(_guarded("certificate", lambda: _certificate(folder)))
    found.extend(_network(folder, configuration))
    found.extend(_backup(folder))
    found.extend(_coordinator(folder, study))
    found.extend(_tables(folder, configuration, study, report))
    return found


def _guarded(subject: str, find: Callable[[], CheckFinding]) -> CheckFinding:
    try:
        return find()
    except FederationError as error:
        return CheckFinding(subject, ok=False, text=error.message)


def _analysts(folder: SiteFolder, configuration: SiteConfiguration) -> Iterator[CheckFinding]:
    """Who may ask, and what waits for a person although the policy is automatic."""
    try:
        with closing(SiteLedger(folder.ledger, identity=folder.identity())) as ledger:
            pins = ledger.analysts.listed()
    except FederationError:
        # Said of the ledger itself.
        return
    names = configuration.policy.analysts
    who = f"only {', '.join(names)} may ask" if names else "any analyst may ask"
    compared = sum(pin.how is Pinned.STEWARD for pin in pins)
    known = f"{len(pins)} known by their keys, {compared} of them compared"
    waiting = f"unsigned questions, and those under another key, wait: wardround site requests {folder.path}"
    yield CheckFinding("analysts", ok=True, text=f"{who}; {known}; {waiting}")


def _memory(configuration: SiteConfiguration) -> CheckFinding:
    stated, there = configuration.limits.memory_mebibytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text, ok = (
        f"one question may use up to {stated} MiB of this machine's {there // 2**20} MiB",
        stated * 2**20 <= there,
    )
    return CheckFinding("memory", ok=ok, text=text if ok else f"{text}; lower memory_mebibytes in site.toml")


def _permissions(folder: SiteFolder, configuration: SiteConfiguration) -> Iterator[CheckFinding]:
    owner = folder.path.stat().st_uid
    faults = list(exposed(_secrets(SiteFolder(folder.path.resolve()), configuration), owner=owner))
    if owner != os.geteuid():
        who = name_of(owner)
        faults.append(f"the folder is {who}'s; run: sudo -u {who} wardround site check {quote(str(folder.path))}")
    elif not os.access(folder.path, os.W_OK):
        faults.append(f"{folder.path} cannot be written by this user")
    if configuration.account is not None and replaceable(beside := account_path(folder, configuration.account).parent):
        faults.append(f"others could replace the shared account; run: chmod go-w {quote(str(beside))}")
    for fault in faults:
        yield CheckFinding("permissions", ok=False, text=fault)
    if not faults:
        yield CheckFinding(
            "permissions", ok=True, text="only this user can read the keys, the ledger and the snapshots"
        )


def _secrets(folder: SiteFolder, configuration: SiteConfiguration) -> Iterator[Path]:
    """What nobody else may read or replace; the hospital's own tables are the hospital's own affair."""
    names = ("site.toml", "study.toml", "coordinator.json", "identity.pem", "rows.key", "serving")
    # What a process that was killed had not put in its place may be a key.
    yield from (folder.path, *(folder.path / name for name in names), *folder.path.glob(f"{STAGED}*"))
    yield from everything_in(folder.tls)
    yield from everything_in(folder.path / PREPARED)
    accounts = [] if configuration.account is None else [account_path(folder, configuration.account)]
    for database in (folder.ledger, *accounts):
        yield from (Path(f"{database}{end}") for end in ("", "-journal", "-wal", "-shm"))


def _ledger(folder: SiteFolder, configuration: SiteConfiguration) -> CheckFinding:
    with closing(SiteLedger(folder.ledger, identity=folder.identity())) as ledger:
        reason, spent, head = ledger.frozen(), ledger.spent(), ledger.head()
    if reason is not None:
        return CheckFinding("ledger", ok=False, text=f"frozen: {reason}")
    # Of the cap in site.toml, which comes into force with the next start.
    ok, text = spending(spent, configuration.policy.cap)
    return CheckFinding("ledger", ok=ok, text=f"{head.sequence} entries; {text}")


def _account(folder: SiteFolder, configuration: SiteConfiguration, name: str, study: Study) -> CheckFinding:
    with closing(SiteLedger(folder.ledger, identity=folder.identity())) as ledger:
        ok, text = account_standing(folder, configuration, name, study, ledger)
    return CheckFinding("account", ok=ok, text=text)


def _certificate(folder: SiteFolder) -> CheckFinding:
    file = folder.tls / "certificate.pem"
    begins, ends = validity(load_certificate(read_text(file).encode(), name=str(file)))
    now = datetime.datetime.now(datetime.UTC)
    if now >= ends:
        return CheckFinding("certificate", ok=False, text=expired(folder, ends))
    if now < begins:
        return CheckFinding("certificate", ok=False, text="not valid yet; this machine's clock is behind")
    return CheckFinding(
        "certificate", ok=True, text=f"valid until {ends:%Y-%m-%d %H:%M} UTC; the running agent renews it"
    )


def _network(folder: SiteFolder, configuration: SiteConfiguration) -> Iterator[CheckFinding]:
    address = folder.coordinator().address
    if configuration.proxy is not None:
        yield _guarded("proxy", lambda: _proxy(configuration.proxy or ""))
        yield CheckFinding("address", ok=True, text=f"{address}, reached through the proxy")
        return
    yield CheckFinding("proxy", ok=True, text="none configured")
    yield _reach("address", address)


def _proxy(proxy: str) -> CheckFinding:
    parts = urlsplit(proxy_uri(proxy))
    return _reach("proxy", f"{parts.hostname}:{parts.port}")


def _reach(subject: str, address: str) -> CheckFinding:
    try:
        with socket.create_connection(split_address(address), timeout=CONNECT_SECONDS):
            return CheckFinding(subject, ok=True, text=f"{address} accepts connections")
    except socket.gaierror:
        return CheckFinding(subject, ok=False, text=f"{address} cannot be resolved; check the name and DNS")
    except OSError:
        text = f"{address} does not accept connections; check the firewall and that the coordinator serves"
        return CheckFinding(subject, ok=False, text=text)


def _backup(folder: SiteFolder) -> Iterator[CheckFinding]:
    """Nothing where the folder is no copy."""
    if (mark := backup_mark(folder.path)) is not None:
        text = f"is a backup made at {mark.made}; do not serve it before: wardround site recover {folder.path}"
        yield CheckFinding("folder", ok=False, text=text)


def _heads(folder: SiteFolder, standing: Standing) -> Iterator[CheckFinding]:
    """Whether our ledger holds what the coordinator holds of it."""
    try:
        with closing(SiteLedger(folder.ledger, identity=folder.identity())) as ledger:
            contained = ledger.contains(standing.known)
    except FederationError:
        # Said of the ledger itself.
        return
    known = standing.known.sequence
    if contained:
        yield CheckFinding("heads", ok=True, text=f"the coordinator knows the ledger up to {known}")
    elif standing.proof is None or not standing.proof.signed_by(folder.identity().public):
        text = f"the coordinator names entry {known} of another ledger, and does not prove it"
        yield CheckFinding("heads", ok=False, text=text)
    else:
        text = (
            f"do not serve this folder: it is an older copy, which lacks entry {known} that this site signed; recover "
            f"it first: wardround site recover {folder.path}"
        )
        yield CheckFinding("heads", ok=False, text=text)


def _coordinator(folder: SiteFolder, study: Study) -> Iterator[CheckFinding]:
    try:
        link = GrpcLink(folder)
        try:
            greeting = link.greet()
        finally:
            link.close()
    except FederationError as error:
        yield CheckFinding("coordinator", ok=False, text=error.message)
        return
    yield CheckFinding("coordinator", ok=True, text=f"knows this site as {greeting.site}")
    same = greeting.study_hash == study.study_hash
    yield CheckFinding("study", ok=same, text="is the one this site signed" if same else OTHER_STUDY)
    if (standing := greeting.standing) is not None:
        yield from _heads(folder, standing)
    here = datetime.datetime.now(datetime.UTC).timestamp()
    skew = abs(here - greeting.unix_milliseconds / 1000)
    yield CheckFinding("clock", ok=skew < CLOCK_SECONDS, text=f"differs from the coordinator's by {skew:.0f} s")


def _tables(
    folder: SiteFolder, configuration: SiteConfiguration, study: Study, report: Report
) -> Iterator[CheckFinding]:
    try:
        dataset = site_dataset(folder, configuration, study)
    except FederationError as error:
        yield CheckFinding("tables", ok=False, text=error.message)
        return
    for table in study.tables:
        subject = f"table {table.name}"
        if table.name not in configuration.tables:
            text = f"is not in site.toml; add [tables.{table.name}] to answer questions about it"
            yield CheckFinding(subject, ok=False, text=text)
            continue
        source = configuration.tables[table.name]
        fault = table_fault(dataset, study, table, source, folder=folder.path, report=report)
        if fault is None:
            yield CheckFinding(subject, ok=True, text=f"has the unit key and all {len(table.columns)} columns")
            yield from _role(source, table)
        else:
            yield CheckFinding(subject, ok=False, text=fault)
        yield from _prepared(folder, dataset, table)
    yield from _closed(folder)


def _closed(folder: SiteFolder) -> Iterator[CheckFinding]:
    """Nothing where every table is open."""
    try:
        ledger = SiteLedger(folder.ledger, identity=folder.identity())
        try:
            found = ledger.tables.listed()
        finally:
            ledger.close()
    except FederationError:
        # Said of the ledger itself.
        return
    for closed in found:
        text = (
            f"since {closed.date}: a question could not read the table to the end, so no question about it is "
            f"answered; fix its source, then run: wardround site reopen {folder.path} {closed.table}"
        )
        yield CheckFinding(f"closed {closed.table}", ok=False, text=text)


def _role(source: TableSource, table: Table) -> Iterator[CheckFinding]:
    """A role that could write is more than a site needs; only PostgreSQL has roles."""
    if kind_of(source.source) == "postgresql":
        from site_agent.reading.sources.postgresql.table import can_write  # noqa: PLC0415

        if can_write(table, source):
            text = "can also write to the table; give the site a role that can only read"
            yield CheckFinding(f"role {table.name}", ok=False, text=text)


def _prepared(folder: SiteFolder, dataset: PreparedFirst, table: Table) -> Iterator[CheckFinding]:
    """Nothing where a table was never prepared: that is no fault."""
    standing = dataset.standing(table)
    subject = f"snapshot {table.name}"
    if standing.fault is not None:
        text = f"is not used: {standing.fault}; run: wardround site prepare {folder.path}"
        yield CheckFinding(subject, ok=False, text=text)
    elif standing.exists:
        yield CheckFinding(subject, ok=True, text="matches the source; questions are answered from it")
