-- The age of blobs: those that are there count as put now.

create table blob_ages (
    digest text primary key,
    put_at real not null
) without rowid;

insert into blob_ages select digest, strftime('%s', 'now') from blobs;
-- Version 2: labels and times of change can be looked for, and children are listed in order.

create table labels (
    name       text not null,
    value      text not null,
    created_at integer not null,
    stream     integer not null,
    primary key (name, value, created_at, stream)
) without rowid;

-- Not every SQLite reads a NUL out of JSON: of those few, the log is read instead.
update streams set status = null, labels = null where instr(labels, '\u0000') > 0;
insert into labels (name, value, created_at, stream)
select each.key, each.value, streams.created_at, streams.id
from streams, json_each(streams.labels) as each
where streams.labels is not null and streams.status is not null;

drop index streams_by_parent;
create index streams_by_parent on streams (parent, created_at, id) where parent is not null;
create index streams_by_change on streams (updated_at, id);
