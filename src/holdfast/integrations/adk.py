"""Google's Agent Development Kit: sessions and artifacts in our store, and a plugin for tasks.

    runner = Runner(
        app=App(name="shop", root_agent=agent, plugins=[HoldfastPlugin()]),
        session_service=HoldfastSessionService(hf),
        artifact_service=HoldfastArtifactService(hf),
    )

The services work anywhere, and keep everything in `hf.values`. Inside a task each of their changes
happens once, and the plugin makes requests to models steps, and calls of tools tools of ours.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from holdfast.agent.adapters.base import ModelRejected
from holdfast.api.app import Holdfast
from holdfast.core.scope import Scope, scope_var
from holdfast.core.spec import Retry, Spec
from holdfast.errors import Conflict
from holdfast.integrations.calls import (
    CallOptions,
    base_scope,
    call_name,
    checked_options,
    for_models,
    in_task,
    journaled,
    kept_once,
    place_of,
    plain,
    standing_at,
)
from holdfast.integrations.frameworks import need

need("adk", google_adk=">=2.13,<3")

from google.adk.artifacts.base_artifact_service import (  # noqa: E402
    ArtifactVersion,
    BaseArtifactService,
    ensure_part,
)
from google.adk.errors.already_exists_error import AlreadyExistsError  # noqa: E402
from google.adk.errors.input_validation_error import InputValidationError  # noqa: E402
from google.adk.errors.session_not_found_error import SessionNotFoundError  # noqa: E402
from google.adk.events.event import Event  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.adk.sessions.base_session_service import (  # noqa: E402
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session  # noqa: E402
from google.adk.sessions.state import State  # noqa: E402
from google.adk.tools.function_tool import FunctionTool  # noqa: E402
from google.genai import types  # noqa: E402

__all__ = [
    "HoldfastArtifactService",
    "HoldfastPlugin",
    "HoldfastSessionService",
    "durable_tool",
]

_STEP: CallOptions = {"kind": "step"}


async def _once(label: str, name: str, body: Callable[[], Awaitable[Any]]) -> Any:
    """Do something once in a task, under a label that no other such thing has; or just do it."""
    if not in_task():
        return await body()
    scope = base_scope(name)
    path = place_of(scope, call_name(name, label))
    return await journaled(scope, path, name, {}, body, _STEP)


def _part(*names: str) -> str:
    """Names as a key: none of them can reach into another's."""
    return "/".join(quote(name, safe="") for name in names)


