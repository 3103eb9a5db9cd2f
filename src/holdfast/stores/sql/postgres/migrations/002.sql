-- The age of blobs: those that are there count as put now.

alter table holdfast.blobs add column put_at timestamptz not null default now();
