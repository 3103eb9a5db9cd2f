"""Tasks beside each other: where they part, what each came to, and what it took."""
