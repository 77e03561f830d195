"""Native work on one item, run in workers."""
