"""The command `holdfast` itself: its commands by group, its global options, its completion.

A command is loaded when it is asked for, so that one does not wait for the imports of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click
from click.shell_completion import ShellComplete, get_completion_class
from msgspec import Struct

import holdfast
from holdfast.cli.exits import MEANINGS, Exit, ToldCommand
from holdfast.cli.options import app_option, store_options
from holdfast.cli.settings import Given

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
    places: str
    """Its commands, each with the module it is in, unless that is called like it."""
    apart: tuple[tuple[str, str], ...] = ()
    """Commands that are easily confused: each with what it alone is for."""

    @property
    def commands(self) -> tuple[click.Command, ...]:
        """The commands, which this loads."""
        return tuple(root.commands[name] for name, _ in _placed(self))


def _placed(group: CommandGroup) -> Iterator[tuple[str, str]]:
    """The names of its commands, and the module that each is in."""
    for place in group.places.split():
        module, _, name = place.rpartition(".")
        yield name, module or name


class Commands(Mapping[str, click.Command]):
    """The commands by their names, each loaded when it is looked up."""

    def __init__(self) -> None:
        self._modules = dict(placed for group in GROUPS for placed in _placed(group))
        self._loaded: dict[str, click.Command] = {"help": explain, "completion": completion}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = import_module(f"holdfast.cli.commands.{self._modules[name]}")
            self._loaded[name] = next(
                each
                for each in vars(module).values()
                if isinstance(each, click.Command) and each.name == name
            )
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@click.command(name="help", short_help="Explain a command, a group of commands, or a word.")
@click.argument("topic", nargs=-1)
@click.pass_context
def explain(ctx: click.Context, topic: tuple[str, ...]) -> Exit:
    """Explain a command, a group of commands (look, drive, people, travel, missions, stores,
    operate), or a word (task, step, tool, event, store, engine, lease, doubt, settings, exit).

    Without a TOPIC it prints what `holdfast --help` does.

    \b
    Examples:
      holdfast help answer
      holdfast help travel
      holdfast help lease
    """
    parent = ctx.find_root()
    asked = " ".join(topic).strip().lower()
    command = root.get_command(parent, asked) if asked else root
    if command is root:
        click.echo(parent.get_help())
    elif command is not None:
        if asked in TOPICS:  # `doubt` is both
            click.echo(TOPICS[asked])
        click.echo(command.get_help(click.Context(command, parent, info_name=asked)))
    elif asked in TOPICS:
        click.echo(TOPICS[asked].rstrip())
    elif group := next((each for each in GROUPS if _is_called(each, asked)), None):
        click.echo(_of_group(group))
    else:
        known = {*root.commands, *TOPICS, *(each.title.lower() for each in GROUPS)}
        from difflib import get_close_matches

        near = get_close_matches(asked, sorted(known), n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        words = ", ".join(TOPICS)
        raise click.UsageError(
            f"there is no help on {asked!r}.{meant} It explains commands, their groups, and the "
            f"words {words}",
            ctx,
        )
    return Exit.OK


def _is_called(group: CommandGroup, asked: str) -> bool:
    words = group.title.lower().split()
    return asked in (group.title.lower(), words[0], words[-1])


def _of_group(group: CommandGroup) -> str:
    longest = max(len(each.name or "") for each in group.commands)
    lines = [f"{group.title} – {group.purpose}", ""]
    lines += [
        f"  {(each.name or '').ljust(longest)}  {each.get_short_help_str(limit=90)}"
        for each in group.commands
    ]
    if group.apart:
        longest = max(len(name) for name, _ in group.apart)
        lines += ["", "Which one?"]
        lines += [f"  {name.ljust(longest)}  {what}" for name, what in group.apart]
    return "\n".join([*lines, "", "holdfast help COMMAND tells all of one."])


TOPICS = {
    "task": """\
A task is one run of an agent function. It has an id, a status and a log: a list of events, each
written once. Its steps are recorded before it goes on, so a task that was killed goes on at the
step it was on.

  pending, in_progress     it is to be driven, or is: resume or a worker goes on with it
  awaiting_user            a question or a call in doubt waits for you: answer, doubt
  paused, stuck            it stands still until you say so: resume
  completed, failed, cancelled   it has ended; a failed one can be tried again: retry
""",
    "step": """\
A step is one call that a task makes. Its result is recorded before the task goes on, so it never
runs again in that task: a resume reads its result from the log. Each has a path: 6 is the sixth
call of the task, 6.2 the second call inside it, @3.1 the first call after checkpoint 3.

  holdfast show TASK                    every step: how it went, what it returned
  holdfast snapshot TASK --step PATH    what the task knew before or after it
""",
    "tool": """\
A tool is a step that touches the outside world: it sends a mail or books a room. Its intent is on
disk before its body starts, and its key stays the same for every retry, so the receiver can
recognize a repeat. It may have a check (did it happen?), an approval, and an undo.

  holdfast help doubt          what becomes of a tool that was killed half-way
  holdfast compensate TASK     undoes what a failed or cancelled task did
""",
    "event": """\
An event is one record in the log of a task. It is written once and never changed; `seq` counts
events from 1. Everything else that Holdfast shows is made from events.

  holdfast log TASK       the events, one on each line
  holdfast verify TASK    checks that none was changed or lost
""",
    "store": """\
A store is where logs are kept: a folder, SQLite or PostgreSQL.

  workspace                     a folder of plain files (the default)
  sqlite:///trips.db            a file
  postgresql://host/agents      a server, for several machines

