"""Where settings come from: an option, else the environment, else pyproject.toml, else a default.

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

`HOLDFAST_APP` takes several, with commas. `HOLDFAST_REDACT` and `HOLDFAST_SECRETS` name an object,
`MODULE:ATTR`: a `Redact`, and a dict or a function that `Secret.named` is looked up in.
`HOLDFAST_KEY` is the key itself. The pyproject.toml is the nearest one from the current folder
upwards; a relative path in it is meant from where it stands. For more of the engine see
`holdfast.cli.engines`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.errors import BadInput
from holdfast.keys import Keys

DEFAULT_URL = "workspace"
PROJECT = "pyproject.toml"


class Given(Struct):
    """What the command line itself said, before or after the command's name."""

    url: str = ""
    app: tuple[str, ...] = ()
    key_file: str = ""
    sign_key_file: str = ""
    debug: bool = False
    json: bool = False
    engine: str = ""
    address: str = ""
    namespace: str = ""
    queue: str = ""
    tls: bool = False
    admin: str = ""
    listen: str = ""


class Code(Struct, frozen=True):
    """Which modules to import, and where to look for them besides `sys.path`."""

    modules: tuple[str, ...]
    folders: tuple[Path, ...]


class _Engine(Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    address: str = ""
    namespace: str = ""
    queue: str = ""
    tls: str = ""
    admin: str = ""
    listen: str = ""


class _Table(Struct, forbid_unknown_fields=True):
    url: str = ""
    app: str | list[str] = []
    redact: str = ""
    secrets: str = ""
    key_file: str = ""
    sign_key_file: str = ""
    engine: str | _Engine = ""


def url_of(given: Given, environment: Mapping[str, str], folder: Path) -> str:
    """The store's URL.

    >>> url_of(Given(), {"HOLDFAST_URL": "state"}, Path("/"))
    'state'
    """
    if found := given.url or environment.get("HOLDFAST_URL", ""):
        return found
    project = nearest_project(folder)
    url = _read(project).url if project else ""
    if project and url and "://" not in url:
        return str(project.parent / Path(url).expanduser())
    return url or DEFAULT_URL


def code_of(given: Given, environment: Mapping[str, str], folder: Path) -> Code:
    """The modules that define the tasks.

    >>> code_of(Given(), {"HOLDFAST_APP": "agents, more.agents"}, Path("/")).modules
    ('agents', 'more.agents')
    """
    named = environment.get("HOLDFAST_APP", "").split(",")
    if found := given.app or tuple(name.strip() for name in named if name.strip()):
        return Code(found, (folder,))
    project = nearest_project(folder)
    if project is None:
        return Code((), (folder,))
    app = _read(project).app
    return Code((app,) if isinstance(app, str) else tuple(app), (folder, project.parent))


def object_of(setting: str, environment: Mapping[str, str], folder: Path) -> Code:
    """Where the object of a setting is to be found, if there is one.

    >>> object_of("redact", {"HOLDFAST_REDACT": "agents:redact"}, Path("/")).modules
    ('agents:redact',)
    """
    if found := environment.get(f"HOLDFAST_{setting.upper()}", ""):
        return Code((found,), (folder,))
    project = nearest_project(folder)
    named = getattr(_read(project), setting) if project else ""
    return Code((named,), (folder, project.parent)) if project and named else Code((), ())


def keys_in(
    given: Given, environment: Mapping[str, str], folder: Path, name: str = "key"
) -> Keys | None:
    """The key to encrypt with, or under the name `sign_key` the one to sign with.

    >>> keys_in(Given(), {"HOLDFAST_KEY": Keys.new()}, Path("/"))
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


def engine_settings(given: Given, environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What is said of the engine, its `name` first; of another engine than that, nothing.

    >>> engine_settings(Given(engine="restate"), {"HOLDFAST_ENGINE": "temporal"}, Path("/"))
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
        document = tomllib.loads(project.read_text(encoding="utf-8"))
        tool = document.get("tool", {})
        return msgspec.convert(tool.get("holdfast", {}) if isinstance(tool, dict) else {}, _Table)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"can't read the settings in {project}: {error}") from None
    except msgspec.ValidationError as error:
        raise BadInput(
            f'{project}, [tool.holdfast]: {error}. It knows url = "…", app = "…" or ["…"], '
            f'redact = "…", secrets = "…", '
            f'key_file = "…", sign_key_file = "…" and engine = "…" or a table of it'
        ) from None
