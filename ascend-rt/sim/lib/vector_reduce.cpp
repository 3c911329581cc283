// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reductions.
//
// Sums inside a repeat or a block are a binary tree over neighbours ((0 + 1) + (2 + 3)) ...; lanes that do not take part
// count as 0. Each addition of half is rounded to half, as the documentation's picture of an overflow shows. ReduceSum of
// the first elements adds the sums of the repeats one after the other on dav-2201; everything else is a tree again: the
// repeats' sums are themselves reduced repeat by repeat. NaN is the result of a maximum or minimum that meets one (the
// documentation is silent).

#include "vector_common.h"

namespace ascend_twin {

namespace {

using AscendC::ReduceOrder;
using AscendC::ReduceType;

// The type as a number: half stays half between steps.
struct Half {
    float v;
};

template <class T> struct Sum {
    static T add(T a, T b, Overflow) { return static_cast<T>(a + b); }
};
template <> struct Sum<int32_t> {
    static int32_t add(int32_t a, int32_t b, Overflow) { return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
};
template <> struct Sum<int64_t> {
    static int64_t add(int64_t a, int64_t b, Overflow) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
};
template <> struct Sum<Half> {
    static Half add(Half a, Half b, Overflow o) { return Half{f16_to_f32(f32_to_f16(a.v + b.v, Round::Rint, o))}; }
};

template <class T> T tree(T *v, uint32_t n, Overflow o)
{
    // `n` is a power of two.
    for (; n > 1; n /= 2) {
        for (uint32_t i = 0; i < n / 2; i++) {
            v[i] = Sum<T>::add(v[2 * i], v[2 * i + 1], o);
        }
    }
    return v[0];
}

template <class T> T read(const uint8_t *p)
{
    T v;
    memcpy(&v, p, sizeof(T));
    return v;
}
template <> Half read<Half>(const uint8_t *p) { return Half{f16_to_f32(read<uint16_t>(p))}; }

template <class T> void write(uint8_t *p, T v) { memcpy(p, &v, sizeof(T)); }
template <> void write<Half>(uint8_t *p, Half v)
{
    uint16_t h = f32_to_f16(v.v);
    memcpy(p, &h, 2);
}

template <class T> bool is_nan(T) { return false; }
template <> bool is_nan<float>(float v) { return v != v; }
template <> bool is_nan<Half>(Half v) { return v.v != v.v; }
template <class T> bool less(T a, T b) { return a < b; }
template <> bool less<Half>(Half a, Half b) { return a.v < b.v; }

// Whether `a` replaces the best so far.
template <class T> bool better(bool most, T a, T best)
{
    if (is_nan(best)) {
        return false;
    }
    return is_nan(a) || (most ? less(best, a) : less(a, best));
}

struct ReduceWork {
    ReduceType type;
    ReduceOrder order;
    bool index;
    bool in_order; // the sums of the repeats are added one after the other
    Overflow overflow;
    uint8_t from;
    uint8_t to;
    Shape shape;
    Track src;
    uint64_t dst;
    uint64_t dst_rep; // bytes
    uint64_t tmp;
    uint64_t tmp_bytes;
};

template <class F> void by_type(uint8_t type, F f)
{
    switch (type) {
    case ASCEND_TWIN_F32:
        return f(float{});
    case ASCEND_TWIN_F16:
        return f(Half{});
    case ASCEND_TWIN_I16:
        return f(int16_t{});
    case ASCEND_TWIN_U16:
        return f(uint16_t{});
    case ASCEND_TWIN_I32:
        return f(int32_t{});
    case ASCEND_TWIN_U32:
        return f(uint32_t{});
    case ASCEND_TWIN_I64:
        return f(int64_t{});
    case ASCEND_TWIN_U64:
        return f(uint64_t{});
    default:
        return;
    }
}

template <class T> constexpr uint64_t width() { return sizeof(T); }
template <> constexpr uint64_t width<Half>() { return 2; }

// The sum of one repeat; integers of 16 bits are summed in 32.
template <class T, class R> R sum_row(const ReduceWork &p, const uint8_t *ub, uint32_t r)
{
    R v[256];
    uint32_t n = 1;
    while (n < p.shape.lanes) {
        n *= 2;
    }
    uint32_t first = r < p.shape.repeats ? p.shape.prefix : p.shape.tail;
    if (first != 0 && p.src.row_dense()) {
        const uint8_t *from = ub + p.src.at(r, 0);
        for (uint32_t lane = 0; lane < first; lane++) {
            v[lane] = static_cast<R>(read<T>(from + lane * width<T>()));
        }
        for (uint32_t lane = first; lane < n; lane++) {
            v[lane] = R{};
        }
        return tree(v, n, p.overflow);
    }
    for (uint32_t lane = 0; lane < n; lane++) {
        v[lane] = lane < p.shape.lanes && p.shape.on(r, lane) ? static_cast<R>(read<T>(ub + p.src.at(r, lane))) : R{};
    }
    return tree(v, n, p.overflow);
}

template <class T> struct Best {
    bool any = false;
    T value{};
    uint32_t index = 0;
};

template <class T> Best<T> best_row(const ReduceWork &p, const uint8_t *ub, uint32_t r)
{
    Best<T> b;
    bool most = p.type == ReduceType::MAX;
    for (uint32_t lane = 0; lane < p.shape.lanes; lane++) {
        if (!p.shape.on(r, lane)) {
            continue;
        }
        T v = read<T>(ub + p.src.at(r, lane));
        if (!b.any || better(most, v, b.value)) {
            b.any = true;
            b.value = v;
            b.index = lane;
        }
    }
    return b;
}

template <class T> void write_index(uint8_t *p, uint32_t index)
{
    uint64_t wide = index;
    memcpy(p, &wide, width<T>());
}

template <class T> void keep_sum(CoreState &core, T v)
{
    uint64_t bits = 0;
    write(reinterpret_cast<uint8_t *>(&bits), v);
    core.spare[4] = bits;
}

template <class T> void keep_best(CoreState &core, T v, uint32_t index)
{
    uint64_t bits = 0;
    write(reinterpret_cast<uint8_t *>(&bits), v);
    core.spare[2] = bits;
    core.spare[3] = index;
}

void run_repeat(Exec &x, const Instr &in)
{
    const ReduceWork &p = in.get<ReduceWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    by_type(p.from, [&](auto zero) {
        using T = decltype(zero);
        bool seen = false;
        T over{};
        uint32_t over_index = 0;
        for (uint32_t r = 0; r < p.shape.rows(); r++) {
            uint8_t *to = ub + p.dst + r * p.dst_rep;
            if (p.type == ReduceType::SUM) {
                if (p.from == ASCEND_TWIN_I16) {
                    write(to, sum_row<int16_t, int32_t>(p, ub, r));
                } else if (p.from == ASCEND_TWIN_U16) {
                    write(to, sum_row<uint16_t, uint32_t>(p, ub, r));
                } else {
                    write(to, sum_row<T, T>(p, ub, r));
                }
                continue;
            }
            Best<T> b = best_row<T>(p, ub, r);
            if (!seen || better(p.type == ReduceType::MAX, b.value, over)) {
                seen = true;
                over = b.value;
                over_index = b.index;
            }
            switch (p.order) {
            case ReduceOrder::ORDER_VALUE_INDEX:
                write(to, b.value);
                write_index<T>(to + width<T>(), b.index);
                break;
            case ReduceOrder::ORDER_INDEX_VALUE:
                write_index<T>(to, b.index);
                write(to + width<T>(), b.value);
                break;
            case ReduceOrder::ORDER_ONLY_VALUE:
                write(to, b.value);
                break;
            case ReduceOrder::ORDER_ONLY_INDEX:
                write<uint32_t>(to, b.index);
                break;
            }
        }
        if (p.type != ReduceType::SUM) {
            keep_best(x.state(), over, over_index);
        }
    });
}

void run_block(Exec &x, const Instr &in)
{
    const ReduceWork &p = in.get<ReduceWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    by_type(p.from, [&](auto zero) {
        using T = decltype(zero);
        uint32_t per = static_cast<uint32_t>(kBlock / width<T>());
        for (uint32_t r = 0; r < p.shape.rows(); r++) {
            for (uint32_t block = 0; block < 8; block++) {
                T v[32];
                Best<T> b;
                bool any = false;
                for (uint32_t i = 0; i < per; i++) {
                    uint32_t lane = block * per + i;
                    bool on = p.shape.on(r, lane);
                    any = any || on;
                    v[i] = on ? read<T>(ub + p.src.at(r, lane)) : T{};
                    if (on && (!b.any || better(p.type == ReduceType::MAX, v[i], b.value))) {
                        b.any = true;
                        b.value = v[i];
                    }
                }
                uint8_t *to = ub + p.dst + r * p.dst_rep + block * width<T>();
                if (p.type == ReduceType::SUM) {
                    if (any || arch() == 3510) {
                        write(to, tree(v, per, p.overflow));
                    }
                } else if (b.any) {
                    write(to, b.value);
                } else if (arch() == 3510) {
                    float edge = p.type == ReduceType::MAX ? -__builtin_inff() : __builtin_inff();
                    narrow(p.from, to, &edge, 1, Round::Rint, Overflow::Ieee);
                }
            }
        }
    });
}

void run_pair(Exec &x, const Instr &in)
{
    const ReduceWork &p = in.get<ReduceWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    by_type(p.from, [&](auto zero) {
        using T = decltype(zero);
        for (uint32_t r = 0; r < p.shape.rows(); r++) {
            for (uint32_t pair = 0; pair < p.shape.lanes / 2; pair++) {
                T v[2];
                bool any = false;
                for (uint32_t i = 0; i < 2; i++) {
                    bool on = p.shape.on(r, 2 * pair + i);
                    any = any || on;
                    v[i] = on ? read<T>(ub + p.src.at(r, 2 * pair + i)) : T{};
                }
                if (any || arch() == 3510) {
                    write(ub + p.dst + r * p.dst_rep + pair * width<T>(), tree(v, 2, p.overflow));
                }
            }
        }
    });
}

// All repeats to one value.
void run_all(Exec &x, const Instr &in)
{
    const ReduceWork &p = in.get<ReduceWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    by_type(p.from, [&](auto zero) {
        using T = decltype(zero);
        uint32_t rows = p.shape.rows();
        if (p.type == ReduceType::SUM) {
            T result{};
            if (p.in_order) {
                for (uint32_t r = 0; r < rows; r++) {
                    T v = sum_row<T, T>(p, ub, r);
                    result = r == 0 ? v : Sum<T>::add(result, v, p.overflow);
                }
            } else {
                // Level by level: the sums of a level are elements of the next.
                ReduceWork level = p;
                uint32_t lanes = p.shape.lanes;
                T *sums = static_cast<T *>(__builtin_alloca(sizeof(T) * (rows < 1 ? 1 : rows)));
                for (uint32_t r = 0; r < rows; r++) {
                    sums[r] = sum_row<T, T>(level, ub, r);
                }
                while (rows > 1) {
                    uint32_t next = (rows + lanes - 1) / lanes;
                    for (uint32_t i = 0; i < next; i++) {
                        T v[256];
                        for (uint32_t lane = 0; lane < lanes; lane++) {
                            uint32_t k = i * lanes + lane;
                            v[lane] = k < rows ? sums[k] : T{};
                        }
                        sums[i] = tree(v, lanes, p.overflow);
                    }
                    rows = next;
                }
                result = sums[0];
            }
            if (p.tmp_bytes != 0) {
                x.define(Mem::UB, p.tmp, p.tmp_bytes, false);
                x.define(Mem::UB, p.dst, width<T>(), true);
            }
            write(ub + p.dst, result);
            keep_sum(x.state(), result);
            return;
        }
        Best<T> best;
        for (uint32_t r = 0; r < rows; r++) {
            Best<T> b = best_row<T>(p, ub, r);
            if (b.any && (!best.any || better(p.type == ReduceType::MAX, b.value, best.value))) {
                best = b;
                best.index = r * p.shape.lanes + b.index;
            }
        }
        if (p.tmp_bytes != 0) {
            x.define(Mem::UB, p.tmp, p.tmp_bytes, false);
            x.define(Mem::UB, p.dst, (p.index ? 2 : 1) * width<T>(), true);
        }
        write(ub + p.dst, best.value);
        if (p.index) {
            write_index<T>(ub + p.dst + width<T>(), best.index);
        }
        keep_best(x.state(), best.value, best.index);
    });
}

bool prepare(const MoveCall &call, ReduceWork &p, uint32_t &size)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    p.type = static_cast<ReduceType>(call.mode);
    p.order = static_cast<ReduceOrder>(call.order);
    p.from = call.arg[1].type;
    p.to = call.arg[0].type;
    p.overflow = overflow_mode(ASCEND_TWIN_F16);
    size = static_cast<uint32_t>(type_bits(p.from)) / 8;
    uint32_t lanes = kRepeat / size;
    bool count = call.mask.kind == VecMask::Count;
    if (!resolve(call.mask, lanes, call.api, call.site, p.shape)) {
        return false;
    }
    if (!count) {
        check_stride(call.arg[1].blk, 65535, "srcBlkStride", call.api, call.site);
        check_stride(call.arg[1].rep, 65535, "srcRepStride", call.api, call.site);
        check_stride(static_cast<uint64_t>(call.n[0]), 65535, "dstRepStride", call.api, call.site);
    }
    p.src = count ? flat_track(call.arg[1], lanes) : track(call.arg[1]);
    p.dst = call.arg[0].addr;
    return true;
}

void start(Instr &in, const MoveCall &call, const ReduceWork &p, uint32_t size)
{
    vector_instr(in, call.api, call.site, p.from, size, p.shape.elements(), p.shape.rows());
    in.a[3] = static_cast<uint32_t>(p.type);
}

// What the results of all repeats touch: `bytes` of each.
void results(Instr &in, const MoveCall &call, const ReduceWork &p, uint64_t bytes, uint16_t align)
{
    Region r;
    r.addr = p.dst;
    r.bytes = bytes;
    r.n2 = p.shape.rows();
    r.pitch2 = p.dst_rep;
    if (r.n2 > 1 && p.dst_rep == bytes) {
        r.bytes = bytes * r.n2;
        r.n2 = 1;
    } else if (p.dst_rep == 0) {
        r.n2 = 1;
    }
    Operand &o = in.add("dst", Use::Write, call.arg[0].mem, r, call.arg[0].buffer);
    o.align = align;
}

} // namespace

void vector_reduce_repeat(const MoveCall &call)
{
    ReduceWork p{};
    uint32_t size = 0;
    if (!prepare(call, p, size)) {
        return;
    }
    uint64_t unit = static_cast<uint64_t>(type_bits(p.to)) / 8;
    if (p.type != ReduceType::SUM) {
        unit = p.order == ReduceOrder::ORDER_ONLY_VALUE ? size : p.order == ReduceOrder::ORDER_ONLY_INDEX ? 4 : 2 * size;
    } else if (p.from == ASCEND_TWIN_I16 || p.from == ASCEND_TWIN_U16) {
        unit = 4;
    }
    p.dst_rep = static_cast<uint64_t>(call.n[0]) * unit;
    Instr in;
    start(in, call, p, size);
    results(in, call, p, unit, static_cast<uint16_t>(unit));
    touch(in, "src", Use::Read, call.arg[1], p.src, p.shape);
    in.put(p);
    in.effect = run_repeat;
    issue(in);
}

void vector_reduce_block(const MoveCall &call)
{
    ReduceWork p{};
    uint32_t size = 0;
    if (!prepare(call, p, size)) {
        return;
    }
    uint64_t unit = 8ull * size;
    p.dst_rep = static_cast<uint64_t>(call.n[0]) * unit;
    Instr in;
    start(in, call, p, size);
    // Blocks of which no element takes part get no result on dav-2201.
    const Shape &s = p.shape;
    uint32_t per = kBlock / size;
    auto blocks_of = [&](uint32_t lanes) { return arch() == 3510 ? 8u : (lanes + per - 1) / per; };
    if (s.prefix != 0 || s.tail != 0) {
        auto rows = [&](uint32_t first, uint32_t n, uint32_t blocks) {
            Region r;
            r.addr = p.dst + first * p.dst_rep;
            r.bytes = static_cast<uint64_t>(blocks) * size;
            r.n2 = p.dst_rep == 0 ? 1 : n;
            r.pitch2 = p.dst_rep;
            if (r.n2 > 1 && r.bytes == p.dst_rep) {
                r.bytes *= r.n2;
                r.n2 = 1;
            }
            in.add("dst", Use::Write, call.arg[0].mem, r, call.arg[0].buffer).align = static_cast<uint16_t>(first == 0 ? unit : size);
        };
        if (s.repeats != 0) {
            rows(0, s.repeats, blocks_of(s.prefix));
        }
        if (s.tail != 0) {
            rows(s.repeats, 1, blocks_of(s.tail));
        }
    } else {
        results(in, call, p, unit, static_cast<uint16_t>(unit));
        if (arch() != 3510) {
            in.operand[0].use = Use::Update;
            in.operand[0].strict = false;
        }
    }
    touch(in, "src", Use::Read, call.arg[1], p.src, p.shape);
    in.put(p);
    in.effect = run_block;
    // Each block for itself.
    in.taint = [](Exec &x, const Instr &i) {
        const ReduceWork &w = i.get<ReduceWork>();
        uint32_t bytes = w.src.bits / 8u, each = kBlock / bytes;
        for (uint32_t r = 0; r < w.shape.rows(); r++) {
            for (uint32_t block = 0; block < 8; block++) {
                bool any = arch() == 3510;
                for (uint32_t k = 0; k < each; k++) {
                    uint32_t lane = block * each + k;
                    if (!w.shape.on(r, lane)) {
                        continue;
                    }
                    any = true;
                    if (!x.defined(Mem::UB, w.src.at(r, lane), bytes)) {
                        x.fail(Rule::Undefined, "element %u of repeat %u has no defined value", lane, r);
                    }
                }
                if (any) {
                    x.define(Mem::UB, w.dst + r * w.dst_rep + static_cast<uint64_t>(block) * bytes, bytes, true);
                }
            }
        }
    };
    issue(in);
}

void vector_reduce_pair(const MoveCall &call)
{
    ReduceWork p{};
    uint32_t size = 0;
    if (!prepare(call, p, size)) {
        return;
    }
    p.dst_rep = static_cast<uint64_t>(call.n[0]) * 128;
    const Shape &s = p.shape;
    Instr in;
    start(in, call, p, size);
    // The pairs as elements of a destination of their own.
    Shape pairs;
    pairs.lanes = s.lanes / 2;
    pairs.repeats = s.repeats;
    pairs.tail = (s.tail + 1) / 2;
    if (arch() == 3510) {
        pairs.prefix = pairs.lanes;
        pairs.repeats = s.rows();
        pairs.tail = 0;
    } else if (s.prefix != 0) {
        pairs.prefix = (s.prefix + 1) / 2;
    } else {
        for (uint32_t i = 0; i < pairs.lanes; i++) {
            if (s.on(0, 2 * i) || s.on(0, 2 * i + 1)) {
                pairs.bits[i / 64] |= 1ull << (i % 64);
            }
        }
    }
    Track t = track(call.arg[0]);
    t.blk = kBlock;
    t.rep = static_cast<uint32_t>(p.dst_rep);
    touch(in, "dst", Use::Write, call.arg[0], t, pairs);
    touch(in, "src", Use::Read, call.arg[1], p.src, p.shape);
    in.put(p);
    in.effect = run_pair;
    in.taint = [](Exec &x, const Instr &i) {
        const ReduceWork &w = i.get<ReduceWork>();
        uint32_t bytes = w.src.bits / 8u;
        for (uint32_t r = 0; r < w.shape.rows(); r++) {
            for (uint32_t pair = 0; pair < w.shape.lanes / 2; pair++) {
                bool any = arch() == 3510, known = true;
                for (uint32_t lane = 2 * pair; lane < 2 * pair + 2; lane++) {
                    if (w.shape.on(r, lane)) {
                        any = true;
                        known = known && x.defined(Mem::UB, w.src.at(r, lane), bytes);
                    }
                }
                if (any) {
                    x.define(Mem::UB, w.dst + r * w.dst_rep + static_cast<uint64_t>(pair) * bytes, bytes, known);
                }
            }
        }
    };
    issue(in);
}

void vector_reduce(const MoveCall &call)
{
    ReduceWork p{};
    uint32_t size = 0;
    if (!prepare(call, p, size)) {
        return;
    }
    bool count = call.mask.kind != VecMask::Lanes && call.mask.kind != VecMask::Bits;
    p.index = call.index && p.type != ReduceType::SUM;
    p.in_order = p.type == ReduceType::SUM && count && arch() == 2201;
    if (p.index && p.from == ASCEND_TWIN_F16 && static_cast<uint64_t>(p.shape.rows()) * p.shape.lanes > 65536) {
        fail(Rule::Range, call.api, "count", call.site, "an index of half holds up to 65535");
    }
    // Elements of the intermediate results of dav-2201, as the documentation computes them.
    uint64_t per_block = kBlock / size, per_repeat = kRepeat / size;
    auto up = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
    uint64_t need = 0;
    if (arch() == 2201 && !p.in_order) {
        uint64_t rows = p.shape.rows();
        if (p.type == ReduceType::SUM) {
            need = up(rows, per_block) * per_block;
        } else {
            uint64_t first = rows * 2, second_start = up(first, per_block) * per_block;
            need = second_start;
            if (p.index) {
                uint64_t second = up(first, per_repeat) * 2, second_end = up(second, per_block) * per_block;
                need += second_end;
                if (second > 2) {
                    uint64_t third = up(second, per_repeat) * 2;
                    need += up(third, per_block) * per_block;
                }
            }
        }
    }
    Instr in;
    start(in, call, p, size);
    uint64_t result = (p.index ? 2ull : 1ull) * size;
    uint16_t align = static_cast<uint16_t>(p.type == ReduceType::SUM ? size : 2 * size);
    Operand &dst = touch_run(in, "dst", Use::Write, call.arg[0], p.dst, result, align);
    (void)dst;
    touch(in, "src", Use::Read, call.arg[1], p.src, p.shape);
    if (need != 0) {
        check_local(call.arg[2], "sharedTmpBuffer", call.api, call.site);
        p.tmp = call.arg[2].addr;
        p.tmp_bytes = need * size;
        if (call.arg[2].bytes != 0 && call.arg[2].bytes < p.tmp_bytes) {
            fail(Rule::Bounds, call.api, "sharedTmpBuffer", call.site, "the intermediate results take %llu bytes, the buffer has %llu",
                 static_cast<unsigned long long>(p.tmp_bytes), static_cast<unsigned long long>(call.arg[2].bytes));
        }
        // It may be the space of the source, and the result may lie in it.
        auto apart = [&](uint64_t a, uint64_t bytes) { return a + bytes <= p.tmp || p.tmp + p.tmp_bytes <= a; };
        uint64_t last = p.src.at(p.shape.rows() - 1, p.shape.lanes - 1) + size;
        if (apart(p.src.addr, last - p.src.addr)) {
            if (apart(p.dst, result)) {
                touch_run(in, "sharedTmpBuffer", Use::Write, call.arg[2], p.tmp, p.tmp_bytes);
            } else {
                // One region around both.
                Operand &o = in.operand[0];
                uint64_t begin = p.dst < p.tmp ? p.dst : p.tmp;
                uint64_t end = p.dst + result > p.tmp + p.tmp_bytes ? p.dst + result : p.tmp + p.tmp_bytes;
                o.region.addr = begin;
                o.region.bytes = end - begin;
                o.buffer = call.arg[2].buffer;
            }
        }
    }
    in.put(p);
    in.effect = run_all;
    issue(in);
}

uint64_t vector_reduce_result(int which, const char *api, Site site)
{
    drain(Pipe::V, api, site);
    CoreState &core = state();
    return which == 0 ? core.spare[2] : which == 1 ? core.spare[3] : core.spare[4];
}

} // namespace ascend_twin
