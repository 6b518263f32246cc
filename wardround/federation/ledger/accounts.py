"""What was spent of each budget, in whole units; no row may ever stand above its cap.

The rows repeat what the chain's entries say, so that a budget can be checked without adding up the whole chain;
`verify` compares the two. The database itself refuses an overdraft, whatever the code above it believes.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from wardround.federation.errors import BudgetExceeded, ConfigurationMistaken, InvariantBroken
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap, admits, epsilon_charged, epsilon_remaining

SCHEMA = """
CREATE TABLE accounts (
    account        TEXT PRIMARY KEY,
    mu_squared     INTEGER NOT NULL DEFAULT 0 CHECK (mu_squared >= 0 AND mu_squared <= cap_mu_squared),
    pure           INTEGER NOT NULL DEFAULT 0 CHECK (pure >= 0 AND pure <= cap_pure),
    slack          INTEGER NOT NULL DEFAULT 0 CHECK (slack >= 0 AND slack <= cap_slack),
    cap_mu_squared INTEGER NOT NULL,
    cap_pure       INTEGER NOT NULL,
    cap_slack      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

# Sums of two amounts stay inside SQLite's integers. A cap of ε = 10⁴ needs 55 bits.
_LARGEST = 2**62
_SELECT = "SELECT account, mu_squared, pure, slack, cap_mu_squared, cap_pure, cap_slack FROM accounts"


@dataclass(frozen=True, slots=True)
class Balance:
    """What was spent, and what may be."""

    spent: Cost
    allowance: Cost


def open_account(connection: sqlite3.Connection, account: str, allowance: Cost) -> None:
    """Open an account with nothing spent, or give an open one a new allowance.

    An allowance below what is already spent leaves exactly nothing; what was spent is not undone.
    """
    if max(allowance.mu_squared, allowance.pure, allowance.slack) > _LARGEST:
        raise ConfigurationMistaken("the budget is larger than a ledger can hold.")
    connection.execute(
        """
        INSERT INTO accounts (account, cap_mu_squared, cap_pure, cap_slack) VALUES (?, ?, ?, ?)
        ON CONFLICT (account) DO UPDATE SET
            cap_mu_squared = max(mu_squared, excluded.cap_mu_squared),
            cap_pure = max(pure, excluded.cap_pure),
            cap_slack = max(slack, excluded.cap_slack)
        """,
        (account, allowance.mu_squared, allowance.pure, allowance.slack),
    )


def balance(connection: sqlite3.Connection, account: str) -> Balance:
    """The account as it stands; `InvariantBroken` when it was never opened."""
    row = connection.execute(f"{_SELECT} WHERE account = ?", (account,)).fetchone()
    if row is None:
        raise InvariantBroken(private=f"account {account!r} was never opened")
    return _balance(row)


def balances(connection: sqlite3.Connection) -> dict[str, Balance]:
    """Every account, in sorted order."""
    return {row[0]: _balance(row) for row in connection.execute(f"{_SELECT} ORDER BY account")}


def spent(connection: sqlite3.Connection, account: str) -> Cost:
    """What was spent from an account."""
    return balance(connection, account).spent


def fits(connection: sqlite3.Connection, account: str, cost: Cost) -> bool:
    """Whether the account can pay `cost`."""
    found = balance(connection, account)
    return admits(found.allowance, found.spent, cost)


def debit(connection: sqlite3.Connection, account: str, cost: Cost) -> None:
    """Spend `cost`. Ask `fits` first, in the same transaction: an overdraft breaks our own rule."""
    if not fits(connection, account, cost):
        raise InvariantBroken(private=f"account {account!r} was about to be overdrawn")
    _change(connection, account, (cost.mu_squared, cost.pure, cost.slack))


def pay(connection: sqlite3.Connection, account: str, cost: Cost, *, cap: Cap) -> None:
    """Spend `cost`, or refuse with what was asked and what remains of `cap`.

    An account whose cap was lowered below what is spent in one lane has room left in the other, but then no cap
    bounds the two together: such an account pays for nothing.
    """
    before = spent(connection, account)
    if not admits(cap.allowance(), before, cost) or not fits(connection, account, cost):
        raise budget_exceeded(cost, before, cap)
    debit(connection, account, cost)


def credit(connection: sqlite3.Connection, account: str, cost: Cost) -> None:
    """Give `cost` back, after a signed refusal made before anything was read."""
    if not cost.fits(spent(connection, account)):
        raise InvariantBroken(private=f"account {account!r} was about to get back more than it spent")
    _change(connection, account, (-cost.mu_squared, -cost.pure, -cost.slack))


def budget_exceeded(asked: Cost, spent: Cost, cap: Cap, *, overlap: int = 1) -> BudgetExceeded:
    """The refusal, in ε at the cap's δ: what was asked, and what remains in the lanes it asked for."""
    allowance = cap.allowance()
    # What another lane has left does not help this question, so it is not shown as remaining.
    seen = Cost(
        mu_squared=spent.mu_squared if asked.mu_squared else max(allowance.mu_squared, spent.mu_squared),
        pure=spent.pure if asked.pure else max(allowance.pure, spent.pure),
        slack=spent.slack,
    )
    return BudgetExceeded(
        asked=epsilon_charged(asked, delta=cap.delta),
        remaining=epsilon_remaining(seen, cap, delta=cap.delta, overlap=overlap),
    )


def _balance(row: tuple[str, int, int, int, int, int, int]) -> Balance:
    return Balance(Cost(*row[1:4]), Cost(*row[4:7]))


def _change(connection: sqlite3.Connection, account: str, amounts: tuple[int, int, int]) -> None:
    connection.execute(
        "UPDATE accounts SET mu_squared = mu_squared + ?, pure = pure + ?, slack = slack + ? WHERE account = ?",
        (*amounts, account),
    )
