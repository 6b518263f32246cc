"""Every command, by the role it is for.

The table is all that a list of commands needs: a command's module is loaded when the command is called, so that a
hospital's command loads nothing of an analyst's, and none waits for what another one needs.
"""

from __future__ import annotations

from typing import NamedTuple


class Offer(NamedTuple):
    """A command or a group of them: the module in `wardround/cli` that has it, and what it is for in one line."""

    module: str
    text: str


ROLES: dict[str, dict[str, Offer]] = {
    "For analysts": {
        "ask": Offer("analyst_commands", "Ask the hospitals a question."),
        "describe": Offer("analyst_commands", "Show tables, hospitals with their limits, and what is left."),
        "train": Offer("training_commands", "Train a model across the hospitals."),
        "budget": Offer("analyst_commands", "Show what the study has spent and what is left."),
        "analyst": Offer("identity_commands", "Show by which key hospitals know you."),
    },
    "For hospitals": {
        "site": Offer("site_commands", "Run a hospital's side: enrol, check, serve, approve, look back."),
    },
    "For the consortium": {
        "study": Offer("study_commands", "Check a study before anyone signs it."),
        "coordinator": Offer("coordinator_commands", "Run the consortium's side: invite, serve, revoke."),
    },
    "Tools for everyone": {
        "status": Offer("status_command", "Show whether a coordinator or a site is served, heard and well."),
        "demo": Offer("simulation_commands", "See a whole federation at work on this machine."),
        "simulate": Offer("simulation_commands", "Try a study on tables of your own, without a network."),
        "ledger": Offer("ledger_commands", "Check and export a ledger, offline."),
        "account": Offer("privacy_commands", "Show what a schedule of releases costs one patient."),
        "calibrate": Offer("privacy_commands", "Find the noise for a budget, or the budget for a noise."),
        "audit": Offer("privacy_commands", "Try to make this installation leak more than it claims."),
        "completion": Offer("door.tools", "Print what lets your shell complete commands and options."),
        "version": Offer("door.tools", "Print the version."),
    },
}

COMMANDS = {name: offer for role in ROLES.values() for name, offer in role.items()}
