"""How long a lease is known to hold: a process can be frozen at any moment, and not know of it.

A lease that was confirmed less than its time ago can't have been taken over. An older one may have
been, by somebody who went on with the task: its next step was perhaps made meanwhile, and its
result is in the log. So before a body runs, a driver looks how old the last confirmation is, and
asks the store if it is too old. That look at the clock is all that it costs otherwise.

Others judge a lease by the time of day, and this process may be suspended: so the clock counts that
says the most. A look too many costs one question.
"""

from __future__ import annotations

from holdfast.engines.clocks import Moment
from holdfast.errors import LeaseLost
from holdfast.log import Log


class Tenure:
    """The time for which a log is held, as far as its holder can be sure of it."""

    __slots__ = ("_confirmed", "_lease_s", "_log")

    def __init__(self, log: Log, lease_s: float, since: Moment) -> None:
        self._log = log
        self._lease_s = lease_s
        self._confirmed: Moment | None = since

    def is_sure(self) -> bool:
        """Whether nobody can have taken the log over, as far as the clocks can tell."""
        return self._confirmed is not None and self._confirmed.ago_s() < self._lease_s

    def confirm(self) -> None:
        """Renew the lease, which then holds for its whole time again. `LeaseLost` if it is lost."""
        asked = Moment()  # not when it was answered: we may be frozen in between
        try:
            self._log.store.renew(self._log.lease)
        except LeaseLost as error:
            self._confirmed = None
            self._log.refuse(error)
            raise
        self._confirmed = asked
