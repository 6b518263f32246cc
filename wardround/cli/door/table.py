"""Every command, by the role it is for.

The table is all that a list of commands needs: a command's module is loaded when the command is called, so that a
hospital's command loads nothing of an analyst's, and none waits for what another one needs.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command or a group of them: the module in `wardround/cli` that has it, and what it is for in one line."""

    module: str
    text: str


ROLES: dict[str, dict[str, Entry]] = {
    "For analysts": {
        "ask": Entry("analyst_commands", "Ask the hospitals a question."),
        "train": Entry("training_commands", "Train a model across the hospitals."),
        "budget": Entry("analyst_commands", "Show what the study has spent and what is left."),
    },
    "For hospitals": {
        "site": Entry("site_commands", "Run a hospital's side: enrol, check, serve, approve, look back."),
    },
    "For the consortium": {
        "study": Entry("study_commands", "Check a study before anyone signs it."),
        "coordinator": Entry("coordinator_commands", "Run the consortium's side: invite, serve, revoke."),
    },
    "Tools for everyone": {
        "demo": Entry("simulation_commands", "See a whole federation at work on this machine."),
        "simulate": Entry("simulation_commands", "Try a study on tables of your own, without a network."),
        "ledger": Entry("ledger_commands", "Check and export a ledger, offline."),
        "account": Entry("privacy_commands", "Show what a schedule of releases costs one patient."),
        "calibrate": Entry("privacy_commands", "Find the noise for a budget, or the budget for a noise."),
        "audit": Entry("privacy_commands", "Try to make this installation leak more than it claims."),
        "completion": Entry("door.tools", "Print what lets your shell complete commands and options."),
        "version": Entry("door.tools", "Print the version."),
    },
}

COMMANDS = {name: entry for role in ROLES.values() for name, entry in role.items()}
