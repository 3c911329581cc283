// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sorting and transposition, and what rearranges elements.
//
// Sorted data are pairs of 8 B: the score in the low 4 B (half: 2 B, then 2 B of 0), the index in the high 4 B. Greater
// scores come first, equal ones in the order of the source. NaN comes before all numbers (the documentation is silent).

#include "vector_common.h"

namespace ascend_twin {

namespace {

struct Pair {
    float score;
    uint64_t bits;
};

bool before(const Pair &a, const Pair &b)
{
    bool an = a.score != a.score, bn = b.score != b.score;
    if (an || bn) {
        return an && !bn;
    }
    return a.score > b.score;
}

float score_of(uint8_t type, uint64_t bits)
{
    if (type == ASCEND_TWIN_F16) {
        return f16_to_f32(static_cast<uint16_t>(bits));
    }
    float f;
    uint32_t low = static_cast<uint32_t>(bits);
    memcpy(&f, &low, 4);
    return f;
}

Pair read_pair(uint8_t type, const uint8_t *p)
{
    Pair pair;
    memcpy(&pair.bits, p, 8);
    pair.score = score_of(type, pair.bits);
    return pair;
}

Pair make_pair(uint8_t type, const uint8_t *score, const uint8_t *index)
{
    Pair p{};
    uint64_t s = 0;
    uint32_t i;
    memcpy(&s, score, type == ASCEND_TWIN_F16 ? 2 : 4);
    memcpy(&i, index, 4);
    p.bits = s | (static_cast<uint64_t>(i) << 32);
    p.score = score_of(type, p.bits);
    return p;
}

// Stable, for short lists.
void insertion_sort(Pair *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        Pair p = v[i];
        uint32_t k = i;
        for (; k > 0 && before(p, v[k - 1]); k--) {
            v[k] = v[k - 1];
        }
        v[k] = p;
    }
}

// Stable: runs of two, four, eight ... are merged.
void merge_sort(Pair *v, Pair *other, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32) {
        insertion_sort(v + i, n - i < 32 ? n - i : 32);
    }
    for (uint32_t run = 32; run < n; run *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * run) {
            uint32_t mid = i + run < n ? i + run : n, end = i + 2 * run < n ? i + 2 * run : n;
            uint32_t a = i, b = mid;
            for (uint32_t k = i; k < end; k++) {
                other[k] = a < mid && (b >= end || !before(v[b], v[a])) ? v[a++] : v[b++];
            }
        }
        memcpy(static_cast<void *>(v), other, sizeof(Pair) * n);
    }
}

struct SortWork {
    uint8_t type;
    bool full;
    uint32_t repeat;
    uint64_t dst, src, index;
};

void run_sort32(Exec &x, const Instr &in)
{
    const SortWork &p = in.get<SortWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    size_t size = static_cast<size_t>(type_bits(p.type)) / 8;
    for (uint32_t r = 0; r < p.repeat; r++) {
        Pair v[32];
        for (uint32_t i = 0; i < 32; i++) {
            uint64_t k = 32ull * r + i;
            v[i] = make_pair(p.type, ub + p.src + k * size, ub + p.index + k * 4);
        }
        insertion_sort(v, 32);
        for (uint32_t i = 0; i < 32; i++) {
            memcpy(ub + p.dst + (32ull * r + i) * 8, &v[i].bits, 8);
        }
    }
}

} // namespace

void vector_sort32(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src0", call.api, call.site);
    check_local(call.arg[2], "src1", call.api, call.site);
    check_repeat(call.n[0], call.api, call.site);
    if (call.n[0] == 0) {
        return;
    }
    SortWork p{};
    p.type = call.arg[1].type;
    p.repeat = static_cast<uint32_t>(call.n[0]);
    p.dst = call.arg[0].addr;
    p.src = call.arg[1].addr;
    p.index = call.arg[2].addr;
    uint64_t n = 32ull * p.repeat, size = static_cast<uint64_t>(type_bits(p.type)) / 8;
    Instr in;
    vector_instr(in, call.api, call.site, p.type, static_cast<uint32_t>(size), n, p.repeat);
    touch_run(in, "dst", Use::Write, call.arg[0], p.dst, n * 8);
    touch_run(in, "src0", Use::Read, call.arg[1], p.src, n * size);
    touch_run(in, "src1", Use::Read, call.arg[2], p.index, n * 4);
    check_apart(call.arg[0], n * 8, call.arg[1], n * size, "src0", call.api, call.site);
    check_apart(call.arg[0], n * 8, call.arg[2], n * 4, "src1", call.api, call.site);
    in.put(p);
    in.effect = run_sort32;
    issue(in);
}

