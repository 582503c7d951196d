// Bit convolution on the warpgroups of sm_90a, from patches of the images: for pixels of up to 128 bytes.
//
// A block keeps the filters of a tile's columns in shared memory for all of its tiles. A tile has 128 pixels of the output,
// a box of rows and columns in some images. The copy engine brings the patch that their windows cover, with zeros outside
// of the image, and each pixel of it once. Threads load what a product takes from the patch straight into their registers,
// tap by tap, and count its ones on the way:
//
//   dot = C * taps - 2 pb - 2 popc(a) + 4 popc(a & b)                                (as in wgmma.cu, which takes any size)
//
// A warpgroup has tiles of its own, and asks the tensor cores when it is ready; the last one serves.
//
//   -DOUTPUT_INT32 | -DOUTPUT_INT16
//                            (N, P, Q, O)
//   -DOUTPUT_LINES           bit = (dot >= thresholds[o]) != flip[o], words (N, P, Q, O / 32), first channel lowest
//   -DPOOL_OR | -DPOOL_AND   the bits of 2 x 2 pixels become one: words (N, P / 2, Q / 2, O / 32)
//   -DADDED                  (N, P, Q, O) of int16: the sum of dot and what another array has there, or 0 if it has
//                            fewer channels, of which filter `before` has the first
//   -DADDED_BITS             and bit = (sum >= thresholds[o]) != flip[o], words as with OUTPUT_LINES
//   -DPOOL_MAX               of the sums the largest of 2 x 2 pixels: (N, P / 2, Q / 2, O), P and Q are even
//   -DEARLY                  filters, their addends, thresholds and flips are read before earlier launches end
//   -DPIXEL=n                bytes of a pixel of the images: 8, or a multiple of 16, at most 128. Two taps of 8 share a chunk of k
//   -DPATCHES=n              how many patches are in shared memory
//   -DTABLES=n               at least as many as there are kinds of windows, whose addends a note has
//   -DSETMAXNREG             warpgroups need registers of the serving one
//   -DBOXES=n                boxes of a warp on their way through the map of y; 0: it stores by itself

#define STAGES 1
#include "bconv/notes.cuh"

#if defined(POOL_MAX)
enum : unsigned { corners = 4 };
#else
enum : unsigned { corners = window };
#endif
enum : unsigned {
    pixel_bytes = PIXEL,
    pieces = (pixel_bytes + chunk - 1) / chunk,
    taps_of_chunk = pieces * chunk / pixel_bytes,
    swizzled = pixel_bytes == 32 || pixel_bytes == 64 || pixel_bytes == 128 ? pieces - 1 : 0,  // chunks of a pixel, or none
    chunks_of_product = product_bytes / chunk,
    patches = PATCHES,
    most_steps = 16,
    given = 24,  // registers of a serving thread, of those that a thread of each warpgroup begin with
    begun = 512 / (consumers + 1) / 8 * 8 * (consumers + 1),
    taken = (begun - given) / consumers / 8 * 8,
};
static_assert(members == 1 && teams == consumers, "a warpgroup has tiles of its own");
static_assert(pixel_bytes == 8 || pixel_bytes % chunk == 0, "a lane loads a word of one tap");

// The outputs of a tile, images x down x across, the patch that they need, and how many tiles there are.
struct Patch {
    unsigned images, down, across;
    unsigned height, width, bytes;  // bytes in shared memory, whole atoms
    unsigned tiles_down, tiles_across, tiles;
    unsigned before;  // what is added has as many channels less in front
};

struct Room {
    unsigned char zeros[chunk];
    Notes notes[teams];
    Barrier filled[most_steps], full[patches], empty[patches];
#if defined(ADDED)
    Barrier added[consumers * 4];
#endif
};

// Parts of the shared memory: filters in steps along k, patches, boxes, and the room.
struct Memory {
    unsigned char *filters, *patches;
    Room& room;
#if BOXES
    Box (*boxes)[BOXES];
#endif

    __device__ Memory(unsigned char* start, unsigned steps, const Patch& patch)
        : filters(start), patches(start + steps * columns * step_bytes),
          room(*reinterpret_cast<Room*>(patches + PATCHES * patch.bytes + consumers * 4 * BOXES * box_rows * atom_bytes))
#if BOXES
          , boxes(reinterpret_cast<Box (*)[BOXES]>(patches + PATCHES * patch.bytes))
#endif
    {
    }
};

