"""The snapshots of one site's folder: making them, and the dataset that uses them."""

from __future__ import annotations

import time
from pathlib import Path

from site_agent.reading.columnstore.build import Report, prepare_table
from site_agent.reading.columnstore.manifest import Unusable
from site_agent.reading.columnstore.prepared_dataset import FOLDER, PreparedFirst, preparable
from site_agent.serving.configuration import SiteConfiguration
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.private_files import make_private_folder
from wardround.federation.study.study import Study


def site_dataset(folder: SiteFolder, configuration: SiteConfiguration, study: Study) -> PreparedFirst:
    """The tables of this site, from their snapshots where there are usable ones."""
    key = folder.row_key()
    return PreparedFirst(
        open_dataset(configuration.tables, folder=folder.path, key=key, limits=configuration.limits),
        folder.path / FOLDER,
        study,
        key,
        {name: source.prepared_hours for name, source in configuration.tables.items()},
    )


def prepare_site(path: Path, *, report: Report) -> tuple[str, ...]:
    """Make a snapshot of every table of the site in this folder, and say of which; the agent may serve meanwhile."""
    folder = open_folder(path)
    configuration, study = folder.configuration(), folder.study()
    dataset = site_dataset(folder, configuration, study)
    make_private_folder(folder.path / FOLDER)
    done: list[str] = []
    for name in configuration.tables:
        table = study.table(name)
        try:
            source = preparable(dataset.tables.sources[name])
        except Unusable:
            raise ConfigurationMistaken(f"The source of the table {name!r} cannot be prepared.") from None
        prepare_table(
            table,
            source,
            folder=folder.path / FOLDER / name,
            study_hash=study.study_hash,
            key=dataset.key,
            now_seconds=time.time(),
            report=report,
            limits=configuration.limits,
        )
        done.append(name)
    return tuple(done)