class HoldfastSessionService(BaseSessionService):
    """Sessions of the ADK in the store of a `Holdfast`. Appending an event is one durable write.

    An event stands under its own key, and state is what the events made of it, so two writers never
    overwrite each other, and no session is ever stale. Nothing is lost by deleting: the history of
    the namespace still has it.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    def _values(self, app_name: str) -> Any:
        return self._hf.values(f"adk sessions {quote(app_name, safe='')}")

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        wanted = (session_id or "").strip()

        async def create() -> str:
            id = wanted or _new_id()
            own, shared = _divided(user_id, state or {})
            begun = {"state": plain(own), "at": time.time()}
            values = self._values(app_name)
            try:
                await values.aput(f"session/{_part(user_id, id)}", begun, expected=0)
            except Conflict:
                raise AlreadyExistsError(f"Session with id {id} already exists.") from None
            if shared:
                await values.aput_many(shared)
            return id

        id = await _once(wanted or user_id, "create_session", create)
        found = await self.get_session(app_name=app_name, user_id=user_id, session_id=id)
        if found is None:
            raise SessionNotFoundError(f"Session {id} not found.")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        id = session_id.strip()
        values = self._values(app_name)

        async def newest() -> int:
            begun = await values.aentry(f"session/{_part(user_id, id)}")
            if begun is None:
                return 0
            events = await values.aentries(f"event/{_part(user_id, id)}/")
            found: int = max([begun.version, *(each.version for each in events)])
            return found

        # A resumed task sees the session as it was: the runner adds to it what it added then.
        version = await _once(id, "get_session", newest)
        if not version:
            return None
        session: Session | None = await _outside(
            self._read, values, app_name, user_id, id, version, config
        )
        return session

    def _read(
        self,
        values: Any,
        app_name: str,
        user_id: str,
        id: str,
        version: int,
        config: GetSessionConfig | None,
    ) -> Session | None:
        past = values.as_of(version) if version else values
        begun = past.entry(f"session/{_part(user_id, id)}")
        if begun is None:
            return None
        stored = sorted(past.entries(f"event/{_part(user_id, id)}/"), key=lambda each: each.version)
        events = [Event.model_validate(each.value) for each in stored]
        state = dict(begun.value["state"])
        for event in events:
            state |= _divided(user_id, event.actions.state_delta)[0]
        state |= self._shared(past, user_id)
        last = events[-1].timestamp if events else begun.value["at"]
        if config is not None and config.num_recent_events is not None:
            events = events[-config.num_recent_events :] if config.num_recent_events else []
        if config is not None and config.after_timestamp is not None:
            events = [each for each in events if each.timestamp >= config.after_timestamp]
        return Session(
            app_name=app_name,
            user_id=user_id,
            id=id,
            state=state,
            events=events,
            last_update_time=last,
        )

    def _shared(self, values: Any, user_id: str) -> dict[str, Any]:
        """The state of the app and of the user, by their prefixed keys."""
        app = {State.APP_PREFIX: "app/", State.USER_PREFIX: f"user/{_part(user_id)}/"}
        return {
            prefix + unquote(each.key.removeprefix(place)): each.value
            for prefix, place in app.items()
            for each in values.entries(place)
        }

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        values = self._values(app_name)
        prefix = "session/" if user_id is None else f"session/{_part(user_id)}/"

        async def keys() -> list[str]:
            found: list[str] = await values.akeys(prefix)
            return found

        sessions = []
        for key in await _once(user_id or "", "list_sessions", keys):
            user, id = (unquote(part) for part in key.removeprefix("session/").split("/"))
            found = await _outside(self._read, values, app_name, user, id, 0, None)
            if found is not None:
                sessions.append(found.model_copy(update={"events": []}))
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        values, place = self._values(app_name), _part(user_id, session_id.strip())

        async def delete() -> None:
            events = await values.akeys(f"event/{place}/")
            await values.adelete(f"session/{place}", *events)

        await _once(session_id, "delete_session", delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        values, place = self._values(app_name), f"user/{_part(user_id)}/"

        async def read() -> dict[str, Any]:
            found = await values.aentries(place)
            return {unquote(each.key.removeprefix(place)): each.value for each in found}

        state: dict[str, Any] = await _once(user_id, "get_user_state", read)
        return state

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        values, place = self._values(session.app_name), _part(session.user_id, session.id)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)

        async def append() -> dict[str, Any]:
            if await values.aentry(f"session/{place}") is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            _, shared = _divided(session.user_id, event.actions.state_delta)
            key = f"event/{place}/{_part(event.id)}"
            if await values.aentry(key) is None:
                stored = event.model_dump(mode="json", exclude_none=True, by_alias=False)
                await values.aput_many({key: stored, **shared})
            return {"id": event.id, "timestamp": event.timestamp}

        done = await _once(session.id, "append_event", append)
        # A resumed run makes the same event with another id: it is the one that was appended.
        event.id, event.timestamp = done["id"], done["timestamp"]
        if not any(each.id == event.id for each in session.events):
            self._commit_event_to_session(session, event)
        session.last_update_time = event.timestamp
        return event


def _divided(user_id: str, state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a session alone, and what it shares, by the keys that this has in the store."""
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            shared[f"app/{_part(key.removeprefix(State.APP_PREFIX))}"] = plain(value)
        elif key.startswith(State.USER_PREFIX):
            shared[f"user/{_part(user_id, key.removeprefix(State.USER_PREFIX))}"] = plain(value)
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return own, shared


def _new_id() -> str:
    from google.adk.platform import uuid

    made: str = uuid.new_uuid()
    return made


async def _outside(read: Callable[..., Any], *args: Any) -> Any:
    """Read what no task changes any more, in a thread that knows of no task."""
    import asyncio
    from contextvars import copy_context

    context = copy_context()
    context.run(scope_var.set, None)
    return await asyncio.get_running_loop().run_in_executor(None, context.run, read, *args)


