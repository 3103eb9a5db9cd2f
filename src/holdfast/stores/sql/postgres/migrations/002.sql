-- The age of blobs: those that are there count as put now.

alter table holdfast.blobs add column put_at timestamptz not null default now();
-- Version 2: times of change can be looked for.

create index streams_by_change on holdfast.streams (updated_at, id);
