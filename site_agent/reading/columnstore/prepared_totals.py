"""Bounded totals from a snapshot: the same sums as from every other source wherever the cap cuts nothing."""

from __future__ import annotations

from collections.abc import Mapping

from site_agent.reading.bounding.tally import finish, tally_width
from site_agent.reading.columnstore.aggregate import Adding, CodeCounts, PatientChunk, RecordSums, RowSums
from site_agent.reading.columnstore.array_cells import Cells, cells_of, levels_of, text_cells
from site_agent.reading.columnstore.row_filter import selected
from site_agent.reading.columnstore.scan import chunks
from site_agent.reading.columnstore.snapshot import Snapshot
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums, Tally
from wardround.federation.forms.release import showable
from wardround.privacy.noise.vectors import Bounded


def bounded_totals(form: AnswerLayout, snapshot: Snapshot) -> tuple[Bounded, ...]:
    """The bounded total of every part.

    Raises:
        Unusable: the snapshot is damaged; nothing was read.
        Disordered: its rows are not in order.
    """
    tallies = _scanned(form, snapshot, [_sums(form, part, snapshot) for part in form.parts])
    return tuple(finish(part, tally) for part, tally in zip(form.parts, tallies, strict=True))


def key_counts(form: AnswerLayout, snapshot: Snapshot) -> Mapping[str, int]:
    """How many units hold each text of the open column whose keys the question asks for.

    Raises:
        Unusable: as above.
    """
    part = form.parts[0]
    column = snapshot.column(part.columns[0])
    if not column.texts:
        return {}
    cells = text_cells(column, usable=showable)
    (tally,) = _scanned(form, snapshot, [RecordSums(form, part, cells, [], width=1, rows=snapshot.manifest.rows)])
    counts = zip(column.texts, tally[:, 0].tolist(), strict=True)
    return dict(sorted((text, int(count)) for text, count in counts if count))


def _scanned(form: AnswerLayout, snapshot: Snapshot, sums: list[Adding]) -> list[Tally]:
    patients = snapshot.patients()
    cohort = None if form.query.cohort is None else selected(form.query.cohort, snapshot.column)
    for span in chunks(patients):
        chunk = PatientChunk(span, patients[span.rows], None if cohort is None else cohort(span.rows))
        for each in sums:
            each.add(chunk)
    return [each.tally() for each in sums]


def _sums(form: AnswerLayout, part: Part, snapshot: Snapshot) -> Adding:
    cells, rows = cells_of(form, part, snapshot.column), snapshot.manifest.rows
    quantised = zip(part.columns, part.quantisers, strict=True) if part.quantisers else ()
    levels = [levels_of(snapshot.column(name), quantiser) for name, quantiser in quantised]
    if part.records is not Records.ROWS:
        return RecordSums(form, part, cells, levels, width=tally_width(part), rows=rows)
    match part.sums, cells:
        case Sums.COUNT, Cells(column=column, table=table) if (
            column is not None and table is not None and CodeCounts.possible(column, table)
        ):
            return CodeCounts(form, part, column, table)
        case _:
            return RowSums(form, part, cells, levels, rows=rows)
