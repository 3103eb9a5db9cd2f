-- The least that each kind of process needs of a Holdfast store in PostgreSQL.
--
-- Run it once as the owner of the schema, after the first `Holdfast(url)` or `holdfast migrate` made
-- it, and again after each migration. Then make a login a member of a role:
--     create role app login password '…' in role holdfast_starter;
--
--   holdfast_reader    looks: ls, show, log, sql, stats, a debugger
--   holdfast_starter   also starts tasks, answers, cancels: a web server
--   holdfast_worker    also drives tasks
--   holdfast_operator  also deletes: gc, retention, move to another store
--
-- Only the owner of the schema migrates.

do $$
declare
    name text;
begin
    foreach name in array array['reader', 'starter', 'worker', 'operator'] loop
        if not exists (select from pg_roles where rolname = 'holdfast_' || name) then
            execute format('create role holdfast_%s nologin', name);
        end if;
        execute format('grant usage on schema holdfast to holdfast_%s', name);
        execute format('grant select on all tables in schema holdfast to holdfast_%s', name);
        -- A process shows that it is alive under a number of its own, also one that only looks.
        execute format('grant usage on all sequences in schema holdfast to holdfast_%s', name);
    end loop;
    foreach name in array array['starter', 'worker', 'operator'] loop
        execute format(
            'grant insert, update on holdfast.streams, holdfast.blobs, holdfast.waypoints,'
            ' holdfast.indexed, holdfast.texts to holdfast_%s', name);
        -- A line is written once: nobody may change one.
        execute format('grant insert on holdfast.lines, holdfast.inbox to holdfast_%s', name);
        -- A message is taken out when it is in the log, and a place that was taken for a task
        -- which was not made after all is given back.
        execute format('grant delete on holdfast.inbox, holdfast.waypoints to holdfast_%s', name);
    end loop;
    foreach name in array array['worker', 'operator'] loop
        execute format('grant delete on holdfast.streams to holdfast_%s', name);
    end loop;
    grant delete on holdfast.lines, holdfast.blobs, holdfast.texts, holdfast.indexed
        to holdfast_operator;
end
$$;
