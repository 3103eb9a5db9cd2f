"""The command `holdfast` itself: its commands by group, its global options, its completion."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class
from msgspec import Struct

import holdfast
from holdfast.cli.commands import (
    alerts,
    audit,
    check,
    compare,
    control,
    drive,
    export,
    fork,
    integrity,
    log,
    ls,
    memory,
    mirror,
    missions,
    once,
    past,
    people,
    queries,
    reasons,
    replay,
    sessions,
    show,
    stores,
    testcase,
    ui,
    worker,
)
from holdfast.cli.exits import MEANINGS, Exit, ToldCommand
from holdfast.cli.options import app_option, store_options

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)


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


class CommandGroup(Struct, frozen=True):
    """Commands that belong together, as people think of them."""

    title: str
    purpose: str
    commands: tuple[click.Command, ...]


GROUPS = (
    CommandGroup(
        "Look",
        "where tasks are, what they did, and why",
        (
            *(ls.ls, show.show, log.log, reasons.why, reasons.context, audit.audit),
            *(queries.stats, queries.sql, sessions.sessions, sessions.session, memory.memory),
            ui.ui,
        ),
    ),
    CommandGroup(
        "Drive",
        "start tasks, go on with them, stop them",
        (
            *(drive.run, drive.start, worker.worker, drive.resume, drive.retry),
            *(control.pause, control.cancel, control.compensate, control.move),
        ),
    ),
    CommandGroup(
        "People",
        "what tasks need from you, and what you tell them",
        (
            *(people.answer, people.send, people.doubt, people.resolve),
            *(sessions.say, missions.handoff),
        ),
    ),
    CommandGroup(
        "Time travel",
        "any earlier state, another way from there, the same way again",
        (
            *(compare.snapshot, compare.diff, compare.compare, fork.fork, fork.rewind),
            *(fork.experiment, replay.replay, testcase.make_testcase, check.check),
        ),
    ),
    CommandGroup(
        "Missions and scripts",
        "any agent, or a shell script, made durable",
        (missions.init_mission, missions.next_, missions.loop_, once.once),
    ),
    CommandGroup(
        "Stores",
        "copy, archive and delete; readable files; what other tools kept",
        (
            *(stores.copy, stores.archive, stores.restore, past.import_past, stores.gc),
            *(mirror.mirror, mirror.rebuild),
        ),
    ),
    CommandGroup(
        "Operate",
        "is every log intact; keys; traces; your shell",
        (
            *(integrity.doctor, integrity.verify, integrity.head, integrity.keys),
            *(alerts.alerts, export.export, export.migrate, completion),
        ),
    ),
)


class Root(ToldCommand, click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order one meets them, not by the alphabet

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self.commands))
        limit = formatter.width - 6 - longest
        for group in GROUPS:
            with formatter.section(f"{group.title} – {group.purpose}"):
                rows = [
                    (each.name or "", each.get_short_help_str(limit)) for each in group.commands
                ]
                formatter.write_dl([(name.ljust(longest), help) for name, help in rows])


@click.group(
    cls=Root,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(holdfast.__version__, message="holdfast %(version)s")
@app_option
@store_options
@click.pass_context
def root(ctx: click.Context) -> None:
    """Look after the tasks of your agents: where they are, what they did, how they go on.

    A task is one run of an agent function. Everything it does is recorded in a log, in a folder
    called the store. These commands read that log, and drive tasks that stopped.

    \b
    Examples:
      holdfast run agents:plan Oslo --id trip-42   start a task, and drive it here
      holdfast ls                                  the newest tasks, a page at a time
      holdfast show trip-42                        where it is, and what happened to get there
      holdfast resume trip-42 --app agents         go on after a crash
      holdfast fork trip-42 --at 6 --effects reuse a new task that shares its past up to step 6
      holdfast answer                              what tasks ask people

    The options below may stand before or after the command's name. Settings come from an option,
    else from the environment (HOLDFAST_URL, HOLDFAST_APP, HOLDFAST_KEY, …), else from
    [tool.holdfast] in the nearest pyproject.toml (url = "…", app = "…", engine = "…"), else from
    the default. HOLDFAST_REDACT and HOLDFAST_SECRETS (redact = "…", secrets = "…") name, as
    module:attribute, a Redact and where named secrets come from. Commands that only read import
    none of the code that settings name.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _group in GROUPS:
    for _command in _group.commands:
        root.add_command(_command)
