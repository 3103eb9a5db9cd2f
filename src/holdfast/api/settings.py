"""Where settings come from: an argument or option, else the environment, else pyproject.toml.

    option                  environment       [tool.holdfast]     default
    --url FOLDER            HOLDFAST_URL      url = "…"           workspace
    --app MODULE[:ATTR]     HOLDFAST_APP      app = "…" or […]    none
                            HOLDFAST_REDACT   redact = "…"        what is built in
                            HOLDFAST_SECRETS  secrets = "…"       the environment
    --key-file FILE         HOLDFAST_KEY,     key_file = "…"      none
                            HOLDFAST_KEY_FILE
    --task ID (once)        HOLDFAST_TASK                         none
    --sign-key-file FILE    HOLDFAST_SIGN_KEY, HOLDFAST_SIGN_KEY_FILE, sign_key_file = "…"
    --engine NAME           HOLDFAST_ENGINE   engine = "…"        local
    --address …         HOLDFAST_ENGINE_ADDRESS   address = "…"             temporal, restate
    --namespace NAME    HOLDFAST_ENGINE_NAMESPACE namespace = "…"           temporal
    --queue NAME        HOLDFAST_ENGINE_QUEUE     queue = "…"               temporal
    --tls               HOLDFAST_ENGINE_TLS=1     tls = "1"                 temporal
                        HOLDFAST_ENGINE_API_KEY                             temporal
    --admin URL         HOLDFAST_ENGINE_ADMIN     admin = "…"               restate
    --listen HOST:PORT  HOLDFAST_ENGINE_LISTEN    listen = "…"              restate

The command line and `Holdfast.from_env` read them here. `HOLDFAST_APP` takes several, with commas.
`HOLDFAST_REDACT` and `HOLDFAST_SECRETS` name an object, `MODULE:ATTR`: a `Redact`, and a dict or a
function that `Secret.named` is looked up in. `HOLDFAST_KEY` is the key itself. The engine's own
settings stand in `[tool.holdfast.engine]`; `engine = "temporal"` is short for a table with a name
only. Instead of a name you may write MODULE:ATTR, an engine of your own or a function that makes
one.

The pyproject.toml is the nearest one from the current folder upwards; a relative path or a module
in it is meant from where it stands. Somebody else may have written a file above the current
folder: the code that it names is imported only from a folder of the user's own, and the user is
told. Nothing that a log names is ever imported.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from holdfast.core.queues import Queue, rate_of
from holdfast.core.state import FINISHED
from holdfast.engines.routing import LOCAL
from holdfast.errors import BadInput
from holdfast.stores.sealed.keys import Keys
from holdfast.stores.system import user_id
from holdfast.upkeep.retention import Retention

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast
    from holdfast.engines.port import Engine

Setting = Literal["app", "redact", "secrets", "engine"]
"""A setting that can name code."""

DEFAULT_URL = "workspace"
PROJECT = "pyproject.toml"
TAKES: dict[str, tuple[str, ...]] = {
    "temporal": ("address", "namespace", "queue", "tls", "api_key"),
    "restate": ("address", "admin", "listen"),
}
"""Which settings each engine takes."""
_REDACTION: tuple[Setting, ...] = ("redact", "secrets")
_LONGEST_BYTES = 4 << 20
_told: set[Path] = set()

Tell = Callable[[str], object]
"""How the user is told that code is imported that a file above the current folder names."""


class Settings(Struct):
    """The words of the caller itself, by arguments or options: it comes before all else."""

    url: str = ""
    app: tuple[str, ...] = ()
    key_file: str = ""
    sign_key_file: str = ""
    engine: str = ""
    address: str = ""
    namespace: str = ""
    queue: str = ""
    tls: bool = False
    admin: str = ""
    listen: str = ""
    imports: tuple[Setting, ...] = ()
    """The settings whose code may be imported. A command says so itself: see `options.imports`."""


class Code(Struct, frozen=True):
    """Which code a setting names, and where to look for it before `sys.path`."""

    names: tuple[str, ...]
    folder: Path
    above: Path | None = None
    """The pyproject.toml that names it, if that is not in the current folder but above it."""


class _Engine(Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    address: str = ""
    namespace: str = ""
    queue: str = ""
    tls: str = ""
    admin: str = ""
    listen: str = ""


class _Retention(Struct, forbid_unknown_fields=True):
    older_than: str = ""
    keep_last: int | None = None
    max_bytes: int | None = None
    status: list[str] = []
    type: list[str] = []
    sessions_after: str = ""


class _Queue(Struct, forbid_unknown_fields=True):
    """A `Queue` as people write it: its name is that of the table, and a rate is a text."""

    concurrency: int | None = None
    key_concurrency: int | None = None
    rate: str = ""
    key_rate: str = ""
    ageing_s: float = 60.0
    singleton: Literal["first", "newest"] | None = None
    debounce_s: float | None = None
    expires_s: float | None = None


class _Alert(Struct, forbid_unknown_fields=True):
    on: list[str]
    command: list[str] | None = None
    webhook: str | None = None
    secret_env: str = ""
    older_than: str = ""
    type: list[str] = []
    name: str = ""


class _Table(Struct, forbid_unknown_fields=True):
    url: str = ""
    app: str | list[str] = []
    redact: str = ""
    secrets: str = ""
    key_file: str = ""
    sign_key_file: str = ""
    engine: str | _Engine = ""
    retention: _Retention | None = None
    queues: dict[str, _Queue] = {}
    alerts: list[_Alert] = []


def url_of(given: Settings, environment: Mapping[str, str], folder: Path) -> str:
    """The store's URL.

    >>> url_of(Settings(), {"HOLDFAST_URL": "state"}, Path("/"))
    'state'
    """
    if found := given.url or environment.get("HOLDFAST_URL", ""):
        return found
    project = nearest_project(folder)
    url = _read(project).url if project else ""
    if project and url and "://" not in url:
        return str(project.parent / Path(url).expanduser())
    return url or DEFAULT_URL


def code_of(
    setting: Setting, given: Settings, environment: Mapping[str, str], folder: Path
) -> Code:
    """The code that a setting names. Of modules with tasks there may be several.

    >>> code_of("app", Settings(), {"HOLDFAST_APP": "agents, more.agents"}, Path("/")).names
    ('agents', 'more.agents')
    """
    said = getattr(given, setting, "") or environment.get(f"HOLDFAST_{setting.upper()}", "")
    if names := _names(setting, said):
        return Code(names, folder)
    project = nearest_project(folder)
    if project is None:
        return Code((), folder)
    names = _names(setting, getattr(_read(project), setting))
    return Code(names, project.parent, None if project.parent == folder else project)


def _names(setting: Setting, said: str | Sequence[str] | _Engine) -> tuple[str, ...]:
    if isinstance(said, _Engine):
        said = said.name
    if isinstance(said, str):
        said = said.split(",") if setting == "app" else [said]
    return tuple(name.strip() for name in said if name.strip())


def keys_in(
    given: Settings, environment: Mapping[str, str], folder: Path, name: str = "key"
) -> Keys | None:
    """The key to encrypt with, or under the name `sign_key` the one to sign with.

    >>> keys_in(Settings(), {"HOLDFAST_KEY": Keys.new()}, Path("/"))
    Keys('...')
    """
    variable = f"HOLDFAST_{name.upper()}"
    if file := getattr(given, f"{name}_file"):
        return Keys.from_file(file)
    if text := environment.get(variable, ""):
        return Keys.from_text(text)
    if file := environment.get(f"{variable}_FILE", ""):
        return Keys.from_file(file)
    project = nearest_project(folder)
    file = getattr(_read(project), f"{name}_file") if project else ""
    return Keys.from_file(project.parent / Path(file).expanduser()) if project and file else None


def engine_settings(
    given: Settings, environment: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """The settings of the engine, its `name` first; of another engine than that, nothing.

    >>> engine_settings(Settings(engine="restate"), {"HOLDFAST_ENGINE": "temporal"}, Path("/"))
    {'name': 'restate'}
    """
    options = {name: getattr(given, name) for name in _Engine.__struct_fields__[1:]}
    options["tls"] = "1" if given.tls else ""
    variables = {
        name: environment.get(f"HOLDFAST_ENGINE_{name.upper()}", "")
        for name in (*options, "api_key")
    }
    sources = [
        {"name": given.engine, **options},
        {"name": environment.get("HOLDFAST_ENGINE", ""), **variables},
        _engine_of_project(folder),
    ]
    name = next((source["name"] for source in sources if source["name"]), "")
    found = {"name": name}
    for source in reversed(sources):
        if source["name"] in ("", name):
            found |= {key: value for key, value in source.items() if value}
    return found


def _engine_of_project(folder: Path) -> dict[str, str]:
    project = nearest_project(folder)
    engine = _read(project).engine if project else ""
    if isinstance(engine, _Engine):
        return dict(msgspec.to_builtins(engine))
    return {"name": engine}


def nearest_project(folder: Path) -> Path | None:
    """The pyproject.toml in `folder` or the nearest one above it."""
    for place in (folder, *folder.parents):
        if (place / PROJECT).is_file():
            return place / PROJECT
    return None


def _read(project: Path) -> _Table:
    try:
        with project.open("rb") as file:
            data = file.read(_LONGEST_BYTES + 1)
        if len(data) > _LONGEST_BYTES:
            raise ValueError(f"it has more than {_LONGEST_BYTES >> 20} MiB")
        document = tomllib.loads(data.decode())
        tool = document.get("tool", {})
        return msgspec.convert(tool.get("holdfast", {}) if isinstance(tool, dict) else {}, _Table)
    except msgspec.ValidationError as error:
        raise BadInput(
            f'{project}, [tool.holdfast]: {error}. It knows url = "…", app = "…" or ["…"], '
            f'redact = "…", secrets = "…", '
            f'key_file = "…", sign_key_file = "…", engine = "…" or a table of it, and the tables '
            f"retention and alerts"
        ) from None
    except (OSError, ValueError, RecursionError) as error:  # the file may be anybody's
        raise BadInput(f"can't read the settings in {project}: {error}") from None


# The work of workers beside driving tasks: `[tool.holdfast.retention]`,
# `[tool.holdfast.queues.NAME]`, `[[tool.holdfast.alerts]]`

_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span_of(text: str) -> timedelta | None:
    """How long a text like `30d` or `12h` is; None for none.

    >>> span_of("90m")
    datetime.timedelta(seconds=5400)
    """
    if not text:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        raise BadInput(f"{text!r:.60} is no length of time: write 90s, 15m, 12h, 30d or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def retention_of(folder: Path) -> Retention | None:
    """The tasks that workers may delete, by the nearest pyproject.toml."""
    project = nearest_project(folder)
    said = _read(project).retention if project else None
    if said is None:
        return None
    return Retention(
        older_than=span_of(said.older_than),
        keep_last=said.keep_last,
        max_bytes=said.max_bytes,
        status=tuple(said.status or FINISHED),
        type=tuple(said.type),
        sessions_after=span_of(said.sessions_after),
    )


def queues_of(folder: Path) -> list[Queue]:
    """The queues that workers declare, by the nearest pyproject.toml."""
    project = nearest_project(folder)
    found = []
    for name, said in _read(project).queues.items() if project else ():
        given = msgspec.structs.asdict(said)
        try:
            for key in ("rate", "key_rate"):
                given[key] = rate_of(given[key]) if given[key] else None
            found.append(Queue(name, **given))
        except (BadInput, ValueError) as error:
            raise BadInput(f"{project}, [tool.holdfast.queues.{name}]: {error}") from None
    return found


def add_hooks(hf: Holdfast, environment: Mapping[str, str], folder: Path, tell: Tell) -> None:
    """Have those told whom the nearest pyproject.toml names.

    A command that a file above the current folder names is code, and is trusted as such.
    """
    project = nearest_project(folder)
    for said in _read(project).alerts if project else ():
        if said.command and project is not None and project.parent != folder:
            _must_be_ours("alerts", project, tell)
        if said.secret_env and not environment.get(said.secret_env):
            raise BadInput(
                f"[[tool.holdfast.alerts]]: secret_env = {said.secret_env!r}, and there is no such "
                f"variable in the environment"
            )
        hf.on(
            *said.on,  # type: ignore[arg-type]
            command=said.command,
            webhook=said.webhook,
            secret=environment[said.secret_env] if said.secret_env else None,
            older_than=span_of(said.older_than),
            type=said.type,
            name=said.name,
        )


# The options of a `Holdfast`


def options_of(given: Settings, tell: Tell) -> dict[str, Any]:
    """The arguments of `Holdfast` that settings decide, besides its URL.

    Code is imported for those that `given.imports` names: secrets are kept out when something is
    written, so a command that reads needs no code for it.
    """
    folder = Path.cwd()
    found: dict[str, Any] = {
        name: keys_in(given, os.environ, folder, name) for name in ("key", "sign_key")
    }
    for name in _REDACTION:
        for each in load_named(name, given, tell):
            found[name] = each
    if "engine" in given.imports:
        found["engine"] = engine_of(given, tell)
    return found


def engine_of(given: Settings, tell: Tell) -> Engine | None:
    """The engine that the settings name; None for the local one."""
    settings = engine_settings(given, os.environ, Path.cwd())
    name = settings.pop("name", "")
    if name in ("", LOCAL):
        return None
    if ":" in name:
        return _own(name, load_named("engine", given, tell))
    if name not in TAKES:
        raise BadInput(
            f"engine {name!r}: there are local, temporal and restate, or write MODULE:ATTR for "
            f"one of your own"
        )
    return _made(name, settings)


def _own(where: str, named: Sequence[Any]) -> Engine:
    (found,) = named
    engine: Engine = found() if callable(found) else found
    if not isinstance(getattr(engine, "name", None), str) or not hasattr(engine, "start"):
        raise BadInput(f"engine {where!r}: that is no engine, but {engine!r:.80}")
    return engine


def _made(name: str, settings: Mapping[str, str]) -> Engine:
    taken: dict[str, Any] = {each: settings[each] for each in TAKES[name] if each in settings}
    if "tls" in taken:
        taken["tls"] = taken["tls"].lower() in ("1", "true", "yes", "on")
    where = [taken.pop("address")] if "address" in taken else []
    try:
        module = importlib.import_module(f"holdfast.engines.{name}")
        engine: Engine = getattr(module, name.capitalize())(*where, **taken)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"engine {name!r} needs {error.name}: pip install 'holdfast[{name}]'"
        ) from None
    return engine


# Importing the code that settings name


def load_named(setting: Setting, given: Settings, tell: Tell) -> list[Any]:
    """Import what a setting names, if it names anything and `given.imports` allows it."""
    code = code_of(setting, given, os.environ, Path.cwd())
    if not code.names or setting not in given.imports:
        return []
    if code.above:
        _must_be_ours(setting, code.above, tell)
    look_in(code.folder)
    return [load(name) for name in code.names]


def _must_be_ours(setting: str, project: Path, tell: Tell) -> None:
    for path in (project.parent, project):
        found = path.stat()
        if (us := user_id()) is not None and found.st_uid != us:
            why = "belongs to another user"
        elif found.st_mode & stat.S_IWOTH:
            why = "can be written to by everybody"
        else:
            continue
        raise BadInput(
            f"{project} names code to import ({setting} = …), and {path} {why}. Code that a "
            f"setting above the current folder names is imported only from a folder of your own. "
            f"If you trust it, run the command in {project.parent}"
        )
    if project not in _told:
        _told.add(project)
        tell(f"imports the code that {project} names")


def look_in(folder: Path) -> None:
    """Look for modules in this folder before anywhere else."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def load(where: str) -> Any:
    """The object that `module` or `module:attribute` names, or `BadInput` that says what is wrong.

    >>> load("math:tau") == load("math").tau
    True
    """
    name, colon, attribute = where.partition(":")
    if not name or (colon and not attribute):
        raise BadInput(f"{where!r} names no code: write module:function, as in agents.trip:plan")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadInput(f"{name!r} is a file: name the module, as in {dotted}{colon}{attribute}")
    found: Any = _imported(name)
    for part in attribute.split(".") if attribute else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            raise BadInput(f"module {name!r} has no {attribute!r}{_tasks_of(found)}") from None
    return found


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(
                f"there is no module {name!r} in {Path.cwd()} nor where Python looks for modules"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> BadInput:
    return BadInput(
        f"importing {name!r} failed with {type(error).__name__}: {error} (--debug shows where)"
    )


def _tasks_of(module: Any) -> str:
    tasks = sorted(
        name
        for name, value in vars(module).items()
        if getattr(getattr(value, "holdfast_spec", None), "kind", "") == "task"
    )
    return f"; its tasks are {', '.join(tasks)}" if tasks else ", and no tasks"
