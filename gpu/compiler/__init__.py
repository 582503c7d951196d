"""Parts of `gpu.compile`: the cache on disk, the search for headers, NVRTC's options, and signals."""
