-- Version 3: texts can be looked for.

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
