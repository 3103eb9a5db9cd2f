"""`holdfast keys`: make a key, and change that of a store."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import TextIO

import click
from click.shell_completion import ShellComplete, get_completion_class

from holdfast.cli.exits import Exit
from holdfast.cli.opening import keys_of, must_exist, store_url
from holdfast.cli.options import json_option, pass_given, store_options
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import BadInput
from holdfast.stores import open_store
from holdfast.stores import rotate as rotate_keys
from holdfast.stores.sealed.keys import Keys


@click.group(short_help="Make a key, or change the key of an encrypted store.")
def keys() -> None:
    """Keys to encrypt a store with (--key-file), or to sign its logs with (--sign-key-file).

    \b
    Examples:
      holdfast keys new > trips.key
      holdfast ls --key-file trips.key
      holdfast keys rotate --key-file trips.key --to new.key
    """


@keys.command()
def new() -> Exit:
    """Print a new key. Without it nobody can read what was encrypted with it: keep a copy.

    A file that it is written to is made readable by you alone.

    \b
    Examples:
      holdfast keys new > trips.key
    """
    _make_private(sys.stdout)
    click.echo(Keys.new())
    return Exit.OK


@keys.command()
@click.option(
    "--to",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The file with the new key.  [default: the first key of the --key-file]",
)
@json_option
@store_options
@pass_given
def rotate(given: Given, to: str | None, as_json: bool) -> Exit:
    """Change the master key of an encrypted store. No log is rewritten, nothing has to stop.

    One line of the store is: the root key, which opens all others, closed with the new key. After
    that the old key opens the store no more. (It still opens copies of the store from before.)

    Where many processes use the store, first give all of them a key file with both keys, the new
    one on top; then run this; then drop the old one from the file.

    \b
    Examples:
      holdfast keys new > new.key
      holdfast keys rotate --key-file old.key --to new.key
    """
    must_exist(url := store_url(given))
    old = keys_of(given)
    if old is None:
        raise BadInput("say which key the store has now: --key-file FILE, or HOLDFAST_KEY")
    wanted = Keys.from_file(to) + old if to else old
    store = open_store(url)
    try:
        changed = rotate_keys(store, wanted)
    finally:
        store.close()
    if as_json:
        print_json({"key": wanted.ids[0], "changed": changed})
    else:
        done = "has now the key" if changed else "had already the key"
        print_lines(console(), f"{plain(url)} {done} {wanted.ids[0]}")
    return Exit.OK


def _make_private(stream: TextIO) -> None:
    """A file that a shell made for us is readable by all, as a rule."""
    with suppress(OSError, ValueError):  # then it is no file
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            os.fchmod(stream.fileno(), 0o600)


# `holdfast completion`: the script that makes a shell complete commands, options and task ids.


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> Exit:
    """Print the completion script of a shell. Task ids complete from the store.

    \b
    To install it, add the line for your shell and open a new one:
      ~/.bashrc                            eval "$(holdfast completion bash)"
      ~/.zshrc (after compinit)            eval "$(holdfast completion zsh)"
      ~/.config/fish/config.fish           holdfast completion fish | source

    \b
    Or, so that a new shell starts faster, write the script to a file once:
      holdfast completion bash > ~/.holdfast-completion.bash
      echo '. ~/.holdfast-completion.bash' >> ~/.bashrc
    """
    made = get_completion_class(shell)
    if made is None:
        raise click.BadParameter(f"click knows no completion for {shell}")
    script = made(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # The base class, because the one for bash runs bash to see which version it is.
    click.echo(ShellComplete.source(script))
    return Exit.OK
