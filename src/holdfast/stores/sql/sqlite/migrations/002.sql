-- The age of blobs: those that are there count as put now.

create table blob_ages (
    digest text primary key,
    put_at real not null
) without rowid;

insert into blob_ages select digest, strftime('%s', 'now') from blobs;
