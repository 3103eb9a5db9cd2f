"""The file store: `store` is the port, `folder` what anybody may do without a lease."""
