"""The vectorised exact sampler: the same decisions as exact arithmetic, lane by lane."""

from fractions import Fraction

import numpy as np
import pytest

from wardround.privacy.noise import discrete as exact
from wardround.privacy.noise.bernoulli import Uniform, exp_enclosure
from wardround.privacy.noise.discrete import BLOCK_BITS, COIN_BITS, LARGEST_NOISE, Proposal, proposal_for
from wardround.privacy.noise.distribution import LARGEST_SCALE, Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import WordVector

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
ALWAYS_EXACT = 2.0
LAWS = [
    NoiseDistribution(LAPLACE, Fraction(1, 1024)),
    NoiseDistribution(LAPLACE, Fraction(5, 4)),
    NoiseDistribution(LAPLACE, Fraction(2**44 + 1, 1024)),
    NoiseDistribution(LAPLACE, Fraction(LARGEST_SCALE)),
    NoiseDistribution(GAUSSIAN, Fraction(1, 1024)),
    NoiseDistribution(GAUSSIAN, Fraction(4)),
    NoiseDistribution(GAUSSIAN, Fraction(4321, 1024)),
    NoiseDistribution(GAUSSIAN, Fraction(2**55 + 1, 1024)),
    NoiseDistribution(GAUSSIAN, Fraction(LARGEST_SCALE)),
]


class Seeded:
    """Repeatable bits."""

    def __init__(self, seed: int) -> None:
        self.blocks, self.rare = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        self.rare_bits = 0

    def words(self, count: int) -> WordVector:
        return self.blocks.integers(0, 2**64, count, np.uint64)

    def bits(self, count: int) -> int:
        self.rare_bits += count
        return int.from_bytes(self.rare.bytes((count + 7) // 8), "little") >> (-count % 8)


class Stuck:
    """Every further bit is the same one."""

    def __init__(self, bit: int) -> None:
        self.bit = bit

    def words(self, count: int) -> WordVector:
        return np.zeros(count, np.uint64)

    def bits(self, count: int) -> int:
        return self.bit * ((1 << count) - 1)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_deciding_every_proposal_in_integers_gives_the_very_same_draws(law: NoiseDistribution) -> None:
    quick = exact.draw(law, 5_000, Seeded(7))
    slow = exact.draw(law, 5_000, Seeded(7), band=ALWAYS_EXACT)
    assert np.array_equal(quick, slow)


def test_the_same_bits_give_the_same_draws_and_other_bits_others() -> None:
    law = NoiseDistribution(GAUSSIAN, Fraction(1000))
    assert np.array_equal(exact.draw(law, 100, Seeded(1)), exact.draw(law, 100, Seeded(1)))
    assert not np.array_equal(exact.draw(law, 100, Seeded(1)), exact.draw(law, 100, Seeded(3)))


def test_an_unclear_block_draws_further_bits() -> None:
    source = Seeded(5)
    exact.draw(NoiseDistribution(LAPLACE, Fraction(8)), 200_000, source)
    # About 12 of 65,536 prefixes are not enough; each then needs two bits on average.
    assert 20 < source.rare_bits < 1_000


def at_the_edge(proposal: Proposal, offset: int) -> tuple[WordVector, list[int]]:
    """Proposals of clear blocks whose coin is `offset` units from exp(-h), with their values."""
    place, choice, values = [], [], []
    for v, prefix in ((0, 0xFFFF), (1, 0x5000), (2, 0x2000), (3, 0x0C00)):
        for part in range(1, 12):
            u = (part << proposal.place_bits) // 12
            y = (v << proposal.place_bits) + u
            edge = exp_enclosure(proposal.exponent(y, v), proposal.unit, COIN_BITS)[0]
            if 1 <= edge < (1 << COIN_BITS) - 1 and proposal.exponent(y, v) > 0:
                place.append(u)
                choice.append(prefix << COIN_BITS | (edge + offset))
                values.append(y)
    return np.array(place + choice, np.uint64), values


@pytest.mark.parametrize("law", LAWS[1:4] + LAWS[5:], ids=str)
def test_a_coin_at_the_edge_is_decided_by_its_further_bits(law: NoiseDistribution) -> None:
    proposal = proposal_for(law)
    for offset, bit, expected in ((-1, 1, True), (0, 0, True), (0, 1, False), (1, 0, False)):
        words, values = at_the_edge(proposal, offset)
        assert len(values) >= 3
        kept = exact.propose(proposal, words, Stuck(bit))
        assert kept.tolist() == (values if expected else [])


def test_without_the_band_floating_point_would_decide_wrongly() -> None:
    proposal = proposal_for(NoiseDistribution(GAUSSIAN, Fraction(2**40)))
    words, _ = at_the_edge(proposal, 0)
    assert exact.propose(proposal, words, Stuck(1), band=-1.0).size > 0


def test_the_double_precision_coin_errs_far_less_than_the_band_allows() -> None:
    generator = np.random.default_rng(11)
    for law in LAWS:
        proposal = proposal_for(law)
        for _ in range(300):
            v = int(generator.integers(0, 12))
            y = (v << proposal.place_bits) + int(generator.integers(0, 1 << proposal.place_bits))
            exponent = -(proposal.quadratic / proposal.unit) * float(y) - proposal.linear / proposal.unit
            exponent = exponent * float(y) - proposal.constant / proposal.unit + v
            low, high = exp_enclosure(proposal.exponent(y, v), proposal.unit, 80)
            guess = Fraction(float(np.exp(np.float64(exponent)))) * 2**80
            error = max(abs(guess - low), abs(guess - high)) / 2**80
            assert error + Fraction(1, 2**COIN_BITS) < Fraction(exact.BAND) / 16


def test_zero_is_not_counted_twice() -> None:
    proposal = proposal_for(NoiseDistribution(LAPLACE, Fraction(1)))
    words = np.array([0, 1 << 63, 0xFFFF << COIN_BITS, 0xFFFF << COIN_BITS], np.uint64)
    assert exact.propose(proposal, words, Stuck(0)).tolist() == [0]
    assert proposal.settle(1 << 63, Uniform(Stuck(1)), Uniform(Stuck(0)))[0] is False


def test_a_draw_beyond_the_integers_saturates_instead_of_wrapping() -> None:
    # At the largest scale this needs block 4,096, of probability e^-4096; wider blocks get there sooner.
    proposal = Proposal(62, quadratic=0, linear=1, constant=0, unit=1 << 62)
    for sign, expected in ((0, LARGEST_NOISE), (1, -LARGEST_NOISE)):
        third_block = Uniform(Stuck(0), 0x0C00, BLOCK_BITS)
        assert proposal.settle(sign << 63 | 5, third_block, Uniform(Stuck(0))) == (True, expected)


def test_blocks_known_from_their_prefix_are_the_geometric_ones() -> None:
    for prefix in range(0, 1 << BLOCK_BITS, 7):
        v = int(exact._BLOCKS[prefix])
        if v == exact._UNCLEAR:
            continue
        lowest, highest = Fraction(prefix, 1 << BLOCK_BITS), Fraction(prefix + 1, 1 << BLOCK_BITS)
        if v:
            assert highest * 2**64 <= exp_enclosure(v, 1, 64)[0]
        assert lowest * 2**64 >= exp_enclosure(v + 1, 1, 64)[1]
    assert np.count_nonzero(exact._BLOCKS == exact._UNCLEAR) == 12


def test_no_draws_are_no_draws() -> None:
    assert exact.draw(LAWS[0], 0, Seeded(1)).shape == (0,)
