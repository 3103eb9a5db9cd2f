"""Tools of MCP servers as our tools: once, with their keys, whatever becomes of the server."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp import StdioServerParameters

from holdfast import BadInput, InDoubt, Retry, StepFailed, TaskFailed, Unanswered, gather, task
from holdfast.integrations.mcp_tools import MCPServerAway, MCPTools
from tests.agent.talking import AsyncModel, Model, calls, conversation, make, talk
from tests.flavors import BOUND_S, Crash

pytestmark = [pytest.mark.holdfast("memory://"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
QUICK = Retry(attempts=3, delay_s=0.001, jitter=0)


class Server:
    """A server, to be killed and started again; and the calls that it got."""

    def __init__(self, folder: Path, over: str) -> None:
        self.file = folder / "calls.jsonl"
        self.file.touch()
        self.over = over
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def target(self):
        if self.over == "http":
            return f"http://127.0.0.1:{self.port}/mcp"
        arguments = ["-m", "tests.integrations.mcp_bells", str(self.file)]
        return StdioServerParameters(command=sys.executable, args=arguments, cwd=str(ROOT))

    def start(self) -> None:
        if self.over != "http":
            return
        self.stop()
        command = [sys.executable, "-m", "tests.integrations.mcp_bells", str(self.file)]
        self.process = subprocess.Popen([*command, str(self.port)], cwd=ROOT, stderr=-3)
        give_up_at = time.monotonic() + BOUND_S
        while time.monotonic() < give_up_at:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def calls(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture(params=["stdio", "http"])
def over(request):
    return request.param


@pytest.fixture
def server(tmp_path, over):
    made = Server(tmp_path, over)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def tools_of(server):
    opened = []

    def make_tools(**options):
        opened.append(MCPTools(server.target, retry=QUICK, **options))
        return opened[-1]

    yield make_tools
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("model", "over"), [(Model, "stdio"), (AsyncModel, "http")], indirect=["over"]
)
def test_an_agent_calls_the_tools_of_a_server(hf, server, tools_of, model):
    asked = calls(
        ("ring", '{"who": "ada", "times": 2}'), ("bells", "{}"), ("fail", '{"why": "no"}')
    )
    said = model([asked, "Done."])
    assert talk(hf, make(said, [*tools_of()])).answer == "Done."
    infos = {info.name: info for info in said.requests[0].tools}
    assert infos["ring"].description == "Ring a bell for somebody."
    assert infos["ring"].parameters["required"] == ["who"]
    rang, listed, failed = (r for m in conversation(hf) for r in m.results)
    assert rang.content == "rang 2 times for ada" and "big" in listed.content
    assert failed.is_error and "no" in failed.content
    keys = {each["name"]: each["key"] for each in server.calls()}
    assert keys["ring"].startswith("t1:") and ":ring:" in keys["ring"]
    assert len(server.calls()) == 3, "what the server refuses is not asked again"


def calling(tools, name, arguments=None):
    """A task that makes one call, and one more before it."""
    found = {each.__name__: each for each in tools}

    @task(name="calls_mcp")
    def calls_mcp() -> str:
        found["bells"]({})
        return found[name](arguments or {}).for_model()

    return calls_mcp


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_a_recorded_call_is_not_made_again(hf, server, tools_of):
    run = calling(tools_of(), "ring", {"who": "ada"})
    assert hf.run(run, id="t") == hf.run(run, id="t") == "rang 1 times for ada"
    assert [each["name"] for each in server.calls()] == ["bells", "ring"]


def test_a_server_gone_in_a_call_that_may_be_repeated_is_asked_again_with_the_key(
    hf, server, tools_of, over
):
    run = calling(tools_of(), "die_once")
    if over == "http":
        with pytest.raises(TaskFailed, match="can't be reached"):
            hf.run(run, id="t")
        server.start()
        assert hf.retry("t") == "done at last"
    else:
        assert hf.run(run, id="t") == "done at last", "the client starts it again"
    first, second = (each for each in server.calls() if each["name"] == "die_once")
    assert first["key"] == second["key"]


def test_a_server_gone_in_a_call_that_may_not_be_repeated_leaves_it_in_doubt(
    hf, server, tools_of, over
):
    run = calling(tools_of(), "die_once_for_good")
    with pytest.raises(InDoubt) as doubt:
        hf.run(run, id="t")
    made = [each for each in server.calls() if each["name"] == "die_once_for_good"]
    assert len(made) == 1
    hf.resolve("t", doubt.value.path, happened=True, result={"text": "it did"})
    if over == "http":
        server.start()
    assert hf.run(run, id="t") == "it did"


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_an_answer_that_does_not_come_in_time_leaves_the_call_in_doubt(hf, tools_of):
    with pytest.raises(InDoubt):
        hf.run(calling(tools_of(timeout_s=5.0), "hang"), id="t")


@pytest.mark.parametrize("over", ["http"], indirect=True)
def test_a_server_that_ended_between_calls_is_connected_to_again(hf, server, tools_of):
    tools = tools_of()
    assert hf.run(calling(tools, "ring", {"who": "ada"}), id="t1")
    server.start()
    assert hf.run(calling(tools, "ring", {"who": "ada"}), id="t2")
    assert [each["name"] for each in server.calls()] == ["bells", "ring"] * 2


@pytest.mark.parametrize("over", ["http"], indirect=True)
def test_a_server_that_is_not_there_did_nothing_and_the_task_says_so(hf, server, tools_of):
    tools = tools_of()
    run = calling(tools, "ring", {"who": "ada"})
    server.stop()
    tools.close()
    with pytest.raises(TaskFailed, match="MCPServerAway"):
        hf.run(run, id="t")
    assert server.calls() == []
    server.start()
    assert hf.retry("t") == "rang 1 times for ada"
    with pytest.raises(MCPServerAway, match="can't be reached"):
        list(MCPTools("http://127.0.0.1:9/mcp"))


@pytest.mark.parametrize("over", ["http"], indirect=True)
def test_a_call_that_is_refused_says_nothing_of_one_that_is_under_way(hf, server, tools_of):
    tools = {each.__name__: each for each in tools_of()}

    def looks_late() -> str:
        while True:  # until the server takes no more
            try:
                socket.create_connection(("127.0.0.1", server.port)).close()
            except OSError:
                break
            time.sleep(0.01)
        try:
            return str(tools["bells"]({}).text)
        except StepFailed as error:
            return error.failure.type

    @task(name="rings_and_looks")
    def rings_and_looks() -> list[str]:
        return gather(lambda: tools["ring_last"]({}).text, looks_late)

    with pytest.raises(InDoubt, match="ring_last") as doubt:
        hf.run(rings_and_looks, id="t")
    assert [each["name"] for each in server.calls()] == ["ring_last"]
    hf.resolve("t", doubt.value.path, happened=True, result={"text": "it rang"})
    assert hf.run(rings_and_looks, id="t") == ["it rang", "MCPServerAway"]


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_the_annotations_decide_and_options_decide_otherwise(server, tools_of):
    connected = tools_of()

    def policies(**options):
        made = MCPTools(server.target, **options)
        made._line = connected._line
        return {
            each.__name__: (each.holdfast_spec.in_doubt, each.holdfast_spec.approve)
            for each in made
        }

    plain = policies()
    assert plain["bells"] == ("retry", False) and plain["die_once"] == ("retry", False)
    assert plain["ring"] == ("ask", False), "nothing is said, so it may do harm"
    asked = policies(approve_destructive=True)
    assert asked["ring"] == ("ask", True) and asked["die_once"] == ("retry", False)
    assert set(policies(trusted=False).values()) == {("ask", False)}
    own = policies(options={"ring": {"in_doubt": "retry", "approve": True}})
    assert own["ring"] == ("retry", True)
    assert list(policies(only=["ring"], prefix="bells_")) == ["bells_ring"]
    with pytest.raises(BadInput, match="no tool 'wring'"):
        policies(only=["wring"])


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_an_approval_comes_before_the_call(hf, server, tools_of):
    run = calling(tools_of(approve_destructive=True), "ring", {"who": "ada"})
    with pytest.raises(Unanswered, match="ring"):
        hf.run(run, id="t")
    assert [each["name"] for each in server.calls()] == ["bells"]
    hf.answer("t", True)
    assert hf.run(run, id="t") == "rang 1 times for ada"


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_parts_that_are_no_text_are_in_the_log_and_named_to_the_model(hf, server, tools_of):
    (picture,) = tools_of(only=["picture"])

    @task(name="sees_mcp")
    def sees_mcp() -> str:
        seen = picture({})
        assert seen.parts[0].data == "iVBORw=="
        return seen.for_model()

    assert hf.run(sees_mcp) == "a bell\n(image: image/png)"


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_a_model_is_shown_pictures(hf, server, tools_of):
    said = Model([calls(("picture", "{}")), "A bell."])
    assert talk(hf, make(said, [*tools_of(only=["picture"])])).answer == "A bell."
    text, media = said.requests[-1].messages[-1].results[0].content
    assert (text.text, media.kind, media.media_type) == ("a bell", "image", "image/png")
    assert said.requests[-1].load(media.artifact) == b"\x89PNG"


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_what_the_server_refuses_is_a_failure_of_the_call(hf, server, tools_of):
    tools = {each.__name__: each for each in tools_of()}

    @task(name="fails_mcp")
    def fails_mcp() -> str:
        try:
            tools["fail"]({"why": "no luck"})
        except StepFailed as failed:
            assert "no luck" in failed.failure.message
        try:
            tools["ring"]({"times": "x"})
        except StepFailed as failed:
            return failed.failure.type
        return ""

    assert hf.run(fails_mcp) == "MCPToolFailed"


@pytest.mark.parametrize("over", ["stdio"], indirect=True)
def test_a_call_whose_process_died_is_settled_by_its_policy(hf, server, tools_of, monkeypatch):
    tools = tools_of()
    run = calling(tools, "ring", {"who": "ada"})
    line = tools._line
    with monkeypatch.context() as dying:

        def dies(name, arguments, key, call=line.call):
            done = call(name, arguments, key)
            if name == "ring":
                raise Crash
            return done

        dying.setattr(line, "call", dies)
        with pytest.raises(Crash):
            hf.run(run, id="t")
    with pytest.raises(InDoubt):
        hf.run(run, id="t")
    assert [each["name"] for each in server.calls()].count("ring") == 1