// A place among the outputs of a tile, or that of the tile's first output.
struct Spot {
    unsigned image, row, column;
};

// Where output i of a tile is; those of a window of the pooling follow one another.
__device__ inline Spot spot_of(unsigned i, const Patch& patch)
{
    const unsigned side = corners == 4 ? 2 : 1, corner = i % corners, place = i / corners;
    const unsigned across = patch.across / side, down = patch.down / side;
    return {place / (across * down), place / across % down * side + corner / 2, place % across * side + corner % 2};
}

__device__ inline Spot origin_of(unsigned tile, const Patch& patch)
{
    const unsigned across = tile % patch.tiles_across, line = tile / patch.tiles_across;
    return {line / patch.tiles_down * patch.images, line % patch.tiles_down * patch.down, across * patch.across};
}

__device__ inline Spot plus(const Spot& x, const Spot& y) { return {x.image + y.image, x.row + y.row, x.column + y.column}; }

// Pixels of a patch left of its first tap, as copies begin at multiples of 16 bytes of a line.
__device__ inline unsigned pixels_before(const ConvShape& shape, const Spot& origin)
{
    return column_of_tap(shape, origin.column, 0) % taps_of_chunk;
}

// The tiles of this block, of as many blocks as have the same filters.
struct Share {
    unsigned column, first, step;

    __device__ explicit Share(unsigned filters)
    {
        const unsigned across = divide_up(filters, columns);
        column = blockIdx.x % across * columns, first = blockIdx.x / across, step = gridDim.x / across;
    }
};

// ---- the serving thread ---------------------------------------------------------------------------------------------

__device__ inline void bring(const Memory& memory, const Share& share, const Patch& patch, const TensorMap& images,
                             const TensorMap& filters, const ConvShape& shape, unsigned steps)
{
    Room& room = memory.room;
    const auto bring_filters = [&] {
        for (unsigned step = 0; step < steps; ++step) {
            arrive_and_expect(room.filled[step], columns * step_bytes);
            load_box(memory.filters + step * columns * step_bytes, filters, step * step_bytes, share.column, room.filled[step]);
        }
    };
#if defined(EARLY)
    bring_filters();
    wait_for_earlier_launches();
#endif
    Turn<patches> turn;
    for (unsigned i = share.first; i < patch.tiles; i += share.step, turn.advance()) {
        const Spot origin = origin_of(i, patch);
        wait(room.empty[turn.at], turn.parity ^ 1);  // the first turn passes
        arrive_and_expect(room.full[turn.at], patch.images * patch.height * patch.width * pixel_bytes);
        unsigned char* const to = memory.patches + turn.at * patch.bytes;
        const int column = column_of_tap(shape, origin.column, 0), row = row_of_tap(shape, origin.row, 0);
        if (taps_of_chunk > 1)  // the map's innermost dimension are the pixels of a line
            load_box(to, images, column - pixels_before(shape, origin), row, origin.image, 0, room.full[turn.at]);
        else
            load_box(to, images, 0, column, row, origin.image, room.full[turn.at]);
#if !defined(EARLY)
        if (i == share.first) bring_filters();  // behind the first patch, which comes from farther away
#endif
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

// A thread's rows: where they are in a tile, and their windows in a patch.
struct Lines {
    unsigned spots[parts][2];  // image, row and column, a byte each
    unsigned bytes[parts][2];  // where the word of the first tap lies that this lane loads

    __device__ Lines(const Place& place, const Patch& patch, const ConvShape& shape)
    {
        const unsigned words = 4 / taps_of_chunk;  // of a tap in a chunk
#pragma unroll
        for (unsigned part = 0; part < parts; ++part)
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const Spot spot = spot_of(place.row(part) + 8 * r, patch);
                spots[part][r] = spot.image << 16 | spot.row << 8 | spot.column;
                const unsigned line = spot.image * patch.height + spot.row * shape.stride_h;
                bytes[part][r] = (line * patch.width + spot.column * shape.stride_w) * pixel_bytes + place.lane % words * 4;
            }
    }
};

// What a product takes from the rows of a thread. Three take turns: while a product reads one, the next two are loaded.
struct Fragment {
    unsigned words[parts][4];
};

// The chunks of the windows of a patch, tap by tap, in the order of k.
struct Chunks {
    const ConvShape& shape;
    const Patch& sizes;
    const unsigned char *patch, *zeros;
    const Lines& lines;
    unsigned piece = 0, s = 0, r = 0, bytes = 0;  // bytes of the tap's pixel behind that of the first one
    unsigned starts[parts][2];                    // of the tap's pixels, where chunk 0 is

    // Begin at this lane's first tap: where two share a chunk, the other half of a quad has the second one.
    __device__ void begin(const Place& place)
    {
        if (taps_of_chunk > 1 && place.lane % 4 >= 2) advance();
    }

    // Load the next two chunks; past the last tap there are zeros.
    __device__ void load(Fragment& to)
    {
#pragma unroll
        for (unsigned half = 0; half < chunks_of_product; ++half) {
            if (pieces % chunks_of_product != 0 || half == 0)
                if (piece == 0) find_tap();
            const bool is_tap = pieces % chunks_of_product == 0 || r < shape.filter_height;
#pragma unroll
            for (unsigned part = 0; part < parts; ++part)
#pragma unroll
                for (unsigned i = 0; i < 2; ++i) {
                    const unsigned start = starts[part][i], at = swizzled ? start ^ piece * chunk : start + piece * chunk;
                    to.words[part][2 * half + i] = *reinterpret_cast<const unsigned*>(is_tap ? patch + at : zeros);
                }
            if (++piece < pieces) continue;
            piece = 0;
#pragma unroll
            for (unsigned tap = 0; tap < taps_of_chunk; ++tap) advance();
        }
    }

  private:
    __device__ void find_tap()
    {
#pragma unroll
        for (unsigned part = 0; part < parts; ++part)
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                const unsigned start = lines.bytes[part][i] + bytes;
                starts[part][i] = start ^ (start / atom_bytes & swizzled) * chunk;
            }
    }
    __device__ void advance()
    {
        bytes += shape.dilation_w * pixel_bytes;
        if (++s < shape.filter_width) return;
        s = 0, ++r;
        bytes += (shape.dilation_h * sizes.width - shape.filter_width * shape.dilation_w) * pixel_bytes;
    }
};

