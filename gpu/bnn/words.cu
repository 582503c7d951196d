// Packed bits from words of 32 into words of 64, or back. Word w of 64 has word 2 w of 32 in its low half, and the next one in its
// high half; past the last one there are zeros.
//
//   -DTO_64 | -DTO_32   what is made
//   -DVECTORS           see bits.cuh

#include "bnn/bits.cuh"
#include "overlap.cuh"

typedef unsigned Narrow;
typedef unsigned long long Wide;

#if defined(TO_64)
typedef Wide Made;
typedef Narrow Given;
#else
typedef Narrow Made;
typedef Wide Given;
#endif

// A thread for each word that is made; a row of bits has `narrow` words of 32.
extern "C" __global__ void __launch_bounds__(256)
to_words(const Given* x, Made* y, unsigned rows, unsigned narrow)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, wide = divide_up(narrow, 2);
#if defined(TO_64)
    if (index >= rows * wide) return;
    const WordPlace place = place_of(index, rows, wide);
    const unsigned word = 2 * place.word;
    const Wide low = x[index_of({place.row, word}, rows, narrow)];
    const Wide high = word + 1 < narrow ? x[index_of({place.row, word + 1}, rows, narrow)] : 0;
    y[index] = high << 32 | low;
#else
    if (index >= rows * narrow) return;
    const WordPlace place = place_of(index, rows, narrow);
    y[index] = (Narrow)(x[index_of({place.row, place.word / 2}, rows, wide)] >> 32 * (place.word % 2));
#endif
}
