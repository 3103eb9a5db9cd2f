"""`holdfast ui`, `mcp` and `setup`: the debugger in the browser, and the store for assistants."""

from __future__ import annotations

import difflib
import secrets
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from msgspec import Struct
from msgspec.structs import replace

from holdfast.cli.exits import Exit, in_words
from holdfast.cli.opening import load_app, opened, store_url
from holdfast.cli.options import login_name, store_command
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given, our_command, resume_command
from holdfast.cli.text import plain
from holdfast.core.state import State
from holdfast.core.words import without_password
from holdfast.errors import BadInput
from holdfast.stores import must_be_url


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


# `holdfast mcp` and `setup`: the tasks of a store for an operator's assistant.


@click.command(short_help="Let an assistant look after tasks, by MCP.")
@click.option("--allow-actions", is_flag=True, help="Offer tools that change something, too.")
@click.option("--http", is_flag=True, help="Serve HTTP on loopback instead of stdin and stdout.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port of --http.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The token of --http.  [default: a new one, which is printed]",
)
@click.option("--by", default="", metavar="NAME", help="Who you are, for the log.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --http, end by itself after so long.",
)
@store_command("redact", "secrets", "engine")
def mcp(
    given: Given,
    allow_actions: bool,
    http: bool,
    port: int,
    token_file: Path | None,
    by: str,
    timeout_s: float | None,
    as_json: bool,
) -> Exit:
    """Serve the tasks of a store to an assistant, by the Model Context Protocol.

    The assistant can list tasks, show them, read their logs, states and decisions, compare them
    and ask with SQL. It can change nothing, unless you say --allow-actions: then it can answer,
    resolve, retry, resume, pause, cancel, fork and rewind, and each is recorded with your name and
    the assistant's. No code of tasks is run here: a worker goes on with them.

    What logs hold may be hostile. Answers say that they are data, and are cut to a size that fits
    into a context. Even so, let an assistant act only if you read what it is about to do.

    Without --http the client starts this command, and speaks with it by stdin and stdout:
    `holdfast setup` writes that into the client's configuration. With --http the address and a
    token are printed; the client sends the token as `Authorization: Bearer TOKEN`.

    \b
    Examples:
      holdfast mcp
      holdfast mcp --url sqlite:///agents.db --allow-actions --by ada
      holdfast mcp --http --port 8400 --token-file ~/.holdfast-token
    """
    try:
        from holdfast.integrations.frameworks import need

        need("mcp", mcp=">=2.3,<3")
        from holdfast.web.asked import Site
        from holdfast.web.operator import operator_server
    except ModuleNotFoundError as error:
        raise BadInput(
            f"this needs {error.name}, which is not installed: pip install 'holdfast[mcp]'"
        ) from None
    if not http and (port or token_file or timeout_s is not None):
        raise click.UsageError("--port, --token-file and --timeout go with --http")
    with opened(given) as hf:
        site = Site(
            hf=hf,
            hints=PageWords(given),
            read_only=not allow_actions,
            user=by or login_name() or "somebody",
        )
        server = operator_server(site, allow_actions=allow_actions)
        if http:
            _serve(server, port, _token(token_file), timeout_s, as_json)
        else:
            server.run("stdio")
    return Exit.OK


def _token(file: Path | None) -> str:
    from holdfast.web.operator import checked_token

    if file is None:
        return secrets.token_urlsafe(32)
    return checked_token(file.read_text(encoding="utf-8").strip())


def _serve(server: Any, port: int, token: str, timeout_s: float | None, as_json: bool) -> None:
    import uvicorn

    from holdfast.web.operator import behind_token
    from holdfast.web.server import bound

    host = "127.0.0.1"
    with bound(host, port) as listening:
        address = f"http://{host}:{listening.getsockname()[1]}/mcp"
        if as_json:
            print_json({"address": address, "token": token})
        else:
            print_lines(console(), f"{plain(address)}\nAuthorization: Bearer {plain(token)}")
        sys.stdout.flush()  # a program that reads it waits for the line
        print_error("Ctrl-C ends it.")
        app = behind_token(server.streamable_http_app(host=host), token)
        running = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=2)
        )
        if timeout_s is not None:
            threading.Timer(timeout_s, setattr, [running, "should_exit", True]).start()
        running.run(sockets=[listening])