class HoldfastArtifactService(BaseArtifactService):
    """Artifacts of the ADK in the store of a `Holdfast`, with every version."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    def _values(self, app_name: str) -> Any:
        return self._hf.values(f"adk artifacts {quote(app_name, safe='')}")

    def _place(self, user_id: str, session_id: str | None, filename: str) -> str:
        if filename.startswith("user:"):
            return f"user/{_part(user_id, filename)}/"
        if session_id is None:
            raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
        return f"session/{_part(user_id, session_id, filename)}/"

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        values, place = self._values(app_name), self._place(user_id, session_id, filename)
        kept = ensure_part(artifact)
        if kept.inline_data is None and kept.text is None and kept.file_data is None:
            raise InputValidationError("Not supported artifact type.")

        async def save() -> int:
            while True:
                number = len(await values.akeys(place))
                stored = {
                    "part": _dumped(kept),
                    "custom_metadata": plain(custom_metadata or {}),
                    "create_time": time.time(),
                }
                try:
                    await values.aput(f"{place}{number:08d}", stored, expected=0)
                except Conflict:  # somebody else saved this version meanwhile
                    continue
                return number

        saved: int = await _once(filename, "save_artifact", save)
        return saved

    async def _stored(
        self, app_name: str, place: str, version: int | None
    ) -> tuple[int, dict[str, Any]] | None:
        found = await self._entries(app_name, place)
        if not found:
            return None
        number = max(found) if version is None else version
        return (number, found[number]) if number in found else None

    async def _entries(self, app_name: str, place: str) -> dict[int, dict[str, Any]]:
        entries = await _outside(self._values(app_name).entries, place)
        return {int(each.key.removeprefix(place)): each.value for each in entries}

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        place = self._place(user_id, session_id, filename)
        found = await self._stored(app_name, place, version)
        return None if found is None else _loaded(found[1]["part"])

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        values, names = self._values(app_name), set()
        places = [f"user/{_part(user_id)}/"]
        places += [f"session/{_part(user_id, session_id)}/"] if session_id is not None else []
        for place in places:
            keys = await _outside(values.keys, place)
            names |= {unquote(key.removeprefix(place).split("/")[0]) for key in keys}
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        values, place = self._values(app_name), self._place(user_id, session_id, filename)

        async def delete() -> None:
            keys = await values.akeys(place)
            if keys:
                await values.adelete(*keys)

        await _once(filename, "delete_artifact", delete)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        return sorted(await self._entries(app_name, self._place(user_id, session_id, filename)))

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        place = self._place(user_id, session_id, filename)
        found = await self._entries(app_name, place)
        return [_version(app_name, place, number, found[number]) for number in sorted(found)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        place = self._place(user_id, session_id, filename)
        found = await self._stored(app_name, place, version)
        return None if found is None else _version(app_name, place, *found)


def _dumped(part: types.Part) -> dict[str, Any]:
    stored = part.model_dump(mode="python", exclude_none=True)
    inline = stored.get("inline_data")
    if inline is not None and isinstance(inline.get("data"), bytes):
        inline["data"] = base64.b64encode(inline["data"]).decode()
    dumped: dict[str, Any] = plain(stored)
    return dumped


def _loaded(stored: dict[str, Any]) -> types.Part:
    inline = stored.get("inline_data")
    if inline is not None and isinstance(inline.get("data"), str):
        inline = {**inline, "data": base64.b64decode(inline["data"])}
        stored = {**stored, "inline_data": inline}
    return types.Part.model_validate(stored)


def _version(app: str, place: str, number: int, stored: dict[str, Any]) -> ArtifactVersion:
    part = _loaded(stored["part"])
    mime_type = None
    if part.inline_data is not None:
        mime_type = part.inline_data.mime_type
    elif part.text is not None:
        mime_type = "text/plain"
    elif part.file_data is not None:
        mime_type = part.file_data.mime_type
    return ArtifactVersion(
        version=number,
        canonical_uri=f"holdfast://{quote(app, safe='')}/{place}{number}",
        custom_metadata=stored["custom_metadata"],
        create_time=stored["create_time"],
        mime_type=mime_type,
    )


# Models and tools in a task.


class HoldfastPlugin(BasePlugin):
    """Makes the calls of an agent steps of the task that runs it. Outside a task it does nothing.

    `retry` is for requests to models. `tools` has options for tools by name, and under `"*"` for
    all others: the options of `@tool`, or `{"kind": "step"}` for one without an effect. A tool that
    is decorated with our `@tool` has its policy already; give it to the agent with `durable_tool`.
    """

    def __init__(
        self,
        *,
        name: str = "holdfast",
        retry: Retry | None = None,
        tools: Mapping[str, CallOptions] | None = None,
    ) -> None:
        super().__init__(name)
        self._retry = retry or Retry(attempts=3)
        self._tools = {
            name: checked_options(f"tools[{name!r}]", given)
            for name, given in (tools or {}).items()
        }
        self._runs: dict[str, Scope] = {}

    def _scope(self, context: Any) -> Scope:
        """Where the calls of one invocation stand: known by its session, not by its random id."""
        invocation = context._invocation_context
        id = f"{invocation.invocation_id}"
        base = base_scope("a run of an agent")
        found = self._runs.get(id)
        if found is None or found.run is not base.run:
            label = call_name(invocation.app_name, invocation.session.id)
            found = self._runs[id] = base.branch(label[:64])
            found.is_async = True
        return found

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self._runs.pop(invocation_context.invocation_id, None)

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> LlmResponse | None:
        """Ask the model in a step."""
        if not in_task():
            return None
        scope = self._scope(callback_context)
        agent = callback_context._invocation_context.agent
        model = agent.canonical_model

        async def body() -> Any:
            told = await _told(model, llm_request)
            usage = told[-1].usage_metadata if told else None
            return {
                "model": str(model.model),
                "usage": {
                    "input_tokens": (usage and usage.prompt_token_count) or 0,
                    "output_tokens": (usage and usage.candidates_token_count) or 0,
                },
                "response": told[-1].model_dump(mode="json", exclude_none=True) if told else {},
            }

        retry = replace(self._retry, unless=(*self._retry.unless, ModelRejected))
        options: CallOptions = {"kind": "step", "retry": retry}
        name, asked = call_name(agent.name, "model"), _asked(model, llm_request)
        answer = await journaled(scope, scope.next_path(), name, asked, body, options)
        return LlmResponse.model_validate(answer["response"])

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Call the tool as a tool of the task."""
        if not in_task():
            return None
        scope = self._scope(tool_context)
        label = str(tool_context.function_call_id or tool.name)
        if isinstance(getattr(getattr(tool, "func", None), "holdfast_spec", None), Spec):
            with standing_at(scope, label):
                return _response(await tool.run_async(args=tool_args, tool_context=tool_context))

        async def body() -> Any:
            response = plain(await tool.run_async(args=tool_args, tool_context=tool_context))
            changed = {
                "state": plain(dict(tool_context.actions.state_delta)),
                "artifacts": dict(tool_context.actions.artifact_delta),
            }
            return {"response": response, **changed} if any(changed.values()) else response

        options = self._tools.get(tool.name) or self._tools.get("*") or {"kind": "tool"}
        path, name = place_of(scope, label), call_name(tool.name)
        done = await journaled(scope, path, name, plain(tool_args), body, options)
        if not (isinstance(done, dict) and done.keys() == {"response", "state", "artifacts"}):
            return _response(done)
        for key, value in done["state"].items():
            tool_context.state[key] = value
        tool_context.actions.artifact_delta.update(done["artifacts"])
        return _response(done["response"])


