// The positive numbers of every 32, moved to the front and counted.
//
// A vote tells each lane how many lanes before it keep theirs. Its member mask must name every lane that
// executes it: those past the end of the array vote too, if only to say no.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// `kept` begins as zeros.
extern "C" __global__ void wrong_mask(const int* x, int* kept, unsigned* counts, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned lane = i % warp_size, warp = i / warp_size;
    const int mine = i < n ? x[i] : 0;
#ifndef FIXED
    const unsigned members = __ballot_sync(all_lanes, i < n);
#else
    const unsigned members = all_lanes;
#endif
    const unsigned keep = __ballot_sync(members, mine > 0);  // BUG
    const unsigned before = keep & ((1u << lane) - 1);
    if (mine > 0) kept[warp * warp_size + __popc(before)] = mine;
    if (lane == 0) counts[warp] = __popc(keep);
}
