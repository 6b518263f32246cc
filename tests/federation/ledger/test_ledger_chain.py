"""Entries, bodies and accounts: what is chained, signed, canonical and never overdrawn."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.federation.errors import ConfigurationMistaken, InvariantBroken, LedgerCorrupt
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import (
    cap_body,
    cap_in,
    cost_body,
    cost_in,
    decode_body,
    encode_body,
    facts_body,
    facts_in,
)
from wardround.federation.ledger.sqlite_file import Database, Durability
from wardround.federation.trust.entry import EMPTY, GENESIS, Head
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost, Fact
from wardround.privacy.budget.filter import Cap
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

SIGNER = Identity.generate()
ALLOWANCE = Cost(mu_squared=100, pure=10, slack=5)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    database = Database(tmp_path / "ledger.sqlite", schema=chain.SCHEMA + accounts.SCHEMA, keeping=Durability.FILE)
    with database.transaction() as inside:
        accounts.open_account(inside, "a", ALLOWANCE)
        yield inside
    database.close()


def test_each_entry_points_at_the_one_before_it_and_is_signed(connection: sqlite3.Connection) -> None:
    written = [chain.append(connection, SIGNER, kind="k", body={"n": n}) for n in range(5)]
    read = list(chain.entries(connection))
    assert read == written
    assert [entry.sequence for entry in read] == [1, 2, 3, 4, 5]
    assert [entry.previous for entry in read] == [GENESIS, *(entry.digest for entry in read[:-1])]
    assert all(entry.signed_by(SIGNER.public) for entry in read)
    assert chain.head(connection) == read[-1].head
    assert list(chain.entries(connection, after=3)) == written[3:]


def test_a_chain_contains_every_place_it_went_through_and_no_other(connection: sqlite3.Connection) -> None:
    assert chain.contains(connection, EMPTY)
    first, second = (chain.append(connection, SIGNER, kind="k", body={"n": n}) for n in range(2))
    assert chain.contains(connection, EMPTY)
    assert chain.contains(connection, first.head)
    assert chain.contains(connection, second.head)
    for stranger in (
        Head(1, second.digest),
        Head(3, second.digest),
        Head(0, first.digest),
        Head(-1, GENESIS),
        Head(2**70, first.digest),
    ):
        assert not chain.contains(connection, stranger)


@pytest.mark.parametrize("statement", ["UPDATE entries SET body = '{}'", "DELETE FROM entries"])
def test_the_database_itself_refuses_to_change_an_entry(connection: sqlite3.Connection, statement: str) -> None:
    chain.append(connection, SIGNER, kind="k", body={})
    with pytest.raises(sqlite3.IntegrityError, match="never"):
        connection.execute(statement)


def test_kinds_are_found_in_order(connection: sqlite3.Connection) -> None:
    assert chain.last(connection, "a") is None
    written = [chain.append(connection, SIGNER, kind=kind, body={}) for kind in "abab"]
    assert chain.last(connection, "a") == written[2]
    assert list(chain.of_kind(connection, "b")) == [written[1], written[3]]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), plain, max_size=4))
def test_a_body_has_one_text_and_no_floats(body: dict[str, object]) -> None:
    text = encode_body(body)  # type: ignore[arg-type]
    again = decode_body(text)
    assert encode_body(again) == text  # type: ignore[arg-type]
    assert text.isascii()

    def numbers(value: object) -> Iterator[object]:
        match value:
            case dict():
                for item in value.values():
                    yield from numbers(item)
            case list():
                for item in value:
                    yield from numbers(item)
            case _:
                yield value

    assert not any(isinstance(value, float) for value in numbers(again))
    assert all(abs(value) < 2**53 for value in numbers(again) if isinstance(value, int))


@pytest.mark.parametrize(
    "text", ["", "[]", "{} ", '{"a": 1}', '{"b":1,"a":1}', '{"a":1.5}', '{"a":1,"a":1}', "{" * 5000, '{"é":1}', "nul"]
)
def test_any_other_text_is_not_a_body(text: str) -> None:
    with pytest.raises(LedgerCorrupt):
        decode_body(text)


amounts = st.integers(0, 2**80)
facts = st.builds(
    Fact,
    st.builds(NoiseDistribution, st.sampled_from(Mechanism), st.integers(4096, 2**60).map(lambda k: Fraction(k, 1024))),
    amounts,
    amounts,
    st.integers(1, 10**6),
)


@given(st.builds(Cost, amounts, amounts, amounts), st.lists(facts, max_size=4))
def test_costs_and_facts_are_read_as_written(cost: Cost, listed: list[Fact]) -> None:
    body = decode_body(encode_body({**cost_body(cost), "facts": facts_body(listed)}))
    assert cost_in(body) == cost
    assert facts_in(body) == tuple(listed)


@given(st.floats(1e-6, 1e4), st.floats(1e-12, 0.9))
def test_caps_are_read_to_the_last_bit(epsilon: float, delta: float) -> None:
    cap = Cap(epsilon, delta, epsilon / 3)
    assert cap_in(decode_body(encode_body(cap_body("a", cap)))) == cap


@pytest.mark.parametrize("digits", ["-1", "+1", "1_0", " 1", "\u0661", "", "1.0", 1, None])
def test_an_amount_is_plain_digits(digits: object) -> None:
    with pytest.raises(LedgerCorrupt):
        cost_in({"mu_squared": digits, "pure": "0", "slack": "0"})


def test_what_is_spent_adds_up_to_the_cap_and_not_beyond(connection: sqlite3.Connection) -> None:
    accounts.debit(connection, "a", Cost(60, 10, 5))
    assert accounts.fits(connection, "a", Cost(40, 0, 0))
    for too_much in (Cost(41, 0, 0), Cost(0, 1, 0), Cost(0, 0, 1), Cost(2**200, 0, 0)):
        assert not accounts.fits(connection, "a", too_much)
        with pytest.raises(InvariantBroken):
            accounts.debit(connection, "a", too_much)
    accounts.debit(connection, "a", Cost(40, 0, 0))
    assert accounts.spent(connection, "a") == Cost(100, 10, 5)


@pytest.mark.parametrize("column", ["mu_squared", "pure", "slack"])
@pytest.mark.parametrize("amount", [-1, 101])
def test_the_database_itself_refuses_an_overdraft(connection: sqlite3.Connection, column: str, amount: int) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute(f"UPDATE accounts SET {column} = ?", (amount,))


def test_no_more_is_given_back_than_was_spent(connection: sqlite3.Connection) -> None:
    accounts.debit(connection, "a", Cost(60, 1, 1))
    accounts.credit(connection, "a", Cost(20, 0, 1))
    with pytest.raises(InvariantBroken):
        accounts.credit(connection, "a", Cost(41, 0, 0))
    assert accounts.spent(connection, "a") == Cost(40, 1, 0)


def test_a_cap_below_what_is_spent_leaves_nothing_and_undoes_nothing(connection: sqlite3.Connection) -> None:
    accounts.debit(connection, "a", Cost(60, 1, 1))
    accounts.open_account(connection, "a", Cost(50, 9, 9))
    assert accounts.balance(connection, "a") == accounts.Balance(Cost(60, 1, 1), Cost(60, 9, 9))
    assert not accounts.fits(connection, "a", Cost(1, 0, 0))


def test_an_account_that_was_never_opened_pays_nothing(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvariantBroken):
        accounts.debit(connection, "b", Cost.zero())


def test_a_cap_that_the_file_cannot_hold_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationMistaken):
        accounts.open_account(connection, "b", Cost(2**63, 0, 0))
    assert max(Cap(1e4, 0.999, 0.0).allowance().mu_squared, Cap(1e4, 0.0).allowance().pure) < 2**62


def test_a_refusal_shows_only_the_lane_that_was_asked_for() -> None:
    cap = Cap(epsilon=3.0, delta=1e-6, pure_epsilon=1.0)
    spent = Cost(0, cap.allowance().pure, 0)
    refusal = accounts.budget_exceeded(Cost(0, 2**39, 0), spent, cap)
    assert (refusal.asked, refusal.remaining, refusal.difference) == (0.5, 0.0, 0.5)
    refusal = accounts.budget_exceeded(Cost(2**60, 0, 1), spent, cap)
    assert 0 < refusal.remaining < refusal.asked
