"""Asynchronous copies of threads, bulk copies and tensor copies, which end no later than their waits."""
