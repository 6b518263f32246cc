"""One audit: every claim, every control, in the same run and on the same code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from wardround.federation.errors import Mistaken
from wardround.simulation.audit.coin_claims import coin_claims, key_claims
from wardround.simulation.audit.controls import broken_controls
from wardround.simulation.audit.exact_claims import exact_claims
from wardround.simulation.audit.federated_claims import federated_claims
from wardround.simulation.audit.findings import AuditReport
from wardround.simulation.audit.question_claims import Setting, pipeline_claims
from wardround.simulation.audit.training_claims import training_claims, training_controls
from wardround.simulation.audit.worlds import audit_study, canary_in_every_ward, one_canary

CONFIDENCE = 0.999
DEFAULT_DRAWS = 300_000
FEWEST_DRAWS, MOST_DRAWS = 1_000, 10_000_000

# Each bound may be wrong so rarely that, all together, they are right with the stated confidence.
_MOST_BOUNDS = 60


def run_audit(*, draws: int = DEFAULT_DRAWS, tell: Callable[[str], None]) -> AuditReport:
    """Audit every mechanism; `tell` hears what is under way."""
    if not FEWEST_DRAWS <= draws <= MOST_DRAWS:
        raise Mistaken(f"--draws is {draws}; it must be from {FEWEST_DRAWS} to {MOST_DRAWS}.")
    setting = Setting(draws, alpha=(1.0 - CONFIDENCE) / _MOST_BOUNDS)
    study = audit_study()
    with tempfile.TemporaryDirectory(prefix="wardround-") as folder:
        place = Path(folder)
        worlds = one_canary(place / "one")
        claims = [
            *exact_claims(study, worlds, tell),
            *pipeline_claims(study, worlds, setting, tell),
            *key_claims(place / "keys", setting, tell),
            *federated_claims(canary_in_every_ward(place / "wards"), place / "federations", setting, tell),
            *coin_claims(setting, tell),
            *training_claims(place / "trainings", setting, tell),
        ]
        controls = [*broken_controls(study, worlds, setting, tell), *training_controls(place / "broken", setting, tell)]
    return AuditReport(CONFIDENCE, draws, tuple(claims), tuple(controls))
