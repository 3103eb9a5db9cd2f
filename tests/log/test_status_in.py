"""What a log is of says whether it has a status."""

from __future__ import annotations

from holdfast.core.conversation import Conversation
from holdfast.core.memories import Memories
from holdfast.core.state import State
from holdfast.log.states import status_in


def test_a_task_and_a_session_have_a_status_and_a_memory_has_none():
    assert status_in(State(status="paused")) == "paused"
    assert status_in(Conversation()) == Conversation().status != ""
    assert status_in(Memories()) == ""
