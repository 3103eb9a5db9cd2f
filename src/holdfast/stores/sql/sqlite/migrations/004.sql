-- Version 4: forks know their origin, and states along a log are kept.

alter table streams add column origin text;
create index streams_by_origin on streams (origin, created_at, id) where origin is not null;

create table waypoints (
    stream integer not null,
    seq    integer not null,
    part   text not null,
    data   blob not null,
    primary key (stream, seq, part)
);
