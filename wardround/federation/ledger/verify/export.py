"""A ledger as a text file that anybody can keep, read and verify: a header, then one line for each entry.

It holds what was charged and the hashes of what left; no release and no key is in it.
"""

from __future__ import annotations

from pathlib import Path

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.ledger.verify.evidence import FORMAT, encode_line, entry_line, read_evidence
from wardround.federation.private_files import write_private


def export(place: Path, out: Path) -> int:
    """Write the ledger in a folder to `out` as one step; the number of entries."""
    evidence = read_evidence(place)
    if not evidence.entries:
        raise LedgerCorrupt(private="a ledger without entries cannot be exported")
    opened, last = decode_body(evidence.entries[0].body), evidence.entries[-1].head
    header = {name: text_in(opened, name) for name in ("role", "name", "key", "study_hash")}
    first = encode_line(
        {**header, "format": FORMAT, "study": evidence.study, "sequence": last.sequence, "digest": last.digest}
    )
    text = "".join(f"{line}\n" for line in (first, *(entry_line(entry) for entry in evidence.entries)))
    write_private(out, text.encode("ascii"))
    return len(evidence.entries)
