"""Parts of `gpu.compile`: the cache on disk, headers, and NVRTC's options."""