namespace {

struct MergeWork {
    uint8_t type;
    bool suspend;
    uint8_t lists;
    uint32_t repeat;
    uint32_t length[4];
    uint64_t dst;
    uint64_t src[4];
};

void run_merge(Exec &x, const Instr &in)
{
    const MergeWork &p = in.get<MergeWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    uint64_t all = 0;
    for (int i = 0; i < p.lists; i++) {
        all += p.length[i];
    }
    uint32_t taken[4] = {0, 0, 0, 0};
    for (uint32_t r = 0; r < p.repeat; r++) {
        for (uint32_t &t : taken) {
            t = 0;
        }
        uint64_t out = 0;
        while (out < all) {
            int best = -1;
            Pair pair{};
            for (int i = 0; i < p.lists; i++) {
                if (taken[i] == p.length[i]) {
                    continue;
                }
                Pair q = read_pair(p.type, ub + p.src[i] + r * all * 8 + taken[i] * 8ull);
                if (best < 0 || before(q, pair)) {
                    best = i;
                    pair = q;
                }
            }
            memcpy(ub + p.dst + (r * all + out) * 8, &pair.bits, 8);
            out++;
            taken[best]++;
            if (p.suspend && taken[best] == p.length[best]) {
                break;
            }
        }
    }
    uint64_t packed = 0;
    for (int i = 0; i < 4; i++) {
        packed |= static_cast<uint64_t>(taken[i] & 0xffff) << (16 * i);
    }
    x.state().spare[5] = packed;
}

// A suspended merge leaves the rest of the destination as it was.
void taint_merge(Exec &x, const Instr &in)
{
    const MergeWork &p = in.get<MergeWork>();
    uint64_t written = 0;
    for (int i = 0; i < p.lists; i++) {
        uint64_t taken = (x.state().spare[5] >> (16 * i)) & 0xffff;
        written += taken;
        // The next pair of a list was compared too.
        uint64_t looked = taken < p.length[i] ? taken + 1 : taken;
        if (!x.defined(Mem::UB, p.src[i], looked * 8)) {
            x.fail(Rule::Undefined, "a pair of list %d has no defined value", i + 1);
        }
    }
    x.define(Mem::UB, p.dst, written * 8, true);
}

} // namespace

void vector_merge(const MoveCall &call, const VecArg src[4])
{
    static const char *const names[] = {"src1", "src2", "src3", "src4"};
    MergeWork p{};
    p.type = call.arg[0].type;
    p.suspend = call.index;
    check_local(call.arg[0], "dst", call.api, call.site);
    if (call.n[5] != 3 && call.n[5] != 7 && call.n[5] != 15) {
        fail(Rule::Range, call.api, "validBit", call.site, "validBit is %lld, it is 3, 7 or 15", static_cast<long long>(call.n[5]));
    }
    p.lists = call.n[5] == 3 ? 2 : call.n[5] == 7 ? 3 : 4;
    check_repeat(call.n[4], call.api, call.site);
    uint64_t all = 0;
    for (int i = 0; i < p.lists; i++) {
        check_local(src[i], names[i], call.api, call.site);
        if (call.n[i] < 0 || call.n[i] > 4095) {
            fail(Rule::Range, call.api, "elementLengths", call.site, "list %d has %lld pairs, the field holds up to 4095", i + 1,
                 static_cast<long long>(call.n[i]));
        }
        p.length[i] = static_cast<uint32_t>(call.n[i]);
        p.src[i] = src[i].addr;
        all += p.length[i];
    }
    p.repeat = static_cast<uint32_t>(call.n[4]);
    if (p.repeat == 0 || all == 0) {
        return;
    }
    if (p.repeat > 1) {
        bool fits = p.lists == 4 && !p.suspend;
        for (int i = 1; i < 4 && fits; i++) {
            fits = p.length[i] == p.length[0] && p.src[i] == p.src[0] + static_cast<uint64_t>(i) * p.length[0] * 8;
        }
        if (!fits) {
            fail(Rule::Usage, call.api, "repeatTimes", call.site,
                 "repeatTimes of %u needs four lists of one length that follow each other, and no suspension", p.repeat);
        }
    }
    p.dst = call.arg[0].addr;
    Instr in;
    vector_instr(in, call.api, call.site, p.type, 8, all * p.repeat, p.repeat);
    in.a[3] = p.lists;
    if (p.suspend) {
        touch_run(in, "dst", Use::Update, call.arg[0], p.dst, all * 8).strict = false;
        in.taint = taint_merge;
    } else {
        touch_run(in, "dst", Use::Write, call.arg[0], p.dst, all * 8 * p.repeat);
    }
    for (int i = 0; i < p.lists; i++) {
        if (p.length[i] == 0) {
            continue;
        }
        Region r;
        r.addr = p.src[i];
        r.bytes = p.length[i] * 8ull;
        r.n2 = p.repeat;
        r.pitch2 = all * 8;
        in.add(names[i], Use::Read, src[i].mem, r, src[i].buffer).align = 8;
        check_apart(call.arg[0], all * 8 * p.repeat, src[i], p.length[i] * 8ull, names[i], call.api, call.site);
    }
    in.put(p);
    in.effect = run_merge;
    issue(in);
}