Say which with --url, HOLDFAST_URL, or url = "…" under [tool.holdfast] in pyproject.toml.
`holdfast copy` brings tasks from one to another.
""",
    "engine": """\
An engine drives tasks. `local` is this process, or workers beside it; with `temporal` or `restate`
a cluster hands the steps to your workers. The log is in your store with every engine.

  holdfast worker --app agents                      local
  holdfast worker --app agents --engine temporal    steps that a cluster hands out
  holdfast move TASK --engine temporal              gives a task to another engine
""",
    "lease": """\
A lease says which process drives a task: one at a time. The driver renews it while it works. If
the driver dies or hangs, another one takes the lease over, and the store refuses whatever the old
one still tries to write.

  holdfast show TASK              names the process that drives the task
  holdfast worker --lease 30      how many seconds a driver may be silent
""",
    "doubt": """\
A tool that was killed after its intent was recorded, and before its result was, is in doubt: it
may or may not have happened. Its policy decides: retry it with the same key, check by the key
whether it happened, or ask you. If it asks:

  holdfast doubt                             lists the calls in doubt, each with its key
  holdfast resolve TASK PATH --happened …    you looked: it happened, and this is the result
  holdfast resolve TASK PATH --did-not-happen   it did not: it is made again
""",
    "settings": """\
A setting comes from an option, else from the environment, else from [tool.holdfast] in the nearest
pyproject.toml, else from the default.

  --url      HOLDFAST_URL      url = "…"        the store
  --app      HOLDFAST_APP      app = "…"        the module with your tasks
  --engine   HOLDFAST_ENGINE   engine = "…"     what drives tasks: local, temporal, restate
             HOLDFAST_REDACT   redact = "…"     what is kept out of logs
             HOLDFAST_SECRETS  secrets = "…"    where named secrets come from
  --key-file HOLDFAST_KEY                       the key of an encrypted store
""",
    "exit": "Exit codes:\n"
    + "\n".join(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()),
}
"""Words that are not commands."""


GROUPS = (
    CommandGroup(
        "Look",
        "where tasks are, what they did, and why",
        "overview.ls show show.log reasons.why reasons.context audit "
        "queries.stats queries.sql sessions sessions.session sessions.memory "
        "ui ui.mcp ui.setup",
    ),
    CommandGroup(
        "Drive",
        "start tasks, go on with them, stop them",
        "drive.run drive.start worker drive.resume drive.retry "
        "control.pause control.cancel control.compensate control.move "
        "queue schedule",
    ),
    CommandGroup(
        "People",
        "what tasks need from you, and what you tell them",
        "people.answer people.send people.doubt people.resolve sessions.say missions.handoff",
    ),
    CommandGroup(
        "Time travel",
        "any earlier state, another way from there, the same way again",
        "compare.snapshot compare.diff compare fork fork.rewind "
        "fork.experiment replay testcase testcase.evaluate replay.check",
        (
            ("snapshot", "one task at one place: everything it knew there"),
            (
                "diff",
                "two places, of one task or of two: what is known at one and not at the other",
            ),
            (
                "compare",
                "whole tasks side by side: where they part, and what each came to and cost",
            ),
            ("replay", "the code of a task run again over its log, without any effect"),
            ("evaluate", "recorded tasks run anew: models are asked, tools answer from the log"),
            ("check", "whether today's code still fits the logs of open tasks, before you deploy"),
        ),
    ),
    CommandGroup(
        "Missions and scripts",
        "any agent, or a shell script, made durable",
        "missions.init missions.next missions.loop once",
    ),
    CommandGroup(
        "Stores",
        "copy, archive and delete; readable files; what other tools kept",
        "stores.copy stores.archive stores.restore export.import stores.gc mirror mirror.rebuild",
    ),
    CommandGroup(
        "Operate",
        "is every log intact; keys; traces; help",
        "integrity.doctor integrity.verify integrity.head integrity.keys "
        "overview.alerts export export.migrate overview.demo help completion",
        (
            ("doctor", "the store as a whole: logs, lists, leftovers, permissions. Start here"),
            ("verify", "the logs alone, with keys and against a head: proof that none was changed"),
            ("head", "how far each log goes now: keep it elsewhere, for verify --against"),
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

    `holdfast` alone says where you are: the store, the tasks that need you, what to try next.
    `holdfast help TOPIC` explains a command, a group or a word.

    A task is one run of an agent function. Everything it does is recorded in a log, in a folder
    called the store. These commands read that log, and drive tasks that stopped.

    \b
    Examples:
      holdfast run agents:plan Oslo --id trip-42   start a task, and drive it
      holdfast ls                                  the newest tasks
      holdfast show trip-42                        where it is, and what happened
      holdfast resume trip-42 --app agents         go on after a crash
      holdfast fork trip-42 --at 6 --effects live  another way from step 6 on
      holdfast answer                              what tasks ask people

    The options below may stand before or after the command's name. Settings come from an option,
    else from the environment (HOLDFAST_URL, HOLDFAST_APP, HOLDFAST_KEY, …), else from
    [tool.holdfast] in the nearest pyproject.toml (url = "…", app = "…", engine = "…"), else from
    the default. HOLDFAST_REDACT and HOLDFAST_SECRETS (redact = "…", secrets = "…") name, as
    module:attribute, a Redact and where named secrets come from. Commands that only read import
    none of the code that settings name.
    """
    if ctx.invoked_subcommand is None:
        from holdfast.cli.commands import overview

        overview.say_where_you_are(ctx.ensure_object(Given))


root.commands = Commands()  # type: ignore[assignment]  # which click only reads
