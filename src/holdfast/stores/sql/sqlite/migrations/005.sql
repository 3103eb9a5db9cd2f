-- Version 5: a page of what is due is read off its index, however many streams have the same time.

drop index streams_to_wake;
create index streams_to_wake on streams (wake_at, name) where wake_at is not null;
