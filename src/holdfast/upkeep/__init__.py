"""Looking after a store: copying and moving tasks, archiving them, deleting what is not needed."""
