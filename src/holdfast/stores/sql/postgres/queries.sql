-- What the PostgreSQL store asks of its database. A name between dashes, why it is so, the
-- statement. Each is a transaction of its own.

-- take --
-- Takes the leases that nobody has, or that somebody had who is silent or dead. A stream that is
-- not among those returned has somebody at work on it. A server that has just started knows nobody
-- yet: the living get three seconds to come back before they count as dead. The condition is judged when the row is
-- locked, so of two that try at once one finds the other. Each is named once; in an order that is
-- the same for everybody, so that two that want several do not wait for each other.
insert into holdfast.streams as s (name, epoch, owner, process, lease_s, expires_at)
select wanted.name, 1, %(owner)s, %(process)s, %(lease_s)s,
    clock_timestamp() + make_interval(secs => %(lease_s)s)
from unnest(%(streams)s::text[]) as wanted (name)
order by wanted.name collate "C"
on conflict (name) do update
set epoch = s.epoch + 1, owner = excluded.owner, process = excluded.process,
    lease_s = excluded.lease_s, expires_at = excluded.expires_at
where s.owner is null or s.expires_at <= clock_timestamp()
    or (pg_postmaster_start_time() < clock_timestamp() - interval '3 seconds'
        and not exists (select from holdfast.alive where alive.process = s.process))
returning name, id, epoch, head;

-- holder --
-- Who is at work on a stream, for how long its lease is, and when it was last heard of.
select owner, lease_s,
    extract(epoch from clock_timestamp() - expires_at)::double precision + lease_s
from holdfast.streams
where name = %(stream)s and owner is not null and expires_at > clock_timestamp()
    and (process in (select process from holdfast.alive)
        or pg_postmaster_start_time() >= clock_timestamp() - interval '3 seconds');

-- renew --
-- A row only for who still holds the lease. The number of the process may have changed, if its
-- connection had to be made anew.
update holdfast.streams
set expires_at = clock_timestamp() + make_interval(secs => lease_s), process = %(process)s
where id = %(id)s and epoch = %(epoch)s
returning id;

-- release --
-- Late or twice, it finds another epoch or nobody, and changes nothing that matters.
update holdfast.streams as s
set owner = null, process = null, expires_at = null
from unnest(%(ids)s::bigint[], %(epochs)s::bigint[]) as held (id, epoch)
where s.id = held.id and s.epoch = held.epoch;

-- append --
-- The guard and the lines of any number of streams at once. A stream whose epoch or head is not
-- the one given is left out: it is not among the ids returned, and none of its lines is added.
-- Facts stand only where they changed (`told`). The lines are one block of bytes, and a list of
-- where each begins in it, which a driver writes much faster than it does arrays.
with asked as (
    select *
    from json_to_recordset(%(appends)s::json) as a (
        id bigint, epoch bigint, seq bigint, count bigint, told boolean,
        status text, task text, "user" text, session text, labels jsonb, parent text,
        created_at timestamptz, updated_at timestamptz, wake_at timestamptz, origin text
    )
), moved as (
    update holdfast.streams as s
    set head = s.head + a.count,
        status = case when a.told then a.status else s.status end,
        task = case when a.told then a.task else s.task end,
        "user" = case when a.told then a."user" else s."user" end,
        session = case when a.told then a.session else s.session end,
        labels = case when a.told then a.labels else s.labels end,
        parent = case when a.told then a.parent else s.parent end,
        created_at = case when a.told then a.created_at else s.created_at end,
        updated_at = case when a.told then a.updated_at else s.updated_at end,
        wake_at = case when a.told then a.wake_at else s.wake_at end,
        origin = case when a.told then a.origin else s.origin end
    from asked as a
    where s.id = a.id and s.epoch = a.epoch and s.head = a.seq
    returning s.id
), added as (
    insert into holdfast.lines (stream, seq, line)
    select l.id, l.seq, substring(%(block)b from l.start for l.size)
    from json_to_recordset(%(lines)s::json) as l (id bigint, seq bigint, start int, size int)
    join moved using (id)
)
select id, case when %(news)s then pg_notify('holdfast', '')::text end from moved;

