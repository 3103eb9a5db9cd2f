"""`@step(cache=…)`: results that tasks share, by the arguments of the call, for a time.

The result of a step is put under the hash of its arguments in a namespace of its own
(`hf.values("cache/<step>")`). The next call with the same arguments, in any task and any process,
takes it from there while it lives. Each task's log holds the result as always, so a replay does not
look into the cache. Two tasks that ask at once may both make the call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from holdfast.codec import Signature, canonical
from holdfast.core.scope import scope_var
from holdfast.core.spec import is_async, is_method, is_streaming
from holdfast.errors import BadInput
from holdfast.log.namespaces import Namespace, namespace_of


def cached(fn: Callable[..., Any], name: str, cache: Any) -> Callable[..., Any]:
    """The function with its results kept for `cache` seconds; with True for good."""
    lifetime_s = _lifetime(name, cache)
    if is_streaming(fn) or is_method(fn):
        raise BadInput(f"{name}: cache=… is for functions, not for generators or methods")
    signature, plain = Signature.of(fn), inspect.signature(fn)

    def place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Namespace, str]:
        scope = scope_var.get()
        if scope is None:
            raise BadInput(f"{name}: its cache is asked for outside of a task")
        log = scope.run.log
        found = namespace_of(
            log.store, f"cache/{name}", log.lease.owner, log.clock, log.redact, log.max_value_bytes
        )
        given = plain.bind(*args, **kwargs)
        given.apply_defaults()
        data = signature.dump_call(given.args, given.kwargs)
        return found, sha256(canonical(bytes(data))).hexdigest()

    def known(namespace: Namespace, key: str) -> tuple[bool, Any]:
        kept = namespace.find([key]).get(key)
        if kept is None:
            return False, None
        return True, signature.returns.load(namespace.bytes_of(kept))

    def keep(namespace: Namespace, key: str, result: Any) -> None:
        namespace.put({key: signature.returns.dump(result)}, lifetime_s)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if scope_var.get() is None:
            return fn(*args, **kwargs)
        where = place(args, kwargs)
        is_known, result = known(*where)
        if not is_known:
            result = fn(*args, **kwargs)
            keep(*where, result)
        return result

    @functools.wraps(fn)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        if scope_var.get() is None:
            return await fn(*args, **kwargs)
        from holdfast.api.async_forms import away

        where = place(args, kwargs)
        is_known, result = await away(known, *where)
        if not is_known:
            result = await fn(*args, **kwargs)
            await away(keep, *where, result)
        return result

    return acall if is_async(fn) else call


def _lifetime(name: str, cache: Any) -> float | None:
    if cache is True:
        return None
    is_number = isinstance(cache, int | float) and not isinstance(cache, bool)
    if not is_number or not 0 < cache <= 3.2e9:
        raise BadInput(f"{name}: cache={cache!a:.60} must be a number of seconds, or True for good")
    return float(cache)
