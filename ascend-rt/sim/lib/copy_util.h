// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What copies and cube instructions share: checks of fields, regions, moves of runs.

#ifndef ASCEND_TWIN_COPY_UTIL_H
#define ASCEND_TWIN_COPY_UTIL_H

#include "twin/copy.h"

namespace ascend_twin {

constexpr uint64_t up(uint64_t n, uint64_t d) { return (n + d - 1) / d; }
constexpr uint64_t round_up(uint64_t n, uint64_t d) { return up(n, d) * d; }
constexpr uint64_t bytes_of(uint64_t elements, Kind k) { return elements * k.bits / 8; }

// A call under way: its name and place, for reports.
struct Call {
    const char *api;
    Site site;

    // The number written to a field must fit its type and lie in [least, most].
    template <class T> T field(const Field<T> &f, const char *name, int64_t least, int64_t most) const
    {
        if (f.wide() < least || f.wide() > most) {
            out_of_range(name, f.wide(), least, most);
        }
        return f;
    }
    void range(const char *name, int64_t value, int64_t least, int64_t most) const
    {
        if (value < least || value > most) {
            out_of_range(name, value, least, most);
        }
    }
    [[noreturn]] void out_of_range(const char *name, int64_t value, int64_t least, int64_t most) const;

    void on_cube() const;
    void on_vector() const;
};

// n2 groups of n1 runs of bytes as a region; neighbours that touch become one run. Zero pitches: the same place again.
Region runs(uint64_t addr, uint64_t bytes, uint64_t n1, uint64_t pitch1, uint64_t n2 = 1, uint64_t pitch2 = 0);

// Moves of n2 times n1 runs of `bytes` bytes from operand 0 to operand 1. Pitches are from start to start.
struct Runs {
    uint64_t bytes;
    uint64_t n1, n2;
    int64_t from0; // where the first run starts, from the start of the region
    int64_t from1, to1, from2, to2;
    uint8_t atomic; // 0, or the operation of CoreState
    uint8_t type; // of atomic operations
};
void move_runs(Exec &x, const Instr &i);
void taint_runs(Exec &x, const Instr &i);

// One element of `type` at `to` becomes what the atomic operation makes of it and the one at `from`.
void atomic_update(uint8_t op, uint8_t type, void *to, const void *from, uint64_t bytes);
// Bytes of `to` in GM stay defined only where the source is.
void taint_atomic(Exec &x, uint64_t to, Mem from, uint64_t from_addr, uint64_t bytes, uint8_t type);
// Use of a GM destination that state of the core asks for, and its check. `kind` is that of the elements written.
Use gm_use(const Call &c, Kind kind, uint8_t &op, uint8_t &type);

const char *kind_name(uint8_t type);

inline bool is(Mem a, Mem b) { return a == b; }

} // namespace ascend_twin

#endif