def durable_tool(fn: Callable[..., Any]) -> FunctionTool:
    """A function that is decorated with our `@tool`, as a tool of an agent.

    The model does not see the parameter for the key.
    """
    return FunctionTool(for_models(fn, ()))


def _response(value: Any) -> dict[str, Any]:
    """The answer of a tool; the ADK goes on to call the tool if it is given nothing."""
    return value if isinstance(value, dict) and value else {"result": value}


async def _told(model: Any, request: Any) -> list[LlmResponse]:
    """The words of a model; `ModelRejected` if it would refuse the same again."""
    try:
        return [each async for each in model.generate_content_async(request, stream=False)]
    except Exception as error:
        # The clients of providers agree on this much.
        status = getattr(error, "status_code", getattr(error, "code", None))
        if isinstance(status, int) and 400 <= status < 500 and status not in (408, 409, 429):
            raise ModelRejected(f"{type(error).__name__}: {error}", status=status) from error
        raise


def _asked(model: Any, request: Any) -> dict[str, Any]:
    """The request to a model, as the log has it. The ADK makes up ids, and no model sees them."""
    import json

    config = request.config.model_dump(mode="json", exclude_none=True)
    data = json.dumps(plain(config), sort_keys=True).encode()
    contents = [each.model_dump(mode="json", exclude_none=True) for each in request.contents]
    return {
        "model": str(model.model),
        "contents": [_without_ids(each) for each in contents],
        "offered": kept_once(data, "request.json"),
    }


def _without_ids(content: dict[str, Any]) -> dict[str, Any]:
    for part in content.get("parts") or ():
        for name in ("function_call", "function_response"):
            if str((part.get(name) or {}).get("id", "")).startswith("adk-"):
                del part[name]["id"]
    return content
