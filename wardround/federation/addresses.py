"""host:port, said once."""

from __future__ import annotations

from wardround.federation.plain_text import is_plain

MAX_PORT = 65535


def split_address(address: str) -> tuple[str, int]:
    """Host and port; IPv6 hosts stand in brackets. `ValueError` when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ValueError("not host:port")
    if (
        (":" in host) != (host.startswith("[") and host.endswith("]"))
        or any(c.isspace() or c == "/" for c in host)
        or not is_plain(host)
    ):
        raise ValueError("not host:port")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """host:port, with brackets round an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_fault(address: str) -> str | None:
    """What an address must be, when it is not; otherwise None."""
    try:
        split_address(address)
    except ValueError:
        return 'host:port, such as "coordinator.example.org:7443"'
    return None
