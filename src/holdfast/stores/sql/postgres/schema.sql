-- The PostgreSQL store: many tasks, driven by many machines.
--
-- A stream is a row of `streams`: its name, its head (how many lines it has) and who may write it.
-- Its lines are in `lines`. One statement moves the head, `where epoch = … and head = …`, and adds
-- the lines of those it moved: a writer that was taken over moves nothing, and so adds nothing.
-- The row is locked while that goes on, so a takeover comes wholly before an append or wholly
-- after it, and who took over reads what was acknowledged. Taking a lease counts the epoch up,
-- and the epoch is what refuses a writer, not the time.
--
-- A lease ends when it is given back, when it runs out by the clock of the database, or when its
-- process is dead. The last is told by an advisory lock: each process takes one, on a number of
-- its own, over a connection that it keeps open, and the server frees it when the process dies.
--
-- What a log says in short (its facts) stands beside the head, for lists and for those who look
-- for work. It is a copy: NULL in `status` means that the log has to be read. An empty text is
-- NULL, so that the indexes hold only those streams that have a user, a session, a parent or an
-- origin (the task that a fork shares its past with).
-- A line of more than 512 bytes is packed with zlib, after a zero byte (see `packed.py`).
-- No index is on `head`, nor asks for it: an append then leaves the indexes alone, and rewrites
-- the row where it stands (a "heap-only" update), for which there is room in every page.
--
-- When facts change, or a message is left, `NOTIFY holdfast` wakes those who wait for something.
-- Who follows a log asks for more in the same way, by the word 'lines': for a minute, processes then
-- tell of every append.
--
-- The version of this schema is in `about`. Every change to it is also a numbered file in
-- `migrations/`; a test makes a database both ways and compares them.

create schema holdfast;

create table holdfast.about (
    version integer not null
);
insert into holdfast.about (version) values (0);

create table holdfast.streams (
    id         bigint generated always as identity primary key,
    name       text collate "C" not null unique,
    head       bigint not null default 0,
    epoch      bigint not null default 0,

    owner      text,
    process    integer,
    lease_s    double precision,
    expires_at timestamptz,

    status     text,
    task       text,
    "user"     text,
    session    text,
    labels     jsonb,
    parent     text,
    created_at timestamptz,
    updated_at timestamptz,
    wake_at    timestamptz,
    origin     text
) with (fillfactor = 70);

-- With the name, the rest of the order in which what is due is asked for: in a long line ten
-- thousand tasks may have the same time, and a page of them is read off the index.
create index streams_to_wake on holdfast.streams (wake_at, name) where wake_at is not null;
create index streams_to_read on holdfast.streams (id) where status is null;
create index streams_by_age on holdfast.streams (created_at, id);
create index streams_by_change on holdfast.streams (updated_at, id);
create index streams_by_status on holdfast.streams (status, created_at, id);
-- Hashed where a text is the user's, and may be longer than a sorted index takes.
create index streams_by_task on holdfast.streams using hash (task);
create index streams_by_user on holdfast.streams using hash ("user") where "user" is not null;
create index streams_by_session on holdfast.streams using hash (session) where session is not null;
create index streams_by_parent on holdfast.streams using hash (parent) where parent is not null;
create index streams_by_origin on holdfast.streams using hash (origin) where origin is not null;
create index streams_by_labels on holdfast.streams using gin (labels jsonb_path_ops)
    where labels is not null;

create table holdfast.lines (
    stream bigint not null,
    seq    bigint not null,
    line   bytea not null,
    primary key (stream, seq)
);

-- By name and not by id: a message may be there before its stream is.
create table holdfast.inbox (
    id     bigint generated always as identity primary key,
    stream text collate "C" not null,
    name   text collate "C" not null,
    data   bytea not null,
    unique (stream, name)
);

create table holdfast.blobs (
    digest bytea primary key,
    data   bytea not null,
    put_at timestamptz not null default now()
);

create sequence holdfast.processes as integer cycle;

-- The processes that are alive: those whose advisory lock is held. 1213156420 spells "HOLD".
create view holdfast.alive as
select objid::bigint::integer as process
from pg_locks
where locktype = 'advisory' and classid = 1213156420 and objsubid = 2 and granted
    and database = (select oid from pg_database where datname = current_database());

-- The index of texts: up to which line each stream is in it, and the words of lines. They were
-- folded before, and are taken as they are: no dictionary or parser of the database changes them.
create table holdfast.indexed (
    stream bigint primary key,
    upto   bigint not null
);

create table holdfast.texts (
    stream bigint not null,
    seq    bigint not null,
    words  tsvector not null,
    primary key (stream, seq)
);

create index texts_by_word on holdfast.texts using gin (words);

-- States of a log along its way, so that those after it are had soon: see `holdfast.waypoints`. They
-- are made of the lines, and may be deleted at any time.
create table holdfast.waypoints (
    stream bigint not null,
    seq    bigint not null,
    part   text not null,
    data   bytea not null,
    primary key (stream, seq, part)
);