void vector_sort_result(uint16_t counts[4], const char *api, Site site)
{
    drain(Pipe::V, api, site);
    for (int i = 0; i < 4; i++) {
        counts[i] = static_cast<uint16_t>(state().spare[5] >> (16 * i));
    }
}

// The high-level Sort: 32 at a time, then (full) merged to one list by way of `tmp`.
void vector_full_sort(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "concat", call.api, call.site);
    check_local(call.arg[2], "index", call.api, call.site);
    check_repeat(call.n[0], call.api, call.site);
    if (call.n[0] == 0) {
        return;
    }
    SortWork p{};
    p.type = call.arg[1].type;
    p.full = call.n[1] != 0;
    p.repeat = static_cast<uint32_t>(call.n[0]);
    p.dst = call.arg[0].addr;
    p.src = call.arg[1].addr;
    p.index = call.arg[2].addr;
    uint64_t n = 32ull * p.repeat, size = static_cast<uint64_t>(type_bits(p.type)) / 8;
    Instr in;
    vector_instr(in, call.api, call.site, p.type, static_cast<uint32_t>(size), n, p.repeat);
    in.a[3] = p.full;
    touch_run(in, "dst", Use::Write, call.arg[0], p.dst, n * 8);
    touch_run(in, "concat", Use::Read, call.arg[1], p.src, n * size);
    touch_run(in, "index", Use::Read, call.arg[2], p.index, n * 4);
    if (p.full) {
        check_local(call.arg[3], "tmp", call.api, call.site);
        touch_run(in, "tmp", Use::Write, call.arg[3], call.arg[3].addr, n * 8);
    }
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const SortWork &w = i.get<SortWork>();
        if (!w.full) {
            run_sort32(x, i);
            return;
        }
        uint8_t *ub = x.at(Mem::UB, 0);
        uint32_t n = 32 * w.repeat;
        size_t size = static_cast<size_t>(type_bits(w.type)) / 8;
        static thread_local Pair v[32 * 255], other[32 * 255];
        for (uint32_t k = 0; k < n; k++) {
            v[k] = make_pair(w.type, ub + w.src + k * size, ub + w.index + k * 4ull);
        }
        merge_sort(v, other, n);
        for (uint32_t k = 0; k < n; k++) {
            memcpy(ub + w.dst + k * 8ull, &v[k].bits, 8);
        }
        const Operand &tmp = i.operand[3];
        x.define(Mem::UB, tmp.region.addr, tmp.region.bytes, false);
    };
    issue(in);
}

