# What a study needs to be tried on a laptop.

from wardround.federation.study.study_file import parse_study as parse_study
from wardround.federation.study.study_file import read_study as read_study
from wardround.simulation.federation import SimulatedFederation as SimulatedFederation
from wardround.simulation.sites import SimulatedSite as SimulatedSite
from wardround.simulation.sites import find_sites as find_sites
from wardround.simulation.trial import Trial as Trial
from wardround.simulation.trial import run_trials as run_trials
