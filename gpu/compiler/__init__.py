"""Parts of `gpu.compile`: the cache on disk, the search for headers, options, signals and processes."""
