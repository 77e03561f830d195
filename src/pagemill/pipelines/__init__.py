"""Async recipes over the engine."""
