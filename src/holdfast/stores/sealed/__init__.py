"""Stores around stores: encrypted (`store`), signed (`signed`), and their keys."""
