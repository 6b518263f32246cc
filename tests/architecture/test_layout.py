"""No folder is too full, no function too long, and no two folders lean on each other."""

from __future__ import annotations

from collections import Counter

from tools import house

MOST_MODULES = 15
MOST_LINES_OF_A_FUNCTION = 60


def test_no_folder_is_too_full_to_look_through() -> None:
    folders = Counter(source.folder for source in house.sources() if source.stem != "__init__")
    assert {folder: number for folder, number in folders.items() if number > MOST_MODULES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    assert [name for lines, name in house.functions(house.sources()) if lines > MOST_LINES_OF_A_FUNCTION] == []


def test_imports_run_one_way() -> None:
    found = house.sources()
    ours, _ = house.imports(found)
    assert house.cycles(ours) == []
    assert house.mutual(found, ours) == []
