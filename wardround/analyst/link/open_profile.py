"""The analyst's profile, checked before the first call: a stale file is a sentence, not a failed handshake."""

from __future__ import annotations

import datetime
from pathlib import Path

from wardround.federation.addresses import address_fault
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.trust.certificates import issued_by, key_from_pem, load_certificate, validity
from wardround.federation.trust.profile import AnalystProfile, read_profile

_NEW = "ask the consortium for a new profile (wardround coordinator analyst)."


def open_profile(path: Path, *, now: datetime.datetime) -> AnalystProfile:
    """The profile in a file that can be used at `now`; otherwise one sentence that says what to do."""
    profile = read_profile(path)
    if (fault := address_fault(profile.address)) is not None:
        raise ConfigurationMistaken(f"{path}: the coordinator's address must be {fault}.")
    name = f"the profile {path}"
    authority = load_certificate(profile.authority.encode(), name=name)
    certificate = load_certificate(profile.certificate.encode(), name=name)
    key = key_from_pem(profile.key.encode(), name=name)
    if certificate.public_key() != key.public_key():
        raise ConfigurationMistaken(f"{path}: the key is not the certificate's; {_NEW}")
    if not issued_by(certificate, authority):
        raise ConfigurationMistaken(f"{path}: the certificate is not from the profile's authority; {_NEW}")
    begins, ends = validity(certificate)
    if now >= ends:
        raise ConfigurationMistaken(f"{path}: the certificate expired on {ends:%Y-%m-%d}; {_NEW}")
    if now < begins:
        raise ConfigurationMistaken(
            f"{path}: the certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC; check this computer's clock."
        )
    return profile
