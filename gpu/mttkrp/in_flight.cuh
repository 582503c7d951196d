// How much kernels that load all rows of a nonzero have under way.

#pragma once

#include "mttkrp/sink.cuh"

// Nonzeros whose rows are loaded at once.
enum : unsigned { in_flight = ORDER <= 4 ? 4 : 2 };

// As many blocks can be on a multiprocessor before registers spill.
enum : unsigned { resident_blocks = ORDER == 3 && sizeof(Scalar) == 4 ? 4 : 3 };
