"""Flower's own runtimes for bench/flower.py: a SuperLink with SuperNodes as processes, and the Ray engine.

The app is as small as one can be: every client adds up one gradient of a logistic model over its own 333 rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

APP = """\
import json
import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

SITES, ROUNDS, ROWS, OUT = {sites}, {rounds}, {rows}, {out!r}

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    draw = np.random.default_rng(1)
    inputs, outcome = draw.normal(size=(ROWS, 5)), draw.random(ROWS) < 0.5
    weights = message.content["arrays"].to_numpy_ndarrays()[0]
    gradient = inputs.T @ (1 / (1 + np.exp(-inputs @ weights)) - outcome) / ROWS
    records = {{"arrays": ArrayRecord([weights - gradient]), "metrics": MetricRecord({{"num-examples": ROWS}})}}
    return Message(RecordDict(records), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    while len(places := list(grid.get_node_ids())) < SITES:
        time.sleep(0.2)
    weights, seconds = np.zeros(5), []
    for _ in range(ROUNDS):
        record = RecordDict({{"arrays": ArrayRecord([weights])}})
        began = time.perf_counter()
        replies = list(grid.send_and_receive([Message(record, place, "train") for place in places]))
        seconds.append(time.perf_counter() - began)
        assert len(replies) == SITES and not any(reply.has_error() for reply in replies)
        weights = np.mean([reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies], axis=0)
        with open(OUT, "w") as file:
            json.dump(seconds, file)
"""

PROJECT = """\
[project]
name = "bench"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "bench"

[tool.flwr.app.components]
serverapp = "benchapp.app:server"
clientapp = "benchapp.app:client"

[tool.flwr.app.config]
rounds = 1
"""

RAY = """\
import time
from benchapp.app import client, server
from flwr.simulation import run_simulation

if __name__ == "__main__":
    began = time.perf_counter()
    resources = {{"client_resources": {{"num_cpus": {cores}, "num_gpus": 0.0}}}}
    run_simulation(server, client, num_supernodes={sites}, backend_config=resources)
    print("whole", time.perf_counter() - began)
"""


def runtime_seconds(folder: Path, *, sites: int, rounds: int, limit_seconds: float = 120.0) -> list[float] | None:
    """Seconds of each round over a SuperLink and its SuperNodes; None where they do not come up."""
    main, *ports = free_ports(1 + sites)
    out = write_app(folder, sites=sites, rounds=rounds)
    home = folder / "home"
    home.mkdir()
    address = f"127.0.0.1:{main}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "{address}"\ninsecure = true\n',
        encoding="utf-8",
    )
    tools = Path(sys.executable).parent
    superlink = [tools / "flower-superlink", "--insecure", "--port", main]
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(superlink, folder, "superlink", home))
        for number in range(sites):
            command = [tools / "flower-supernode", "--insecure", "--superlink", address, "--port", ports[number]]
            stack.enter_context(process(command, folder, f"supernode-{number}", home))
        until = time.monotonic() + limit_seconds
        while not listens(main) and time.monotonic() < until:
            time.sleep(0.2)
        run = [tools / "flwr", "run", folder / "app", "bench"]
        done = subprocess.run(
            [str(word) for word in run],
            env=environment(home),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit_seconds,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            return None
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                if len(found := json.loads(out.read_text(encoding="utf-8"))) == rounds:
                    return [float(each) for each in found]
            time.sleep(0.5)
    return None


def ray_seconds(
    python: Path, folder: Path, *, sites: int, rounds: int, cores: int, limit_seconds: float = 900.0
) -> list[float] | None:
    """Seconds of each round in Flower's Ray engine, by a Python that has it; None where it does not come to its end.

    `cores` is what a client is given; Flower's own default is 2.
    """
    out = write_app(folder, sites=sites, rounds=rounds)
    (folder / "app" / "ray_run.py").write_text(RAY.format(sites=sites, cores=cores), encoding="utf-8")
    home = folder / "home"
    home.mkdir()
    command: list[object] = [python, folder / "app" / "ray_run.py"]
    until = time.monotonic() + limit_seconds
    with process(command, folder / "app", "ray", home):
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                if len(found := json.loads(out.read_text(encoding="utf-8"))) == rounds:
                    return [float(each) for each in found]
            if "RuntimeError" in (folder / "app" / "ray.log").read_text(encoding="utf-8", errors="replace"):
                break
            time.sleep(0.5)
    return None


def write_app(folder: Path, *, sites: int, rounds: int) -> Path:
    """The app as a project; where it writes its seconds."""
    package = folder / "app" / "benchapp"
    package.mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (package / "__init__.py").touch()
    out = folder / "seconds.json"
    text = APP.format(sites=sites, rounds=rounds, rows=333, out=str(out))
    (package / "app.py").write_text(text, encoding="utf-8")
    return out


@contextlib.contextmanager
def process(command: list[object], folder: Path, name: str, home: Path) -> Iterator[None]:
    """A process and all it starts, ended together."""
    with (folder / f"{name}.log").open("wb") as log:
        words = [str(word) for word in command]
        started = subprocess.Popen(
            words, env=environment(home), cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def environment(home: Path) -> Mapping[str, str]:
    """Nothing is reported to anybody, and nothing of the reader's own settings is used."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **quiet, "FLWR_HOME": str(home), "PATH": tools, "PYTHONPATH": ""}


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False
