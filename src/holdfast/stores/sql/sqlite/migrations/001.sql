-- Version 1: the first one. What it is for is told in schema.sql, which holds the newest.

create table streams (
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
    wake_at    integer
);

create index streams_to_wake on streams (wake_at, id) where wake_at is not null;
create index streams_to_read on streams (id) where status is null;
create index streams_by_age on streams (created_at, id);
create index streams_by_status on streams (status, created_at, id);
create index streams_by_task on streams (task, created_at, id);
create index streams_by_user on streams (user, created_at, id) where user is not null;
create index streams_by_session on streams (session, created_at, id) where session is not null;
create index streams_by_parent on streams (parent, id) where parent is not null;
create table lines (
    id   integer primary key,
    line blob not null
);
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
