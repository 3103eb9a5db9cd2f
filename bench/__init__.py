"""What a durable step costs, beside the raw disk and beside others: `python -m bench`."""
