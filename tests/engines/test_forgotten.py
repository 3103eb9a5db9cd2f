"""An engine that lost what it knew asks for what was done long ago: nothing is done again."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, ask, checkpoint, restore, step, task
from holdfast.core.spec import registry
from holdfast.engines.remote.attempt import attempt
from holdfast.engines.remote.host import Host
from holdfast.errors import Unanswered

made: list[int] = []


@step(name="forgotten_mark")
def mark(number: int) -> int:
    made.append(number)
    return number


@task(name="forgotten_walk")
def walk(stages: int, asks: bool) -> int:
    done = restore(0)
    while done < stages:
        done = checkpoint(mark(done + 1))
    if asks:
        ask("On?", bool)
    return done


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("path", ["1", "@1.1"])
def test_a_call_from_before_a_checkpoint_is_not_made_again(tmp_path, asks, path):
    made.clear()
    with Holdfast(tmp_path / "w") as hf:
        if asks:
            with pytest.raises(Unanswered):
                hf.run(walk, 3, True, id="w")
        else:
            hf.run(walk, 3, False, id="w")
        before = hf.task("w").state.seq
        host = Host(hf._driving, "")
        try:
            data = b'{"number":%d}' % (1 if path == "1" else 2)
            assert attempt(host, "w", path, registry.call("forgotten_mark"), data) is None
        finally:
            host.close()
        calls = [e for e in hf.task("w").state.trail if e.seq > before and hasattr(e, "path")]
    assert made == [1, 2, 3]
    assert calls == []
