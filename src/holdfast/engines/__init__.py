"""What drives tasks. Each engine carries out the journal's requests in its own way."""
