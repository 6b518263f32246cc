"""What a loss means for one patient: odds, bits, and what delta is not."""

import math

from wardround.privacy.accounting.gaussian_dp import mu_of


def posterior_bound(prior: float, epsilon: float) -> float:
    """The most that an observer with this prior can come to believe, under pure `epsilon`."""
    if not 0.0 <= prior <= 1.0:
        raise ValueError(f"a prior must be a probability, not {prior!r}")
    return prior / (prior + (1.0 - prior) * math.exp(-epsilon))


def worst_bits(epsilon: float) -> float:
    """The most that one outcome can tell about one patient, in bits. Worst case, not an average."""
    return epsilon / math.log(2.0)


def chance_of_more_than(epsilon: float, delta: float) -> float:
    """P(loss > `epsilon`) of the Gaussian that is exactly (`epsilon`, `delta`).

    It is not delta: delta weighs each outcome by how far beyond epsilon it is.
    """
    mu = mu_of(epsilon, delta)
    return 0.5 * math.erfc((epsilon / mu - 0.5 * mu) * math.sqrt(0.5))