void vector_extract(const MoveCall &call)
{
    check_local(call.arg[0], "dstValue", call.api, call.site);
    check_local(call.arg[1], "dstIndex", call.api, call.site);
    check_local(call.arg[2], "sorted", call.api, call.site);
    check_repeat(call.n[0], call.api, call.site);
    if (call.n[0] == 0) {
        return;
    }
    SortWork p{};
    p.type = call.arg[2].type;
    p.repeat = static_cast<uint32_t>(call.n[0]);
    p.dst = call.arg[0].addr;
    p.index = call.arg[1].addr;
    p.src = call.arg[2].addr;
    uint64_t n = 32ull * p.repeat, size = static_cast<uint64_t>(type_bits(p.type)) / 8;
    Instr in;
    vector_instr(in, call.api, call.site, p.type, 8, n, p.repeat);
    touch_run(in, "dstValue", Use::Write, call.arg[0], p.dst, n * size);
    touch_run(in, "dstIndex", Use::Write, call.arg[1], p.index, n * 4);
    touch_run(in, "sorted", Use::Read, call.arg[2], p.src, n * 8);
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const SortWork &w = i.get<SortWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        size_t size = static_cast<size_t>(type_bits(w.type)) / 8;
        for (uint64_t k = 0; k < 32ull * w.repeat; k++) {
            memcpy(ub + w.dst + k * size, ub + w.src + k * 8, size);
            memcpy(ub + w.index + k * 4, ub + w.src + k * 8 + 4, 4);
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const SortWork &w = i.get<SortWork>();
        size_t size = static_cast<size_t>(type_bits(w.type)) / 8;
        for (uint64_t k = 0; k < 32ull * w.repeat; k++) {
            x.define_like(Mem::UB, w.dst + k * size, Mem::UB, w.src + k * 8, size);
            x.define_like(Mem::UB, w.index + k * 4, Mem::UB, w.src + k * 8 + 4, 4);
        }
    };
    issue(in);
}

namespace {

// Moves single elements: element k of the destination(s) from element from(k) of the source(s).
struct TransposeWork {
    uint8_t mode;
    uint32_t size;
    uint32_t n, c, hw;
    uint64_t dst, src;
};

uint64_t transposed(const TransposeWork &w, uint64_t k)
{
    // k-th element of the destination -> number of the source's element.
    if (w.mode == static_cast<uint8_t>(AscendC::TransposeType::TRANSPOSE_NCHW2NHWC)) {
        uint64_t c = k % w.c, p = k / w.c % w.hw, n = k / w.c / w.hw;
        return (n * w.c + c) * w.hw + p;
    }
    uint64_t p = k % w.hw, c = k / w.hw % w.c, n = k / w.hw / w.c;
    return (n * w.hw + p) * w.c + c;
}

} // namespace

void vector_transpose(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    TransposeWork p{};
    p.size = 2;
    p.dst = call.arg[0].addr;
    p.src = call.arg[1].addr;
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, 2, 256, 2);
    touch_run(in, "dst", Use::Write, call.arg[0], p.dst, 512);
    touch_run(in, "src", Use::Read, call.arg[1], p.src, 512);
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const TransposeWork &w = i.get<TransposeWork>();
        uint16_t old[256];
        memcpy(old, x.at(Mem::UB, w.src), 512);
        uint8_t *to = x.at(Mem::UB, w.dst);
        for (uint32_t k = 0; k < 256; k++) {
            memcpy(to + 2 * k, &old[k % 16 * 16 + k / 16], 2);
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const TransposeWork &w = i.get<TransposeWork>();
        bool known[256];
        for (uint32_t k = 0; k < 256; k++) {
            known[k] = x.defined(Mem::UB, w.src + 2 * (k % 16 * 16 + k / 16), 2);
        }
        for (uint32_t k = 0; k < 256; k++) {
            x.define(Mem::UB, w.dst + 2 * k, 2, known[k]);
        }
    };
    issue(in);
}

