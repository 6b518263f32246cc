"""`wardround account` and `wardround calibrate`, as a script would call them."""

from __future__ import annotations

import json

import pytest

from wardround.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    captured = capsys.readouterr()
    return int(str(left.value.code)), captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, float]:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    found: dict[str, float] = json.loads(out)
    return found


def test_a_schedule_is_told_by_every_accountant(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "account", "--delta", "1e-7", "gaussian:z=25:count=800")
    assert list(found) == ["basic", "advanced", "zcdp", "zcdp_tight", "rdp", "gdp", "pld"]
    assert (round(found["basic"], 1), round(found["zcdp"], 3), round(found["pld"], 3)) == (217.2, 7.064, 6.149)


def test_every_kind_of_event_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "gaussian:z=50",
        "discrete_gaussian:sigma=50:shift=2",
        "laplace:epsilon=0.02:count=6",
        "discrete_laplace:epsilon=0.02:shift=3",
        "pure:epsilon=0.01:count=2",
        "approx:epsilon=0.01:delta=1e-9",
        "subsampled:q=0.01:z=2:count=10",
    )
    found = document(capsys, "account", "--delta", "1e-6", *words)
    assert 0.0 < found["pld"] <= min(found.values()) + 1e-9
    twice = document(capsys, "account", "--delta", "1e-6", "--overlap", "2", *words)
    assert all(twice[name] > found[name] for name in found)


def test_what_has_no_answer_is_null_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "account", "--delta", "0", "pure:epsilon=0.5:count=2")
    assert (found["basic"], found["pld"], found["zcdp"]) == (1.0, 1.0, None)
    code, out, _ = run(capsys, "account", "--delta", "0", "--overlap", "3", "pure:epsilon=0.5:count=2")
    assert code == 0
    assert "none without a larger delta" in out
    assert "2 events, at each of 3 sites" in out
    assert "fixed before the first answer" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gausian:z=1"], "did you mean 'gaussian'?"),
        (["gaussian:z=1:cuont=2"], "did you mean 'count'?"),
        (["gaussian"], "needs z, as in gaussian:z=25:count=10"),
        (["subsampled:count=2"], "needs q and z"),
        (["gaussian:z=0"], "z must be a number from"),
        (["gaussian:z=nan"], "z must be a number from"),
        (["gaussian:z=one"], "'one' is not a number"),
        (["gaussian:z"], "say z="),
        (["gaussian:z=1:z=2"], "z is given twice"),
        (["gaussian:z=1:count=0"], "count must be at least 1"),
        (["gaussian:z=1:count=1.5"], "whole number"),
        (["gaussian:z=1:count=9999999999"], "count must be"),
        (["gaussian:z=1", "--overlap", "0"], "Overlap must be at least 1"),
        (["gaussian:z=1", "--delta", "2"], "Delta must be"),
    ],
)
def test_a_wrong_schedule_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = run(capsys, "account", "--delta", "1e-6", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_calibration_prints_the_analytic_sigma_and_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-6")
    assert found["mechanism"] == "discrete_gaussian"
    assert (round(found["sigma"], 2), round(found["classic"], 2), found["laplace"]) == (4.22, 5.30, 1.0)
    many = document(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-6", "--rounds", "12", "--queries", "10")
    assert (round(many["sigma"], 1), round(many["zcdp"], 1), round(many["classic"])) == (46.3, 58.6, 736)
    wide = document(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-6", "--sensitivity", "3")
    assert wide["sigma"] == pytest.approx(3.0 * found["sigma"])


def test_calibration_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "calibrate", "--epsilon", "4", "--delta", "1e-6")
    assert "refused: its proof ends at ε = 1" in out
    assert "for 1 answer," in out
    assert "Laplace noise is the smaller" in out
    _, out, _ = run(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-6", "--queries", "120")
    assert "Gaussian noise is the smaller" in out
    assert "736" in out


def test_a_wanted_error_is_turned_into_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "calibrate", "--standard-error", "4.2247", "--delta", "1e-6")
    assert round(found["epsilon"], 3) == 1.0


@pytest.mark.parametrize(
    "words",
    [
        ["--delta", "1e-6"],
        ["--delta", "1e-6", "--epsilon", "1", "--standard-error", "1"],
        ["--delta", "1e-6", "--epsilon", "-1"],
        ["--delta", "0", "--epsilon", "1"],
        ["--delta", "1e-6", "--standard-error", "0"],
        ["--delta", "1e-6", "--epsilon", "1", "--rounds", "0"],
        ["--delta", "1e-6", "--epsilon", "1", "--sensitivity", "0"],
    ],
)
def test_a_wrong_calibration_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = run(capsys, "calibrate", *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
