"""Parts of `gpu.compile`: the cache on disk, the search for headers, and NVRTC's options."""
