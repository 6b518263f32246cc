"""The tables of docs/learning.md and docs/flower.md name every key, default and strategy that there is."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from coordinator.rounds.open_rounds import SHARE_FOR_THE_AWAY
from tests.docs.pages import ROOT
from wardround import ModelKind, TrainingRequest
from wardround.analyst.learning.planner import ROUNDS
from wardround.analyst.learning.request import DEFAULT_HIDDEN, Standardise, StepSchedule
from wardround.federation.models import definition_of

LEARNING = (ROOT / "docs" / "learning.md").read_text("utf-8")
FLOWER = (ROOT / "docs" / "flower.md").read_text("utf-8")
ROWS = dict(re.findall(r"(?m)^\| (`[^|]+`) \| (.*) \|$", LEARNING.partition("## The request in full")[2]))


def row(key: str) -> str:
    (found,) = [text for keys, text in ROWS.items() if f"`{key}`" in keys.split(", ")]
    return found


def test_every_key_of_a_request_is_in_the_table() -> None:
    told = {key for text in ROWS for key in re.findall(r"`(\w+)`", text)}
    beside = {key for text in ROWS.values() for key in re.findall(r"`(\w+)`", text)}
    keys = {field.name for field in fields(TrainingRequest)}
    assert told <= keys <= told | beside


def test_the_defaults_in_the_table_are_the_program_s() -> None:
    defaults = {field.name: field.default for field in fields(TrainingRequest)}
    assert all(f"`{kind.value}`" in row("kind") for kind in ModelKind)
    assert f"{DEFAULT_HIDDEN} unless you say" in row("kind")
    assert f"{ROUNDS} for logistic and Poisson models" in row("rounds")
    assert f"{defaults['validation_fraction']} unless given" in row("validation_fraction")
    assert all(f'"{each.value}"' in row("standardise") for each in Standardise)
    assert all(f'"{each.value}"' in row("schedule") for each in StepSchedule)
    clips = {kind: f"{definition_of(kind).clip:g}" for kind in ModelKind}
    assert f"{clips[ModelKind.LOGISTIC]} for a logistic model, {clips[ModelKind.POISSON]} for a Poisson" in row("clip")
    assert {clips[ModelKind.LINEAR], clips[ModelKind.PERCEPTRON]} == {"1"}


def test_a_hospital_that_is_away_holds_up_a_round_for_as_long_as_the_page_says() -> None:
    assert pytest.approx(1 / 30) == SHARE_FOR_THE_AWAY
    assert "for a thirtieth of it" in " ".join(LEARNING.split())


def test_every_strategy_of_flower_s_that_works_is_named() -> None:
    strategies = pytest.importorskip("wardround.analyst.flower.strategies", reason="flwr is not installed")
    listed = FLOWER.partition("There are ")[2].partition(";")[0]
    named = {name.lower() for name in re.findall(r"[A-Z]\w+", listed)}
    assert named == set(strategies._KNOWN) - {"fedavg"}
