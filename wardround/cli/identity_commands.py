"""`wardround analyst …`: the key by which hospitals know an analyst."""

from __future__ import annotations

import typer

from wardround.cli.analyst_commands import AsJson, Profile
from wardround.cli.door.command_groups import CommandGroup
from wardround.cli.terminal.console import print_document, say

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Show by which key hospitals know you."""


@app.command(epilog="Example: wardround analyst fingerprint --profile me.profile")
def fingerprint(profile: Profile, as_json: AsJson = False) -> None:
    """Print the fingerprint of your signing key, to be read to hospitals; the key is made if there is none yet."""
    from wardround.analyst.link.signing import identity_file, own_identity
    from wardround.federation.trust.enrolment import read_profile

    name, key = read_profile(profile).name, own_identity(profile).public
    if as_json:
        print_document({"analyst": name, "fingerprint": key.fingerprint, "key": key.written})
        return
    say(
        f"{name} signs by the key with the fingerprint",
        f"  {key.fingerprint}",
        f"The whole public key is {key.written}",
        f"The private key is in {identity_file(profile)}: keep a backup of it, and give it to nobody.",
    )
