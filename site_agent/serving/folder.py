"""The site's folder: what `site init` makes and every other command opens.

site.toml  study.toml  coordinator.json  identity.pem  rows.key  tls/  ledger.sqlite  serving  called  prepared/

`init` makes the keys first, then the ledger, and only then coordinator.json and at last tls/certificate.pem. So a
folder with one of those two has had a ledger: where that is gone it is lost, and no new one is begun.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from site_agent.reading.dataset import KEY_BYTES
from site_agent.serving.configuration import SiteConfiguration, read_site
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.file_faults import file_fault
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, lost
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import read_text
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.identity import Identity, PublicIdentity

_READ = ("site.toml", "study.toml", "coordinator.json", "rows.key")
KEPT = (*_READ, "identity.pem", "tls")
"""What a backup holds beside the ledger and the shared account."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """The coordinator this site enrolled with: where it is, and the key that signs its tasks."""

    address: str
    key: str

    @property
    def identity(self) -> PublicIdentity:
        return PublicIdentity(self.key)


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """The paths, and what is read from them."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / LEDGER_FILE

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    @property
    def begun(self) -> bool:
        """Whether this folder has had a ledger."""
        return (self.path / "coordinator.json").exists() or (self.tls / "certificate.pem").exists()

    def study(self) -> Study:
        return parse_study(read_text(self.path / "study.toml"), name=str(self.path / "study.toml"))

    def configuration(self) -> SiteConfiguration:
        return read_site(self.path / "site.toml", self.study())

    def identity(self) -> Identity:
        return Identity.load(self.path / "identity.pem")

    def row_key(self) -> bytes:
        """The secret that decides which rows of a patient count when there are too many."""
        try:
            key = (self.path / "rows.key").read_bytes()
        except FileNotFoundError:
            key = b""
        except OSError as error:
            raise file_fault(str(self.path / "rows.key"), error) from None
        if len(key) != KEY_BYTES:
            raise ConfigurationMistaken(
                f"{self.path / 'rows.key'} is missing or damaged; restore it from the backup of this folder."
            )
        return key

    def coordinator(self) -> CoordinatorRecord:
        try:
            document = json.loads((self.path / "coordinator.json").read_bytes())
            record = CoordinatorRecord(str(document["address"]), str(document["key"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            raise ConfigurationMistaken(
                f"{self.path / 'coordinator.json'} is missing or damaged; restore it from the backup of this folder."
            ) from None
        except OSError as error:
            raise file_fault(str(self.path / "coordinator.json"), error) from None
        # The hospital may know the coordinator by another name than the consortium does.
        address = self.configuration().address or record.address
        return CoordinatorRecord(address, record.key)

    def write_coordinator(self, record: CoordinatorRecord) -> None:
        document = {"address": record.address, "key": record.key}
        write_private(self.path / "coordinator.json", json.dumps(document, indent=1).encode())

    def make_row_key(self) -> None:
        """A fresh secret, unless there is one."""
        if not (self.path / "rows.key").exists():
            write_private(self.path / "rows.key", os.urandom(KEY_BYTES))


def open_folder(path: Path) -> SiteFolder:
    """The folder of an enrolled site."""
    folder = SiteFolder(path)
    init = f"wardround site init {path} --invite FILE"
    if not folder.begun:
        # A ledger that is there stays: init goes on with what it finds.
        how = " yet; finish it with" if (path / "site.toml").exists() else "; make one with"
        raise ConfigurationMistaken(f"{path} is not an enrolled site's folder{how}: {init}")
    for planted in (*(path / name for name in _READ), folder.tls / "key.pem", folder.tls / "authority.pem"):
        if planted.exists() and not planted.is_file():
            # Whoever opens a pipe waits for ever.
            raise ConfigurationMistaken(
                f"{planted} is not a regular file; remove it and restore the file from the backup of this folder."
            )
    for needed in (path / "identity.pem", folder.ledger):
        if not needed.is_file():
            raise lost(needed, "is missing")
    if not (folder.tls / "certificate.pem").is_file():
        raise ConfigurationMistaken(
            f"{path} has no certificate; its keys and ledger stay as they are when you run again: {init}"
        )
    return folder
