"""Where a picture is written: looked at before anything is asked, and written whole or not at all."""

from __future__ import annotations

import importlib
import io
import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.federation.errors import ConfigurationMistaken, Mistaken
from wardround.federation.private_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What matplotlib would write about the moment, so that equal answers are equal files.
_WITHOUT_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
_DOTS_PER_INCH = 150
_OTHERS_READ = 0o644


def need_matplotlib() -> None:
    """Refuse where matplotlib is not installed, in one sentence that says how to get it."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        raise ConfigurationMistaken(
            "matplotlib is not installed; install it with pip install 'wardround[plot]'."
        ) from None


def check_place(path: Path) -> None:
    """Refuse where no picture can be made or written; asked before a question is paid for."""
    if path.suffix.lower() not in _WITHOUT_DATE:
        raise Mistaken(f"--plot writes SVG, PNG or PDF; name a file ending in .svg, .png or .pdf, not {path.name!r}.")
    # The file takes its place by a new one being renamed, so the folder decides.
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or not _may_be_a_file(path):
        raise _unwritable(path)
    need_matplotlib()


def _may_be_a_file(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        # A name that no file can have, for one.
        return False


def write_picture(axes: Axes, path: Path) -> None:
    """Write the whole figure that some axes are in, in the form that the file's ending names."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    check_place(path)
    form = path.suffix.lower()
    figure = axes.get_figure(root=True)
    if figure is None:
        raise Mistaken("these axes are in no figure; draw them again.")
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "wardround"}), warnings.catch_warnings():
        # A letter that the font lacks is drawn as an empty box.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(content, format=form[1:], dpi=_DOTS_PER_INCH, metadata=_WITHOUT_DATE[form])
    try:
        write_whole(path, content.getvalue(), mode=_OTHERS_READ)
    except OSError:
        raise _unwritable(path) from None


def _unwritable(path: Path) -> ConfigurationMistaken:
    return ConfigurationMistaken(f"{path} cannot be written; name a file in a folder that exists and is yours.")
