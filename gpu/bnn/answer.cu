// The answer for each image, by a warp; see answer.cuh.
//
//   -DGIVEN_INT16 | -DGIVEN_INT32    the sums; see widths.cuh. Those of 16 bits are stored as int32, too

#include "bnn/answer.cuh"
#include "bnn/widths.cuh"
#include "overlap.cuh"

extern "C" __global__ void __launch_bounds__(128)
answer(const Given* sums, const float* scale, const float* offset,
#if defined(GIVEN_INT16)
       int* wide,
#endif
       float* logits, long long* classes, unsigned batch, unsigned count)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned image = number_of_this_warp();
#if !defined(GIVEN_INT16)
    int* const wide = nullptr;
#endif
    if (image < batch) answer_of(image, sums, scale, offset, wide, logits, classes, count);
}
