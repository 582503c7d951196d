"""Where lanes wait for one another: warp operations, barriers, mbarriers, grid sync and registers."""
