"""A support agent: three requests of one user, in one session."""
