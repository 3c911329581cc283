// SPDX-License-Identifier: MIT OR Apache-2.0

#include "memory.h"

#include <string.h>

namespace ascend_twin {

#if defined(__x86_64__) && defined(__GNUC__)
#define ASCEND_TWIN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ASCEND_TWIN_CLONES
#endif

ASCEND_TWIN_CLONES
static bool any_greater(const uint32_t *a, uint32_t n, uint32_t limit)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = a[i] > most ? a[i] : most;
    }
    return most > limit;
}

ASCEND_TWIN_CLONES
static uint32_t all_and(const uint32_t *a, uint32_t n)
{
    uint32_t all = ~0u;
    for (uint32_t i = 0; i < n; i++) {
        all &= a[i];
    }
    return all;
}

uint32_t first_greater(const uint32_t *a, uint32_t n, uint32_t limit)
{
    if (!any_greater(a, n, limit)) {
        return n;
    }
    uint32_t i = 0;
    while (i < n && a[i] <= limit) {
        i++;
    }
    return i;
}

uint32_t first_not_full(const uint32_t *a, uint32_t n)
{
    if (all_and(a, n) == ~0u) {
        return n;
    }
    uint32_t i = 0;
    while (i < n && a[i] == ~0u) {
        i++;
    }
    return i;
}

void Local::create(uint32_t bytes)
{
    bytes_ = bytes;
    cells_ = (bytes + kCell - 1) / kCell;
    const size_t whole = static_cast<size_t>(cells_) * kCell;
    data_.reset(new uint8_t[whole]);
    // Not zero: a kernel that counts on cleared memory gets NaN and large integers.
    memset(data_.get(), 0xfb, whole);
    defined_.reset(new uint32_t[cells_]());
    fresh_.reset(new uint8_t[cells_]);
    memset(fresh_.get(), 1, cells_);
}

static uint32_t low_bits(uint32_t n) { return n >= 32 ? ~0u : (1u << n) - 1; }

bool Local::defined(uint64_t addr, uint64_t bytes) const
{
    if (bytes == 0) {
        return true;
    }
    uint64_t first = addr / kCell, last = (addr + bytes - 1) / kCell;
    const uint32_t head = static_cast<uint32_t>(addr % kCell), tail = static_cast<uint32_t>((addr + bytes - 1) % kCell) + 1;
    if (first == last) {
        const uint32_t m = low_bits(tail) & ~low_bits(head);
        return (defined_[first] & m) == m;
    }
    if (head != 0) {
        const uint32_t m = ~low_bits(head);
        if ((defined_[first] & m) != m) {
            return false;
        }
        first++;
    }
    if (tail != kCell) {
        const uint32_t m = low_bits(tail);
        if ((defined_[last] & m) != m) {
            return false;
        }
        last--;
    }
    if (first > last) {
        return true;
    }
    const auto n = static_cast<uint32_t>(last - first + 1);
    return all_and(&defined_[first], n) == ~0u;
}

void Local::define(uint64_t addr, uint64_t bytes, bool value)
{
    if (bytes == 0) {
        return;
    }
    uint64_t first = addr / kCell, last = (addr + bytes - 1) / kCell;
    const uint32_t head = static_cast<uint32_t>(addr % kCell), tail = static_cast<uint32_t>((addr + bytes - 1) % kCell) + 1;
    auto mark = [&](uint64_t cell, uint32_t m) {
        if (value) {
            defined_[cell] |= m;
        } else {
            defined_[cell] &= ~m;
        }
    };
    if (first == last) {
        mark(first, low_bits(tail) & ~low_bits(head));
        return;
    }
    if (head != 0) {
        mark(first++, ~low_bits(head));
    }
    if (tail != kCell) {
        mark(last--, low_bits(tail));
    }
    if (first <= last) {
        memset(&defined_[first], value ? 0xff : 0, static_cast<size_t>(last - first + 1) * sizeof(uint32_t));
    }
}

uint32_t Local::bits(uint64_t addr, uint32_t count) const
{
    const uint64_t cell = addr / kCell;
    const auto shift = static_cast<uint32_t>(addr % kCell);
    uint64_t two = defined_[cell];
    if (shift + count > kCell) {
        two |= static_cast<uint64_t>(defined_[cell + 1]) << 32;
    }
    return static_cast<uint32_t>(two >> shift) & low_bits(count);
}

void Local::set_bits(uint64_t addr, uint32_t count, uint32_t value)
{
    const uint64_t cell = addr / kCell;
    const auto shift = static_cast<uint32_t>(addr % kCell);
    const uint64_t mask = static_cast<uint64_t>(low_bits(count)) << shift;
    const uint64_t set = static_cast<uint64_t>(value & low_bits(count)) << shift;
    defined_[cell] = (defined_[cell] & ~static_cast<uint32_t>(mask)) | static_cast<uint32_t>(set);
    if (shift + count > kCell) {
        defined_[cell + 1] = (defined_[cell + 1] & ~static_cast<uint32_t>(mask >> 32)) | static_cast<uint32_t>(set >> 32);
    }
}

uint64_t Local::first_fresh(uint64_t addr, uint64_t bytes) const
{
    if (bytes == 0) {
        return UINT64_MAX;
    }
    const uint64_t first = addr / kCell, last = (addr + bytes - 1) / kCell;
    const void *p = memchr(&fresh_[first], 1, static_cast<size_t>(last - first + 1));
    if (p == nullptr) {
        return UINT64_MAX;
    }
    const auto cell = static_cast<uint64_t>(static_cast<const uint8_t *>(p) - fresh_.get());
    return cell * kCell < addr ? addr : cell * kCell;
}

void Local::touch(uint64_t addr, uint64_t bytes)
{
    if (bytes != 0) {
        const uint64_t first = addr / kCell, last = (addr + bytes - 1) / kCell;
        memset(&fresh_[first], 0, static_cast<size_t>(last - first + 1));
    }
}

void Local::undefine(uint64_t addr, uint64_t bytes)
{
    if (bytes != 0) {
        define(addr, bytes, false);
        const uint64_t first = (addr + kCell - 1) / kCell, end = (addr + bytes) / kCell;
        if (first < end) {
            memset(&fresh_[first], 1, static_cast<size_t>(end - first));
        }
    }
}

} // namespace ascend_twin