void vector_transpose_ext(const MoveCall &call)
{
    using AscendC::TransposeType;
    auto type = static_cast<TransposeType>(call.mode);
    if (type == TransposeType::TRANSPOSE_TYPE_NONE) {
        return;
    }
    uint32_t size = static_cast<uint32_t>(type_bits(call.arg[0].type)) / 8;
    if (type == TransposeType::TRANSPOSE_ND2ND_B16) {
        if (size != 2 || call.n[2] != 16 || call.n[3] != 16) {
            fail(Rule::Usage, call.api, "transposeParams", call.site, "TRANSPOSE_ND2ND_B16 turns 16 x 16 elements of 16 bits");
        }
        vector_transpose(call);
        return;
    }
    if (type != TransposeType::TRANSPOSE_NCHW2NHWC && type != TransposeType::TRANSPOSE_NHWC2NCHW) {
        fail(Rule::Usage, call.api, "transposeType", call.site, "there is no transposition of type %d", call.mode);
    }
    TransposeWork p{};
    p.mode = call.mode;
    p.size = size;
    p.n = static_cast<uint32_t>(call.n[0]);
    p.c = static_cast<uint32_t>(call.n[1]);
    p.hw = static_cast<uint32_t>(call.n[2] * call.n[3]);
    p.dst = call.arg[0].addr;
    p.src = call.arg[1].addr;
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    check_local(call.arg[2], "sharedTmpBuffer", call.api, call.site);
    uint64_t elements = static_cast<uint64_t>(p.n) * p.c * p.hw;
    if (elements == 0) {
        return;
    }
    if (p.c > 4095 || p.hw > 4095) {
        fail(Rule::Range, call.api, "transposeParams", call.site, "C is %u and H x W is %u, both are at most 4095", p.c, p.hw);
    }
    if (p.hw * size % kBlock != 0) {
        fail(Rule::Alignment, call.api, "transposeParams", call.site, "H x W takes %u bytes, which is no multiple of 32", p.hw * size);
    }
    uint64_t h0 = size == 1 ? 32 : 16;
    uint64_t tmp = (type == TransposeType::TRANSPOSE_NCHW2NHWC ? p.c + 2ull : p.c * 2ull + 1) * h0 * kBlock;
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, size, elements, static_cast<uint32_t>((elements * size + kRepeat - 1) / kRepeat));
    touch_run(in, "dst", Use::Write, call.arg[0], p.dst, elements * size);
    touch_run(in, "src", Use::Read, call.arg[1], p.src, elements * size);
    touch_run(in, "sharedTmpBuffer", Use::Write, call.arg[2], call.arg[2].addr, tmp);
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const TransposeWork &w = i.get<TransposeWork>();
        uint8_t *to = x.at(Mem::UB, w.dst);
        const uint8_t *from = x.at(Mem::UB, w.src);
        uint64_t all = static_cast<uint64_t>(w.n) * w.c * w.hw;
        for (uint64_t k = 0; k < all; k++) {
            memcpy(to + k * w.size, from + transposed(w, k) * w.size, w.size);
        }
        const Operand &t = i.operand[2];
        x.define(Mem::UB, t.region.addr, t.region.bytes, false);
    };
    in.taint = [](Exec &x, const Instr &i) {
        const TransposeWork &w = i.get<TransposeWork>();
        uint64_t all = static_cast<uint64_t>(w.n) * w.c * w.hw;
        for (uint64_t k = 0; k < all; k++) {
            x.define_like(Mem::UB, w.dst + k * w.size, Mem::UB, w.src + transposed(w, k) * w.size, w.size);
        }
    };
    issue(in);
}

namespace {

struct HdWork {
    uint8_t size;
    bool dst_high, src_high;
    uint32_t repeat;
    uint32_t dst_rep, src_rep; // bytes
    uint32_t dst[16], src[16];
};

// Calls f(destination, source) for each element of one repeat.
template <class F> void each_5hd(const HdWork &w, uint32_t r, F f)
{
    uint64_t d = static_cast<uint64_t>(r) * w.dst_rep, s = static_cast<uint64_t>(r) * w.src_rep;
    if (w.size == 4) {
        // Row i of the result takes two blocks.
        for (uint32_t i = 0; i < 8; i++) {
            for (uint32_t j = 0; j < 16; j++) {
                f(w.dst[2 * i + j / 8] + d + 4 * (j % 8), w.src[j] + s + 4 * i);
            }
        }
        return;
    }
    uint32_t to = w.size == 1 && w.dst_high ? 16 : 0, from = w.size == 1 && w.src_high ? 16 : 0;
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t j = 0; j < 16; j++) {
            f(w.dst[i] + d + to + j * w.size, w.src[j] + s + from + i * w.size);
        }
    }
}