// The sums of a tile, and the ones of its windows that this lane has loaded. A block's first tiles wait for its filters.
__device__ inline void multiply(int (&sums)[parts][sums_of_part], unsigned (&ones)[parts][2], const Memory& memory,
                                Chunks& chunks, unsigned products, bool is_first)
{
    const unsigned long long filters = describe<step_bytes>(memory.filters);
    const auto ask = [&](const Fragment& a, unsigned i) {
        const unsigned step = i / products_of_step, product = i % products_of_step;
        if (is_first && product == 0) wait(memory.room.filled[step], 0);
        const unsigned long long b = filters + step * (columns * step_bytes / chunk) + product * (product_bytes / chunk);
        fence_registers();
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) multiply_add(sums[part], a.words[part], b, i > 0);
        commit_products();
#pragma unroll
        for (unsigned part = 0; part < parts; ++part)
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) ones[part][r] += __popc(a.words[part][r]) + __popc(a.words[part][2 + r]);
    };
    const auto load = [&](Fragment& a, unsigned i) {
        wait_for_products<1>();  // the third last one read this fragment
        if (i < products) chunks.load(a);
    };
    Fragment first, second, third;
    chunks.load(first);
    for (unsigned i = 0;; ++i) {
        load(second, i + 1);
        ask(first, i);
        if (++i == products) break;
        load(third, i + 1);
        ask(second, i);
        if (++i == products) break;
        load(first, i + 1);
        ask(third, i);
        if (i + 1 == products) break;
    }
    wait_for_products<0>();
#pragma unroll
    for (unsigned part = 0; part < parts; ++part) hold(sums[part]);
}

