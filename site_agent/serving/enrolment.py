"""`site init`: read the invitation, look at the tables, show the study, make the keys here, sign, enrol.

Keys are written before they are used, so a reply that was lost is asked for again under the same keys and
the invitation still counts as used once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protos import channels
from protos.calls import EnrolmentCalls
from site_agent.reading.dataset import KEY_BYTES
from site_agent.serving.configuration import SiteConfiguration, parse_site
from site_agent.serving.folder import CoordinatorRecord, SiteFolder
from site_agent.serving.folder_account import check_unit
from site_agent.serving.open_dataset import check_sources, open_dataset
from site_agent.serving.table_faults import table_fault
from site_agent.store.ledger import SiteLedger
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.plan.sql_text import study_text
from wardround.federation.private_files import STAGED, make_private_folder, write_private
from wardround.federation.statistics import ALLOWED_BY_DEFAULT
from wardround.federation.strict_toml import check_plain, read_text
from wardround.federation.study.study import Study, delta_fault
from wardround.federation.trust.certificates import key_from_pem, key_to_pem, make_request, new_tls_key
from wardround.federation.trust.enrolment import Enrolment, Invitation, read_invitation
from wardround.federation.trust.identity import Identity, Purpose
from wardround.federation.trust.public_limits import TRAINING

TEMPLATE = """\
# One hospital. Fill in what follows, then run site init again.
[site]
name = "{site}"
patients = 0                     # declare about how many patients the tables hold; public, never read from the data
dataset = "{site}"               # the budget belongs to the dataset

[coordinator]
address = "{address}"

