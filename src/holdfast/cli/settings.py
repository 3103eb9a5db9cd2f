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
upwards; a relative path or a module in it is meant from where it stands. For more of the engine see
`holdfast.cli.engines`; for who imports the code that settings name, `holdfast.cli.code`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from msgspec import Struct

from holdfast.errors import BadInput
from holdfast.keys import Keys

Setting = Literal["app", "redact", "secrets", "engine"]
"""A setting that can name code."""

DEFAULT_URL = "workspace"
PROJECT = "pyproject.toml"
_LONGEST_BYTES = 4 << 20


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
    imports: tuple[Setting, ...] = ()
    """The settings whose code the command may import. It says so itself: see `options.imports`."""


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


def code_of(setting: Setting, given: Given, environment: Mapping[str, str], folder: Path) -> Code:
    """The code that a setting names. Of modules with tasks there may be several.

    >>> code_of("app", Given(), {"HOLDFAST_APP": "agents, more.agents"}, Path("/")).names
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
            f'key_file = "…", sign_key_file = "…" and engine = "…" or a table of it'
        ) from None
    except (OSError, ValueError, RecursionError) as error:  # the file may be anybody's
        raise BadInput(f"can't read the settings in {project}: {error}") from None


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option's value where every part of a command finds it."""
    # The same option may stand before and after the command's name; the later one counts.
    if value:
        setattr(ctx.ensure_object(Given), str(param.name), value)
