-- The parts of the statement that finds a page of a list (see queries.py): what is read, along which
-- index, what is asked for besides, and the order. A `+` keeps the database from another index than
-- the one that was chosen. All values are parameters.

-- read --
select s.name, s.status, s.task, s.user, s.session, s.labels, s.parent,
    s.created_at, s.updated_at, s.wake_at, s.origin,

-- by_parent --
    s.created_at as at
from streams as s indexed by streams_by_parent
where s.parent = :parent

-- by_origin --
    s.created_at as at
from streams as s indexed by streams_by_origin
where s.origin = :origin

-- by_session --
    s.created_at as at
from streams as s indexed by streams_by_session
where s.session = :session

-- by_label --
-- Its parameters are numbered, as there may be several.
    l.created_at as at
from labels as l cross join streams as s on s.id = l.stream
where l.name = :label_name_{0} and l.value = :label_value_{0}

-- by_user --
    s.created_at as at
from streams as s indexed by streams_by_user
where s.user = :user

-- by_status --
-- The names of its parameters, one for each status, are put in.
    s.created_at as at
from streams as s indexed by streams_by_status
where s.status in ({0})

-- by_task --
    s.created_at as at
from streams as s indexed by streams_by_task
where s.task = :task

-- by_change --
    s.created_at as at
from streams as s indexed by streams_by_change
where s.updated_at >= :updated_after and s.updated_at < :updated_before

-- by_name --
-- For a prefix that few names begin with, such as that of the queues. The index is that of `unique`.
    s.created_at as at
from streams as s indexed by sqlite_autoindex_streams_1
where s.name >= :prefix and s.name < :beyond

-- by_age --
    s.created_at as at
from streams as s indexed by streams_by_age
where true

-- count --
-- How many rows there are along an index, as far as that matters.
select count(*) from (select {0} limit :enough)

-- known --
    and +s.status is not null and s.head > 0 and instr(s.name, :prefix) = 1

-- parent --
    and +s.parent = :parent

-- no_parent --
    and +s.parent is null

-- origin --
    and +s.origin = :origin

-- no_origin --
    and +s.origin is null

-- session --
    and +s.session = :session

-- no_session --
    and +s.session is null

-- user --
    and +s.user = :user

-- no_user --
    and +s.user is null

-- task --
    and +s.task = :task

-- no_task --
    and +s.task is null

-- status --
    and +s.status in ({0})

-- label --
    and exists (
        select 1 from labels as other
        where other.name = :label_name_{0} and other.value = :label_value_{0}
            and other.created_at = s.created_at and other.stream = s.id
    )

-- created_after --
    and at >= :created_after

-- created_before --
    and at < :created_before

-- updated_after --
    and +s.updated_at >= :updated_after

-- updated_before --
    and +s.updated_at < :updated_before

-- beyond --
-- The first part is implied by the second, and is what an index understands.
    and at <= :beyond_at and (at < :beyond_at or s.name < :beyond_name)

-- in_order --
order by at desc, s.name desc limit :most
