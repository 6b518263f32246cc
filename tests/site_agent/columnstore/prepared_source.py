"""The prepared columns of any source as a source of their own, for the suite that every source obeys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from site_agent.reading.batches import Preparable
from site_agent.reading.columnstore.build import prepare_table
from site_agent.reading.columnstore.prepared_dataset import PreparedFirst
from site_agent.reading.dataset import Dataset, Tables
from site_agent.reading.examples import Examples
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Study
from wardround.privacy.noise.vectors import Bounded

KEY = hashlib.sha256(b"the site's own key").digest()


class AnsweringForbidden:
    """A source that may be looked at and not asked: an answer must have come from the snapshot."""

    def __init__(self, source: Dataset) -> None:
        assert isinstance(source, Preparable)
        self._source = self._learning = source
        self.fingerprint, self.batches = source.fingerprint, source.batches

    def check(self, form: AnswerLayout) -> None:
        self._source.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        raise AssertionError("the source itself was read")

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        raise AssertionError("the source itself was read")

    def examples(self, form: StepLayout) -> Examples:
        # A snapshot does not hold the patients' own keys, so this is the source's to answer.
        return self._learning.examples(form)


def prepared(tables: Dataset, study: Study, folder: Path, *, key: bytes = KEY) -> PreparedFirst:
    """The dataset over a snapshot of every table, made in `folder`."""
    assert isinstance(tables, Tables)
    sources = {name: AnsweringForbidden(source) for name, source in tables.sources.items()}
    for name, source in sources.items():
        prepare_table(
            study.table(name),
            source,
            folder=folder / "prepared" / name,
            study_hash=study.study_hash,
            key=key,
            now_seconds=0.0,
            report=lambda _: None,
        )
    hours = dict.fromkeys(sources, 1.0)
    return PreparedFirst(Tables(sources), folder / "prepared", study, key, hours, now_seconds=lambda: 60.0)
