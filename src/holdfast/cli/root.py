"""The command `holdfast` itself: its commands, its global options, and how errors are told."""

from __future__ import annotations

import click

import holdfast
from holdfast.cli import (
    answer,
    archive,
    audit,
    check,
    compare,
    compensate,
    completion,
    context,
    control,
    copy,
    doctor,
    doubt,
    drive,
    fork,
    gc,
    handoff,
    harness,
    keys,
    log,
    ls,
    memory,
    mirror,
    move,
    once,
    replay,
    resolve,
    session,
    sessions,
    show,
    snapshot,
    sql,
    start,
    stats,
    testcase,
    verify,
    why,
    worker,
)
from holdfast.cli.exits import MEANINGS
from holdfast.cli.options import app_option, debug_option, key_option, sign_key_option, url_option
from holdfast.cli.telling import Told

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)


class Root(Told, click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order one meets them, not by the alphabet


@click.group(
    cls=Root,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(holdfast.__version__, message="holdfast %(version)s")
@url_option
@app_option
@key_option
@sign_key_option
@debug_option
@click.pass_context
def root(ctx: click.Context) -> None:
    """Look after the tasks of your agents: where they are, what they did, how they go on.

    A task is one run of an agent function. Everything it does is recorded in a log, in a folder
    called the store. These commands read that log, and drive tasks that stopped.

    \b
    Examples:
      holdfast ls                       the newest tasks, a page at a time
      holdfast show trip-42             where a task is, and what happened to get there
      holdfast why trip-42              what it chose, and why
      holdfast context trip-42          what each model call saw
      holdfast log -f trip-42           watch it as it works
      holdfast snapshot trip-42 --step 6  what it knew before step 6
      holdfast compare trip-42 trip-43  where two tasks first differ
      holdfast fork trip-42 --at 6 …    a new task that shares its past with another one
      holdfast rewind trip-42 --to 6    put it back to before step 6
      holdfast audit trip-42            who did what, when, and whether the log is sound
      holdfast stats --since 7d         where time, tokens, money and retries went
      holdfast sql "select …"           ask all logs at once
      holdfast session chat-7           a conversation, and the tasks that took part in it
      holdfast handoff trip-42          what somebody needs to go on with it
      holdfast run agents:plan Oslo     start a task, and drive it here
      holdfast resume trip-42           go on after a crash (with --app agents: its code)
      holdfast once fetch -- curl …     a command of a shell script, as a durable step
      holdfast start agents:plan Oslo   start a task, and leave it to a worker
      holdfast worker --app agents      drive all tasks that have something to do
      holdfast move trip-42 --engine …  give it to another engine
      holdfast cancel trip-42           end it
      holdfast answer                   what tasks ask people
      holdfast doubt                    calls that may or may not have happened
      holdfast memory search "tea"      what agents remember
      holdfast init "Refactor it"       a mission, for any agent to work off
      holdfast next --agent 'COMMAND'   have the agent do its next item, and exit
      holdfast replay trip-42           run its code over its log, with no effect
      holdfast testcase trip-42         make a test of a recorded run
      holdfast check --app agents       does the code fit the tasks that are under way?
      holdfast doctor                   is every log intact?
      holdfast verify                   was any log changed or cut?
      holdfast copy --to URL            copy or move tasks to another store
      holdfast gc --older-than 30d      delete what has ended long ago
      holdfast mirror DIR               keep readable files of a database's tasks
      holdfast rebuild                  make the readable files anew

    The options below may stand before or after the command's name. Settings come from an option,
    else from the environment (HOLDFAST_URL, HOLDFAST_APP, HOLDFAST_KEY, …), else from
    [tool.holdfast] in the nearest pyproject.toml (url = "…", app = "…", engine = "…"), else from
    the default. HOLDFAST_REDACT and HOLDFAST_SECRETS (redact = "…", secrets = "…") name, as
    module:attribute, a Redact and where named secrets come from. Commands that only read import
    none of the code that settings name.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (
    ls.ls,
    show.show,
    why.why,
    context.context,
    log.log,
    snapshot.snapshot,
    snapshot.diff,
    compare.compare,
    audit.audit,
    stats.stats,
    sql.sql,
    sessions.sessions,
    session.session,
    session.say,
    handoff.handoff,
    drive.run,
    once.once,
    start.start,
    worker.worker,
    move.move,
    drive.resume,
    drive.retry,
    control.pause,
    control.cancel,
    compensate.compensate,
    answer.answer,
    doubt.doubt,
    resolve.resolve,
    fork.fork,
    fork.rewind,
    compare.experiment,
    memory.memory,
    harness.init_mission,
    harness.next_,
    harness.loop_,
    replay.replay,
    testcase.make_testcase,
    check.check,
    doctor.doctor,
    verify.verify,
    verify.head,
    keys.keys,
    copy.copy,
    archive.archive,
    copy.restore,
    gc.gc,
    mirror.mirror,
    mirror.rebuild,
    completion.completion,
):
    root.add_command(_command)
