"""The PostgreSQL store: `store` is the port, `database` its connections and schema."""
