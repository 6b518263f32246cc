"""Every kind of model trained with seeded noise: its dry run, what each hospital released, what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.analyst.learning.clinics import federation, request, seeded, study, write
from tests.recorded.questions import released
from tests.recorded.recording import Json
from wardround.simulation.sites import find_sites

REQUESTS = {
    "logistic": request(rounds=3),
    "logistic, local steps": request(rounds=2, schedule="local_steps", local_steps=3, by_site=True),
    "linear": request(kind="linear", target="sbp", features=["age", "sex"]),
    "poisson": request(kind="poisson", target="stay", features=["age", "smoker"], rounds=3),
    "perceptron": request(kind="perceptron", hidden=3, rounds=3, patients=1200, batch_size=120),
}


def documents(folder: Path) -> Iterator[tuple[str, Json]]:
    datasets = find_sites(write(folder / "tables"), study())
    for title, asked in REQUESTS.items():
        place = folder / title
        found = federation(place, datasets, noise=seeded)
        try:
            yield f"{title}: dry run", found.client.preview_training(asked).document()
            yield f"{title}: trained", found.client.train(asked).document()
        finally:
            found.close()
        yield f"{title}: released", released(place)
