"""What a snapshot says about itself: of which study, table and state of the source it is, and its files.

It is sealed with the site's row key. A snapshot whose seal, study, format or files do not match is not used:
nothing is ever computed from half a snapshot.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path

from site_agent.reading.batches import Fingerprint
from site_agent.reading.columnstore.column_encoding import ColumnFile

FORMAT = 1
MANIFEST = "manifest.json"
PATIENT = "patient"


class Unusable(Exception):
    """A snapshot that cannot be used, and why in a few words without a value."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of a snapshot: a column, or the texts of one."""

    file: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class KeptLayout:
    """One column of a snapshot: how it is kept and where. `gaps` says whether a value is absent or not public."""

    column: str
    layout: ColumnFile
    codes: KeptFile
    gaps: bool
    texts: KeptFile | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole snapshot. Secret like the rows it counts."""

    study_hash: str
    table: str
    folder: str
    rows: int
    made_at_seconds: float
    fingerprint: Fingerprint
    patient: KeptLayout
    columns: tuple[KeptLayout, ...]


def sealed(manifest: Manifest, key: bytes) -> bytes:
    """The manifest as bytes that `opened` takes back under the same key."""
    body = json.dumps({"format": FORMAT, **dataclasses.asdict(manifest)}, sort_keys=True)
    return json.dumps({"body": body, "seal": _seal(body, key)}).encode()


def read_manifest(path: Path, key: bytes) -> Manifest:
    """The manifest in a table's folder.

    Raises:
        FileNotFoundError: there is no snapshot.
        Unusable: there is one that this agent did not make.
    """
    raw = (path / MANIFEST).read_bytes()
    try:
        outer = json.loads(raw)
        body, seal = outer["body"], outer["seal"]
        if not (isinstance(body, str) and isinstance(seal, str) and hmac.compare_digest(_seal(body, key), seal)):
            raise Unusable("it is damaged, or was made with another row key")
        found = json.loads(body)
        if found.pop("format") != FORMAT:
            raise Unusable("it was made by another version")
        return _manifest(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise Unusable("it is damaged")


def _seal(body: str, key: bytes) -> str:
    return hmac.new(key, b"wardround prepared\n" + body.encode(), hashlib.sha256).hexdigest()


def _manifest(found: dict[str, object]) -> Manifest:
    """Sealed, so what is in it is what `sealed` wrote."""
    columns = found["columns"]
    if not isinstance(columns, list):
        raise Unusable("it is damaged")
    return Manifest(
        study_hash=str(found["study_hash"]),
        table=str(found["table"]),
        folder=str(found["folder"]),
        rows=int(str(found["rows"])),
        made_at_seconds=float(str(found["made_at_seconds"])),
        fingerprint=Fingerprint(**found["fingerprint"]),  # type: ignore[arg-type]
        patient=_kept(found["patient"]),
        columns=tuple(_kept(each) for each in columns),
    )


def _kept(found: object) -> KeptLayout:
    if not isinstance(found, dict):
        raise Unusable("it is damaged")
    texts = found["texts"]
    return KeptLayout(
        column=found["column"],
        layout=ColumnFile(**found["layout"]),
        codes=KeptFile(**found["codes"]),
        gaps=found["gaps"],
        texts=None if texts is None else KeptFile(**texts),
    )