-- append_one --
-- The same for one stream whose facts stay as they are: the way of a task that runs alone.
with moved as (
    update holdfast.streams
    set head = head + %(count)s
    where id = %(id)s and epoch = %(epoch)s and head = %(seq)s
    returning id
), added as (
    insert into holdfast.lines (stream, seq, line)
    select moved.id, %(seq)s + l.number, l.line
    from moved, unnest(%(lines)b::bytea[]) with ordinality as l (line, number)
)
select id from moved;

-- now_at --
-- What stood in the way of an append.
select epoch, head from holdfast.streams where id = %(id)s;

-- stream --
-- How many lines a stream has. Read first: what is added meanwhile is no matter, what is missing is.
select id, head from holdfast.streams where name = %(stream)s;

-- read_on --
select stream, seq, line from holdfast.lines
where stream = %(id)s and seq > %(after)s
order by seq limit %(page)s;

-- tail_on --
select stream, seq, line from holdfast.lines
where stream = %(id)s and seq > %(after)s and seq < %(before)s
order by seq desc limit %(page)s;

-- remember --
-- Only if the log still ends where it was read to.
update holdfast.streams
set status = f.status, task = f.task, "user" = f."user", session = f.session, labels = f.labels,
    parent = f.parent, created_at = f.created_at, updated_at = f.updated_at, wake_at = f.wake_at,
    origin = f.origin
from json_to_record(%(facts)s::json) as f (
    status text, task text, "user" text, session text, labels jsonb, parent text,
    created_at timestamptz, updated_at timestamptz, wake_at timestamptz, origin text
)
where name = %(stream)s and head = %(seq)s;

-- due --
-- A page of what should be driven, the longest due first, read off the index in its order. For
-- a process that asks for it, without what others hold, by the rule of `holder`: what is driven
-- stands first, and each worker of a fleet would ask about every task of all the others.
select name, status, task, "user", session, labels, parent, created_at, updated_at, wake_at,
    origin, wake_at
from holdfast.streams
where wake_at is not null and wake_at <= %(now)s
    and (wake_at, name) > (coalesce(%(after_at)s::timestamptz, '-infinity'), %(after_name)s)
    and name >= %(prefix)s and name < %(beyond)s and head > 0
    and (%(process)s::integer is null or owner is null or process = %(process)s
        or expires_at <= clock_timestamp()
        or ((process in (select process from holdfast.alive)) is not true
            and pg_postmaster_start_time() < clock_timestamp() - interval '3 seconds'))
order by wake_at, name limit %(page)s;

-- unknown --
-- A page of those whose log has to be read before anything can be said.
select name, id from holdfast.streams
where status is null and id > %(after_id)s
    and name >= %(prefix)s and name < %(beyond)s and head > 0
order by id limit %(page)s;

-- post --
-- A row if the message is new.
with put as (
    insert into holdfast.inbox (stream, name, data) values (%(stream)s, %(name)s, %(data)s)
    on conflict (stream, name) do nothing
    returning id
)
select id, pg_notify('holdfast', '')::text from put;

-- ask_for_lines --
-- Asks all processes to tell, for a while, of every append.
select pg_notify('holdfast', 'lines')::text;

-- inbox --
select stream, name, data from holdfast.inbox where stream = any(%(streams)s) order by id;

-- unpost_all --
delete from holdfast.inbox where stream = %(stream)s;

-- unpost --
delete from holdfast.inbox where stream = %(stream)s and name = %(name)s;

-- clear_name --
-- Removes the row of a stream that was taken hold of, and never written.
delete from holdfast.streams
where name = %(name)s and head = 0 and (owner is null or expires_at <= clock_timestamp()
    or not exists (select from holdfast.alive where alive.process = streams.process));

-- rename --
-- A row if the lease was the newest one; it ends with this.
update holdfast.streams
set name = %(name)s, owner = null, process = null, expires_at = null
where id = %(id)s and epoch = %(epoch)s
returning id, pg_notify('holdfast', '')::text;

-- delete --
-- A row if the lease was the newest one.
with gone as (
    delete from holdfast.streams where id = %(id)s and epoch = %(epoch)s returning id, name
), its_lines as (
    delete from holdfast.lines using gone where lines.stream = gone.id
), its_posts as (
    delete from holdfast.inbox using gone where inbox.stream = gone.name
), its_texts as (
    delete from holdfast.texts using gone where texts.stream = gone.id
), its_index as (
    delete from holdfast.indexed using gone where indexed.stream = gone.id
), its_waypoints as (
    delete from holdfast.waypoints using gone where waypoints.stream = gone.id
)
select id from gone;

