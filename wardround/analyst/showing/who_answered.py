"""Which hospitals an answer is about, and which it lacks: a reader must not miss that one is not in the numbers."""

from __future__ import annotations

from wardround.analyst.showing.interpretation import plural
from wardround.analyst.tables.text_tables import MAX_LISTED, listed
from wardround.federation.question.answer import Answer
from wardround.federation.refusal import refusal_texts


def lacking_line(answer: Answer) -> str:
    """The first line of an answer that lacks a hospital; empty where all are in it."""
    lacking = [
        *(f"{site} (no answer)" for site in answer.missing),
        *(f"{site} (refused)" for site, _ in answer.refused),
        *(f"{site} (left out)" for site in answer.left_out),
    ]
    if not lacking:
        return ""
    *first, last = lacking
    names = f"{', '.join(first)} and {last}" if first and len(lacking) <= MAX_LISTED else listed(lacking)
    there, asked = len(answer.answered), len(answer.answered) + len(lacking)
    numbers = "and the numbers are about their patients alone" if there else "so there are no numbers"
    patients = f": {lacking_patients_text(answer)}" if answer.lacking_patients is not None else ""
    return f"Without {names}: {there} of {asked} {plural(asked, 'hospital')} answered, {numbers}{patients}."


def lacking_patients_text(answer: Answer) -> str:
    """How many declared patients are missing."""
    return f"{answer.lacking_patients} of {answer.asked_patients} declared patients are missing"


def sites_line(answer: Answer) -> str:
    """Who answered, who refused by which rule, who is missing and who is left out."""
    sites = [f"Answered: {listed(answer.answered) or 'no site'}."]
    if answer.refused:
        sites.append(f"Refused: {listed(refusal_texts(answer.refused))}.")
    if answer.missing:
        sites.append(f"Missing: {listed(answer.missing)}.")
    if answer.left_out:
        who = "it" if len(answer.left_out) == 1 else "they"
        sites.append(
            f"Left out: {listed(answer.left_out)}; {who} sent totals that no table can give, so this answer is "
            "about the sites that answered. Tell the consortium."
        )
    return " ".join(sites)