# `holdfast setup`: the same server in the configuration of assistants.


@click.command(short_help="Add `holdfast mcp` to the configuration of coding assistants.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("--allow-actions", is_flag=True, help="Let the assistant change something, too.")
@click.option("--no-instructions", is_flag=True, help="Write no HOLDFAST.md.")
@store_command()
def setup(
    given: Given,
    yes: bool,
    dry_run: bool,
    allow_actions: bool,
    no_instructions: bool,
    as_json: bool,
) -> Exit:
    """Add `holdfast mcp` to the configuration of the coding assistants that are in use here.

    It looks for Claude Code, Claude Desktop, Codex, Cursor, Gemini CLI, VS Code and Windsurf. For
    each it shows what would change in the file, as a diff, and asks before it writes. Other
    servers and settings stay as they are. A file with comments in its JSON is left to you.

    In the current folder it also offers HOLDFAST.md, which tells an assistant how to use missions,
    `next` and `once`: name it in the file that your assistant reads (AGENTS.md, CLAUDE.md).

    With --json nobody is asked: it writes with --yes, and else only tells what it would change.

    \b
    Examples:
      holdfast setup
      holdfast setup --dry-run
      holdfast setup --yes --url sqlite:///agents.db
    """
    from holdfast.workspace import clients

    entry = clients.ServerEntry(sys.executable, _arguments(given, allow_actions))
    files = clients.client_files(Path.home(), Path.cwd())
    if not files:
        print_error("No configuration of a coding assistant was found.")
    wanted: list[tuple[str, Path, str, str]] = []
    for file in files:
        try:
            before = clients.read_text(file.path)
            wanted.append(
                (file.client, file.path, before, clients.with_server(file, before, entry))
            )
        except BadInput as error:
            print_error(f"{file.client}: {error}")
    if not no_instructions:
        path = Path.cwd() / "HOLDFAST.md"
        text = clients.instructions(("holdfast",))
        try:
            wanted.append(("Instructions", path, clients.read_text(path), text))
        except BadInput as error:
            print_error(f"Instructions: {error}")
    if as_json:
        print_json({"files": [_written(*each, write=yes and not dry_run) for each in wanted]})
        return Exit.OK
    for client, path, before, after in wanted:
        _offer(client, path, before, after, yes=yes, dry_run=dry_run)
    return Exit.OK


def _written(client: str, path: Path, before: str, after: str, *, write: bool) -> dict[str, Any]:
    from holdfast.workspace.clients import write_text

    changes = before != after
    if changes and write:
        write_text(path, after)
    told = {"client": client, "path": str(path), "changes": changes}
    return {**told, "written": changes and write}


def _offer(client: str, path: Path, before: str, after: str, *, yes: bool, dry_run: bool) -> None:
    from holdfast.workspace.clients import write_text

    out = console()
    if before == after:
        print_lines(out, f"{client}: {plain(str(path))} is as it should be")
        return
    changes = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm=""
    )
    print_lines(out, f"{client}:\n" + "\n".join(plain(line) for line in changes))
    if dry_run:
        return
    if yes or click.confirm(f"Write {path}?", default=False, err=True):
        write_text(path, after)
        print_lines(out, f"{client}: written")
    else:
        print_lines(out, f"{client}: left as it is")


def _arguments(given: Given, allow_actions: bool) -> tuple[str, ...]:
    """The command line of the server. An assistant starts it in a folder of its own choice."""
    url = store_url(given)
    if "password=" in url or urlsplit(url).password:
        raise BadInput(
            "the store's URL has a password, which does not belong into the configuration of an "
            "assistant: leave it out, and have it in ~/.pgpass"
        )
    must_be_url(url)
    if url == "memory://":
        raise BadInput("memory:// is in one process alone, and an assistant starts another")
    url = url.removeprefix("file://")
    if "://" not in url:
        url = str(Path(url).resolve())
    elif url.startswith("sqlite:///"):
        url = f"sqlite:///{Path(url.removeprefix('sqlite:///')).resolve()}"
    return ("-m", "holdfast", "mcp", "--url", url, *(("--allow-actions",) if allow_actions else ()))
