"""`holdfast completion`: the script that makes a shell complete commands, options and task ids."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from holdfast.cli.exits import Exit


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
