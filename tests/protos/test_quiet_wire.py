"""A failed connection is one sentence of ours, not a page of gRPC's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import protos

SCRIPT = """
from protos.calls import SiteCalls
from protos.channels import channel
from protos.tls import TlsKeys
from wardround.federation.errors import PeerUnreachable
try:
    SiteCalls(channel("127.0.0.1:1", TlsKeys(b"junk", b"junk", b"junk"))).greet()
except PeerUnreachable as error:
    print(error)
"""


def test_a_failed_connection_prints_nothing_of_grpcs_own() -> None:
    root = Path(protos.__file__).parents[1]
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, env={}, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == 1
