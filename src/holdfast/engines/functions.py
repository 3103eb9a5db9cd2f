"""How a decorated function becomes a `Spec`: its options are checked and defaults filled in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.codec import Signature
from holdfast.core.spec import (
    ONCE,
    Doubt,
    FunctionKind,
    IdempotencyKey,
    Retry,
    Spec,
    is_async,
    is_method,
    is_streaming,
)
from holdfast.errors import BadInput


def make_spec(
    fn: Callable[..., Any],
    kind: FunctionKind,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    in_doubt: Doubt | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    key_ttl_s: float | None = None,
    approve: bool = False,
    version: int = 0,
    upcast: Callable[..., Any] | None = None,
    undo_when: frozenset[str] = frozenset(),
    redact: Iterable[str] = (),
    ttl_s: float = 0,
    invalidates: Iterable[Any] = (),
    parallel: bool = True,
    limit: Any = None,
) -> Spec:
    """The spec of `fn`, with what was left out filled in, or `BadInput` that says what is off."""
    called = _name_of(fn, kind, name)
    on_object = is_method(fn)
    if on_object and kind in ("task", "external"):
        raise BadInput(
            f"{called}: @{kind} can't be a method: another process that goes on with it has no "
            f"such object. Write a function that makes the object, and steps that are its methods"
        )
    if type(version) is not int or version < 0:
        raise BadInput(f"{called}: version={version!r:.60} must be a number, 0 or more")
    for option, value in (("timeout_s", timeout_s), ("key_ttl_s", key_ttl_s)):
        is_number = type(value) in (int, float) and 0 < value < float("inf")  # type: ignore[operator]
        if value is not None and not is_number:
            raise BadInput(f"{called}: {option}={value!r:.60} must be a number of seconds above 0")
    if retry is not None and not isinstance(retry, Retry):
        raise BadInput(f"{called}: retry={retry!r:.60} must be a Retry, as in Retry(attempts=3)")
    if in_doubt not in (None, "retry", "check", "ask"):
        raise BadInput(f"{called}: in_doubt={in_doubt!r:.60} must be 'retry', 'check' or 'ask'")
    _must_take(called, "undo", undo, "result")
    _must_take(called, "upcast", upcast, "data and its version")
    _must_suit(called, fn, check, in_doubt, key_ttl_s)
    streams = is_streaming(fn)
    if streams and kind in ("task", "external"):
        raise BadInput(f"{called}: @{kind} can't be a generator; return a list")
    if type(ttl_s) not in (int, float) or not ttl_s >= 0:
        raise BadInput(f"{called}: ttl_s={ttl_s!r:.60} must be a number of seconds, 0 or more")
    signature = Signature.of(fn, injected=(IdempotencyKey,), streams=streams, is_method=on_object)
    if signature.injected and kind != "tool":
        raise BadInput(f"{called}: only a tool has an idempotency key; decorate it with @tool")
    return Spec(
        name=called,
        kind=kind,
        fn=fn,
        signature=signature,
        is_async=is_async(fn) or inspect.isasyncgenfunction(getattr(fn, "func", fn)),
        is_method=on_object,
        retry=retry or ONCE,
        timeout_s=timeout_s,
        in_doubt=in_doubt or _default_doubt(check, signature),
        check=check,
        undo=undo,
        key_ttl_s=key_ttl_s,
        approve=bool(approve),
        streams=streams,
        version=version,
        upcast=upcast,
        undo_when=undo_when,
        redact=_parameters(called, signature, redact),
        ttl_s=ttl_s,
        invalidates=_invalidated(called, invalidates),
        parallel=bool(parallel),
        limit=None if limit is None else _limited(called, signature, limit),
    )


def _limited(called: str, signature: Signature, given: Any) -> Any:
    from holdfast.core.limits import must_be_limited  # most functions have none

    limited = must_be_limited(called, given)
    if limited is not None and isinstance(limited.key, str) and limited.key:
        _parameters(called, signature, [limited.key], "limit")
    return limited


def _invalidated(called: str, given: Any) -> tuple[str, ...]:
    """The names of reads that a tool makes untrue. A read that is given by name may be defined
    elsewhere, or later."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadInput(
            f"{called}: invalidates={given!r:.60} must be a list of @external functions or names"
        )
    return tuple(dict.fromkeys(_read_name(called, each) for each in given))


