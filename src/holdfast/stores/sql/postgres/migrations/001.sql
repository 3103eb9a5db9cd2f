-- Version 1: the first one. What it is for is told in schema.sql, which holds the newest.

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
    wake_at    timestamptz
) with (fillfactor = 70);

create index streams_to_wake on holdfast.streams (wake_at, id) where wake_at is not null;
create index streams_to_read on holdfast.streams (id) where status is null;
create index streams_by_age on holdfast.streams (created_at, id);
create index streams_by_status on holdfast.streams (status, created_at, id);
create index streams_by_task on holdfast.streams using hash (task);
create index streams_by_user on holdfast.streams using hash ("user") where "user" is not null;
create index streams_by_session on holdfast.streams using hash (session) where session is not null;
create index streams_by_parent on holdfast.streams using hash (parent) where parent is not null;
create index streams_by_labels on holdfast.streams using gin (labels jsonb_path_ops)
    where labels is not null;

create table holdfast.lines (
    stream bigint not null,
    seq    bigint not null,
    line   bytea not null,
    primary key (stream, seq)
);
create table holdfast.inbox (
    id     bigint generated always as identity primary key,
    stream text collate "C" not null,
    name   text collate "C" not null,
    data   bytea not null,
    unique (stream, name)
);

create table holdfast.blobs (
    digest bytea primary key,
    data   bytea not null
);

create sequence holdfast.processes as integer cycle;
create view holdfast.alive as
select objid::bigint::integer as process
from pg_locks
where locktype = 'advisory' and classid = 1213156420 and objsubid = 2 and granted
    and database = (select oid from pg_database where datname = current_database());
