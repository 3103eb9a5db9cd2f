"""The same small agent on each framework: it refunds an order, and tells the customer twice."""
