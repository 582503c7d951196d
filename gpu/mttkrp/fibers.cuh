// Groups that walk over fibers, a few nonzeros at a time: how every kernel of a tree reads its tensor.
//
//   -DALIGNED    leaves and values start at multiples of 16 bytes
//
// The groups of a warp take their steps together, each in a fiber of its own: one vote a step keeps them so. A step
// is as many nonzeros as have their rows loaded at once, or what is left of the fiber. A short fiber is one step,
// and groups wait for one another only at the end, not at every fiber.

#pragma once

#include "mttkrp/sink.cuh"

enum : unsigned { in_flight = 4 };  // nonzeros whose rows are loaded at once

// Blocks that shall fit on a multiprocessor, which bounds the registers of kernels that add up fibers: as many as have
// room for their rows, of which tensors of high order have more.
enum : unsigned { resident_blocks = VEC == 1 ? 5 : ORDER <= 5 ? 4 : 2 };

// uppers[l][f] is fiber f's index in the mode of factors.of[l], but for the last: either leaves[z] belongs to the
// last factor and the last of the uppers to the result, or the other way round.
struct Fibers {
    const unsigned* uppers[ORDER - 1];
    const unsigned* pointers;
    const unsigned* leaves;
    const Scalar* values;
};

// Nonzeros that follow one another in a fiber, the first of them `z`.
struct Nonzeros {
    alignas(16) unsigned leaf[in_flight];
    alignas(16) Scalar value[in_flight];
    unsigned z, count;
};

template <class Element>
__device__ void load_aligned(Element (&to)[in_flight], const Element* from)
{
    uint4* const words = reinterpret_cast<uint4*>(to);
#pragma unroll
    for (unsigned i = 0; i < sizeof to / sizeof *words; ++i) words[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
}

// The first of the nonzeros z ... end - 1: as many as go at once, but in a long fiber only up to the next multiple of
// that many, so that those after them are aligned.
__device__ inline Nonzeros load_nonzeros(const Fibers& fibers, unsigned z, unsigned end)
{
    Nonzeros some;
    const unsigned rest = end - z;
    some.z = z;
    some.count = rest < 2 * in_flight ? min(rest, (unsigned)in_flight) : in_flight - z % in_flight;
    __builtin_assume(some.count > 0);
#if defined(ALIGNED)
    if (some.count == in_flight && z % in_flight == 0) {
        load_aligned(some.leaf, fibers.leaves + z);
        load_aligned(some.value, fibers.values + z);
        return some;
    }
#endif
#pragma unroll
    for (unsigned i = 0; i < in_flight; ++i)
        if (i < some.count) {
            some.leaf[i] = __ldg(fibers.leaves + z + i);
            some.value[i] = __ldg(fibers.values + z + i);
        }
    return some;
}

// Walks over the fibers first, first + step, ... before last. The visitor's enter(fiber) reads the indices of a fiber,
// begin() what they point to, while the first nonzeros are being read; take(nonzeros) is called for all of them in
// turn, leave() after the last. All lanes of the warp must come here; a group without fibers has first = last.
template <class Visitor>
__device__ void walk(const Fibers& fibers, unsigned first, unsigned last, unsigned step, Visitor& visitor)
{
    unsigned fiber = first, z = 0, end = 0;
    bool some = first < last;
    while (__any_sync(all_lanes, some)) {
        if (some) {
            const bool enters = z == end;
            if (enters) {
                z = __ldg(fibers.pointers + fiber);
                end = __ldg(fibers.pointers + fiber + 1);
                visitor.enter(fiber);
            }
            const Nonzeros nonzeros = load_nonzeros(fibers, z, end);
            if (enters) visitor.begin();
            visitor.take(nonzeros);
            z += nonzeros.count;
            if (z == end) {
                visitor.leave();
                some = last - fiber > step;
                fiber += step;
            }
        }
    }
}

// A fiber's `levels` first upper modes: its indices, and the factors' rows there.
template <unsigned levels>
struct Uppers {
    unsigned index[levels + (levels == 0)];
    Row rows[levels + (levels == 0)];

    __device__ void read(const Fibers& fibers, unsigned fiber)
    {
#pragma unroll
        for (unsigned l = 0; l < levels; ++l) index[l] = __ldg(fibers.uppers[l] + fiber);
    }

    __device__ void load(const Factors& factors, const Group& group)
    {
#pragma unroll
        for (unsigned l = 0; l < levels; ++l) rows[l] = load_row(factors.of[l], index[l], group);
    }

    // row * their product, element by element
    __device__ Row times(Row row) const
    {
#pragma unroll
        for (unsigned l = 0; l < levels; ++l) multiply(row, rows[l]);
        return row;
    }

    __device__ Row product() const
    {
        Row row = rows[0];
#pragma unroll
        for (unsigned l = 1; l < levels; ++l) multiply(row, rows[l]);
        return row;
    }
};

// Adds up fibers: each one's sum of values times leaves' rows, times the rows of its upper modes but the result's.
// These are multiplied late, so that their loads are under way while the nonzeros are added up.
struct Adder {
    const Fibers& fibers;
    const Factors& factors;
    const Group& group;
    Uppers<ORDER - 2> uppers;
    Row sum;                 // of this fiber
    Row total = zero_row();  // of those before

    __device__ void enter(unsigned fiber) { uppers.read(fibers, fiber); }

    __device__ void begin()
    {
        uppers.load(factors, group);
        sum = zero_row();
    }

    __device__ void take(const Nonzeros& some)
    {
        Row rows[in_flight];
#pragma unroll
        for (unsigned i = 0; i < in_flight; ++i)
            if (i < some.count) rows[i] = load_row(factors.of[ORDER - 2], some.leaf[i], group);
#pragma unroll
        for (unsigned i = 0; i < in_flight; ++i)
            if (i < some.count) add_scaled(sum, some.value[i], rows[i]);
    }

    __device__ void leave() { add(total, uppers.times(sum)); }
};
