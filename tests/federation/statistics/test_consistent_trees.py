"""The consistent leaves are the least-squares ones, and their variance is the one that is claimed."""

from __future__ import annotations

import numpy as np
import pytest

from wardround.federation.forms.grids import Tree
from wardround.federation.statistics.quantile import consistent, level_variance

TREES = [Tree(2, 5), Tree(3, 4), Tree(6, 2), Tree(16, 1)]


def design(tree: Tree) -> np.ndarray:
    """Which leaves each count adds up, the coarsest level first."""
    return np.concatenate([np.kron(np.eye(cells), np.ones((1, tree.leaves // cells))) for cells in tree.sizes])


@pytest.mark.parametrize("tree", TREES)
def test_consistency_is_least_squares(tree: Tree) -> None:
    counts = np.random.default_rng(1).normal(size=(5, sum(tree.sizes)))
    exact = np.linalg.lstsq(design(tree), counts.T, rcond=None)[0].T
    assert np.abs(consistent(tree, counts) - exact).max() < 1e-12


@pytest.mark.parametrize("tree", TREES)
def test_consistent_counts_stay_as_they_are(tree: Tree) -> None:
    leaves = np.random.default_rng(2).integers(0, 50, (3, tree.leaves)).astype(float)
    assert np.abs(consistent(tree, leaves @ design(tree).T) - leaves).max() < 1e-11


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("level", [0.001, 0.3, 0.5, 0.99])
def test_the_variance_of_a_level_is_that_of_least_squares(tree: Tree, level: float) -> None:
    covariance = np.linalg.inv(design(tree).T @ design(tree))
    weights = np.tril(np.ones((tree.leaves, tree.leaves))) - level
    exact = np.einsum("ij,jk,ik->i", weights, covariance, weights)
    assert level_variance(tree, level) == pytest.approx(exact, abs=1e-10)


def test_consistency_makes_a_prefix_much_surer_than_its_leaves_alone() -> None:
    tree = Tree(6, 4)
    middle = float(level_variance(tree, 0.5)[tree.leaves // 2])
    # With as much noise for one level of leaves alone, which then has a quarter of the variance each.
    assert middle < tree.leaves / 4 / 4 / 10
