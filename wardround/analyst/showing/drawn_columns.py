"""What a picture needs to know of a question's columns: units, and the order of intervals, under the names shown."""

from __future__ import annotations

from wardround.analyst.pictures.picture_words import ColumnWords
from wardround.analyst.tables.presentation import BoundQuestion
from wardround.federation.question.query import GroupBy, interval_names
from wardround.federation.study.study import Table


def drawn_columns(asked: BoundQuestion | None, table: Table | None) -> ColumnWords:
    """Everything public that a picture tells about columns."""
    units = {} if table is None else {column.name: column.unit for column in table.columns if column.unit}
    if asked is None:
        return ColumnWords(units)
    renamed, labels = dict(asked.view.renamed), dict(asked.view.labels)
    units |= {shown: units[name] for name, shown in renamed.items() if name in units}
    intervals = {
        renamed.get(each.column, each.column): labels.get(each.column) or interval_names(each.edges)
        for each in asked.query.group_by
        if each.by is GroupBy.BINS
    }
    return ColumnWords(units, intervals)
