-- Version 4: forks know their origin, and states along a log are kept.

alter table holdfast.streams add column origin text;
create index streams_by_origin on holdfast.streams using hash (origin) where origin is not null;

create table holdfast.waypoints (
    stream bigint not null,
    seq    bigint not null,
    part   text not null,
    data   bytea not null,
    primary key (stream, seq, part)
);
