-- The parts of the statement that finds a page of a list (see queries.py): what is read, what is
-- asked for, and the order. Which index is walked is for the database to choose: it counts how many
-- rows a value has. All values are parameters.

-- read --
select s.name, s.status, s.task, s."user", s.session, s.labels, s.parent,
    s.created_at, s.updated_at, s.wake_at, s.origin
from holdfast.streams as s
where starts_with(s.name, %(prefix)s) and s.status is not null and s.head > 0

-- parent --
    and s.parent = %(parent)s

-- no_parent --
    and s.parent is null

-- origin --
    and s.origin = %(origin)s

-- no_origin --
    and s.origin is null

-- session --
    and s.session = %(session)s

-- no_session --
    and s.session is null

-- user --
    and s."user" = %(user)s

-- no_user --
    and s."user" is null

-- task --
    and s.task = %(task)s

-- no_task --
    and s.task is null

-- status --
    and s.status = any(%(status)s)

-- labels --
    and s.labels @> %(labels)s::jsonb

-- created_after --
    and s.created_at >= %(created_after)s

-- created_before --
    and s.created_at < %(created_before)s

-- updated_after --
    and s.updated_at >= %(updated_after)s

-- updated_before --
    and s.updated_at < %(updated_before)s

-- beyond --
-- The first part is implied by the second, and is what an index understands.
    and s.created_at <= %(beyond_at)s
    and (s.created_at, s.name) < (%(beyond_at)s, %(beyond_name)s)

-- in_order --
order by s.created_at desc, s.name desc limit %(most)s
