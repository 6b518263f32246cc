"""Federations for the tests: each kind is made once, and every test gets a copy on ports of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.prepared_python import PreparedPython
from tests.integration import stage
from tests.integration.building import build, move_to_own_ports
from tests.integration.stage import Federation, closing
from tests.integration.terms import Terms

Make = Callable[..., Federation]


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One-off commands begin with the project imported; what serves is started as everywhere."""
    prepared = PreparedPython(tmp_path_factory.mktemp("prepared"), dict(os.environ))
    stage.PREPARED.append(prepared.bin)
    yield
    stage.PREPARED.clear()
    prepared.close()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Terms], Path]:
    """The enrolled, stopped federation of each kind."""
    folder = tmp_path_factory.mktemp("templates")
    made: dict[Terms, Path] = {}

    def template(terms: Terms) -> Path:
        if terms not in made:
            build(folder / str(len(made)), terms)
            made[terms] = folder / str(len(made))
        return made[terms]

    return template


@contextlib.contextmanager
def _copies(templates: Callable[[Terms], Path], folder: Path) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:
        count = 0

        def make(**terms: object) -> Federation:
            nonlocal count
            count += 1
            agreed = Terms(**terms)  # type: ignore[arg-type]
            place = folder / f"federation{count}"
            shutil.copytree(templates(agreed), place)
            federation = stack.enter_context(closing(Federation(place, agreed)))
            move_to_own_ports(federation)
            return federation

        yield make


@pytest.fixture
def make_federation(templates: Callable[[Terms], Path], tmp_path: Path) -> Iterator[Make]:
    """A stopped federation on terms that the test names; ended with the test."""
    with _copies(templates, tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def federation(templates: Callable[[Terms], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One running federation for a whole module, for tests that leave it as they found it."""
    with _copies(templates, tmp_path_factory.mktemp("shared")) as make:
        yield make().start()
