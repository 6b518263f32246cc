"""The documentation site is built without a warning, loads nothing from elsewhere, and all its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import wardround
import wardround.simulation
from tests.docs.pages import ROOT, name, pages

pytestmark = pytest.mark.slow
# What a browser fetches by itself, as opposed to where a reader may go.
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("link", "href"),
    ("source", "src"),
    ("object", "data"),
}
ELSEWHERE = re.compile(r"(?:https?:)?//")
STYLED_ELSEWHERE = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


class Page(HTMLParser):
    """The links, the places and what is fetched of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id" and value:
                self.places.add(value)
            elif (tag, key) in FETCHED and value:
                self.fetched.append(value)
            elif tag == "a" and key == "href" and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("site") / "docs"
    command = ["make", "--no-print-directory", "docs", f"SITE={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}


def test_every_page_of_the_repository_is_on_the_site(site: dict[Path, Page]) -> None:
    made = {str(path) for path in site}
    wanted = [*pages(), *(ROOT / "docs" / "notebooks").glob("*.ipynb"), *(ROOT / "wardround").rglob("*.md")]
    assert [name(path) for path in wanted if not any(end.endswith(html(path)) for end in made)] == []


def html(path: Path) -> str:
    return f"/docs/{path.relative_to(ROOT).with_suffix('.html')}"


def test_no_page_loads_anything_from_elsewhere(site: dict[Path, Page]) -> None:
    foreign = {(page.path.name, what) for page in site.values() for what in page.fetched if ELSEWHERE.match(what)}
    assert foreign == set()
    folder = min(site, key=lambda path: len(path.parts)).parent
    styles = list(folder.rglob("*.css"))
    assert styles != []
    assert [path.name for path in styles if STYLED_ELSEWHERE.search(path.read_text("utf-8"))] == []


def test_every_link_on_the_site_leads_somewhere(site: dict[Path, Page]) -> None:
    lost = []
    for page in site.values():
        for link in page.links:
            file, _, place = unquote(link).partition("#")
            if ELSEWHERE.match(file) or file.startswith("mailto:"):
                continue
            target = (page.path.parent / file).resolve() if file else page.path
            if not target.exists() or (place and target in site and place not in site[target].places):
                lost.append(f"{page.path.name} → {link}")
    assert lost == []


def test_the_library_page_has_every_public_name(site: dict[Path, Page]) -> None:
    (page,) = [page for path, page in site.items() if path.name == "api.html"]
    names = [f"wardround.{each}" for each in wardround.__all__]
    names += [f"wardround.simulation.{each}" for each in wardround.simulation.__all__]
    assert [each for each in names if each not in page.places] == []


def test_the_notebooks_show_what_they_answered(site: dict[Path, Page]) -> None:
    books = {path.stem: path.read_text("utf-8") for path in site if path.parent.name == "notebooks"}
    assert [name for name, text in books.items() if 'class="cell_output' not in text] == []
    assert [name for name, text in books.items() if "Traceback" in text] == []
    drawn = {name for name, text in books.items() if "<img" in text.partition("<article")[2]}
    assert drawn == set(books) - {"a-stewards-day"}
