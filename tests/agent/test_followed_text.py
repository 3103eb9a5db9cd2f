"""The text of an agent's model can be followed as it comes, from anywhere, without more events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from holdfast import Holdfast, Redact, StreamPart, tool
from holdfast.agent import Orchestrator, Reply, Request, assistant
from holdfast.agent.adapters import AnthropicMessages, ModelBusy, OpenAIChat, OpenAIResponses
from holdfast.log.parts import page_names
from holdfast.log.reading import stream_of
from holdfast.testing import ScriptedModel
from tests.agent.talking import calls, fails, make, talk
from tests.flavors import BOUND_S, Crash

PIECES = ["On ", "Mon", "day."]
ANSWER = "".join(PIECES)


class Talker:
    """A model that says a piece, and waits until somebody has heard it."""

    def __init__(self, *said: Any, whole: str = ANSWER) -> None:
        self.said = list(said) or list(PIECES)
        self.whole = whole
        self.heard = threading.Semaphore(0)
        self.waits = True

    def __call__(self, request: Request) -> Reply:
        assert request.on_text is not None
        while self.said:
            piece = self.said.pop(0)
            if isinstance(piece, BaseException):
                raise piece
            request.on_text(piece)
            if self.waits:
                assert self.heard.acquire(timeout=BOUND_S)
        return Reply(assistant(self.whole))


class Reader:
    """What somebody who follows the text has in the end."""

    def __init__(self) -> None:
        self.text = ""
        self.parts: list[StreamPart] = []

    def take(self, part: StreamPart) -> None:
        self.parts.append(part)
        self.text = "" if part.begins_anew else self.text + part.value


def another(hf: Holdfast) -> Holdfast:
    """The same store, opened once more."""
    is_shared = hf.store.url.startswith("memory")
    return Holdfast(hf.store if is_shared else hf.store.url, sync=False)


def driven(hf: Holdfast, agent: Orchestrator) -> threading.Thread:
    def drive() -> None:
        with another(hf) as other:
            talk(other, agent)

    driver = threading.Thread(target=drive)
    driver.start()
    return driver


def named(agent: Orchestrator) -> str:
    return f"{agent.name}_model"


pytestmark = pytest.mark.holdfast(
    "memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/a.db", sync=False
)


def following(hf: Holdfast, agent: Orchestrator, **options: Any) -> Any:
    return hf.stream("t1", named(agent), poll_s=0.01, **options)


def started(hf: Holdfast, agent: Orchestrator) -> None:
    hf.session("s1", user="ada").start(agent.task, "Go.", id="t1")


def test_the_text_comes_in_pieces_and_a_reader_can_come_back_while_it_does_and_after(hf):
    model = Talker()
    agent = make(model)
    started(hf, agent)
    driver = driven(hf, agent)
    reader = Reader()
    for part in islice(following(hf, agent), 1):
        reader.take(part)
    assert reader.text == "On "
    model.heard.release()
    for part in islice(following(hf, agent, after=reader.parts[-1].id), 1):
        reader.take(part)
    assert reader.text == "On Mon"
    model.waits = False
    model.heard.release()
    driver.join(BOUND_S)
    back = reader.parts[-1].id
    assert [(p.number, p.value) for p in following(hf, agent, after=back)] == [(3, "day.")]
    (whole,) = following(hf, agent)
    assert (whole.number, whole.value) == (1, ANSWER)
    assert list(following(hf, agent, after=whole.id)) == []
    anew, again = following(hf, agent, after=2)
    assert anew.begins_anew and again.value == ANSWER, "how long two pieces were nobody knows"
    assert page_names(hf.store, stream_of("t1")) == []


def test_a_piece_is_no_event(hf):
    counts = []
    for pieces in (["all at once"], ["in ", "very ", "many ", "pieces"]):
        model = Talker(*pieces, whole="".join(pieces))
        model.waits = False
        id = f"t{len(counts)}"
        talk(hf, make(model), id=id)
        counts.append(len(list(hf.task(id).events())))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        (["On ", ModelBusy("broken"), "It is ", "on Monday."], "It is on Monday."),
        (["\n\n", "On Monday."], "On Monday."),
        (["On "], "Tomorrow."),
        ([], ANSWER),
    ],
)
def test_whatever_came_the_reader_ends_with_what_is_recorded(hf, said, whole):
    model = Talker(*said, whole=whole)
    agent = make(model)
    if not said:
        model.said = []
    started(hf, agent)
    driver = driven(hf, agent)
    reader = Reader()
    for part in following(hf, agent):
        reader.take(part)
        model.heard.release()
    driver.join(BOUND_S)
    assert reader.text == whole == hf.task("t1").result["answer"]
    if said:
        assert reader.parts[0].value == said[0], "it was told while the model talked"


def test_after_a_crash_the_text_begins_anew(hf):
    model = Talker("On ", Crash("in the model"), "Late ", "on Monday.", whole="Late on Monday.")
    agent = make(model)
    model.waits = False
    with pytest.raises(Crash):
        talk(hf, agent)
    with another(hf) as again:
        talk(again, agent)
        assert "".join(p.value for p in following(again, agent)) == "Late on Monday."
        first, *_ = following(again, agent, after="10-1-1-3")
        assert first.begins_anew


def test_a_model_that_fails_for_good_breaks_the_text(hf):
    model = Talker("On ", ModelBusy("1"), ModelBusy("2"), ModelBusy("3"), ModelBusy("4"))
    model.waits = False
    agent = make(model)
    assert "can't be called" in fails(hf, agent)
    with pytest.raises(Exception, match="ModelBusy"):
        list(following(hf, agent))


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hf", ["memory://"], indirect=True)
def test_the_adapters_tell_it_over_http(hf, kind, is_async):
    clients: dict[Any, Callable[..., Any]] = {
        (AnthropicMessages, False): Anthropic,
        (AnthropicMessages, True): AsyncAnthropic,
    }
    client = clients.get((kind, is_async), AsyncOpenAI if is_async else OpenAI)
    told: list[str] = []
    with ScriptedModel([assistant("One, two, three, four.")]) as server:
        opened = client(api_key="any", base_url=server.url)
        model = kind(opened, "any", stream=True)
        request = Request((assistant("Hm."),), on_text=told.append)
        reply = model(request)
        if is_async:
            reply = asyncio.run(_awaited(reply))
    assert "".join(told) == reply.message.text == "One, two, three, four."
    assert len(told) > 1


async def _awaited(reply: Any) -> Any:
    return await reply


@pytest.mark.parametrize("hf", ["memory://"], indirect=True)
def test_an_agent_over_http_is_followed_through_its_turns(hf):
    @tool(name="looks_for_text", in_doubt="retry")
    def looks_for_text() -> str:
        return "found"

    said = [calls(("looks_for_text", "{}"), text="Let me look."), "Here it is."]
    with (
        ScriptedModel(said) as server,
        OpenAI(api_key="any", base_url=server.url) as client,
    ):
        agent = make(OpenAIChat(client, "any", stream=True), [looks_for_text])
        talk(hf, agent)
    paths = [call.path for call in hf.task("t1").calls if call.name == named(agent)]
    texts = ["".join(p.value for p in hf.stream("t1", path)) for path in paths]
    assert texts == ["Let me look.", "Here it is."]


def test_a_secret_that_comes_in_two_pieces_is_not_beside_the_log(tmp_path):
    secret = "sk-proj-" + "a1B2c3D4" * 5
    model = Talker("It is ", secret[:12], secret[12:], whole="It is nothing.")
    agent = make(model)
    redact = Redact(refuse=True, patterns=[r"sk-proj-[A-Za-z0-9]{30,}"])
    with Holdfast(tmp_path / "w", redact=redact, sync=False) as hf:
        started(hf, agent)

        def drive() -> None:
            with Holdfast(tmp_path / "w", redact=redact, sync=False) as other:
                talk(other, agent)

        driver = threading.Thread(target=drive)
        driver.start()
        reader = Reader()
        for part in following(hf, agent):
            reader.take(part)
            assert secret not in reader.text
            for _ in range(3):
                model.heard.release()
        driver.join(BOUND_S)
    assert reader.text == "It is nothing."
