"""`wardround train` as scripts use it, over mutual TLS: one document, exit codes, replays, a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import Call, call
from tests.integration.stage import Federation
from wardround.analyst.asking.client import connect
from wardround.analyst.learning.model_store import load_model

REQUEST = """\
kind = "logistic"
table = "encounters"
target = "diagnosis"
features = ["age", "sbp"]
epsilon = 5.0
rounds = 3
"""
DOCUMENT = {"model_id", "kind", "rounds", "sites", "coefficients", "metrics", "plan_ids", "artifact", "privacy"}


@pytest.fixture
def desk(federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    """The analyst's folder, with a request in it."""
    monkeypatch.chdir(tmp_path)
    Path("request.toml").write_text(REQUEST, encoding="utf-8")
    federation.await_sites()
    return federation


def train(federation: Federation, *words: object, analyst: str = "ada") -> Call:
    return call("train", "--profile", federation.profile(analyst), "request.toml", *words)


def spent(federation: Federation) -> float:
    with connect(federation.profile()) as analyst:
        return analyst.budget().report.spent.epsilon


def test_a_training_is_shown_paid_kept_and_replayed(desk: Federation) -> None:
    before = spent(desk)
    dry = train(desk, "--dry-run", "--json")
    assert (dry.code, dry.err) == (0, "")
    shown = dry.document()
    assert (shown["dry_run"], shown["rounds"]) == (True, {"done": 0, "planned": 3})
    assert shown["refusal"] is None
    assert [stage["stage"] for stage in shown["stages"]] == ["moments", "products", "gradient", "scores"]
    assert spent(desk) == before

    done = train(desk, "--json")
    assert done.code == 0
    document = done.document()
    assert set(document) >= DOCUMENT
    assert document["model_id"] == shown["model_id"]
    assert document["rounds"] == {"done": 3, "planned": 3}
    assert document["sites"] == {"answered": ["one", "three", "two"], "refused": {}, "missing": []}
    assert document["privacy"]["charged"] == shown["privacy"]["charged"]
    assert "round 1 of 5: how many patients" in done.err
    assert "round 5 of 5: predictions against outcomes of held-out patients (ε = " in done.err
    assert spent(desk) > before
    assert document["artifact"] == f"models/{document['model_id']}"
    model = load_model(Path("models", document["model_id"]))
    assert model.card["plan_ids"] == document["plan_ids"]
    assert len(model.predict({"age": [40.0], "sbp": [120.0]})) == 1

    again = train(desk, "--json", "--out", "elsewhere", analyst="bob").document()
    assert (again["replayed"], again["coefficients"]) == (True, document["coefficients"])
    assert again["privacy"]["spent"] == document["privacy"]["spent"]
    for plan_id in document["plan_ids"]:
        desk.check_charged_once(plan_id)


def test_a_fresh_training_says_how_to_go_on_with_it(desk: Federation) -> None:
    done = train(desk, "--fresh", "--json")
    assert done.code == 0
    nonce = done.err.partition("go on with --resume ")[2].split()[0]
    again = train(desk, "--resume", nonce, "--json").document()
    assert (again["model_id"], again["replayed"]) == (done.document()["model_id"], True)


def test_what_is_wrong_is_one_sentence_and_costs_nothing(desk: Federation) -> None:
    before = spent(desk)
    Path("file").write_text("", encoding="utf-8")
    for text, words, code, sentence in (
        (REQUEST, ("--fresh", "--resume", "ab"), 2, "leave out one of them."),
        (REQUEST, ("--out", "file"), 2, "file is a file; name a folder for --out."),
        (REQUEST, ("--resume", "not hexadecimal"), 2, "hexadecimal"),
        (REQUEST.replace('"sbp"', '"spb"'), (), 2, "did you mean 'sbp'?"),
        (REQUEST.replace("rounds", "round"), (), 2, "unknown key 'round'; did you mean 'rounds'?"),
        (REQUEST.replace("5.0", "900.0").replace("epsilon", "delta = 1e-9\nepsilon"), ("--dry-run",), 0, ""),
    ):
        Path("request.toml").write_text(text, encoding="utf-8")
        done = train(desk, *words, "--json")
        assert done.code == code, done.err
        if code:
            assert sentence in done.sentence()
            assert done.document()["error"]["message"] == done.sentence()
    assert call("train", "--profile", "nowhere.profile", "request.toml").code == 2
    assert call("train", "--profile", desk.profile(), "nowhere.toml").code == 2
    assert spent(desk) == before