// The sixteen places as few regions: lists of addresses mostly have one step.
void list_regions(Instr &in, const char *name, Use use, const uint32_t list[16], uint64_t skip, uint64_t bytes, uint32_t repeat,
                  uint32_t rep)
{
    for (int i = 0; i < 16;) {
        int j = i + 1;
        int64_t step = j < 16 ? static_cast<int64_t>(list[j]) - list[i] : 0;
        if (step > 0) {
            while (j < 16 && static_cast<int64_t>(list[j]) - list[j - 1] == step) {
                j++;
            }
        }
        Region r;
        r.addr = list[i] + skip;
        r.bytes = bytes;
        r.n1 = static_cast<uint32_t>(j - i);
        r.pitch1 = step > 0 ? static_cast<uint64_t>(step) : 0;
        r.n2 = repeat;
        r.pitch2 = rep;
        if (rep == 0) {
            r.n2 = 1;
        }
        if (in.count >= kMaxOperands) {
            fail(Rule::Usage, in.api, name, in.site, "the addresses of the list have too many different steps for the twin");
        }
        Operand &o = in.add(name, use, Mem::UB, r);
        o.align = static_cast<uint16_t>(skip != 0 ? 16 : 32);
        i = j;
    }
}

} // namespace

void vector_5hd(const MoveCall &call, const uint64_t dst[16], const uint64_t src[16])
{
    HdWork p{};
    p.size = static_cast<uint8_t>(type_bits(call.arg[0].type) / 8);
    p.dst_high = call.high[0];
    p.src_high = call.high[1];
    check_repeat(call.n[0], call.api, call.site);
    check_stride(static_cast<uint64_t>(call.n[1]), 65535, "dstRepStride", call.api, call.site);
    check_stride(static_cast<uint64_t>(call.n[2]), 65535, "srcRepStride", call.api, call.site);
    p.repeat = static_cast<uint32_t>(call.n[0]);
    if (p.repeat == 0) {
        return;
    }
    p.dst_rep = static_cast<uint32_t>(call.n[1]) * kBlock;
    p.src_rep = static_cast<uint32_t>(call.n[2]) * kBlock;
    for (int i = 0; i < 16; i++) {
        if (dst[i] >= capacity(Mem::UB) || src[i] >= capacity(Mem::UB)) {
            fail(Rule::Bounds, call.api, dst[i] >= capacity(Mem::UB) ? "dstList" : "srcList", call.site,
                 "entry %d is no address of the unified buffer", i);
        }
        p.dst[i] = static_cast<uint32_t>(dst[i]);
        p.src[i] = static_cast<uint32_t>(src[i]);
    }
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, p.size, static_cast<uint64_t>(p.repeat) * 512 / p.size, 2 * p.repeat);
    uint64_t bytes = p.size == 1 ? 16 : 32;
    list_regions(in, "dstList", Use::Write, p.dst, p.size == 1 && p.dst_high ? 16 : 0, bytes, p.repeat, p.dst_rep);
    list_regions(in, "srcList", Use::Read, p.src, p.size == 1 && p.src_high ? 16 : 0, bytes, p.repeat, p.src_rep);
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const HdWork &w = i.get<HdWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        for (uint32_t r = 0; r < w.repeat; r++) {
            uint8_t old[512];
            uint32_t k = 0;
            each_5hd(w, r, [&](uint64_t, uint64_t from) {
                memcpy(old + k, ub + from, w.size);
                k += w.size;
            });
            k = 0;
            each_5hd(w, r, [&](uint64_t to, uint64_t) {
                memcpy(ub + to, old + k, w.size);
                k += w.size;
            });
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const HdWork &w = i.get<HdWork>();
        for (uint32_t r = 0; r < w.repeat; r++) {
            bool known[256];
            uint32_t k = 0;
            each_5hd(w, r, [&](uint64_t, uint64_t from) { known[k++] = x.defined(Mem::UB, from, w.size); });
            k = 0;
            each_5hd(w, r, [&](uint64_t to, uint64_t) { x.define(Mem::UB, to, w.size, known[k++]); });
        }
    };
    issue(in);
}

namespace {

struct InterleaveWork {
    uint8_t mode;
    uint8_t sources;
    uint32_t size;
    uint64_t count; // elements of each destination
    uint64_t dst[2], src[2];
};

// Source of element k of destination d.
uint64_t interleaved(const InterleaveWork &w, int d, uint64_t k)
{
    if (w.mode == 0) {
        uint64_t j = static_cast<uint64_t>(d) * w.count + k; // number in the joined result
        return w.src[j % 2] + j / 2 * w.size;
    }
    uint64_t j = 2 * k + static_cast<uint64_t>(d); // number in the joined source
    uint64_t half = w.sources == 1 ? 2 * w.count : w.count;
    return w.src[j / half] + j % half * w.size;
}

} // namespace

