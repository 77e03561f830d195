"""Runs native work safely; knows nothing of documents."""