// Note what the rows of this warp need, and find where their outputs lie: the number of each pixel of y, or none.
__device__ inline void write_rows(Notes& notes, unsigned (&pixels)[parts][2], const unsigned (&ones)[parts][2],
                                  const Place& place, const Spot& origin, const Lines& lines, const Addends& x)
{
    const ConvShape& shape = x.shape;
    const unsigned side = window == 4 ? 2 : 1;
#pragma unroll
    for (unsigned part = 0; part < parts; ++part)
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            const unsigned i = place.row(part) + 8 * r;
            const unsigned spot = lines.spots[part][r];
            const Pixel pixel = {origin.image + (spot >> 16), origin.row + (spot >> 8) % 256, origin.column + spot % 256};
            const bool exists = pixel.image < shape.batch && pixel.row < side * rows_of_output(shape)
                                && pixel.column < side * columns_of_output(shape);
            const unsigned line = pixel.image * rows_of_output(shape) + pixel.row / side;
            pixels[part][r] = exists && i % window == 0 ? line * columns_of_output(shape) + pixel.column / side : ~0u;
            unsigned of_row = ones[part][r];
            of_row += __shfl_xor_sync(all_lanes, of_row, 1);
            of_row += __shfl_xor_sync(all_lanes, of_row, 2);
            if (place.lane % 4 != 0) continue;
            notes.of_rows[i] = -2 * (int)of_row;
#if TABLES > 1
            notes.table_of_row[i] = exists ? x.borders.of_pixel(shape, pixel) : 0;
#endif
        }
    __syncwarp();
}

#if defined(ADDED)
static_assert(BOXES * box_columns == columns, "the boxes of a warp have what is added to all of its outputs");

// What is added to 16 outputs of a warp comes in boxes, of so many rows and columns of the outputs.
struct Added {
    Box (&boxes)[BOXES];
    Barrier& came;
    const Patch& patch;
    unsigned across, down, parity = 0;
    unsigned lines[2];  // of the boxes, for the rows of this thread

    __device__ Added(const Memory& memory, const Place& place, const Patch& patch)
        : boxes(memory.boxes[place.warp]), came(memory.room.added[place.warp]), patch(patch),
          across(min((unsigned)box_rows / (corners == 4 ? 2 : 1), patch.across)), down(min(box_rows / across, patch.down))
    {
        const Spot first = spot_of(place.first_row - place.lane / 4, patch);
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) lines[r] = line_of(spot_of(place.first_row + 8 * r, patch), first);
    }
    __device__ unsigned line_of(const Spot& x, const Spot& first) const
    {
        return ((x.image - first.image) * down + x.row - first.row) * across + x.column - first.column;
    }

    // Bring it for outputs from `first` on, when the sums of the last tile have left.
    __device__ void bring(const TensorMap& added, unsigned column, const Spot& first) const
    {
        wait_for_reads<0>();
        arrive_and_expect(came, sizeof boxes);
        for (unsigned i = 0; i < BOXES; ++i)
            load_box(boxes[i].rows, added, column + i * box_columns - patch.before, first.column, first.row, first.image, came);
    }

    // A chunk of a line of a box.
    __device__ unsigned char* at(unsigned box, unsigned line, unsigned piece) const
    {
        return &boxes[box].rows[line * atom_bytes + (piece ^ line % atom_rows) * chunk];
    }
};

// Add the dot products of a warp to what its boxes have, and store the bits of the sums.
__device__ inline void add(const Added& added, const int (&sums)[sums_of_part], const Notes& notes, const Place& place,
                           const unsigned (&pixels)[2], unsigned filters, unsigned* bits)
{
    const Row of_rows[2] = {notes.at(place.row(0)), notes.at(place.row(0) + 8)};
#if defined(ADDED_BITS)
    unsigned words[2][set_words] = {};
#endif
#pragma unroll
    for (unsigned i = 0; i < columns / 32; ++i)
#pragma unroll
        for (unsigned j = 4; j-- > 0;)  // eight columns, of which this lane has a pair
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const unsigned column = 32 * i + 8 * j, in_box = column % box_columns * sizeof(Output) / chunk;
                Pair& there = reinterpret_cast<Pair*>(added.at(column / box_columns, added.lines[r], in_box))[place.lane % 4];
                const int2 of_pair = constants_of_pair(of_rows[r], column + place.pair);
                const int x = there.x + total(sums[column / 2 + 2 * r], of_rows[r].constant, of_pair.x);
                const int y = there.y + total(sums[column / 2 + 2 * r + 1], of_rows[r].constant, of_pair.y);
                there = Pair{(Output)x, (Output)y};
#if defined(ADDED_BITS)
                const int2 limits = *reinterpret_cast<const int2*>(&notes.thresholds[column + place.pair]);
                add_signs(words[r][i], x - limits.x, y - limits.y);
#endif
            }
