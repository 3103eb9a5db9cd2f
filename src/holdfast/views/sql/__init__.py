"""Read-only SQL over logs, in any store: `hf.sql("select …")`, `holdfast sql "select …"`.

The logs of a store are not tables, and the store may be files. So a query runs on a database in
memory, whose tables are filled from the logs: only those that the query names, and of them only the
columns that it reads. `holdfast.views.sql.tables` has them all.
"""

from __future__ import annotations

from holdfast.views.sql.query import Selected

__all__ = ["Selected"]
