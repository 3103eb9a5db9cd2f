"""A `Secret` can be used, and is never shown or written; by its name it can be kept as well."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import pickle
import typing
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import attrs
import msgspec
import pydantic
import pytest

from holdfast import (
    BadInput,
    Happened,
    Holdfast,
    HoldsSecret,
    Retry,
    Secret,
    StepFailed,
    TaskFailed,
    Undecodable,
    Unserializable,
    ask,
    checkpoint,
    decide,
    each,
    note,
    restore,
    start,
    step,
    task,
    tool,
)
from holdfast.cli.arguments import arguments_of
from holdfast.codec import Signature, secret, shape_of
from holdfast.codec.scalars import Misfit
from holdfast.codec.secrets import must_be_secret
from tests.flavors import Crash

VALUE = "zq7-tulip-4419-harbour"


@dataclass
class Login:
    user: str
    key: Secret


class Struct(msgspec.Struct):
    key: Secret


@attrs.define
class Attrs:
    key: Secret


class Model(pydantic.BaseModel):
    key: Secret


class Typed(TypedDict):
    key: Secret


# The type itself


@pytest.mark.parametrize(
    "shown",
    [
        repr,
        str,
        ascii,
        "{}".format,
        "{!r:>40}".format,
        lambda s: f"{s}",
        lambda s: f"{s:>30}",
        lambda s: "%s %r" % (s, s),  # noqa: UP031
        lambda s: repr([s, {s: s}, (s,), {s}]),
        lambda s: repr(Login("ada", s)),
        lambda s: repr(Struct(s)),
        lambda s: repr(Attrs(s)),
        lambda s: repr(Model(key=s)),
        lambda s: Model(key=s).model_dump_json(),
        lambda s: json.dumps({"k": s}, default=str),
        lambda s: str(dataclasses.asdict(Login("ada", s))),
        lambda s: msgspec.json.encode([s], enc_hook=repr).decode(),
        lambda s: str(ValueError(s)),
        lambda s: repr(vars(type(s))) + str(getattr(s, "__dict__", "")),
    ],
)
def test_no_way_of_showing_a_secret_shows_its_value(shown):
    assert VALUE not in shown(Secret(VALUE))


def test_only_reveal_gives_the_value() -> None:
    assert Secret(VALUE).reveal() == VALUE
    assert_type(Secret(VALUE).reveal(), str)


@pytest.mark.parametrize(
    "encode",
    [json.dumps, msgspec.json.encode, msgspec.msgpack.encode, pickle.dumps, list, len, int],
)
def test_encoders_refuse_a_secret(encode):
    with pytest.raises(TypeError):
        encode(Secret(VALUE))


def test_copies_are_the_secret_itself():
    secret = Secret(VALUE)
    assert copy.copy(secret) is secret and copy.deepcopy([secret])[0] is secret


def test_a_named_secret_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(Secret.named("ZQ_KEY"))) == Secret.named("ZQ_KEY")


def test_secrets_are_compared_with_secrets_only():
    assert Secret("aé\ud800") == Secret("aé\ud800") != Secret("b")
    assert Secret(VALUE) != VALUE
    assert Secret.named("A") == Secret.named("A") != Secret.named("B")
    assert Secret("") != Secret.named("A")
    assert len({Secret(VALUE), Secret(VALUE), Secret.named("A")}) == 2


def test_a_secret_can_not_be_changed_or_subclassed():
    with pytest.raises(AttributeError):
        Secret(VALUE)._value = "other"
    with pytest.raises(AttributeError):
        del Secret(VALUE)._value
    with pytest.raises(TypeError, match="subclassed"):
        type("Loud", (Secret,), {"__repr__": lambda self: self.reveal()})


@pytest.mark.parametrize("value", [None, b"bytes", 5, ["a"]])
def test_a_secret_holds_a_text(value):
    with pytest.raises(BadInput, match="holds a text"):
        Secret(value)


@pytest.mark.parametrize("name", ["", 5, None, "a\nb", "x" * 256, "sk-abc123def456ghi789"])
def test_what_is_no_name_is_refused_without_being_shown(name):
    with pytest.raises(BadInput) as refused:
        Secret.named(name)
    assert not isinstance(name, str) or len(name) < 4 or name not in str(refused.value)


def test_pydantic_takes_a_text_for_a_secret_and_refuses_the_rest():
    assert Model.model_validate({"key": VALUE}).key == Secret(VALUE)
    with pytest.raises(pydantic.ValidationError):
        Model.model_validate({"key": 5})


def test_type_checkers_see_a_secret() -> None:
    assert_type(Secret("a"), Secret)
    assert_type(Secret.named("A"), Secret)
    assert_type(Secret.named("A").name, str)
    assert_type(Login("ada", Secret("a")).key, Secret)

    @step(name="typed_secret")
    def typed(key: Secret) -> int:
        return len(key.reveal())

    assert_type(typed(Secret("a")), int)
    typed("a") if typing.TYPE_CHECKING else None  # type: ignore[arg-type]
    Secret(b"a") if typing.TYPE_CHECKING else None  # type: ignore[arg-type]


# Through the codec


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Secret, Secret.named("K")),
        (Secret | None, None),
        (Any, {"deep": [({"a": Secret.named("K")},)]}),
        (dict[str, list[Secret]], {"a": [Secret.named("K")]}),
        (dict[Secret, int], {Secret.named("K"): 1}),
        (set[Secret], {Secret.named("K"), Secret.named("L")}),
        (Login, Login("ada", Secret.named("K"))),
        (list[Login | None], [Login("ada", Secret.named("K")), None]),
        (Struct, Struct(Secret.named("K"))),
        (Attrs, Attrs(Secret.named("K"))),
        (Model, Model(key=Secret.named("K"))),
        (Typed, Typed(key=Secret.named("K"))),
    ],
)
def test_a_named_secret_comes_back_by_its_name(annotation, value):
    data, settled = shape_of(annotation).settle(value)
    assert settled == value
    assert b"$secret" in data or value is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Secret, Secret(VALUE)),
        (Any, [{"a": (Secret(VALUE),)}]),
        (Any, {Secret(VALUE): 1}),
        (Any, {Secret(VALUE)}),
        (Login, Login("ada", Secret(VALUE))),
        (Struct, Struct(Secret(VALUE))),
        (Attrs, Attrs(Secret(VALUE))),
        (Model, Model(key=Secret(VALUE))),
        (str, Secret(VALUE)),
        (list[str], [Secret(VALUE)]),
    ],
)
def test_a_secret_by_value_is_refused_by_the_codec(annotation, value):
    with pytest.raises(Unserializable) as refused:
        shape_of(annotation).settle(value)
    assert VALUE not in str(refused.value)


def test_the_refusal_says_where_and_what_to_do():
    with pytest.raises(HoldsSecret, match=r"a Secret at \.deep\[1\].*Secret\.named"):
        shape_of(Any).settle({"deep": [1, Secret(VALUE)]})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Secret, VALUE),
        (Secret | None, VALUE),
        (list[Secret], [VALUE]),
        (tuple[int, Secret], (1, VALUE)),
        (dict[str, Secret], {"a": VALUE}),
        (dict[Secret, int], {VALUE: 1}),
        (Login, Login("ada", VALUE)),  # type: ignore[arg-type]
        (Login | None, Login("ada", VALUE)),  # type: ignore[arg-type]
        (list[Struct], [Struct(VALUE)]),  # type: ignore[arg-type]
        (Typed, {"key": VALUE}),
        (dict[str, Login], {"a": Login("ada", VALUE)}),  # type: ignore[arg-type]
    ],
)
def test_a_plain_text_is_refused_where_the_annotation_says_secret(annotation, value):
    with pytest.raises(Unserializable, match="expected a Secret") as refused:
        shape_of(annotation).dump(value)
    assert VALUE not in str(refused.value)


NAMED = Secret.named("N")


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize(
    ("annotation", "items", "where"),
    [
        (tuple[Secret, Any], (NAMED, VALUE), None),
        (tuple[Any, Secret], (VALUE, NAMED), None),
        (tuple[Secret, Any], (VALUE, 1), "[0]"),
        (tuple[Any, Secret], (VALUE, VALUE), "[1]"),
        (tuple[Secret, Any], (NAMED,), None),
        (tuple[Secret, Any], (NAMED, 1, VALUE), None),  # too long, which is for others to say
        (tuple[Secret, Any], (), None),
        (tuple[Secret, ...], (NAMED, NAMED, VALUE), "[2]"),
        (tuple[Any, ...], (VALUE, VALUE), None),
        (tuple[Secret], (NAMED, VALUE), None),
        (list[Secret], (NAMED, VALUE), "[1]"),
        (list[tuple[Secret, Any]], ((NAMED, 1), (VALUE, 1)), "[1][0]"),
        (list[tuple[Secret, Any]], ([NAMED, 1], [VALUE, 1]), "[1][0]"),
    ],
)
def test_each_place_of_a_tuple_is_looked_at_by_its_own_annotation(annotation, items, where, kind):
    """Whatever stands there: a list in the place of a tuple comes from JSON."""
    if where is None:
        must_be_secret(annotation, kind(items))
        return
    with pytest.raises(Misfit) as refused:
        must_be_secret(annotation, kind(items))
    assert f"at {where}" in str(refused.value)


def test_either_a_secret_or_a_text_may_be_annotated():
    assert shape_of(Secret | str).settle("plain")[1] == "plain"


def test_arguments_keep_secrets_beside_their_bytes():
    def call(a, b: Login, *more: Any, **options: Any) -> None: ...

    signature = Signature.of(call)
    given = (Secret("one-one"), Login("ada", Secret("two-two")), [Secret("three-three")])
    data = signature.dump_call(given, {"k": {Secret("four-four"): Secret.named("N")}})
    args, kwargs = signature.load(data)
    assert (args, kwargs) == (given, {"k": {Secret("four-four"): Secret.named("N")}})
    assert not any(part in data for part in (b"one-one", b"two-two", b"three", b"four"))
    with pytest.raises(HoldsSecret):
        signature.dump(given, {})


def test_only_so_many_values_are_remembered_and_the_latest_of_them(monkeypatch):
    monkeypatch.setattr(secret, "_known", {})
    monkeypatch.setattr(secret, "_MOST_KNOWN", 3)
    for value in ("first-one", "second-one", "third-one", "first-one", "fourth-one", "short"):
        secret.know(value)
    text = "first-one second-one third-one fourth-one short"
    assert secret.without_known(text) == "••• second-one ••• ••• short"


def test_secrets_in_a_set_of_arguments_are_refused():
    def call(a: set[Secret]) -> None: ...

    with pytest.raises(Unserializable, match="use a list"):
        Signature.of(call).dump_call(({Secret("one-one"), Secret("two-two")},), {})


def test_a_plain_text_in_the_data_is_no_secret():
    with pytest.raises(Undecodable, match="expected a Secret"):
        shape_of(list[Secret]).load(b'["plain"]')


@pytest.mark.parametrize("data", [b'{"key":{"$secret":0}}', b'{"key":{"$secret":true}}'])
def test_a_number_that_stands_for_no_secret_is_refused(data):
    def call(key: Secret) -> None: ...

    with pytest.raises(Exception, match="left out of the log"):
        Signature.of(call).load(data)


# In tasks


@step
def first_letters(key: Secret, login: Login) -> str:
    return key.reveal()[:2] + login.key.reveal()[:2]


def test_a_step_gets_the_value_on_every_run_and_the_log_never(tmp_path):
    crash = [True]

    @task(name="secret_args")
    def body() -> str:
        found = first_letters(Secret(VALUE), Login("ada", Secret("other-value")))
        if crash.pop():
            raise Crash
        return found

    crash.insert(0, False)
    with Holdfast(tmp_path) as hf, pytest.raises(Crash):
        hf.run(body, id="t")
    with Holdfast(tmp_path) as hf:
        assert hf.run(body, id="t") == "zqot"
    log = (tmp_path / "tasks/t/events.jsonl").read_bytes()
    assert b'{"key":{"$secret":0},"login":' in log and VALUE.encode() not in log


def test_another_value_of_a_secret_is_no_change_of_the_code():
    values, crashes = [VALUE, "rotated-since"], [True]

    @step(name="length_of_rotated")
    def length(key: Secret) -> int:
        return len(key.reveal())

    @task(name="rotating")
    def body() -> int:
        found = length(Secret(values.pop(0)))
        if crashes and crashes.pop():
            raise Crash
        return found

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        assert hf.run(body, id="t") == len(VALUE)
    assert values == []


def test_each_attempt_of_a_step_gets_the_secret():
    seen = []

    @tool(name="flaky_secret", in_doubt="retry", retry=Retry(delay_s=0))
    def flaky(keys: list[Secret]) -> None:
        seen.append(keys.pop().reveal())
        if len(seen) < 3:
            raise ValueError("again")

    @task(name="retries_secret")
    def body() -> None:
        flaky([Secret(VALUE)])

    with Holdfast("memory://") as hf:
        hf.run(body)
    assert seen == [VALUE] * 3


def test_each_and_streams_take_secrets():
    @step(name="spell_secret")
    def spell(key: Secret):
        yield from key.reveal()[:3]

    @step(name="length_of_secret")
    def length(key: Secret) -> int:
        return len(key.reveal())

    @task(name="spells")
    def body() -> Any:
        return [*spell(Secret(VALUE))], list(each(length, [Secret(VALUE), Secret("ab")]))

    with Holdfast("memory://") as hf:
        assert hf.run(body) == (["z", "q", "7"], [len(VALUE), 2])


def returns_secret():
    @step(name="returns_secret")
    def leak() -> Any:
        return {"key": Secret(VALUE)}

    return leak()


def yields_secret():
    @step(name="yields_secret")
    def leak():
        yield Secret(VALUE)

    return list(leak())


def checkpoints_secret():
    restore({"key": None})
    return checkpoint({"key": Secret(VALUE)})


def starts_child_with_secret():
    @task(name="child_with_secret")
    def child(key: Secret) -> None: ...

    return start(child, Secret(VALUE)).result()


@pytest.mark.parametrize(
    "leak",
    [
        returns_secret,
        yields_secret,
        checkpoints_secret,
        starts_child_with_secret,
        lambda: decide("key", Secret(VALUE)),
        lambda: Secret(VALUE),
    ],
)
def test_a_secret_that_would_have_to_be_read_back_is_refused(leak):
    @task(name="leaks_secret")
    def body() -> Any:
        return leak()

    with Holdfast("memory://") as hf:
        with pytest.raises(TaskFailed, match=r"Secret\.named") as failed:
            hf.run(body, id="t")
        assert VALUE not in str(failed.value)


def test_a_refused_result_is_a_step_failed_that_can_be_caught():
    @task(name="catches_refusal")
    def body() -> str:
        try:
            return str(returns_secret())
        except StepFailed as failed:
            return failed.failure.type

    with Holdfast("memory://") as hf:
        assert hf.run(body, id="t") == "HoldsSecret"


@task
def uses_named(key: Secret) -> str:
    note("using it", {"key": key})
    return use_named(key) + key.reveal()[:1]


@step
def use_named(key: Secret) -> str:
    return key.reveal()[:2]


def test_a_task_takes_a_secret_by_name_only(tmp_path, monkeypatch):
    monkeypatch.setenv("ZQ_KEY", VALUE)
    with Holdfast(tmp_path) as hf:
        with pytest.raises(HoldsSecret, match=r"uses_named\(key=…\).*Secret\.named"):
            hf.run(uses_named, Secret(VALUE), id="t")
        assert list(hf.tasks()) == []
        assert hf.run(uses_named, Secret.named("ZQ_KEY"), id="t") == "zqz"
        assert hf.run(uses_named, Secret.named("ZQ_KEY"), id="t") == "zqz"
    assert b'{"$secret":"ZQ_KEY"}' in (tmp_path / "tasks/t/events.jsonl").read_bytes()


def test_the_command_line_takes_the_name_of_a_secret():
    spec = uses_named.holdfast_spec
    args, _ = arguments_of(spec, ['{"$secret": "ZQ_KEY"}'], {})
    assert args == (Secret.named("ZQ_KEY"),)
    with pytest.raises(BadInput, match="a secret is given by its name") as refused:
        arguments_of(spec, [VALUE], {})
    assert VALUE not in str(refused.value)


def reveal() -> str:
    return Secret.named("ZQ_VAULT").reveal()


@step
def revealed_in_thread(n: int) -> str:
    return reveal()


@step(timeout_s=9)
def revealed_in_time() -> str:
    return reveal()


@step
async def revealed_on_loop() -> str:
    return reveal()


@tool(check=lambda key: Happened(reveal()))
def revealed_by_check() -> str:
    raise ValueError("did it happen?")


@task
def reveals() -> set[str]:
    return {reveal(), revealed_in_time(), *each(revealed_in_thread, [1, 2]), revealed_by_check()}


@task
async def reveals_on_loop() -> set[str]:
    items: Any = each(revealed_in_thread, [1, 2])
    return {reveal(), await revealed_on_loop(), *await items}


@pytest.mark.parametrize("body", [reveals, reveals_on_loop])
@pytest.mark.parametrize("secrets", [{"ZQ_VAULT": VALUE}, {"ZQ_VAULT": VALUE}.get])
def test_named_secrets_come_from_the_provider_everywhere_in_a_task(body, secrets, monkeypatch):
    monkeypatch.setenv("ZQ_VAULT", "that-of-the-environment")
    with Holdfast("memory://", secrets=secrets) as hf:
        assert hf.run(body) == {VALUE}
        with Holdfast("memory://") as inner:
            assert inner.run(body) == {"that-of-the-environment"}
    assert reveal() == "that-of-the-environment"
    monkeypatch.delenv("ZQ_VAULT")
    with pytest.raises(BadInput, match="set ZQ_VAULT in the environment"):
        reveal()


@pytest.mark.parametrize(
    ("secrets", "why"),
    [({}, "gave none"), (lambda name: None, "gave none"), ({"ZQ_ODD": 5}, "must be a text")],
)
def test_a_missing_secret_says_so(secrets, why):
    @step(name="needs_secret")
    def needs() -> str:
        return Secret.named("ZQ_ODD").reveal()

    @task(name="lacks_secret")
    def body() -> str:
        return needs()

    with (
        Holdfast("memory://", secrets=secrets) as hf,
        pytest.raises(TaskFailed, match=f"'ZQ_ODD'.*{why}"),
    ):
        hf.run(body)


def test_secrets_that_are_no_provider_are_refused_unseen():
    with pytest.raises(BadInput, match="not a str") as refused:
        Holdfast("memory://", secrets=VALUE)
    assert VALUE not in str(refused.value)


def test_a_person_is_not_asked_for_a_secret():
    @task(name="asks_secret")
    def body() -> Any:
        return ask("The key?", Secret)

    with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match="the name of the secret"):
        hf.run(body)


@step
def group_of_errors(key: Secret) -> None:
    raise ExceptionGroup("many", [ValueError("bad " + key.reveal())])


@step
def basic_auth(key: Secret, before: str) -> None:
    coded = base64.b64encode(f"{before}{key.reveal()}&more".encode()).decode()
    raise ValueError(f"refused: {coded}")


@task
def leaking(before: str) -> None:
    for call in (
        lambda: group_of_errors(Secret("first-line-4711\nsecond-line-4711\nthird-line-4711")),
        lambda: basic_auth(Secret("plain-secret-4711"), before),
    ):
        try:
            call()
        except StepFailed:
            continue


@pytest.mark.parametrize("before", ["", "a", "ad", "ada:"])
def test_a_secret_is_found_line_by_line_and_anywhere_in_base64(tmp_path, before):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(leaking, before, id="t")
    written = next(tmp_path.rglob("events.jsonl")).read_text()
    assert "-line-4711" not in written
    coded = base64.b64encode(f"{before}plain-secret-4711&more".encode()).decode()
    assert coded[8:20] not in written
