-- What the SQLite store asks of its database. A name between dashes, why it is so, the statement.
-- Those that change something run inside a transaction of the one writer (see sqlite.py).

-- holder --
-- Who has a stream, and until when. Whether they are still alive is for the caller to find out.
select id, epoch, head, owner, process, lease_s, expires_at from streams where name = :stream;

-- make --
-- The row of a stream that nobody took hold of before. No other can be at it: the transaction has
-- the lock of the database from its beginning.
insert into streams (name, epoch, owner, process, lease_s, expires_at)
values (:stream, 1, :owner, :process, :lease_s, :now + :lease_s);

-- take --
-- The epoch is counted up, which ends the lease that was there before, if there was one.
update streams
set epoch = epoch + 1, owner = :owner, process = :process, lease_s = :lease_s,
    expires_at = :now + :lease_s
where id = :id;

-- renew --
-- Changes a row only for who still holds the lease.
update streams set expires_at = :now + lease_s where id = :id and epoch = :epoch;

-- release --
-- Late or twice, it finds another epoch or nobody, and changes nothing that matters.
update streams
set owner = null, process = null, expires_at = null
where id = :id and epoch = :epoch;

-- move_head --
-- The guard of every append: one row for the newest lease at the head it knows, else none.
update streams set head = head + :count where id = :id and epoch = :epoch and head = :seq;

-- move_head_and_tell --
-- The same with facts. Apart, because naming an indexed column costs a write to its index.
update streams
set head = head + :count, status = :status, task = :task, user = :user, session = :session,
    labels = :labels, parent = :parent, created_at = :created_at, updated_at = :updated_at,
    wake_at = :wake_at, origin = :origin
where id = :id and epoch = :epoch and head = :seq;

-- labels_of --
select labels, created_at from streams where id = :id;

-- drop_label --
delete from labels where name = ? and value = ? and created_at = ? and stream = ?;

-- add_label --
-- A spoiled row may have left the same label there.
insert or ignore into labels (name, value, created_at, stream) values (?, ?, ?, ?);

-- add_line --
insert into lines (id, line) values (?, ?);

-- now_at --
-- What stood in the way of an append.
select epoch, head from streams where id = :id;

-- stream --
select id, head from streams where name = :stream;

-- read --
-- Lines in order. Read piece by piece: a reader that is slow must not keep the database from
-- reusing its write-ahead log.
select id, line from lines where id > :after and id <= :upto order by id;

-- tail --
select id, line from lines where id >= :first and id < :before order by id desc;

-- remember --
-- Only if the log still ends where it was read to.
update streams
set status = :status, task = :task, user = :user, session = :session, labels = :labels,
    parent = :parent, created_at = :created_at, updated_at = :updated_at, wake_at = :wake_at,
    origin = :origin
where id = :id and head = :seq;

-- due --
-- A page of what should be driven, the longest due first, read off the index in its order.
select name, status, task, user, session, labels, parent, created_at, updated_at, wake_at,
    origin, wake_at
from streams indexed by streams_to_wake
where wake_at is not null and wake_at <= :now and (wake_at, name) > (:after_at, :after_name)
    and name >= :prefix and name < :beyond and head > 0
order by wake_at, name limit :page;

-- unknown --
-- A page of those whose log has to be read before anything can be said.
select name, id from streams
where status is null and id > :after_id and name >= :prefix and name < :beyond and head > 0
order by id limit :page;

-- post --
insert into inbox (stream, name, data) values (:stream, :name, :data)
on conflict (stream, name) do nothing;

-- addressees --
-- Asked many times a second while tasks are driven, and nearly always empty.
select distinct stream from inbox;

-- inbox --
select id, name, data from inbox where stream = :stream order by id;

-- unpost_all --
delete from inbox where stream = :stream;

-- unpost --
delete from inbox where stream = :stream and name = :name;

-- rename --
-- For the newest lease only, which ends with it.
update streams
set name = :name, owner = null, process = null, expires_at = null
where id = :id and epoch = :epoch;

-- delete_stream --
delete from streams where id = :id and epoch = :epoch;

-- delete_lines --
delete from lines where id > :after and id <= :upto;

-- delete_posts --
delete from inbox where stream = :stream;

-- mend_blob --
-- Other bytes than these have no place under their name.
update blobs set data = :data where digest = :digest and data <> :data;

-- put_blob --
-- Whoever was first kept the same bytes.
insert into blobs (digest, data) values (:digest, :data) on conflict (digest) do nothing;

-- make_blob_young --
insert into blob_ages (digest, put_at) values (:digest, :now)
on conflict (digest) do update set put_at = :now;

-- young_blob --
-- A row if the blob is there and whole, and was put a moment ago.
select 1 from blobs join blob_ages using (digest)
where digest = :digest and put_at > :after and data = :data;

-- blobs --
-- A page of blobs. Their length is known without reading them.
select blobs.digest, length(data), put_at from blobs join blob_ages using (digest)
where blobs.digest > :after order by blobs.digest limit :page;

-- delete_blob_age --
-- The guard: a row for a blob that is old enough.
delete from blob_ages where digest = :digest and put_at <= :upto;

-- delete_blob --
delete from blobs where digest = :digest;

-- get_blob --
-- As bytes, also where somebody put a text.
select cast(data as blob) from blobs where digest = :digest;

-- has_texts --
-- Also false where the table is there, and was made by an SQLite that knows more than this one.
select 1 from sqlite_master, pragma_module_list as modules
where sqlite_master.name = 'texts' and modules.name = 'fts5';

-- delete_texts --
delete from texts where rowid > :after and rowid <= :upto;

-- delete_index --
delete from indexed where stream = :id;

-- put_waypoint --
-- Of a stream that is there.
insert into waypoints (stream, seq, part, data)
select id, :seq, :part, :data from streams where name = :stream and head > 0
on conflict (stream, seq, part) do update set data = excluded.data;

-- get_waypoints --
-- The numbers are a list, as JSON.
select seq, data from waypoints
where stream = (select id from streams where name = :stream) and part = :part
    and seq in (select value from json_each(:seqs));

-- waypoint_names --
select seq, part, x'' from waypoints where stream = (select id from streams where name = :stream);

-- waypoints --
select seq, part, data from waypoints where stream = (select id from streams where name = :stream);

-- drop_waypoint --
delete from waypoints
where stream = (select id from streams where name = :stream) and seq = :seq and part = :part;

-- drop_waypoints --
delete from waypoints where stream = (select id from streams where name = :stream);

-- delete_waypoints --
delete from waypoints where stream = :id;
