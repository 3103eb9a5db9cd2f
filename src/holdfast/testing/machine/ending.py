"""Rules of how a process ends: in peace, or killed. In its place another starts."""

from __future__ import annotations

from hypothesis.stateful import rule

from holdfast.testing.machine.story import Story, some_process


class Ending(Story):
    """What becomes of a process."""

    @rule(who=some_process)
    def close(self, who: int) -> None:
        """Close a store: everything is given back, and nothing is lost."""
        if who in self.processes:
            process = self.processes[who]
            process.real.close()
            process.model.close()
            for stream, known in self.ended(who):
                known.visible = len(self.root.lines(stream))
                known.last = known.owner = None

    @rule(who=some_process)
    def crash(self, who: int) -> None:
        """Kill a process: what it synced is there, and it holds nothing more."""
        if who in self.processes and self.crash_store is not None:
            process = self.processes[who]
            self.crash_store(process.real)
            if self.notices_death:
                process.model.close()
            for _, known in self.ended(who):
                known.visible = known.synced
                known.last = None
                known.has_crashed = known.has_old_facts = True
