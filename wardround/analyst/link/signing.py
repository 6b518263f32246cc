"""An analyst's own signature on every question: made here, by a key that never leaves this machine.

The profile's certificate says who calls, and the consortium issued it. What a site believes is this key: it is made
when a profile is first used to ask, in a file beside the profile, and only its public half is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wardround.analyst.link.link import AnalystLink
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.plan.task import AskRequest, sign_request
from wardround.federation.question.answer import Answer, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.federation.trust.asked_by import check_purpose
from wardround.federation.trust.identity import Identity
from wardround.federation.trust.public_limits import PublicSite

_SUFFIX = ".identity.pem"


def identity_file(profile: Path) -> Path:
    """Where the signing key of a profile's analyst lies."""
    return profile.with_name(f"{profile.name}{_SUFFIX}")


def own_identity(profile: Path) -> Identity:
    """The signing key beside a profile, made now if there is none; one clear sentence when that is impossible."""
    path = identity_file(profile)
    if not path.exists():
        try:
            Identity.generate().create(path)
        except FileExistsError:
            # Another process was first, and its key is the one.
            pass
        except OSError as error:
            raise ConfigurationMistaken(
                f"your signing key cannot be kept beside the profile, in {path}: {error.strerror}; copy the profile "
                "into a folder of yours that you can write to."
            ) from None
    return Identity.load(path, lost="restore your backup of it; a new one would be unknown to every hospital.")


@dataclass(frozen=True, slots=True)
class Signer:
    """An analyst's name and signing key, which is opened when it is first needed."""

    analyst: str
    identity: Callable[[], Identity]


@dataclass(frozen=True, slots=True)
class SignedLink:
    """A link on which every question is signed, for a purpose if there is one; the study is asked for its hash."""

    link: AnalystLink
    signer: Signer
    study_hash: Callable[[], str]
    purpose: str = ""

    def ask(self, request: AskRequest) -> str:
        """Sign the question, with its purpose, and ask it."""
        signed = sign_request(
            request,
            self.signer.identity(),
            analyst=self.signer.analyst,
            study_hash=self.study_hash(),
            purpose=self.purpose,
        )
        return self.link.ask(signed)

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        return self.link.watch(plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, request: AskRequest) -> Preview:
        """What the question would cost; nobody is asked yet, so nothing is signed."""
        return self.link.preview(request)

    def sites(self) -> tuple[str, ...]:
        return self.link.sites()

    def hospitals(self) -> tuple[PublicSite, ...]:
        return self.link.hospitals()

    def budget(self) -> BudgetReport:
        return self.link.budget()

    def study(self) -> Study:
        return self.link.study()

    def close(self) -> None:
        self.link.close()


def with_purpose(link: AnalystLink, purpose: str) -> AnalystLink:
    """The link on which questions are asked for this purpose; one that signs nothing cannot say any."""
    if isinstance(link, SignedLink):
        return replace(link, purpose=check_purpose(purpose))
    if purpose:
        raise ConfigurationMistaken("a purpose is signed, and this link signs nothing; connect with a profile.")
    return link
