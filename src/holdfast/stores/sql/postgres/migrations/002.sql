-- Version 2: times of change can be looked for.

create index streams_by_change on holdfast.streams (updated_at, id);
