"""What `gpu.compile` stands on: the cache on disk, headers, and NVRTC's options."""
