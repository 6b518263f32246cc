"""Public limits over real processes: told at enrolment and at each start, and seen by every command of an analyst."""

from __future__ import annotations

from protos.calls import SiteCalls
from protos.channels import channel
from site_agent.serving.link import tls_keys
from tests.integration.conftest import Make
from tests.integration.stage import AGES, Federation, eventually, sites_in
from wardround.analyst.asking.client import connect

STATISTICS = 'statistics = ["count", "sum", "mean", "std"]\n'


def limits(federation: Federation) -> dict[str, object]:
    with connect(federation.profile()) as client:
        found = client.describe().document()["hospitals"]
    return {each["name"]: each["limits"] for each in found}  # type: ignore[index,call-overload,union-attr]


def change(federation: Federation, name: str, old: str, new: str) -> None:
    config = federation.site(name) / "site.toml"
    text = config.read_text(encoding="utf-8")
    assert old in text
    config.write_text(text.replace(old, new), encoding="utf-8")


def test_limits_are_enrolled_greeted_and_told(make_federation: Make) -> None:
    federation = make_federation()
    federation.start_coordinator()
    # As they were when the hospitals enrolled: nobody has greeted since.
    assert [each["max_epsilon_per_plan"] for each in limits(federation).values()] == [9000.0] * 3  # type: ignore[index]
    change(federation, "one", 'approval = "automatic"\n', 'approval = "automatic"\n' + STATISTICS)
    change(federation, "two", 'approval = "automatic"\n', 'approval = "automatic"\nmax_epsilon_per_plan = 0.5\n')
    change(federation, "three", '"automatic"', '"manual"')
    for name in federation.sites:
        federation.start_site(name)
    eventually(lambda: limits(federation)["three"]["approval"] == "manual", what="three has greeted")  # type: ignore[index]
    eventually(lambda: limits(federation)["two"]["max_epsilon_per_plan"] == 0.5, what="two has greeted")  # type: ignore[index]
    eventually(lambda: len(limits(federation)["one"]["statistics"]) == 4, what="one has greeted")  # type: ignore[index,arg-type]

    told = federation.run("describe", "--profile", federation.profile())
    assert (told.code, told.err) == (0, "")
    shown = {line.split()[0]: line for line in told.out.split("\n") if line.startswith(("one ", "two ", "three "))}
    assert "COUNT, SUM, AVG, STDDEV" in shown["one"]
    assert " 0.5 " in shown["two"]
    assert "a person, each question" in shown["three"]

    dry = federation.run("ask", "--profile", federation.profile(), AGES, "--epsilon", 150, "--dry-run")
    refusing = (
        "one does not allow HISTOGRAM; two allows ε = 0.5 a question (at δ = 1e-06) and this one takes ε = 150; "
        "without them 1 of 3 hospitals would answer."
    )
    waiting = "three: each question waits for a person."
    assert refusing in dry.out.split("\n")
    assert waiting in dry.out.split("\n")

    asked = federation.ask_command(AGES)
    assert asked.err.split("\n")[:2] == [refusing, waiting]
    assert (asked.code, asked.error["code"]) == (3, "AwaitingApproval")
    plan_id = str(federation.rows("three", "SELECT plan_id FROM requests")[0][0])
    assert federation.run("site", "approve", federation.site("three"), plan_id[:12]).code == 0
    eventually(lambda: federation.entries("consortium", "answered", plan_id), what="the approved round is answered")
    sites = sites_in(federation.ask(AGES))
    assert sites["refused"] == {"one": "StatisticNotAllowed", "two": "EpsilonTooLarge"}
    assert sites["reasons"] == {"one": "it does not allow this statistic", "two": "it allows a smaller ε a question"}
    federation.check_ledgers()

    # A greeting of an earlier version says nothing; whoever serves greets again once its coordinator was away.
    address = (federation.consortium / "address").read_text(encoding="utf-8").strip()
    with channel(address, tls_keys(federation.site("one") / "tls")) as opened:
        assert SiteCalls(opened).greet().site == "one"
    assert limits(federation)["one"] is None
    assert federation.stop("consortium") == 0
    federation.start_coordinator()
    eventually(lambda: limits(federation)["one"] is not None, what="one has greeted again")