def _read_name(called: str, given: Any) -> str:
    if isinstance(given, str):
        return _name_of(None, "external", given)
    spec = getattr(given, "holdfast_spec", None)
    if isinstance(spec, Spec) and spec.kind == "external":
        return spec.name
    found = f"{spec.name} is a {spec.kind}" if isinstance(spec, Spec) else f"{given!r:.60} is none"
    raise BadInput(f"{called}: invalidates=… lists @external functions or their names; {found}")


def _parameters(
    called: str, signature: Signature, redact: Any, option: str = "redact"
) -> frozenset[str]:
    if isinstance(redact, str) or not isinstance(redact, Iterable):
        raise BadInput(f"{called}: {option}={redact!r:.60} must be a list of parameters")
    named = frozenset(redact)
    unknown = sorted(map(repr, named.difference(signature.names)))
    if unknown and not signature.entries:
        raise BadInput(f"{called}: {option}=… names {unknown[0]}, and it has no such parameter")
    return named


def _name_of(fn: Callable[..., Any] | None, kind: FunctionKind, name: Any) -> str:
    own = getattr(fn, "func", fn)  # of a functools.partial
    called = name if name is not None else getattr(own, "__name__", "")
    if not isinstance(called, str):
        raise BadInput(f"{called!r:.60} can't name a {kind}: a name is text")
    if not called and name is None:
        raise BadInput(f'{fn!r:.60} has no name of its own: {kind}(name="…")(…)')
    if not called or any(c in called for c in ":.\n "):
        raise BadInput(f"{called!r} can't name a {kind}: no spaces, dots or colons")
    return called


def _must_suit(
    called: str, fn: Any, check: Any, in_doubt: Doubt | None, key_ttl_s: float | None
) -> None:
    """Refuse a `check` that does not fit the policy, or the tool."""
    _must_take(called, "check", check, "key")
    if in_doubt == "check" and check is None:
        raise BadInput(f'{called}: in_doubt="check" needs a check=, a function of the key')
    if check is None:
        return
    if in_doubt == "ask" or (in_doubt == "retry" and key_ttl_s is None):
        raise BadInput(
            f"{called}: a check= implies in_doubt='check', not {in_doubt!r} (but 'retry' with a "
            f"key_ttl_s= is retried while the key is young, and checked after that)"
        )
    if is_async(check) and not is_async(fn):
        raise BadInput(f"{called}: an async check= needs an async tool")


def undo_of(spec: Spec) -> Spec:
    """The undo of a tool as a tool: it takes what the tool returned, and has a key of its own.

    Where the undo is a tool itself, its options count; else it is tried as often as the tool.
    """
    undo = spec.undo
    own = getattr(undo, "holdfast_spec", None)
    fn = own.fn if isinstance(own, Spec) else undo
    takes_key = _takes_key(fn)

    def call(result: Any, *, key: IdempotencyKey) -> Any:
        return fn(result, key=key) if takes_key else fn(result)  # type: ignore[misc]

    async def acall(result: Any, *, key: IdempotencyKey) -> Any:
        return await (fn(result, key=key) if takes_key else fn(result))  # type: ignore[misc]

    wrapped = acall if is_async(fn) else call
    returns = spec.signature.returns.annotation
    wrapped.__annotations__ = {"result": returns, "key": IdempotencyKey}
    made = make_spec(wrapped, "tool", name=f"undo_{spec.name}")
    options = own if isinstance(own, Spec) else spec
    default: Doubt = "retry" if takes_key else "ask"
    return replace(
        made,
        retry=options.retry,
        timeout_s=options.timeout_s,
        in_doubt=own.in_doubt if isinstance(own, Spec) else default,
        check=own.check if isinstance(own, Spec) else None,
        approve=own.approve if isinstance(own, Spec) else False,
        # An undone change is as untrue as one that was made.
        invalidates=tuple(dict.fromkeys((*spec.invalidates, *options.invalidates))),
    )


def _takes_key(fn: Any) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _must_take(called: str, option: str, fn: Any, what: str) -> None:
    if fn is None:
        return
    if not callable(fn):
        raise BadInput(f"{called}: {option}={fn!r:.60} must be a function of the {what}")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins don't tell
        return
    if not any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters):
        raise BadInput(f"{called}: {option}= must be a function of the {what}, and takes nothing")


def _default_doubt(check: Callable[..., Any] | None, signature: Signature) -> Doubt:
    # A tool that takes the key hands it to a receiver that knows what it is for, so repeating is
    # safe. Any other tool might send the mail twice: rather stop and ask.
    if check is not None:
        return "check"
    return "retry" if signature.injected else "ask"
