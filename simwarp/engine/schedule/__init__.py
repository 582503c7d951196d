"""Which lanes execute next: schedulers, control flow, calls, and lanes that never arrive or never end."""
