"""LangChain on Holdfast: key-value stores, a cache for models, and agents whose calls run once.

`HoldfastByteStore` and `HoldfastKVStore` are LangChain's `BaseStore` on `hf.values`.
`HoldfastCache` is its LLM cache. `HoldfastMiddleware` journals every model call and every tool call
of an agent made by `create_agent`, so that an agent that goes on after a crash repeats neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdfast.integrations.frameworks import need

need("langchain", langchain=">=1.4,<1.6", langchain_core=">=1.7,<2", langgraph=">=1.2,<1.3")

from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain.agents.middleware.types import (  # noqa: E402
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.caches import RETURN_VAL_TYPE, BaseCache  # noqa: E402
from langchain_core.outputs import ChatGeneration, Generation  # noqa: E402
from langchain_core.stores import BaseStore  # noqa: E402
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: E402
from langgraph.config import get_config  # noqa: E402
from langgraph.types import interrupt  # noqa: E402

from holdfast.api.app import Holdfast  # noqa: E402
from holdfast.api.async_forms import away  # noqa: E402
from holdfast.codec import Shape, shape_of  # noqa: E402
from holdfast.core.scope import scope_var  # noqa: E402
from holdfast.errors import BadInput  # noqa: E402
from holdfast.integrations.calls import CallOptions, journaled_call  # noqa: E402
from holdfast.integrations.langgraph.encoding import Encoding  # noqa: E402
from holdfast.integrations.langgraph.nodes import (  # noqa: E402
    piece_of,
    tool_answer,
    tool_record,
)
from holdfast.log.namespaces import checked_key  # noqa: E402

__all__ = ["HoldfastByteStore", "HoldfastCache", "HoldfastKVStore", "HoldfastMiddleware"]

V = TypeVar("V")
_encoding = Encoding(JsonPlusSerializer(), readable=True)


class HoldfastKVStore(BaseStore[str, V], Generic[V]):
    """A key-value store of LangChain on `hf.values(namespace)`, for values of one type.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     store = HoldfastKVStore(hf, "profiles", of=dict[str, str])
    ...     store.mset([("ada", {"city": "Oslo"})])
    ...     store.mget(["ada", "bob"]), list(store.yield_keys(prefix="a"))
    ([{'city': 'Oslo'}, None], ['ada'])
    """

    def __init__(
        self, hf: Holdfast, namespace: str, *, of: Any = Any, lifetime_s: float | None = None
    ) -> None:
        # Not journaled: a task that calls LangChain calls it in a step, as it does without us.
        self._values = hf.values(namespace).plain
        self._shape: Shape = shape_of(of)
        self._lifetime_s = lifetime_s

    def mget(self, keys: Sequence[str]) -> list[V | None]:
        """The values, in order; None where there is none."""
        wanted = [checked_key(key) for key in keys]
        found = self._values.find(wanted)
        loaded = {key: self._shape.load(self._values.bytes_of(kept)) for key, kept in found.items()}
        return [loaded.get(key) for key in wanted]

    def mset(self, key_value_pairs: Sequence[tuple[str, V]]) -> None:
        """Put values under their keys, durably."""
        dumped = {checked_key(key): self._shape.dump(value) for key, value in key_value_pairs}
        self._values.put(dumped, self._lifetime_s)

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete what is there under these keys."""
        self._values.delete([checked_key(key) for key in keys])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """The keys that begin with `prefix`, in order."""
        for kept in self._values.find_all(prefix or ""):
            yield kept.key

    async def amget(self, keys: Sequence[str]) -> list[V | None]:
        """`mget` for async code."""
        return await away(self.mget, keys)

    async def amset(self, key_value_pairs: Sequence[tuple[str, V]]) -> None:
        """`mset` for async code."""
        await away(self.mset, key_value_pairs)

    async def amdelete(self, keys: Sequence[str]) -> None:
        """`mdelete` for async code."""
        await away(self.mdelete, keys)

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        """`yield_keys` for async code."""
        for kept in await away(self._values.find_all, prefix or ""):
            yield kept.key


class HoldfastByteStore(HoldfastKVStore[bytes]):
    """The same for bytes, as `CacheBackedEmbeddings` and document stores want it."""

    def __init__(self, hf: Holdfast, namespace: str, *, lifetime_s: float | None = None) -> None:
        super().__init__(hf, namespace, of=bytes, lifetime_s=lifetime_s)


