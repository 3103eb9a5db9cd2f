"""`holdfast ui`: the debugger in the browser."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from holdfast.cli.exits import Exit, in_words
from holdfast.cli.hints import our_command, resume_command
from holdfast.cli.opening import load_app, opened
from holdfast.cli.options import login_name, store_command
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.core.state import State
from holdfast.core.words import without_password
from holdfast.errors import BadInput


class PageWords(Struct, frozen=True):
    """The words of the command line, for the page. Users of the page need not know the
    password of the database, so no command has it."""

    given: Given

    @property
    def _shown(self) -> Given:
        return replace(self.given, url=without_password(self.given.url))

    def command(
        self, command: str, *words: str, options: Sequence[str] = (), code: bool = False
    ) -> str:
        return our_command(self._shown, command, *words, options=options, code=code)

    def go_on(self, state: State, command: str = "resume") -> str:
        return resume_command(self._shown, state, command)

    def told(self, error: Exception) -> str:
        return in_words(self._shown, error)


@click.command(short_help="Open the debugger in the browser.")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen.  [default: 8321]")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--read-only", is_flag=True, help="Show everything, and change nothing.")
@click.option("--by", default="", metavar="NAME", help="Who you are, for the log.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen, besides.")
@click.option("--public-url", default="", metavar="URL", help="The address that people open.")
@click.option(
    "--user-header",
    default="",
    metavar="NAME",
    help="The header in which a proxy says who somebody is.",
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Who may come in, by name and password.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End by itself after so long.",
)
@click.option("--hash-password", metavar="USER", help="Print a line for that file, and exit.")
@store_command("app", "redact", "secrets", "engine")
def ui(
    given: Given,
    port: int | None,
    no_browser: bool,
    read_only: bool,
    by: str,
    host: str,
    public_url: str,
    user_header: str,
    password_file: Path | None,
    timeout_s: float | None,
    hash_password: str | None,
    as_json: bool,
) -> Exit:
    """Open the debugger in the browser: what tasks need, what they did, and another way from there.

    The address that is printed holds a token: whoever has it can do what you can. The page is
    served to this machine alone. With --app the code of tasks is loaded, so that they can be tried
    again, gone on with and replayed from the page; without it a worker drives them.

    To let other people in, put the server behind a proxy that knows who they are and says so in a
    header (--user-header, which the proxy must remove from what browsers send), or give it a file
    of passwords. Both need --public-url, and TLS before it.

    With --json the address and the token are printed as one JSON object.

    \b
    Examples:
      holdfast ui
      holdfast ui --app agents --port 8400 --no-browser
      holdfast ui --read-only --url postgresql://reader@db/agents
      holdfast ui --host 0.0.0.0 --public-url https://agents.example --password-file people
      holdfast ui --hash-password ada >> people
    """
    try:
        from holdfast.web.asked import Site
        from holdfast.web.guard import entry_for, password_line
        from holdfast.web.server import bound, made_for
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the page needs {error.name}, which is not installed: pip install 'holdfast[web]'"
        ) from None
    if hash_password is not None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        click.echo(password_line(hash_password, password))
        return Exit.OK
    app = load_app(given)
    with opened(given) as hf, bound(host, port) as listening:
        entry = entry_for(
            host=host,
            port=listening.getsockname()[1],
            user=by or login_name() or "somebody",
            read_only=read_only,
            public_url=public_url,
            user_header=user_header,
            password_file=password_file,
        )
        _print_address(public_url or entry.address, entry.token, as_json)
        print_error("Ctrl-C ends it." + (" Nothing can be changed." if read_only else ""))
        if not no_browser and entry.token:
            threading.Timer(0.3, webbrowser.open, [entry.address]).start()
        site = Site(hf=hf, hints=PageWords(given), app=app, read_only=read_only, user=entry.user)
        server = made_for(site, entry)
        if timeout_s is not None:
            threading.Timer(timeout_s, setattr, [server, "should_exit", True]).start()
        server.run(sockets=[listening])
    return Exit.OK


def _print_address(address: str, token: str, as_json: bool) -> None:
    if as_json:
        print_json({"address": address, "token": token})
    else:
        print_lines(console(), plain(address))
    sys.stdout.flush()  # a program that reads it waits for the line
