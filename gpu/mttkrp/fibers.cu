// MTTKRP from fibers, whose every index stands beside them (MM-CSF, section 5): a group takes `run` of them that
// follow one another.

#include "mttkrp/fibers.cuh"

// The fibers of this group.
struct Run {
    unsigned first, last;

    __device__ Run(const Group& group, unsigned count, unsigned run)
    {
        const Offset begin = group.number * run;
        first = (unsigned)min(begin, (Offset)count);
        last = (unsigned)min(begin + run, (Offset)count);
    }
};

// Emits the total when the result's row changes from one fiber to the next.
struct RowAdder : Adder {
    const Sink& sink;
    const unsigned first;
    unsigned fiber, next_row, row = 0;

    __device__ void enter(unsigned its_number)
    {
        Adder::enter(its_number);
        fiber = its_number;
        next_row = __ldg(fibers.uppers[ORDER - 2] + fiber);
    }

    __device__ void begin()
    {
        Adder::begin();
        if (fiber != first && next_row != row) {
            emit(sink, group, row, fiber - 1, total);
            total = zero_row();
        }
        row = next_row;
    }
};

// The result's mode is an upper one: algorithm 6 if it is that of the slices, algorithm 7 otherwise. They differ in
// how often its index changes; while it does not, sums stay in registers.
extern "C" __global__ void __launch_bounds__(threads_of_block, resident_blocks)
to_upper(const Factors factors, const Sink sink, const Fibers fibers, unsigned count, unsigned run)
{
    const Group group = this_group(sink.rank);
    const Run mine(group, count, run);
    RowAdder adder{{fibers, factors, group}, sink, mine.first};
    walk(fibers, mine.first, mine.last, 1, adder);
    emit_together(sink, group, mine.first < mine.last, adder.row, mine.last - 1, adder.total);
}

// Gives each nonzero to its row: value times the rows of all upper modes.
struct Scatterer {
    const Fibers& fibers;
    const Factors& factors;
    const Group& group;
    const Sink& sink;
    Uppers<ORDER - 1> uppers;
    Row product;

    __device__ void enter(unsigned fiber) { uppers.read(fibers, fiber); }

    __device__ void begin()
    {
        uppers.load(factors, group);
        product = uppers.product();
    }

    __device__ void take(const Nonzeros& some)
    {
#pragma unroll
        for (unsigned i = 0; i < in_flight; ++i)
            if (i < some.count) emit(sink, group, some.leaf[i], some.z + i, scaled(some.value[i], product));
    }

    __device__ void leave() {}
};

// The result's mode is that of the leaves: algorithm 8.
extern "C" __global__ void __launch_bounds__(threads_of_block)
to_leaf(const Factors factors, const Sink sink, const Fibers fibers, unsigned count, unsigned run)
{
    const Group group = this_group(sink.rank);
    const Run mine(group, count, run);
    Scatterer scatterer{fibers, factors, group, sink};
    walk(fibers, mine.first, mine.last, 1, scatterer);
}
