"""The SQLite store: `store` is the port, `writer` the one that commits."""
