"""The coordinator over gRPC: mutual TLS, dialled from inside, with the certificate renewed in time."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import grpc

from protos.calls import SiteCalls
from protos.channels import channel
from protos.tls import TlsKeys
from site_agent.serving.folder import SiteFolder
from wardround.federation.errors import FederationError, NotAuthorized, PeerUnreachable, Unavailable
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import SignedTask, Submission
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import read_text
from wardround.federation.trust.certificates import key_from_pem, load_certificate, make_request, validity
from wardround.federation.trust.enrolment import Greeting, Presenting, Standing
from wardround.federation.trust.entry import Entry, Head

OTHER_STUDY = (
    "The coordinator runs another study than the one this site signed, so nothing is asked and nothing is sent; ask "
    "the consortium for an invitation to it, and join it with wardround site init in a new folder."
)

_UNFIT = (
    "the coordinator issued a certificate that is not valid now by this machine's clock, so the one before is kept; "
    "compare the clocks of both machines"
)

log = logging.getLogger("wardround.site")


class GrpcLink:
    """One site's way to its coordinator."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._configuration = folder.configuration()
        self._channel, self._calls = self._dial()
        self._greeted = self._shows = self._told_unfit = False

    @property
    def calls(self) -> SiteCalls:
        """What can be said to the coordinator."""
        return self._calls

    def _dial(self) -> tuple[grpc.Channel, SiteCalls]:
        opened = channel(
            self._folder.coordinator().address, tls_keys(self._folder.tls), proxy=self._configuration.proxy
        )
        return opened, SiteCalls(opened)

    def greet(self, receipt: Entry | None = None) -> Greeting:
        """Who the coordinator takes us for; it is told the public limits of site.toml and our newest receipt."""
        greeting = self._calls.greet(Presenting(self._configuration.policy.public(), receipt, version("wardround")))
        self._shows = greeting.standing is not None
        return greeting

    def show(self, chain: Sequence[Entry]) -> None:
        """Show entries of our own ledger; a coordinator of an earlier version has no use for them."""
        if self._shows:
            self._calls.show(chain)

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        """The next task, waiting for one."""
        try:
            return self._calls.claim(wait_seconds=wait_seconds, receipt=receipt)
        except PeerUnreachable:
            # What comes back may be a newer version, or a ledger from a backup, that was never greeted.
            self._greeted = False
            raise

    def submit(self, submission: Submission) -> Entry | None:
        """Hand over an answer."""
        try:
            return self._calls.submit(submission)
        except PeerUnreachable:
            self._greeted = False
            raise

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Show our ledger to a coordinator from a backup, and recall what it may have forgotten."""
        try:
            self._calls.rejoin(chain, recalled, head)
        except FederationError:
            # Broken off, it begins again with a greeting.
            self._greeted = False
            raise

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        """Greet a coordinator that came, or came back; renew the certificate once half of its life is over.

        Raises:
            NotAuthorized: finally, when the certificate has expired or the coordinator runs another study.
        """
        self._renew()
        if self._greeted:
            return None
        greeting = self.greet(receipt)
        if greeting.study_hash != self._folder.study().study_hash:
            raise NotAuthorized(OTHER_STUDY, final=True)
        self._greeted = True
        return greeting.standing

    def greet_again(self) -> None:
        """What it knows of us may have changed."""
        self._greeted = False

    def _renew(self) -> None:
        """A new certificate in time; while that fails the old one serves, until it has expired."""
        file = self._folder.tls / "certificate.pem"
        begins, ends = validity(load_certificate(read_text(file).encode(), name=str(file)))
        now = datetime.datetime.now(datetime.UTC)
        if now < begins + (ends - begins) / 2:
            return
        key = key_from_pem((self._folder.tls / "key.pem").read_bytes(), name=str(self._folder.tls / "key.pem"))
        try:
            renewed = self._calls.renew(make_request(key, self._configuration.name))
        except FederationError as error:
            if now >= ends and not (isinstance(error, NotAuthorized) and error.final):
                # Tried all the same: this machine's clock may be the one that is wrong.
                raise NotAuthorized(expired(self._folder, ends), final=True) from None
            if not isinstance(error, Unavailable):
                raise
            log.info("the certificate could not be renewed yet (%s)", error.code)
            return
        if not _is_valid(renewed, now):
            # One of the two clocks is wrong. Taken, it would lock this site out once that clock is right.
            if not self._told_unfit:
                log.warning(_UNFIT)
            self._told_unfit = True
            return
        self._told_unfit = False
        write_private(file, renewed)
        self._channel.close()
        self._channel, self._calls = self._dial()
        log.info("the certificate was renewed")

    def close(self) -> None:
        """Hang up; a waiting call ends at once."""
        self._channel.close()


def _is_valid(certificate: bytes, now: datetime.datetime) -> bool:
    begins, ends = validity(load_certificate(certificate, name="the renewed certificate"))
    return begins <= now < ends


def tls_keys(folder: Path) -> TlsKeys:
    """The site's key, certificate and authority."""
    return TlsKeys(
        read_text(folder / "key.pem").encode(),
        read_text(folder / "certificate.pem").encode(),
        read_text(folder / "authority.pem").encode(),
    )


def expired(folder: SiteFolder, ends: datetime.datetime) -> str:
    """What to do about a certificate that cannot be renewed any more."""
    return (
        f"The certificate of this site expired on {ends:%Y-%m-%d %H:%M} UTC, by this machine's clock; ask the "
        f"consortium for a new invitation for this site, then run: wardround site init {folder.path} --invite FILE"
    )
