"""Scheduling: schedulers, control flow, calls, and lanes that never arrive or never end."""
