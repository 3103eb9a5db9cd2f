"""A small agent on Temporal or on Restate, with a real server on this machine: `make engine`."""
