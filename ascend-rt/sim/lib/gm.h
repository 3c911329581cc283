// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What is known of device memory: who touched which bytes last, in any order of cores, and which bytes hold no value.
// Byte-exact: cores may write neighbouring bytes of one block.

#ifndef ASCEND_TWIN_GM_H
#define ASCEND_TWIN_GM_H

#include <stdint.h>

#include <unordered_map>
#include <vector>

namespace ascend_twin {

struct Touch {
    uint32_t agent;
    uint32_t time;
};

constexpr uint32_t kNobody = ~0u;

// Bytes [lo, hi) of a page that share their history.
struct Segment {
    uint16_t lo;
    uint16_t hi; // page size is 4096: fits
    bool undefined; // counts in a workspace only: a page may hold parts of other buffers, which are always defined
    bool atomic; // the last write was atomic; `atomics` holds all since the last plain one
    Touch write; // agent kNobody: none in this launch
    uint64_t stamp; // when it was last written, in order of execution
    std::vector<Touch> reads;
    std::vector<Touch> atomics;
};

class Gm {
public:
    static constexpr uint64_t kPage = 4096;

    // Calls f(segment) for pieces that cover [addr, addr + bytes) exactly; they may be changed.
    template <class F> void visit(uint64_t addr, uint64_t bytes, F f)
    {
        while (bytes != 0) {
            const uint64_t page = addr / kPage;
            const auto lo = static_cast<uint32_t>(addr % kPage);
            const auto n = static_cast<uint32_t>(bytes < kPage - lo ? bytes : kPage - lo);
            auto &segments = page_of(page);
            visit_page(segments, lo, lo + n, f);
            addr += n;
            bytes -= n;
        }
    }
    // f(const segment &), nothing is created: pages that nobody touched are skipped.
    template <class F> void look(uint64_t addr, uint64_t bytes, F f) const
    {
        while (bytes != 0) {
            const uint64_t page = addr / kPage;
            const auto lo = static_cast<uint32_t>(addr % kPage);
            const auto n = static_cast<uint32_t>(bytes < kPage - lo ? bytes : kPage - lo);
            const auto at = pages_.find(page);
            if (at != pages_.end()) {
                for (const Segment &s : at->second) {
                    if (s.hi > lo && s.lo < lo + n) {
                        f(s);
                    }
                }
            }
            addr += n;
            bytes -= n;
        }
    }

private:
    using Page = std::vector<Segment>;

    Page &page_of(uint64_t page)
    {
        if (page == last_ && last_page_ != nullptr) {
            return *last_page_;
        }
        auto [at, fresh] = pages_.try_emplace(page);
        if (fresh) {
            Segment s{};
            s.lo = 0;
            s.hi = static_cast<uint16_t>(kPage);
            s.undefined = true;
            s.write.agent = kNobody;
            at->second.push_back(s);
        }
        last_ = page;
        last_page_ = &at->second;
        return at->second;
    }

    static bool same(const std::vector<Touch> &a, const std::vector<Touch> &b)
    {
        if (a.size() != b.size()) {
            return false;
        }
        for (size_t i = 0; i < a.size(); i++) {
            if (a[i].agent != b[i].agent || a[i].time != b[i].time) {
                return false;
            }
        }
        return true;
    }
    // The stamp does not count: the later one is kept.
    static bool same(const Segment &a, const Segment &b)
    {
        return a.undefined == b.undefined && a.atomic == b.atomic && a.write.agent == b.write.agent && a.write.time == b.write.time &&
               same(a.reads, b.reads) && same(a.atomics, b.atomics);
    }
    static void split(Page &p, size_t i, uint32_t at)
    {
        Segment right = p[i];
        right.lo = static_cast<uint16_t>(at);
        p[i].hi = static_cast<uint16_t>(at);
        p.insert(p.begin() + static_cast<long>(i) + 1, right);
    }
    static size_t find(const Page &p, uint32_t lo)
    {
        size_t a = 0, b = p.size();
        while (a + 1 < b) {
            const size_t m = (a + b) / 2;
            if (p[m].lo <= lo) {
                a = m;
            } else {
                b = m;
            }
        }
        return a;
    }
    template <class F> static void visit_page(Page &p, uint32_t lo, uint32_t hi, F f)
    {
        size_t i = find(p, lo);
        if (p[i].lo < lo) {
            split(p, i, lo);
            i++;
        }
        const size_t first = i;
        for (; i < p.size() && p[i].lo < hi; i++) {
            if (p[i].hi > hi) {
                split(p, i, hi);
            }
            f(p[i]);
        }
        // Neighbours that came to the same history become one piece again.
        size_t from = first == 0 ? 0 : first - 1;
        while (from + 1 < p.size() && p[from].lo < hi) {
            if (same(p[from], p[from + 1])) {
                p[from].hi = p[from + 1].hi;
                p[from].stamp = p[from].stamp > p[from + 1].stamp ? p[from].stamp : p[from + 1].stamp;
                p.erase(p.begin() + static_cast<long>(from) + 1);
            } else {
                from++;
            }
        }
    }

    std::unordered_map<uint64_t, Page> pages_;
    uint64_t last_ = 0;
    Page *last_page_ = nullptr;
};

} // namespace ascend_twin

#endif
