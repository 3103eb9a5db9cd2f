-- Version 3: texts can be looked for.

create table indexed (
    stream integer primary key,
    upto   integer not null
);
