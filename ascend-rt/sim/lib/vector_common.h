// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the vector calls share: which elements take part, where they lie, and what of memory they touch.

#ifndef ASCEND_TWIN_VECTOR_COMMON_H
#define ASCEND_TWIN_VECTOR_COMMON_H

#include "numeric.h"
#include "twin/vector.h"

namespace ascend_twin {

constexpr uint32_t kBlock = 32; // bytes
constexpr uint32_t kRepeat = 256; // bytes

// The elements that take part. A repeat has `lanes` places; of each of the first `repeats` repeats those of the mask take
// part, of one more the first `tail`.
struct Shape {
    uint32_t lanes = 0;
    uint32_t repeats = 0;
    uint32_t tail = 0;
    uint32_t prefix = 0; // the mask is the first `prefix` lanes; 0: it is `bits`
    uint64_t bits[2] = {0, 0};

    bool full() const { return prefix == lanes; }
    uint64_t elements() const { return static_cast<uint64_t>(repeats) * active() + tail; }
    uint32_t active() const
    {
        return prefix != 0 ? prefix
                           : static_cast<uint32_t>(__builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]));
    }
    bool on(uint32_t repeat, uint32_t lane) const
    {
        if (repeat >= repeats) {
            return lane < tail;
        }
        return prefix != 0 ? lane < prefix : ((bits[lane / 64] >> (lane % 64)) & 1) != 0;
    }
    uint32_t rows() const { return repeats + (tail != 0 ? 1 : 0); } // repeats, the tail included
};

// Where the elements of one operand lie: bytes.
struct Track {
    uint64_t addr = 0;
    uint32_t blk = kBlock;
    uint32_t rep = kRepeat;
    uint16_t bits = 8; // of an element
    bool single = false;

    uint64_t at(uint32_t repeat, uint32_t lane) const
    {
        if (single) {
            return addr;
        }
        uint64_t bit = static_cast<uint64_t>(lane) * bits;
        return addr + static_cast<uint64_t>(repeat) * rep + bit / 256 * blk + bit % 256 / 8;
    }
    // Whether the elements of all repeats follow each other.
    bool dense(const Shape &s) const
    {
        if (single) {
            return false;
        }
        return blk == kBlock && (s.rows() <= 1 || rep == s.lanes * bits / 8);
    }
    // Whether those of one repeat do.
    bool row_dense() const { return !single && blk == kBlock; }
};

inline Track track(const VecArg &a)
{
    Track t;
    t.addr = a.addr;
    t.blk = a.blk * kBlock;
    t.rep = a.rep * kBlock;
    t.bits = static_cast<uint16_t>(type_bits(a.type));
    t.single = a.single;
    return t;
}
// For calls with a count: everything follows.
inline Track flat_track(const VecArg &a, uint32_t lanes)
{
    Track t = track(a);
    t.blk = kBlock;
    t.rep = lanes * t.bits / 8;
    return t;
}

// False: nothing is to be done. May change the mask registers of the core as the call does.
bool resolve(const VecMask &mask, uint32_t lanes, const char *api, Site site, Shape &shape);

// Adds to the instruction what an operand touches; `strict` and `align` as in Operand. Reads that cannot be told exactly
// lose `strict`, so that the taint function judges them.
void touch(Instr &in, const char *name, Use use, const VecArg &arg, const Track &t, const Shape &s, uint16_t align = 0,
           bool strict = true);
// One run of bytes.
Operand &touch_run(Instr &in, const char *name, Use use, const VecArg &arg, uint64_t addr, uint64_t bytes, uint16_t align = 0);

void check_local(const VecArg &arg, const char *name, const char *api, Site site);
void check_stride(uint64_t value, uint64_t limit, const char *what, const char *api, Site site);
void check_repeat(int64_t repeat, const char *api, Site site);

// For calls whose operands must not share memory at all.
void check_apart(const VecArg &dst, uint64_t dst_bytes, const VecArg &src, uint64_t src_bytes, const char *name, const char *api, Site site);

// Starts an instruction of the vector unit.
void vector_instr(Instr &in, const char *api, Site site, uint8_t dtype, uint32_t bytes, uint64_t elements, uint32_t repeats);

// How conversions to floating point and to integers treat what does not fit, by the control register at issue.
Overflow overflow_mode(uint8_t dst);
bool truncates_int();

uint32_t arch();

} // namespace ascend_twin

#endif
