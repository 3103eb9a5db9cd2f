"""Calls of an MCP server's tools as durable tasks: with the SDK's own client, in one process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitResult
from pydantic import BaseModel

from holdfast import BadInput, Holdfast, ask, gather, progress, step, task, tool
from holdfast.integrations.mcp import KEY, DurableTasks, TaskFollower, durable
from holdfast.integrations.mcp import tasks as tasks_module

done: list[str] = []


class Room(BaseModel):
    name: str
    beds: int = 1
    view: Literal["sea", "yard"] = "yard"


@dataclass
class Trip:
    city: str
    rooms: list[Room]


@pytest.fixture(autouse=True)
def nothing_was_done():
    done.clear()


def cancel_booking(result: str, *, key: str) -> None:
    done.append(f"cancelled {result}")


@tool(undo=cancel_booking, in_doubt="ask")
def book(city: str) -> str:
    done.append(f"booked {city}")
    return city


@tool(approve=True)
def pay(amount: int) -> str:
    done.append(f"paid {amount}")
    return f"paid {amount}"


@step
def look(city: str) -> str:
    return f"{city} Inn"


@task(name="mcp_find_room")
def find_room(city: str) -> str:
    return look(city)


def made(hf: Holdfast, **options) -> tuple[MCPServer, DurableTasks]:
    """A server with tools of each kind."""
    tasks = DurableTasks(hf, [find_room], poll_s=0.02)
    server = MCPServer("travel", extensions=[tasks], lifespan=tasks.lifespan)

    @server.tool()
    @durable(hf, **options)
    @task(name="mcp_choose_room")
    def choose_room(city: str) -> Room:
        return ask(f"Which room in {city}?", Room, id="room")

    @server.tool()
    @durable(hf)
    @task(name="mcp_book_room")
    def book_room(city: str) -> str:
        book(city)
        return "kept" if ask("Keep it?", bool) else "left"

    @server.tool()
    @durable(hf)
    @task(name="mcp_pay_room")
    def pay_room(amount: int) -> str:
        return pay(amount)

    @server.tool()
    @durable(hf)
    @task(name="mcp_fail")
    def fail(how: str) -> str:
        progress("fails soon", done=1, total=2)
        if how == "tool":
            raise ToolError("no room left")
        if how == "protocol":
            raise MCPError(-32603, "the protocol broke")
        raise ValueError("a secret of the server")

    return server, tasks


@asynccontextmanager
async def client_of(server: MCPServer, *extensions, **options):
    async with Client(server, extensions=list(extensions), **options) as client:
        yield client


def text(result) -> str:
    return result.content[0].text


async def accepts(key, request):
    asked.append(request["params"])
    return {"action": "accept", "content": {"name": "Attic", "beds": 2, "view": "sea"}}


asked: list[Any] = []


def test_a_call_becomes_a_task_and_its_client_gets_the_result(hf):
    seen = []

    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower(on_task=seen.append)) as client:
            return await client.call_tool("mcp_find_room", {"city": "Oslo"})

    result = asyncio.run(main())
    assert text(result) == "Oslo Inn" and result.structured_content == {"result": "Oslo Inn"}
    (handle,) = seen
    view = hf.task(handle.task_id)
    assert (view.type, view.status, view.result) == ("mcp_find_room", "completed", "Oslo Inn")


def test_a_client_that_does_not_know_about_tasks_gets_the_result_itself(hf):
    async def main():
        server, _ = made(hf)
        async with client_of(server) as client:
            return await client.call_tool("mcp_find_room", {"city": "Oslo"})

    assert text(asyncio.run(main())) == "Oslo Inn"
    assert [view.status for view in hf.tasks(type="mcp_find_room")] == ["completed"]


def test_arguments_that_do_not_fit_are_refused_before_there_is_a_task(hf):
    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower()) as client:
            return await client.call_tool("pay_room", {"amount": "much"})

    result = asyncio.run(main())
    assert result.is_error and "amount" in text(result)
    assert hf.tasks() == []


def test_a_question_is_a_form_with_the_schema_of_its_answer(hf):
    asked.clear()

    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower(accepts)) as client:
            return await client.call_tool("choose_room", {"city": "Oslo"})

    result = asyncio.run(main())
    assert result.structured_content == {"name": "Attic", "beds": 2, "view": "sea"}
    (params,) = asked
    assert params["message"] == "Which room in Oslo?" and params["mode"] == "form"
    fields = params["requestedSchema"]["properties"]
    assert {name: field["type"] for name, field in fields.items()} == {
        "name": "string",
        "beds": "integer",
        "view": "string",
    }
    assert fields["view"]["enum"] == ["sea", "yard"]
    assert params["requestedSchema"]["required"] == ["name"]


def test_a_client_without_tasks_is_asked_by_way_of_its_call(hf):
    async def elicited(context, params):
        return ElicitResult(action="accept", content={"name": "Cellar"})

    async def main():
        server, _ = made(hf)
        async with client_of(server, elicitation_callback=elicited) as client:
            return await client.call_tool("choose_room", {"city": "Oslo"})

    assert asyncio.run(main()).structured_content["name"] == "Cellar"
    assert len(hf.tasks(type="mcp_choose_room")) == 1


def test_an_approval_is_asked_of_the_client_and_a_no_is_a_no(hf):
    async def declines(key, request):
        assert "May it call pay" in request["params"]["message"]
        return {"action": "decline"}

    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower(declines)) as client:
            return await client.call_tool("pay_room", {"amount": 7})

    assert asyncio.run(main()).is_error
    assert done == []


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(hf):
    given = [{"action": "accept", "content": {"answer": "perhaps"}}, {"nothing": 1}]

    async def main():
        server, _ = made(hf)
        handles = []
        following = TaskFollower(never, on_task=handles.append)
        async with client_of(server, following) as client:
            calling = asyncio.create_task(client.call_tool("book_room", {"city": "Oslo"}))
            view = await asked_by(hf, handles)
            (key,) = (tasks_module.key_of(question) for question in view.questions)
            for response in given:
                with pytest.raises(MCPError) as refused:
                    await update(client, view.id, {key: response})
                assert refused.value.code == -32602
            await update(client, view.id, {"unknown@9": given[0]})
            assert hf.task(view.id).questions
            await update(client, view.id, {key: {"action": "accept", "content": {"answer": True}}})
            await update(client, view.id, {key: {"action": "accept", "content": {"answer": False}}})
            calling.cancel()
            return await TaskFollower().follow(client.session, view.id)

    assert text(asyncio.run(main())) == "kept"


async def never(key, request):
    await asyncio.sleep(600)


async def update(client, id, responses):
    from holdfast.integrations.mcp import following

    params = following._Params(task_id=id, input_responses=responses)
    await following._ask(client.session, "tasks/update", params, following._Done)


async def asked_by(hf, handles):
    async with asyncio.timeout(60):
        while not handles or not hf.task(handles[0].task_id).questions:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return hf.task(handles[0].task_id)


def test_cancelling_ends_the_task_and_undoes_what_it_did(hf):
    async def main():
        server, _ = made(hf)
        handles = []

        following = TaskFollower(never, on_task=handles.append)
        async with client_of(server, following) as client:
            calling = asyncio.create_task(client.call_tool("book_room", {"city": "Oslo"}))
            view = await asked_by(hf, handles)
            await following.cancel(client.session, view.id)
            with pytest.raises(MCPError, match="was cancelled"):
                await TaskFollower().follow(client.session, view.id)
            await following.cancel(client.session, view.id)
            calling.cancel()
            await asyncio.wait([calling])
            return view.id

    id = asyncio.run(main())
    view = hf.task(id)
    assert view.status == "cancelled" and done == ["booked Oslo", "cancelled Oslo"]


def test_an_error_of_a_tool_is_its_result_and_a_crash_tells_nothing(hf):
    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower()) as client:
            anticipated = await client.call_tool("fail", {"how": "tool"})
            crash = await client.call_tool("fail", {"how": "crash"})
            with pytest.raises(MCPError, match="the protocol broke"):
                await client.call_tool("fail", {"how": "protocol"})
            return anticipated, crash

    anticipated, crash = asyncio.run(main())
    assert anticipated.is_error and "no room left" in text(anticipated)
    assert crash.is_error and text(crash) == "Error executing tool fail"


def test_calls_with_one_key_are_one_task(hf):
    async def main():
        server, _ = made(hf)
        async with client_of(server, TaskFollower()) as client:
            for city in ("Oslo", "Oslo"):
                await client.call_tool("mcp_find_room", {"city": city}, meta={KEY: "trip-1"})
            with pytest.raises(MCPError, match="other arguments"):
                await client.call_tool("mcp_find_room", {"city": "Rome"}, meta={KEY: "trip-1"})
            await client.call_tool("mcp_find_room", {"city": "Rome"}, meta={KEY: "trip-2"})

    asyncio.run(main())
    assert len(hf.tasks(type="mcp_find_room")) == 2


def test_a_task_is_known_to_the_user_who_made_it_and_to_nobody_else(hf, monkeypatch):
    hf.run(find_room, "Rome", id="not-by-mcp")

    async def main():
        server, _ = made(hf)
        handles = []
        async with client_of(server, TaskFollower(on_task=handles.append)) as client:
            monkeypatch.setattr(tasks_module, "_user", lambda: "ada")
            await client.call_tool("mcp_find_room", {"city": "Oslo"})
            monkeypatch.setattr(tasks_module, "_user", lambda: "bob")
            for id in (handles[0].task_id, "not-by-mcp", "mcp-0", "../etc", ""):
                with pytest.raises(MCPError, match="task not found"):
                    await TaskFollower().follow(client.session, id)

    asyncio.run(main())


def test_a_task_can_be_asked_after_until_its_ttl_is_over():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    async def main(hf):
        tasks = DurableTasks(hf, [find_room])
        labels = {"mcp.tool": "x", "mcp.ttl_ms": "60000"}
        id = hf.options(labels=labels).start(find_room, "Oslo").id
        assert (await tasks._find(id)).id == id
        now[0] += timedelta(seconds=61)
        with pytest.raises(MCPError, match="has expired"):
            await tasks._find(id)

    with Holdfast("memory://", clock=lambda: now[0]) as hf:
        asyncio.run(main(hf))


def test_a_durable_tool_takes_no_context_and_needs_somebody_who_drives(hf):
    with pytest.raises(BadInput, match="Context"):

        @durable(hf)
        def with_context(ctx: Context) -> str:
            return ""

    with pytest.raises(BadInput, match="ttl_s"):
        durable(hf, ttl_s=0)
    with pytest.raises(BadInput, match="poll_s"):
        DurableTasks(hf, poll_s=0)

    async def main():
        server = MCPServer("idle", extensions=[DurableTasks(hf, [find_room])])
        async with client_of(server, TaskFollower()) as client:
            with pytest.raises(MCPError, match=r"lifespan=tasks\.lifespan"):
                await client.call_tool("mcp_find_room", {"city": "Oslo"})

    asyncio.run(main())


def test_outside_of_a_server_a_durable_tool_is_a_run_of_its_task(hf):
    assert asyncio.run(durable(hf)(find_room)("Oslo")) == "Oslo Inn"
    assert [view.type for view in hf.tasks()] == ["mcp_find_room"]


def test_two_questions_at_once_are_answered_one_by_one(hf):
    @task(name="mcp_two")
    def two() -> tuple[int, int]:
        return gather(lambda: ask("One?", int, id="one"), lambda: ask("Two?", int, id="two"))

    async def counts(key, request):
        asked.append(key)
        return {"action": "accept", "content": {"answer": len(asked)}}

    async def main():
        asked.clear()
        tasks = DurableTasks(hf, [two], poll_s=0.02)
        server = MCPServer("two", extensions=[tasks], lifespan=tasks.lifespan)
        async with client_of(server, TaskFollower(counts)) as client:
            return await client.call_tool("mcp_two", {})

    assert sorted(asyncio.run(main()).structured_content["result"]) == [1, 2]
    assert len(set(asked)) == 2