-- put_blob --
-- Other bytes than these have no place under their name: whether there were others is the result.
with wrong as (
    select 1 from holdfast.blobs where digest = %(digest)s and sha256(data) <> %(sum)s
)
insert into holdfast.blobs (digest, data, put_at)
values (%(digest)s, %(data)s, clock_timestamp())
on conflict (digest) do update set data = excluded.data, put_at = excluded.put_at
returning exists (select 1 from wrong);

-- young_blob --
-- A row if the blob is there and whole, and was put a moment ago.
select 1 from holdfast.blobs
where digest = %(digest)s and put_at > clock_timestamp() - make_interval(secs => %(young_s)s)
    and sha256(data) = %(sum)s;

-- make_blob_young --
-- A row if the blob is there and whole. Who deletes it at this moment waits for us, and then finds
-- it young.
update holdfast.blobs set put_at = clock_timestamp()
where digest = %(digest)s and sha256(data) = %(sum)s
returning 1;

-- blobs --
-- A page of blobs. Their length is known without reading them.
select digest, octet_length(data),
    extract(epoch from clock_timestamp() - put_at)::double precision
from holdfast.blobs where digest > %(after)s order by digest limit %(page)s;

-- delete_blob --
-- A row if it was old enough.
delete from holdfast.blobs
where digest = %(digest)s and put_at <= clock_timestamp() - make_interval(secs => %(older_s)s)
returning 1;

-- get_blob --
select data from holdfast.blobs where digest = %(digest)s;

-- appear --
-- A number for a process, and the advisory lock that shows that it is alive.
select number, pg_advisory_lock(1213156420, number)::text
from (select nextval('holdfast.processes')::integer as number) as drawn;

-- move_leases --
-- Gives the leases of a process its new number, after its connection was lost and made anew.
update holdfast.streams set process = %(new)s where process = %(old)s and owner is not null;

-- settings --
-- What a connection needs, whatever the server's defaults are: a commit that returns is durable
-- (or is not, where that was asked for), times come back in UTC, and one that is idle is kept:
-- the connection that shows that a process is alive always is. (Before version 14 they all were.)
select
    set_config('timezone', 'UTC', false),
    case when current_setting('idle_session_timeout', true) is not null
        then set_config('idle_session_timeout', '0', false) end,
    set_config('synchronous_commit', case
        when not %(durable)s then 'off'
        when current_setting('synchronous_commit') = 'off' then 'on'
        else current_setting('synchronous_commit')
    end, false);

-- pooled_settings --
-- The same for a connection to a pooler of transactions: what else is set would be set for others.
select set_config('timezone', 'UTC', false), current_setting('synchronous_commit');

-- mark_session --
-- Leaves a mark in the session, which another connection finds if the two share it.
select pg_backend_pid() from (select set_config('holdfast.mark', %(mark)s, false)) as marked;

-- marked_session --
select current_setting('holdfast.mark', true);

-- is_there --
-- Read from the tables: what the server remembers of names may be older than a lock just taken.
select exists (
    select from pg_class join pg_namespace on pg_namespace.oid = relnamespace
    where nspname = 'holdfast' and relname = 'about'
);

-- version --
select version from holdfast.about;

-- stamp --
update holdfast.about set version = %(version)s;

-- put_waypoint --
-- Of a stream that is there.
insert into holdfast.waypoints (stream, seq, part, data)
select id, %(seq)s, %(part)s, %(data)s from holdfast.streams where name = %(stream)s and head > 0
on conflict (stream, seq, part) do update set data = excluded.data
returning 1;

-- get_waypoints --
select seq, data from holdfast.waypoints
where stream = (select id from holdfast.streams where name = %(stream)s) and part = %(part)s
    and seq = any(%(seqs)s::bigint[]);

-- waypoint_names --
select seq, part, ''::bytea from holdfast.waypoints
where stream = (select id from holdfast.streams where name = %(stream)s);

-- waypoints --
select seq, part, data from holdfast.waypoints
where stream = (select id from holdfast.streams where name = %(stream)s);

-- drop_waypoint --
delete from holdfast.waypoints
where stream = (select id from holdfast.streams where name = %(stream)s)
    and seq = %(seq)s and part = %(part)s;

-- drop_waypoints --
delete from holdfast.waypoints
where stream = (select id from holdfast.streams where name = %(stream)s);