void vector_interleave(const MoveCall &call)
{
    static const char *const names[] = {"dst0", "dst1", "src0", "src1"};
    InterleaveWork p{};
    p.mode = call.mode;
    p.sources = call.args == 4 ? 2 : 1;
    p.size = static_cast<uint32_t>(type_bits(call.arg[0].type)) / 8;
    if (call.n[0] <= 0 || (call.n[0] % 2 != 0 && (p.sources == 1 || p.mode == 1 || p.mode == 0))) {
        fail(Rule::Range, call.api, "count", call.site, "count is %lld, it is positive and even", static_cast<long long>(call.n[0]));
    }
    p.count = static_cast<uint64_t>(call.n[0]) / (p.sources == 1 ? 2 : 1);
    Instr in;
    uint64_t all = 2 * p.count * p.size;
    vector_instr(in, call.api, call.site, call.arg[0].type, p.size, 2 * p.count, static_cast<uint32_t>((all + kRepeat - 1) / kRepeat));
    for (int i = 0; i < call.args; i++) {
        check_local(call.arg[i], names[i], call.api, call.site);
        (i < 2 ? p.dst[i] : p.src[i - 2]) = call.arg[i].addr;
        uint64_t n = i >= 2 && p.sources == 1 ? 2 * p.count : p.count;
        touch_run(in, names[i], i < 2 ? Use::Write : Use::Read, call.arg[i], call.arg[i].addr, n * p.size);
    }
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const InterleaveWork &w = i.get<InterleaveWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        for (int d = 0; d < 2; d++) {
            for (uint64_t k = 0; k < w.count; k++) {
                memcpy(ub + w.dst[d] + k * w.size, ub + interleaved(w, d, k), w.size);
            }
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const InterleaveWork &w = i.get<InterleaveWork>();
        for (int d = 0; d < 2; d++) {
            for (uint64_t k = 0; k < w.count; k++) {
                x.define_like(Mem::UB, w.dst[d] + k * w.size, Mem::UB, interleaved(w, d, k), w.size);
            }
        }
    };
    issue(in);
}

void vector_mull(const MoveCall &call)
{
    static const char *const names[] = {"dst0", "dst1", "src0", "src1"};
    InterleaveWork p{};
    p.mode = call.arg[0].type == ASCEND_TWIN_I32;
    p.size = 4;
    if (call.n[0] <= 0) {
        fail(Rule::Range, call.api, "count", call.site, "count is %lld", static_cast<long long>(call.n[0]));
    }
    p.count = static_cast<uint64_t>(call.n[0]);
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, 4, p.count, static_cast<uint32_t>((p.count * 4 + kRepeat - 1) / kRepeat));
    for (int i = 0; i < 4; i++) {
        check_local(call.arg[i], names[i], call.api, call.site);
        (i < 2 ? p.dst[i] : p.src[i - 2]) = call.arg[i].addr;
        touch_run(in, names[i], i < 2 ? Use::Write : Use::Read, call.arg[i], call.arg[i].addr, p.count * 4);
    }
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const InterleaveWork &w = i.get<InterleaveWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        for (uint64_t k = 0; k < w.count; k++) {
            uint64_t product;
            if (w.mode != 0) {
                int32_t a, b;
                memcpy(&a, ub + w.src[0] + 4 * k, 4);
                memcpy(&b, ub + w.src[1] + 4 * k, 4);
                product = static_cast<uint64_t>(static_cast<int64_t>(a) * b);
            } else {
                uint32_t a, b;
                memcpy(&a, ub + w.src[0] + 4 * k, 4);
                memcpy(&b, ub + w.src[1] + 4 * k, 4);
                product = static_cast<uint64_t>(a) * b;
            }
            memcpy(ub + w.dst[0] + 4 * k, &product, 4);
            product >>= 32;
            memcpy(ub + w.dst[1] + 4 * k, &product, 4);
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const InterleaveWork &w = i.get<InterleaveWork>();
        for (uint64_t k = 0; k < w.count; k++) {
            bool known = x.defined(Mem::UB, w.src[0] + 4 * k, 4) && x.defined(Mem::UB, w.src[1] + 4 * k, 4);
            x.define(Mem::UB, w.dst[0] + 4 * k, 4, known);
            x.define(Mem::UB, w.dst[1] + 4 * k, 4, known);
        }
    };
    issue(in);
}

} // namespace ascend_twin
