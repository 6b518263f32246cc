"""The pages are true where a test can tell: files, links, targets, commands, names of tests and of errors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.members.folder import parse_coordinator
from site_agent.serving.configuration import parse_site
from tests.cli.calling import commands as command_line
from tests.docs.pages import ROOT, Block, all_blocks, anchors, blocks, commands, name, pages, prose
from wardround.analyst.learning.request import parse_request
from wardround.federation import errors
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

PAGES = pages()
WIDTH = 120
# Folders of one machine, and what was left to be done.
FORBIDDEN = re.compile(r"/root/|/home/\w|\bTODO\b|\bFIXME\b")


def ids(value: object) -> str:
    return value.place if isinstance(value, Block) else name(value) if isinstance(value, Path) else str(value)


# --- Files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", all_blocks("toml"), ids=ids)
def test_every_toml_block_is_what_it_says(block: Block) -> None:
    match block.title:
        case "":
            tomllib.loads(block.text)
        case "study.toml" | "ward-study.toml" | "clinic-study.toml" | "readmission-study.toml":
            parse_study(block.text)
        case "coordinator.toml":
            parse_coordinator(block.text)
        case "request.toml":
            parse_request(block.text)
        case _:
            parse_site(block.text, _study_of_the_walk())


def _study_of_the_walk() -> Study:
    (text,) = [block.text for block in all_blocks("toml") if block.title == "study.toml"]
    return parse_study(text)


# --- Links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if target.startswith(("https://", "mailto:")):
            continue
        file, _, place = target.partition("#")
        where = (path.parent / file).resolve() if file else path
        assert where.exists(), f"{name(path)} → {target}"
        assert not place or place in anchors(where), f"{name(path)} → {target}"


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_a_page_speaks_of_no_machine_and_no_host(path: Path) -> None:
    assert FORBIDDEN.findall(path.read_text("utf-8")) == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        todo += [
            (page.parent / target).resolve()
            for target in re.findall(r"\]\(([^)\s#]+\.md)[)#]", prose(page))
            if not target.startswith("https://")
        ]
    assert {name(path) for path in PAGES} <= {name(path) for path in reached}


def test_the_index_of_decisions_is_complete() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    assert [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in index] == []


# --- Commands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_every_make_target_exists(path: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
    named = re.findall(r"(?m)(?:`|^)make ([a-z][a-z-]*)", path.read_text("utf-8"))
    assert set(named) <= targets


@pytest.mark.parametrize("block", [*all_blocks("sh"), *all_blocks("console")], ids=ids)
def test_every_command_and_option_exists(block: Block) -> None:
    for words in commands(block):
        assert unknown_word(words) is None, f"{block.place}: wardround {words}"


def test_a_command_that_does_not_exist_is_found() -> None:
    assert unknown_word("site serve DIR") is None
    assert unknown_word("site sevre DIR") == "sevre"
    assert unknown_word('ask --profil x "SELECT 1"') == "--profil"


def unknown_word(words: str) -> str | None:
    """The first word that the command line does not know."""
    known = command_line()
    rest = words.split()
    path: tuple[str, ...] = ()
    while rest and path not in known:
        path, rest = (*path, rest[0]), rest[1:]
        if not any(each[: len(path)] == path for each in known):
            return None if path[-1] in ("--version", "--help") else path[-1]
    if path not in known:
        return None
    options = {option for parameter in known[path].params for option in parameter.opts} | {"--help"}
    return next((word for word in rest if word.startswith("--") and word not in options), None)


def test_every_command_is_on_some_page() -> None:
    told = " \n".join(f"{page.read_text('utf-8')} " for page in PAGES)
    paths = [" ".join(path) for path in command_line()]
    assert [path for path in paths if f"wardround {path}" not in told] == []


# --- Names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_every_file_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"`((?:wardround|protos|coordinator|site_agent|tests|deploy|bench|docs|tools)/[\w./-]*)`", text)
    assert named != []
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_architecture_lists_every_error_with_its_exit_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in text] == []
    for branch in errors.FederationError.__subclasses__():
        assert re.search(rf"\| `{branch.__name__}` \| {branch.exit_code} \|", text), branch.__name__


def test_the_architecture_lists_every_kind_of_ledger_entry() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    source = "".join(
        path.read_text("utf-8") for folder in ("coordinator", "site_agent") for path in (ROOT / folder).rglob("*.py")
    )
    kinds = set(re.findall(r'chain\.append\([^)]*?kind="(\w+)"', source))
    assert kinds >= {"charged", "released", "reserved", "answered", "received", "declined"}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in text] == []


@pytest.mark.parametrize(
    ("thing", "name", "fewest"), [("model", "ModelKind.POISSON", 1), ("stage", "StageKind.PRODUCTS", 4)]
)
def test_the_architecture_names_every_file_that_a_new_model_or_stage_touches(
    thing: str, name: str, fewest: int
) -> None:
    (row,) = re.findall(rf"(?m)^\| {thing} \| .*$", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    told = set(re.findall(r"`([\w/]+\.py)`", row))
    touched = {
        path.relative_to(ROOT).as_posix()
        for folder in ("wardround", "protos", "coordinator", "site_agent")
        for path in (ROOT / folder).rglob("*.py")
        if name in path.read_text("utf-8") and "simulation" not in path.parts
    }
    assert len(touched) >= fewest
    assert sorted(touched - told) == []


def test_the_lines_of_the_architecture_name_functions_that_exist() -> None:
    """Each step is `module.function` or `Class.method`, of whichever package."""
    lines = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("## Three lines")[1].split("```")[1]
    named = set(re.findall(r"(?m)^[a-z]* +(?:[\w.]+ → )*?(\w+)\.(\w+)(?= )", lines))
    assert len(named) > 15
    source = "".join(
        path.read_text("utf-8")
        for folder in ("wardround", "protos", "coordinator", "site_agent")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert [f"{owner}.{name}" for owner, name in sorted(named) if not re.search(rf"\bdef {name}\(", source)] == []


def test_the_exit_codes_are_told_to_analysts() -> None:
    text = (ROOT / "docs" / "analyst.md").read_text("utf-8")
    assert re.findall(r"(?m)^\| ([0-4]) \|", text) == ["0", "1", "2", "3", "4"]


def test_pages_have_no_other_kind_of_block() -> None:
    known = {"toml", "python", "console", "sh", "text", "json", "{toctree}", "{eval-rst}", ""}
    odd = [block.place for path in PAGES for block in blocks(path) if block.language not in known]
    assert odd == []


# --- Form -------------------------------------------------------------------------------------------------


def too_wide(text: str) -> Iterator[tuple[int, str]]:
    """Lines of prose above 120 characters that could be broken; `tools/wrap-markdown` breaks them."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= line.lstrip().startswith("```")
        is_prose = not fenced and not line.lstrip().startswith(("|", "#"))
        if is_prose and len(line) > WIDTH and " " in re.sub(r"`[^`]*`", "", line).strip():
            yield number, line


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "wardround").rglob("*.md"))], ids=ids)
def test_prose_is_wrapped(path: Path) -> None:
    assert list(too_wide(path.read_text("utf-8"))) == []


def test_a_long_line_is_found_and_wrapped(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n- " + "one `code span` and - " * 20 + "\n\n| " + "cell | " * 30 + "\n", "utf-8")
    assert [number for number, _ in too_wide(page.read_text("utf-8"))] == [3]
    subprocess.run([sys.executable, str(ROOT / "tools" / "wrap-markdown"), str(page)], check=True)
    lines = page.read_text("utf-8").splitlines()
    assert list(too_wide("\n".join(lines))) == []
    assert " ".join(line.strip() for line in lines[2:-2]) == "- " + ("one `code span` and - " * 20).strip()
    assert not [line for line in lines[3:-2] if line.strip().startswith("- ")]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "adr").glob("0*.md")), ids=ids)
def test_a_decision_has_a_status_and_a_date(path: Path) -> None:
    status = path.read_text("utf-8").splitlines()[2]
    day = r"20\d\d-\d\d-\d\d"
    assert re.fullmatch(rf"Status: (?:accepted|replaced by \[\d+\]\(\S+\)), {day}(?:; amended, {day})?\.", status), (
        status
    )