{tables}
[policy]
epsilon = {epsilon}
delta = {delta}
max_epsilon_per_plan = {per_plan}
min_sites = {min_sites}                    # answer only questions that go to so many sites or more
# What may be asked. "keys", if added, lets texts leave the hospital that many patients share.
statistics = [{statistics}]
approval = "automatic"           # or "manual": a data steward approves each question
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything checked before anything is written."""

    path: Path
    invitation: Invitation
    study: Study
    configuration: SiteConfiguration
    configuration_text: str

    def text(self) -> str:
        """The study as the hospital should read it before signing."""
        policy = self.configuration.policy
        return (
            f"{study_text(self.study)}\n"
            f"This site: {self.configuration.name}, declares {self.configuration.patients} patients, "
            f"allows ε = {policy.cap.epsilon:g} in all and {policy.text()}"
        )


def prepare_enrolment(
    path: Path, invite: Path, config: Path | None, *, report: Callable[[str], None] = lambda _: None
) -> Ready:
    """Check invitation, study, configuration and tables; without a configuration, write one to be filled in.

    `report` hears what takes longer than a moment.
    """
    invitation = read_invitation(invite)
    study = invitation.study()
    _require_memory(SiteFolder(path))
    if joining := not (path / "tls" / "certificate.pem").exists():
        check_plain(invitation.study_text, name="the invitation's study")
    else:
        enrolled = SiteFolder(path)
        if config is not None or enrolled.study().study_hash != study.study_hash:
            raise ConfigurationMistaken(
                f"{path} is already an enrolled site; name a new folder, or renew its certificate with a new "
                "invitation to the same study and without --config."
            )
    source = config or path / "site.toml"
    if config is None and not source.exists():
        make_private_folder(path)
        write_private(source, _template(invitation, study).encode())
        raise ConfigurationMistaken(f"{source} was written for you; fill it in and run the same command again.")
    text = read_text(source)
    configuration = parse_site(text, study, name=source.name)
    if joining:
        check_plain(text, name=source.name, broken=("relation",))
    if configuration.name != invitation.site:
        raise ConfigurationMistaken(
            f"{source.name}: site.name is {configuration.name!r} but the invitation is for {invitation.site!r}."
        )
    check_sources(configuration.tables, folder=path)
    check_unit(SiteFolder(path), configuration, study)
    if (fault := delta_fault(study.cap.delta, {configuration.name: configuration.patients})) is not None:
        raise ConfigurationMistaken(f"The study cannot be joined: {fault}")
    if joining:
        _look_at_tables(path, configuration, study, report)
    return Ready(path, invitation, study, configuration, text)


def _look_at_tables(path: Path, configuration: SiteConfiguration, study: Study, report: Callable[[str], None]) -> None:
    """Refuse tables that no question could be answered from, while nothing is signed and the invitation unused."""
    made = not path.exists()
    # A path such as ../visits.csv leads nowhere from a folder that is not there.
    make_private_folder(path)
    # Which rows would count is not asked of a table here, so that the key which decides it need not be there yet.
    dataset = open_dataset(configuration.tables, folder=path, key=bytes(KEY_BYTES), limits=configuration.limits)
    tables = [(study.table(name), source) for name, source in configuration.tables.items()]
    found = [table_fault(dataset, study, table, source, folder=path, report=report) for table, source in tables]
    if faults := [fault for fault in found if fault is not None]:
        if made:
            path.rmdir()
        raise ConfigurationMistaken(
            "The study was not signed and the invitation is unused. Correct this, or leave the table out of site.toml "
            f"for now, then run the same command again: {' '.join(faults)}"
        )


def _template(invitation: Invitation, study: Study) -> str:
    tables = "".join(
        f'[tables.{table.name}]\nsource = "{table.name}.csv"    # a file, a folder or a database; see docs/site.md\n\n'
        for table in study.tables
    )
    return TEMPLATE.format(
        site=invitation.site,
        address=invitation.address,
        tables=tables,
        epsilon=study.cap.epsilon,
        delta=study.cap.delta,
        per_plan=study.cap.epsilon / 3,
        min_sites=study.min_sites,
        statistics=", ".join(f'"{word}"' for word in (*ALLOWED_BY_DEFAULT, TRAINING)),
    )


def enrol(ready: Ready) -> None:
    """Make keys, sign the study, enrol over TLS pinned by the invitation, and begin the ledger."""
    enrolment = begin(ready)
    channel = channels.enrolment_channel(
        ready.invitation.enrolment_address,
        authority=ready.invitation.authority.encode(),
        proxy=ready.configuration.proxy,
    )
    with channel:
        certificate = EnrolmentCalls(channel).enrol(enrolment)
    finish(ready, certificate)


def begin(ready: Ready) -> Enrolment:
    """Write the agreement and the keys, and sign what the coordinator is asked for."""
    path, folder = ready.path, SiteFolder(ready.path)
    make_private_folder(path)
    make_private_folder(folder.tls)
    if not folder.begun:
        for left in (*path.glob(f"{STAGED}*"), *folder.tls.glob(f"{STAGED}*")):
            left.unlink()
    write_private(path / "site.toml", ready.configuration_text.encode())
    write_private(path / "study.toml", ready.invitation.study_text.encode())
    identity = _identity(path)
    key_file = folder.tls / "key.pem"
    if not key_file.exists():
        write_private(key_file, key_to_pem(new_tls_key()))
    key = key_from_pem(key_file.read_bytes(), name=str(key_file))
    folder.make_row_key()
    study_hash = ready.study.study_hash
    return Enrolment(
        secret=bytes.fromhex(ready.invitation.token),
        site=ready.invitation.site,
        identity=identity.public,
        study_hash=study_hash,
        study_signature=identity.sign(Purpose.STUDY, bytes.fromhex(study_hash)),
        certificate_request=make_request(key, ready.invitation.site),
        patients=ready.configuration.patients,
        dataset=ready.configuration.dataset,
        limits=ready.configuration.policy.public(),
    )


def finish(ready: Ready, certificate: bytes) -> None:
    """Begin the ledger of a site that the coordinator took, or go on with the one it has."""
    path, folder = ready.path, SiteFolder(ready.path)
    write_private(folder.tls / "authority.pem", ready.invitation.authority.encode())
    ledger = SiteLedger.create(
        path,
        identity=folder.identity(),
        name=ready.configuration.name,
        study_hash=ready.study.study_hash,
        dataset=ready.configuration.dataset,
        coordinator_key=ready.invitation.coordinator_key,
    )
    ledger.set_cap(ready.configuration.policy.cap)
    ledger.close()
    # After the ledger: what follows says that there is one (see `SiteFolder.begun`).
    folder.write_coordinator(CoordinatorRecord(ready.invitation.address, ready.invitation.coordinator_key))
    # Last: a folder with a certificate is an enrolled site.
    write_private(folder.tls / "certificate.pem", certificate)


def _require_memory(folder: SiteFolder) -> None:
    """Refuse a folder that has lost its ledger or the keys that belong to it: new ones would forget what was spent."""
    if folder.begun:
        SiteLedger(folder.ledger, identity=folder.identity()).close()
        folder.row_key()
    elif folder.ledger.is_file() and folder.ledger.stat().st_size:
        # An init that was cut short: its keys came before its ledger.
        folder.identity()
        folder.row_key()


def _identity(path: Path) -> Identity:
    file = path / "identity.pem"
    if not file.exists():
        Identity.generate().save(file)
    return Identity.load(file)
