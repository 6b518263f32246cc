"""The pages work: a newcomer who follows them from the first to the last gets what they show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, all_blocks
from tests.docs.walk import Walk, difference, environment, session
from tests.fixtures.prepared_python import PreparedPython

# One story: try a study on a laptop; then run the consortium, join as a hospital, ask.
ON_A_LAPTOP = ("README.md", "docs/simulation.md")
IN_A_FEDERATION = ("docs/coordinator.md", "docs/site.md", "docs/site-tables.md", "docs/analyst.md")
# Each of these begins in an empty folder and stands on its own.
ABOUT_QUESTIONS = ("docs/sql.md",)
ABOUT_STATISTICS = ("docs/statistics.md",)
ABOUT_LEARNING = ("docs/learning.md",)
ABOUT_FLOWER = ("docs/flower.md",)
ABOUT_PRIVACY = ("docs/tutorial-privacy.md", "docs/why-not.md", "docs/wrong-sql.md", "docs/guarantees.md")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The commands and the Python of the pages, which start quickly."""
    prepared = PreparedPython(tmp_path_factory.mktemp("prepared"), environment())
    yield prepared.bin
    prepared.close()


def test_the_pages_for_a_laptop_can_be_followed_from_start_to_end(tmp_path: Path, programs: Path) -> None:
    with Walk(tmp_path, programs) as walk:
        for page in ON_A_LAPTOP:
            walk.follow(ROOT / page)


def test_the_pages_of_the_roles_can_be_followed_from_start_to_end(tmp_path: Path, programs: Path) -> None:
    with Walk(tmp_path, programs) as walk:
        walk.follow(ROOT / ON_A_LAPTOP[0], until_the_first_command=True)
        for page in IN_A_FEDERATION:
            walk.follow(ROOT / page)
        assert len(walk.running) == 3  # a coordinator and two sites


@pytest.mark.parametrize("page", [*ABOUT_QUESTIONS, *ABOUT_PRIVACY])
def test_a_page_on_its_own_proves_its_numbers_by_running(page: str, tmp_path: Path, programs: Path) -> None:
    with Walk(tmp_path, programs) as walk:
        walk.follow(ROOT / page)


@pytest.mark.parametrize("page", ABOUT_STATISTICS)
def test_a_page_about_statistics_shows_what_they_answer(page: str, tmp_path: Path, programs: Path) -> None:
    with Walk(tmp_path, programs) as walk:
        walk.follow(ROOT / page)


@pytest.mark.parametrize("page", ABOUT_LEARNING)
def test_a_page_about_learning_trains_what_it_shows(page: str, tmp_path: Path, programs: Path) -> None:
    with Walk(tmp_path, programs) as walk:
        walk.follow(ROOT / page)


@pytest.mark.parametrize("page", ABOUT_FLOWER)
def test_a_page_about_flower_runs_its_app(page: str, tmp_path: Path, programs: Path) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'wardround[flower]'")
    with Walk(tmp_path, programs) as walk:
        walk.follow(ROOT / page)


def test_everything_that_could_be_run_is_on_a_page_that_is() -> None:
    runnable = {block.page for language in ("console", "python") for block in all_blocks(language)}
    assert runnable <= {
        *ON_A_LAPTOP,
        *IN_A_FEDERATION,
        *ABOUT_QUESTIONS,
        *ABOUT_PRIVACY,
        *ABOUT_STATISTICS,
        *ABOUT_LEARNING,
        *ABOUT_FLOWER,
    }


def test_a_page_that_lies_is_found(tmp_path: Path) -> None:
    page = tmp_path.joinpath
    lies = {
        "output": "```console\n$ echo one\ntwo\n```\n",
        "order": "```console\n$ printf 'one\\ntwo\\n'\ntwo\none\n```\n",
        "exit code": "```console\n$ false\n```\n",
        "expected exit code": "```console\n$ true   # exit 3\n```\n",
        "program": "```python\nraise ValueError\n```\n",
        "service": "```console\n$ false &\nserving\n```\n",
    }
    for lie, text in lies.items():
        page(f"{lie}.md").write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError), Walk(tmp_path) as walk:
            _follow(walk, page(f"{lie}.md"))


def _follow(walk: Walk, path: Path) -> None:
    # A page outside the project has no name in it.
    language, text = path.read_text("utf-8").removeprefix("```").removesuffix("```\n").split("\n", 1)
    block = Block(path.name, 1, language, "", text)
    if language == "python":
        walk._finish(block, ["python", "-c", text], path.name, code=0)
    for command, shown in session(block) if language == "console" else ():
        walk._command(block, command, shown)


def test_noised_numbers_are_any_numbers_and_words_are_themselves() -> None:
    shown = ["AVG(sbp)   139.52 ± 0.24  [139.05, 139.99]", "…", "Answered: a, b."]
    assert difference(shown, "AVG(sbp)  7 ± 1.5  [1, 20]\nmore\nAnswered: a, b.\n") is None
    assert difference(shown, "AVG(sbp)  -7.5 ± 1  [-20.5, -1]\nAnswered: a, b.\n") is None
    assert difference(["x -3 ± 1"], "x 3 ± 1\n") is None
    assert difference(shown, "AVG(age)  7 ± 1.5  [1, 20]\nAnswered: a, b.\n") == shown[0]
    assert difference(["spent ε = 0.3"], "spent ε = 0.4\n") == "spent ε = 0.3"
