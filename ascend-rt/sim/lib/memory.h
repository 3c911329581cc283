// SPDX-License-Identifier: MIT OR Apache-2.0
//
// On-chip memories: bytes, which of them are defined, and who touched them last.

#ifndef ASCEND_TWIN_MEMORY_H
#define ASCEND_TWIN_MEMORY_H

#include <stdint.h>

#include <memory>
#include <vector>
#include <stddef.h>

#include "clock.h"

namespace ascend_twin {

constexpr uint32_t kCell = 32;
// Agents that touch an on-chip memory: the pipes of the own core, then those of two other cores of the block.
constexpr int kSlots = 3 * kPipes;

// Index of the first element of a[0..n) that is greater than `limit`; n when there is none.
uint32_t first_greater(const uint32_t *a, uint32_t n, uint32_t limit);
// Index of the first element that is not all ones / not zero.
uint32_t first_not_full(const uint32_t *a, uint32_t n);

class Local {
public:
    void create(uint32_t bytes);
    bool exists() const { return bytes_ != 0; }
    uint32_t bytes() const { return bytes_; }
    uint8_t *at(uint64_t addr) { return data_.get() + addr; }

    bool defined(uint64_t addr, uint64_t bytes) const;
    // One bit per byte of a cell.
    void define(uint64_t addr, uint64_t bytes, bool value);
    // Bits of up to 32 bytes from `addr` on, the first byte lowest.
    uint32_t bits(uint64_t addr, uint32_t count) const;
    void set_bits(uint64_t addr, uint32_t count, uint32_t value);

    // First byte of a cell of the range that nothing was ever written to; UINT64_MAX when there is none.
    uint64_t first_fresh(uint64_t addr, uint64_t bytes) const;
    void touch(uint64_t addr, uint64_t bytes);
    void undefine(uint64_t addr, uint64_t bytes);

    // Times of the last write and read of every cell by one agent; allocated when it first does so.
    uint32_t *writes(int slot) { return writes_[slot].get(); }
    uint32_t *reads(int slot) { return reads_[slot].get(); }
    uint32_t *writes_of(int slot) { return want(writes_[slot]); }
    uint32_t *reads_of(int slot) { return want(reads_[slot]); }

private:
    uint32_t *want(std::unique_ptr<uint32_t[]> &p)
    {
        if (!p) {
            p.reset(new uint32_t[cells_]());
        }
        return p.get();
    }

    uint32_t bytes_ = 0;
    uint32_t cells_ = 0;
    std::unique_ptr<uint8_t[]> data_;
    std::unique_ptr<uint32_t[]> defined_;
    std::unique_ptr<uint8_t[]> fresh_;
    std::unique_ptr<uint32_t[]> writes_[kSlots];
    std::unique_ptr<uint32_t[]> reads_[kSlots];
};

} // namespace ascend_twin

#endif