#if defined(ADDED_BITS)
    unsigned made[2];
    exchange_words(made, words, notes, place, 0);
    const unsigned words_of_pixel = divide_up(filters, 32), at = word_of(0, place), word = notes.column / 32 + at;
#pragma unroll
    for (unsigned r = 0; r < 2; ++r)
        if (pixels[r] != ~0u && at < words_across && word < words_of_pixel)
            bits[(Index)pixels[r] * words_of_pixel + word] = made[r];
#endif
}

#if defined(POOL_MAX)
__device__ inline unsigned larger(unsigned x, unsigned y)
{
    asm("max.s16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
}

__device__ inline uint4 larger(const uint4& x, const uint4& y)
{
    return {larger(x.x, y.x), larger(x.y, y.y), larger(x.z, y.z), larger(x.w, y.w)};
}

// Store the largest sums of each window of the pooling: a lane has eight channels of a window.
__device__ inline void store_sums(const Added& added, const Place& place, Output* y, const Spot& first,
                                  const ConvShape& shape, unsigned column)
{
    __syncwarp();
    const unsigned i = place.first_row - place.lane / 4, which = place.lane / 8 * corners, piece = place.lane % 8;
    const Spot spot = spot_of(i + which, added.patch), in_warp = spot_of(i, added.patch);
    const unsigned line = added.line_of(spot, in_warp);
    const Spot pixel = plus(first, {spot.image - in_warp.image, spot.row - in_warp.row, spot.column - in_warp.column});
    const bool exists = pixel.image < shape.batch && pixel.row < shape.out_height && pixel.column < shape.out_width;
    const unsigned row = pixel.image * (shape.out_height / 2) + pixel.row / 2;
    Output* const start = y + (Index)(row * (shape.out_width / 2) + pixel.column / 2) * shape.filters + column;
#pragma unroll
    for (unsigned box = 0; box < BOXES; ++box) {
        uint4 found[corners];
#pragma unroll
        for (unsigned corner = 0; corner < corners; ++corner)
            found[corner] = *reinterpret_cast<const uint4*>(
                added.at(box, line + corner / 2 * added.across + corner % 2, piece));
        const unsigned c = box * box_columns + piece * (chunk / sizeof(Output));
        if (exists && column + c < shape.filters)
            *reinterpret_cast<uint4*>(start + c) = larger(larger(found[0], found[1]), larger(found[2], found[3]));
    }
    show_to_copies();
    __syncwarp();
}
#else
__device__ inline void store_sums(const Added& added, const Place& place, const TensorMap& y, const Spot& first,
                                  const ConvShape&, unsigned column)
{
    show_to_copies();
    __syncwarp();
    if (place.lane == 0)
        for (unsigned i = 0; i < BOXES; ++i)
            store_box(y, added.boxes[i].rows, column + i * box_columns, first.column, first.row, first.image);
}
#endif
#elif defined(OUTPUT_BITS)
__device__ inline void store(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                             const unsigned (&pixels)[2], unsigned filters, Output* y)
{
    const unsigned words_of_pixel = divide_up(filters, 32);
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        unsigned made[2];
        make_words(made, sums, notes, place, part, set);
        const unsigned at = word_of(set, place), word = notes.column / 32 + at;
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            const unsigned of_pixel = pooled(made[r]);
            if (pixels[r] != ~0u && at < words_across && word < words_of_pixel)
                y[(Index)pixels[r] * words_of_pixel + word] = of_pixel;
        }
    }
}
#elif !BOXES
__device__ inline void store(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                             const unsigned (&pixels)[2], unsigned filters, Output* y)
{
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        if (pixels[r] != ~0u)
            store_line(sums, notes, place, part, r, y + (Index)pixels[r] * filters, filters);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(threads, 1)
direct(const __grid_constant__ TensorMap images, const __grid_constant__ TensorMap filters, const int* addends,
#if BOXES && !defined(POOL_MAX)
       const __grid_constant__ TensorMap y,
#else
       Output* y,
#endif
#if defined(ADDED)
       const __grid_constant__ TensorMap of_added,
#endif
       const __grid_constant__ ConvShape shape, const __grid_constant__ Borders borders, const __grid_constant__ Patch patch,
       unsigned bytes, unsigned pitch  // of a filter and of addends
#if defined(ADDED_BITS)
       , unsigned* bits
#endif
#if defined(OUTPUT_BITS) || defined(ADDED_BITS)
       , const int* thresholds, const unsigned char* flip
#endif
)
{
    extern __shared__ __align__(1024) unsigned char start[];
    const unsigned steps = divide_up(bytes, step_bytes);
    const Memory memory(start, steps, patch);
    Room& room = memory.room;
    const Share share(shape.filters);
    const Addends x = {addends, pitch, shape, borders
#if defined(OUTPUT_BITS) || defined(ADDED_BITS)
                       , thresholds, flip
#endif
    };
    if (threadIdx.x < chunk) room.zeros[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < steps; ++i) make_barrier(room.filled[i], 1);
        for (unsigned i = 0; i < patches; ++i) {
            make_barrier(room.full[i], 1);
            make_barrier(room.empty[i], warpgroup_size / warp_size);
        }
#if defined(ADDED)
        for (Barrier& came : room.added) make_barrier(came, 1);
#endif
        publish_barriers();
    }
    __syncthreads();
    let_later_launches_begin();
#if !defined(EARLY)
    wait_for_earlier_launches();
#endif

    if (threadIdx.x >= multiplying) {
#if defined(SETMAXNREG)
        give_registers<given>();
#endif
        if (threadIdx.x == multiplying) bring(memory, share, patch, images, filters, shape, steps);
        return;
    }
#if defined(SETMAXNREG)
    take_registers<taken>();
#endif
    const unsigned team = __shfl_sync(all_lanes, threadIdx.x / warpgroup_size, 0);  // so that it is seen to be uniform
    const Place place;
    const Lines lines(place, patch, shape);
    Notes& notes = room.notes[team];
    if (threadIdx.x % warpgroup_size == 0) notes.column = share.column;
    write_columns(notes, x, share.column, threadIdx.x % warpgroup_size, warpgroup_size);
    asm volatile("bar.sync %0, 128;" :: "r"(team + 1) : "memory");  // this warpgroup's note is written
#if defined(EARLY)
    wait_for_earlier_launches();
#endif
#if defined(ADDED)
    static_assert(parts == 1, "a warp has boxes for one part");
    Added added(memory, place, patch);
#elif BOXES
    unsigned box = 0;
#endif
    Turn<patches> turn;
    turn.advance(team);
    for (unsigned i = share.first + team * share.step; i < patch.tiles; i += teams * share.step, turn.advance(teams)) {
        const Spot origin = origin_of(i, patch);
        int sums[parts][sums_of_part];
        unsigned ones[parts][2] = {}, pixels[parts][2];
#if defined(ADDED)
        const Spot first = plus(origin, spot_of(place.warp % 4 * 16, patch));
        if (place.lane == 0) added.bring(of_added, share.column, first);
        __syncwarp();
#endif
        wait(room.full[turn.at], turn.parity);
        const unsigned before = pixels_before(shape, origin) * pixel_bytes;
        Chunks chunks = {shape, patch, memory.patches + turn.at * patch.bytes + before, room.zeros, lines};
        chunks.begin(place);
        multiply(sums, ones, memory, chunks, divide_up(bytes, product_bytes), i == share.first + team * share.step);
        __syncwarp();
        if (place.lane == 0) arrive(room.empty[turn.at]);
        write_rows(notes, pixels, ones, place, origin, lines, x);
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) {
#if defined(ADDED)
            wait(added.came, added.parity), added.parity ^= 1;
#if defined(ADDED_BITS)
            add(added, sums[part], notes, place, pixels[part], shape.filters, bits);
#else
            add(added, sums[part], notes, place, pixels[part], shape.filters, nullptr);
#endif
            store_sums(added, place, y, first, shape, share.column);
#elif BOXES
            const Spot first = plus(origin, spot_of(place.warp % 4 * 16 + part * part_rows, patch));
            store_boxes(sums[part], memory.boxes[place.warp], box, notes, place, part, [&](const Box& from, unsigned column) {
                store_box(y, from.rows, notes.column + column, first.column, first.row, first.image);
            });
#else
            store(sums[part], notes, place, part, pixels[part], shape.filters, y);
#endif
        }
        __syncwarp();
    }
#if BOXES
    if (place.lane == 0) wait_for_copies();
#endif
}
