"""The HTTP edge, one file a contract."""