class HoldfastCache(BaseCache):
    """A cache for models: the same prompt to the same model is answered from the store.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     cache = HoldfastCache(hf, lifetime_s=24 * 3600)
    ...     cache.update("why?", "model", [Generation(text="because")])
    ...     cache.lookup("why?", "model")[0].text, cache.lookup("why?", "another")
    ('because', None)
    """

    def __init__(
        self, hf: Holdfast, namespace: str = "llm-cache", *, lifetime_s: float | None = None
    ) -> None:
        self._values = hf.values(namespace).plain
        self._lifetime_s = lifetime_s
        self._shape = shape_of(Any)

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The earlier answer of the model; None if that is not known."""
        key = _cache_key(prompt, llm_string)
        kept = self._values.find([key]).get(key)
        if kept is None:
            return None
        return [_generation(data) for data in self._shape.load(self._values.bytes_of(kept))]

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Keep what the model answered, durably."""
        dumped = self._shape.dump([_dumped(each) for each in return_val])
        self._values.put({_cache_key(prompt, llm_string): dumped}, self._lifetime_s)

    def clear(self, **kwargs: Any) -> None:
        """Delete everything in the cache, for good."""
        self._values.drop()

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """`lookup` for async code."""
        return await away(self.lookup, prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """`update` for async code."""
        await away(self.update, prompt, llm_string, return_val)

    async def aclear(self, **kwargs: Any) -> None:
        """`clear` for async code."""
        await away(self.clear)


class HoldfastMiddleware(AgentMiddleware[Any, Any]):
    """Journals the model calls and the tool calls of an agent.

    Give the agent a checkpointer and each run a thread: an agent that goes on after a crash then
    answers from the log what was called before. Or run the agent inside a task of Holdfast, and
    the calls are in that task's log. `tools` says of a tool, by its name, what `@tool` would be
    told: `{"book": {"check": was_it_booked}}`. Other tools are asked about when they are in doubt.
    """

    def __init__(self, hf: Holdfast, *, tools: Mapping[str, CallOptions] | None = None) -> None:
        super().__init__()
        self._hf = hf
        self._policies = dict(tools or {})
        for name, policy in self._policies.items():
            journaled_call(name, "tool", _answered_async, policy)  # what is wrong shows now

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        """Ask the model, or answer from the log."""
        piece = piece_of(self._hf, "model", get_config())
        if piece is None:
            return handler(request)
        call = journaled_call("model", "step", lambda args: _answered(handler(request)))
        return _response(piece.run(lambda: call(_seen(request)), interrupt))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """`wrap_model_call` for async code."""
        piece = piece_of(self._hf, "model", get_config())
        if piece is None:
            return await handler(request)

        async def body(args: Any) -> Any:
            return _answered(await handler(request))

        call = journaled_call("model", "step", body)

        async def run() -> Any:
            return await call(_seen(request))

        return _response(await piece.arun(run, interrupt))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Call the tool, or answer from the log."""
        name, id, args = _asked(request)
        piece = piece_of(self._hf, name, get_config(), id)
        if piece is None:
            return handler(request)
        policy, asked = self._policies.get(name), request.tool_call
        call = journaled_call(
            name, "tool", lambda args: tool_record(handler(request), asked), policy
        )
        return tool_answer(piece.run(lambda: call(args), interrupt), asked)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """`wrap_tool_call` for async code."""
        name, id, args = _asked(request)
        piece = piece_of(self._hf, name, get_config(), id)
        if piece is None:
            return await handler(request)
        asked = request.tool_call

        async def body(args: Any) -> Any:
            return tool_record(await handler(request), asked)

        call = journaled_call(name, "tool", body, self._policies.get(name))

        async def run() -> Any:
            return await call(args)

        return tool_answer(await piece.arun(run, interrupt), asked)


def _asked(request: ToolCallRequest) -> tuple[str, str, Any]:
    call = request.tool_call
    return call["name"], str(call.get("id") or ""), _encoding.dump(call["args"])


def _seen(request: ModelRequest[Any]) -> Any:
    """The input of the model, as it is recorded. A task of ours keeps the whole; elsewhere the
    checkpoints have the messages, and the log has their number and their sum."""
    # Without their ids: LangGraph draws some of them anew on each run.
    messages = [_encoding.dump(each.model_copy(update={"id": None})) for each in request.messages]
    if _is_ours():
        return messages
    whole = shape_of(Any).dump(messages)
    return {"messages": len(messages), "sha256": hashlib.sha256(whole).hexdigest()[:16]}


def _is_ours() -> bool:
    """Whether the task that runs is one of the user's, and not made for this call alone."""
    scope = scope_var.get()
    return scope is not None and bool(scope.path)


async def _answered_async(response: Any) -> Any:
    return _answered(response)


def _answered(response: Any) -> Any:
    if not isinstance(response, ModelResponse):
        response = ModelResponse(result=[response])
    return {
        "result": [_encoding.dump(each) for each in response.result],
        "structured": _encoding.dump(response.structured_response),
    }


def _response(data: Any) -> ModelResponse[Any]:
    return ModelResponse(
        result=[_encoding.load(each) for each in data["result"]],
        structured_response=_encoding.load(data["structured"]),
    )


def _dumped(generation: Any) -> Any:
    if not isinstance(generation, Generation):
        raise BadInput(f"HoldfastCache keeps Generations, not {generation!r:.60}")
    info = _encoding.dump(generation.generation_info)
    if isinstance(generation, ChatGeneration):
        return {"message": _encoding.dump(generation.message), "info": info}
    return {"text": generation.text, "info": info}


def _generation(data: Any) -> Generation:
    info = _encoding.load(data["info"])
    if "text" in data:
        return Generation(text=data["text"], generation_info=info)
    return ChatGeneration(message=_encoding.load(data["message"]), generation_info=info)


def _cache_key(prompt: str, llm_string: str) -> str:
    return hashlib.sha256(f"{len(prompt)}:{prompt}{llm_string}".encode()).hexdigest()
