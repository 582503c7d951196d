// What the convolution on bit tensor cores takes beside packed words: units and tiles, and its addends.

#include "bconv/borders.cuh"
#include "bmm/tensor_core.cuh"
#include "overlap.cuh"

typedef uint4 Unit;  // 128 bits

// Words (places, lines, words of a line) as units: (places, lines / lines_of_tile, units, lines_of_tile), zeros
// where there is no line or word. A thread makes a unit. FSB tiles have 8 lines (BTC, figure 14); with 1, words
// of any number become whole units. So many words lie from one place, and line, to the next.
extern "C" __global__ void __launch_bounds__(128)
to_units(const unsigned* words, Unit* units, unsigned places, unsigned lines,
         unsigned words_of_line, unsigned lines_of_tile, Index place_step, Index line_step)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned units_of_line = divide_up(words_of_line, tile_words), tiles = divide_up(lines, lines_of_tile);
    const Index at = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (Index)places * tiles * units_of_line * lines_of_tile) return;
    const Index tile = at / lines_of_tile;
    const unsigned unit = tile % units_of_line;
    const unsigned line = tile / units_of_line % tiles * lines_of_tile + at % lines_of_tile;
    const Index place = tile / units_of_line / tiles;
    const unsigned* const from = words + place * place_step + line * line_step;
    unsigned word[tile_words] = {};
    for (unsigned i = 0; i < tile_words; ++i)
        if (line < lines && unit * tile_words + i < words_of_line) word[i] = from[unit * tile_words + i];
    units[at] = {word[0], word[1], word[2], word[3]};
}

// Words of filters (taps, filters, 2) as lines of units that have two taps: (filters, taps / 2), zeros behind the last tap.
extern "C" __global__ void __launch_bounds__(128)
to_pairs(const uint2* words, Unit* units, unsigned filters, unsigned taps)
{
    const unsigned pairs = divide_up(taps, 2), at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= filters * pairs) return;
    const unsigned filter = at / pairs, tap = at % pairs * 2;
    const uint2 first = words[tap * filters + filter];
    const uint2 second = tap + 1 < taps ? words[(tap + 1) * filters + filter] : uint2{};
    units[at] = {first.x, first.y, second.x, second.y};
}

// prefix[r, s, o] (R + 1, S + 1, O): the ones of filter o at the taps above r and left of s. A warp has a
// filter. Its words lie one after another in each tap, or units of 8 filters take turns. So many words lie from one
// filter, and tap, to the next.
extern "C" __global__ void __launch_bounds__(128)
sum_filters(const unsigned* filters, unsigned* prefix, const ConvShape shape,
            unsigned words_of_tap, unsigned lines_of_tile, Index filter_step, Index tap_step)
{
    const unsigned o = number_of_this_warp(), lane = lane_of_this_thread();
    if (o >= shape.filters) return;
    const unsigned first = o / lines_of_tile * lines_of_tile, in_tile = o - first;
    const unsigned* const filter = filters + first * filter_step + in_tile * tile_words;
    const auto at = [&](unsigned r, unsigned s) { return ((Index)r * (shape.filter_width + 1) + s) * shape.filters + o; };

    for (unsigned s = lane; s <= shape.filter_width; s += warp_size) prefix[at(0, s)] = 0;
    __syncwarp();
    for (unsigned r = 0; r < shape.filter_height; ++r) {
        unsigned of_row = 0;
        if (lane == 0) prefix[at(r + 1, 0)] = 0;
        for (unsigned s = 0; s < shape.filter_width; ++s) {
            const unsigned* const tap = filter + (r * shape.filter_width + s) * tap_step;
            unsigned ones = 0;
            for (unsigned i = lane; i < words_of_tap; i += warp_size)
                ones += __popc(tap[i / tile_words * lines_of_tile * tile_words + i % tile_words]);
            for (unsigned distance = warp_size / 2; distance; distance /= 2)
                ones += __shfl_xor_sync(all_lanes, ones, distance);
            of_row += ones;
            if (lane == 0) prefix[at(r + 1, s + 1)] = prefix[at(r, s + 1)] + of_row;
        }
    }
}

// Of taps `dilation` apart, the first of them at `first`, those in [0, size): [begin, end).
__device__ inline void find_inside(int first, unsigned size, unsigned taps, unsigned dilation, unsigned& begin,
                                   unsigned& end)
{
    begin = first < 0 ? min(divide_up(-first, dilation), taps) : 0;
    end = first < (int)size ? min(divide_up(size - first, dilation), taps) : 0;
    end = max(begin, end);
}

// addends[border, o]: what filter o adds to all dot products of windows with these taps inside. Their ones are
// four look-ups in the prefix sums. `relative`: row `inside` has what it adds to windows that are whole, also if there
// is none, and the others have how much more they add.
extern "C" __global__ void __launch_bounds__(128)
add_borders(const unsigned* prefix, int* addends, const ConvShape shape,
            const Borders borders, unsigned pitch, unsigned relative)
{
    const unsigned across = borders.across(shape), inside = borders.top * across + borders.left;
    const Index at = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    const Index border = at / pitch;
    if (border >= (Index)across * borders.down(shape)) return;
    const unsigned o = min((unsigned)(at % pitch), shape.filters - 1);
    const unsigned p = Borders::sample(border / across, borders.top, borders.bottom);
    const unsigned q = Borders::sample(border % across, borders.left, borders.right);
    unsigned top, bottom, left, right;
    find_inside(row_of_tap(shape, p, 0), shape.height, shape.filter_height, shape.dilation_h, top, bottom);
    find_inside(column_of_tap(shape, q, 0), shape.width, shape.filter_width, shape.dilation_w, left, right);
    const auto before = [&](unsigned r, unsigned s) {
        return prefix[((Index)r * (shape.filter_width + 1) + s) * shape.filters + o];
    };
    const unsigned ones = before(bottom, right) - before(top, right) - before(bottom, left) + before(top, left);
    const unsigned all = before(shape.filter_height, shape.filter_width);
    const unsigned counted = shape.channels * ((bottom - top) * (right - left));
    const unsigned mine = counts_common_ones ? counted - 2 * ones : counted + 2 * (all - ones);
    const unsigned taps = shape.filter_height * shape.filter_width;
    const unsigned whole = shape.channels * taps - (counts_common_ones ? 2 * all : 0);
    addends[at] = (int)(!relative ? mine : border == inside ? whole : mine - whole);
}

// The ones of each line, whose units lie one after another. A thread has a line.
extern "C" __global__ void __launch_bounds__(128)
count_ones(const Unit* units, unsigned* ones, unsigned lines, unsigned units_of_line)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned line = blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= lines) return;
    unsigned sum = 0;
    for (unsigned i = 0; i < units_of_line; ++i) {
        const Unit unit = units[(Index)line * units_of_line + i];
        sum += __popc(unit.x) + __popc(unit.y) + __popc(unit.z) + __popc(unit.w);
    }
    ones[line] = sum;
}
