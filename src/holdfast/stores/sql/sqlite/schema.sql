-- The SQLite store: many tasks on one machine, in one file that any number of its processes share.
--
-- A stream is a row of `streams`: its name, its head (how many lines it has) and who may write it.
-- Its lines are in `lines`. Whoever appends first moves the head, `where epoch = … and head = …`,
-- and adds the lines in the same transaction: a writer that was taken over moves nothing, and so
-- adds nothing. Taking a lease counts the epoch up; leases are rows so that others can see them,
-- and the epoch is what refuses a writer, not the time. A lease ends when it is given back, when
-- it runs out, or when its process is dead.
--
-- What a log says in short (its facts) stands beside the head, for lists and for those who look
-- for work. It is a copy: NULL in `status` means that the log has to be read. An empty text is
-- NULL, so that the indexes hold only those streams that have a user, a session, a parent or an
-- origin (the task that a fork shares its past with). Each index goes on with the time of creation,
-- the order of every list: a page is read off one of them, from where the page before ended, and what
-- else was asked for is checked on the way.
--
-- Times of facts are microseconds since 1970, so that they come back as they were and sort; those
-- of leases are seconds, by the clock that all processes of one machine share.
--
-- The version of this schema is in `user_version`. Every change to it is also a numbered file in
-- `migrations/`; a test makes a database both ways and compares them.

create table streams (
    -- Never given out twice: the lease of a stream that was deleted fits no other one.
    id         integer primary key autoincrement,
    name       text not null unique,
    head       integer not null default 0,
    epoch      integer not null default 0,

    owner      text,
    process    text,
    lease_s    real,
    expires_at real,

    status     text,
    task       text,
    user       text,
    session    text,
    labels     text,
    parent     text,
    created_at integer,
    updated_at integer,
    wake_at    integer,
    origin     text
);

-- With the name, the rest of the order in which what is due is asked for: in a long line ten
-- thousand tasks may have the same time, and a page of them is read off the index.
create index streams_to_wake on streams (wake_at, name) where wake_at is not null;
create index streams_to_read on streams (id) where status is null;
create index streams_by_age on streams (created_at, id);
create index streams_by_change on streams (updated_at, id);
create index streams_by_status on streams (status, created_at, id);
create index streams_by_task on streams (task, created_at, id);
create index streams_by_user on streams (user, created_at, id) where user is not null;
create index streams_by_session on streams (session, created_at, id) where session is not null;
create index streams_by_parent on streams (parent, created_at, id) where parent is not null;
create index streams_by_origin on streams (origin, created_at, id) where origin is not null;

-- The labels of each stream, once more, for those who look for one: `streams.labels` and these
-- are always changed together. With the time, so that a page of the newest is one walk.
create table labels (
    name       text not null,
    value      text not null,
    created_at integer not null,
    stream     integer not null,
    primary key (name, value, created_at, stream)
) without rowid;

-- The id is the stream's id times 2^32 plus the line's number. So a stream's lines lie side by
-- side in one tree, and an append costs one page.
create table lines (
    id   integer primary key,
    line blob not null
);

-- By name and not by id: a message may be there before its stream is.
create table inbox (
    id     integer primary key autoincrement,
    stream text not null,
    name   text not null,
    data   blob not null,
    unique (stream, name)
);

create table blobs (
    digest text not null unique,
    data   blob not null
);

-- When each blob was last put, in seconds since 1970. Apart from the blob, because a row is read
-- and written as a whole.
create table blob_ages (
    digest text primary key,
    put_at real not null
) without rowid;

-- Up to which line each stream is in the index of texts. That index, `texts`, is a virtual table
-- of FTS5, whose rows have the ids of the lines. It is made when it is first needed, and not here:
-- SQLite may have been built without FTS5, and then there is none.
create table indexed (
    stream integer primary key,
    upto   integer not null
);

-- States of a log along its way, so that those after it are had soon: see `holdfast.waypoints`. They
-- are made of the lines, and may be deleted at any time.
create table waypoints (
    stream integer not null,
    seq    integer not null,
    part   text not null,
    data   blob not null,
    primary key (stream, seq, part)
);
