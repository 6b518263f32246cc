"""The account that a folder shares with others over the same dataset: opened as its ledger says it must be.

A folder that has charged nothing may find no account, and makes one. Of a folder that has, every charge must be in it;
where one is not, the file is missing, emptied, replaced or an old copy, and other folders' charges may be gone as well.
So a person decides: restores it, or brings every folder's charges by a command of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from site_agent.serving.configuration import SiteConfiguration
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.store.charges import Charged
from site_agent.store.ledger import SiteLedger
from site_agent.store.shared_account import Folder, SharedAccount
from wardround.federation.errors import ConfigurationMistaken, FederationError, LedgerCorrupt
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap, epsilon_charged, epsilon_spent

log = logging.getLogger("wardround.site")


def open_account(
    folder: SiteFolder, configuration: SiteConfiguration, study: Study, ledger: SiteLedger
) -> SharedAccount | None:
    """The account that site.toml names, if it names one, for an agent that is about to serve.

    Raises:
        ConfigurationMistaken: it is not the one that this folder charged, or holds loss of another unit.
    """
    if configuration.account is None:
        return None
    charges = ledger.charges()
    account = _opened(folder, configuration.account, configuration, study, must_exist=bool(charges))
    try:
        account.note_unit()
        _require(account, folder, charges)
    except FederationError:
        account.close()
        raise
    for site in account.unknown_units():
        log.warning("%s", _unknown(account, site))
    return account


def account_standing(
    folder: SiteFolder, configuration: SiteConfiguration, name: str, study: Study, ledger: SiteLedger
) -> tuple[bool, str]:
    """Whether the account of this name is as it should be, and what it holds; nothing is charged or noted."""
    charges, path = ledger.charges(), account_path(folder, name)
    if not charges and not path.exists():
        return True, f"{path} does not exist yet; the first agent that serves makes it"
    with closing(_opened(folder, name, configuration, study, must_exist=True)) as account:
        _require(account, folder, charges)
        if unknown := account.unknown_units():
            return False, _unknown(account, unknown[0])
        ok, text = spending(account.spent(), configuration.policy.cap)
        return ok, f"all folders together {text}"


def bring_charges(path: Path) -> str:
    """`site account`: bring what this folder has charged into the account that site.toml names; what was done."""
    folder = open_folder(path)
    configuration, study = folder.configuration(), folder.study()
    if configuration.account is None:
        raise ConfigurationMistaken(f"{folder.path / 'site.toml'} names no account; see docs/deploy.md.")
    with closing(SiteLedger(folder.ledger, identity=folder.identity())) as ledger:
        charges = ledger.charges()
    with closing(_opened(folder, configuration.account, configuration, study, must_exist=False)) as account:
        account.note_unit()
        _require_unit(account)
        added = account.bring(charges)
        _, text = spending(account.spent(), configuration.policy.cap)
    return f"{added} of the {len(charges)} charges of this folder were added; all folders together {text}."


def bring_into_account(
    folder: SiteFolder, configuration: SiteConfiguration, study: Study, charges: Sequence[Charged]
) -> None:
    """Bring these charges into the account that site.toml names, if it names one."""
    if configuration.account is not None:
        with closing(_opened(folder, configuration.account, configuration, study, must_exist=False)) as account:
            account.note_unit()
            account.bring(charges)


def account_path(folder: SiteFolder, name: str) -> Path:
    """The file that site.toml calls `name`, relative to a folder that need not be there yet."""
    path = folder.path / name
    return path.parent.resolve() / path.name


def check_unit(folder: SiteFolder, configuration: SiteConfiguration, study: Study) -> None:
    """Refuse to join a study whose loss does not add up with what the account holds, before anything is signed."""
    if configuration.account is not None and account_path(folder, configuration.account).exists():
        with closing(_opened(folder, configuration.account, configuration, study, must_exist=True)) as account:
            _require_unit(account)


def _opened(
    folder: SiteFolder, name: str, configuration: SiteConfiguration, study: Study, *, must_exist: bool
) -> SharedAccount:
    path = account_path(folder, name)
    advice = (
        "restore it from its backup before you serve; to start a new account, or to rebuild a lost one, "
        f"run for every folder that shares it: wardround site account {folder.path}"
    )
    try:
        return SharedAccount(
            path,
            dataset=configuration.dataset,
            folder=Folder(configuration.name, study.study_hash, study.unit),
            cap=configuration.policy.cap,
            advice=advice if must_exist else "",
        )
    except LedgerCorrupt as error:
        raise LedgerCorrupt(
            f"{path} is damaged or is not an account; restore it from its backup.", private=error.private
        ) from None


def _require_unit(account: SharedAccount) -> None:
    if (fault := account.unit_fault()) is not None:
        raise ConfigurationMistaken(fault)


def _require(account: SharedAccount, folder: SiteFolder, charges: Sequence[Charged]) -> None:
    if lacking := account.lacking(charges):
        raise ConfigurationMistaken(
            f"{account.path} is missing {len(lacking)} of the {len(charges)} charges of this folder; it is new "
            "or an old copy: restore the newest copy, or run for every folder that shares it: wardround site "
            f"account {folder.path}"
        )
    _require_unit(account)


def _unknown(account: SharedAccount, site: str) -> str:
    return (
        f"{account.path} holds charges of {site} that do not say whether they protect patients or events; "
        f"they are counted as this study's. Run for the folder of {site}: wardround site account DIR"
    )


def spending(spent: Cost, cap: Cap) -> tuple[bool, str]:
    """Whether more may be spent at all, and what was.

    A cap that was lowered undoes nothing. As long as either lane is above what it allows now, the two together are
    bounded by no cap, so nothing more is spent in any.
    """
    text, allowance = f"spent ε = {epsilon_spent(spent, cap):.3g} of {cap.epsilon:g}", cap.allowance()
    if spent.fits(allowance):
        return True, text
    lanes = []
    if spent.mu_squared > allowance.mu_squared:
        gaussian = epsilon_charged(Cost(spent.mu_squared, 0, 0), delta=cap.delta)
        lanes.append(f"ε = {gaussian:.3g} under Gaussian noise, where {cap.epsilon - cap.pure_epsilon:g} is allowed")
    if spent.pure > allowance.pure:
        pure = epsilon_charged(Cost(0, spent.pure, 0), delta=cap.delta)
        lanes.append(f"ε = {pure:.3g} under Laplace noise, where {cap.pure_epsilon:g} is allowed")
    if spent.slack > allowance.slack:
        lanes.append("more of δ than is allowed")
    return False, (
        f"{text}: {' and '.join(lanes)}; no question is answered until site.toml allows as much as was spent"
    )
