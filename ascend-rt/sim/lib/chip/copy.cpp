// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Copies: DataCopy in all its forms, DataCopyPad, Copy, and the state that they take over.

#include "copy_util.h"

#include "numeric.h"

namespace ascend_twin {

void Call::out_of_range(const char *name, int64_t value, int64_t least, int64_t most) const
{
    fail(Rule::Range, api, nullptr, site, "%s is %lld, it must be in [%lld, %lld]", name, static_cast<long long>(value),
         static_cast<long long>(least), static_cast<long long>(most));
}

void Call::on_cube() const
{
    if (!is_cube()) {
        fail(Rule::WrongCore, api, nullptr, site, "%s is called on a vector core, only cube cores have it", api);
    }
}

void Call::on_vector() const
{
    if (is_cube()) {
        fail(Rule::WrongCore, api, nullptr, site, "%s is called on a cube core, only vector cores have it", api);
    }
}

Region runs(uint64_t addr, uint64_t bytes, uint64_t n1, uint64_t pitch1, uint64_t n2, uint64_t pitch2)
{
    if (pitch1 == 0) {
        n1 = 1;
    }
    if (pitch2 == 0) {
        n2 = 1;
    }
    if (n1 > 1 && pitch1 <= bytes) { // touching or overlapping
        bytes += (n1 - 1) * pitch1;
        n1 = 1;
    }
    if (n1 == 1) {
        n1 = n2;
        pitch1 = pitch2;
        n2 = 1;
        pitch2 = 0;
        if (n1 > 1 && pitch1 <= bytes) {
            bytes += (n1 - 1) * pitch1;
            n1 = 1;
        }
    } else if (n2 > 1 && pitch2 == pitch1 * n1) {
        n1 *= n2;
        n2 = 1;
    }
    Region r;
    r.addr = addr;
    r.bytes = bytes;
    r.n1 = static_cast<uint32_t>(n1);
    r.n2 = static_cast<uint32_t>(n2);
    r.pitch1 = n1 > 1 ? pitch1 : 0;
    r.pitch2 = n2 > 1 ? pitch2 : 0;
    return r;
}

namespace {

template <class T, class F> void each(void *to, const void *from, uint64_t bytes, F f)
{
    auto *d = static_cast<uint8_t *>(to);
    const auto *s = static_cast<const uint8_t *>(from);
    for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
        T a, b;
        memcpy(&a, d + i, sizeof(T));
        memcpy(&b, s + i, sizeof(T));
        a = f(a, b);
        memcpy(d + i, &a, sizeof(T));
    }
}

template <class T> void integers(uint8_t op, void *to, const void *from, uint64_t bytes)
{
    using U = std::make_unsigned_t<T>;
    each<T>(to, from, bytes, [op](T a, T b) {
        return op == 1 ? static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b))) : op == 2 ? (a > b ? a : b) : (a < b ? a : b);
    });
}

float combine(uint8_t op, float a, float b)
{
    return op == 1 ? a + b : op == 2 ? (a > b || b != b ? a : b) : (a < b || b != b ? a : b);
}

} // namespace

void atomic_update(uint8_t op, uint8_t type, void *to, const void *from, uint64_t bytes)
{
    switch (type) {
    case ASCEND_TWIN_F32:
        each<float>(to, from, bytes, [op](float a, float b) { return combine(op, a, b); });
        return;
    case ASCEND_TWIN_F16:
        each<uint16_t>(to, from, bytes,
                       [op](uint16_t a, uint16_t b) { return f32_to_f16(combine(op, f16_to_f32(a), f16_to_f32(b))); });
        return;
    case ASCEND_TWIN_BF16:
        each<uint16_t>(to, from, bytes,
                       [op](uint16_t a, uint16_t b) { return f32_to_bf16(combine(op, bf16_to_f32(a), bf16_to_f32(b))); });
        return;
    case ASCEND_TWIN_I32:
        integers<int32_t>(op, to, from, bytes);
        return;
    case ASCEND_TWIN_I16:
        integers<int16_t>(op, to, from, bytes);
        return;
    default:
        integers<int8_t>(op, to, from, bytes);
        return;
    }
}

void taint_atomic(Exec &x, uint64_t to, Mem from, uint64_t from_addr, uint64_t bytes, uint8_t type)
{
    const uint64_t size = static_cast<uint64_t>(type_bits(type)) / 8;
    for (uint64_t i = 0; i < bytes; i += size) {
        if (!x.defined(from, from_addr + i, size)) {
            x.define(Mem::GM, to + i, size, false);
        }
    }
}

void move_runs(Exec &x, const Instr &i)
{
    const auto &r = i.get<Runs>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    for (uint64_t b = 0; b < r.n2; b++) {
        for (uint64_t a = 0; a < r.n1; a++) {
            const uint8_t *s = from + r.from0 + static_cast<int64_t>(a) * r.from1 + static_cast<int64_t>(b) * r.from2;
            uint8_t *d = to + static_cast<int64_t>(a) * r.to1 + static_cast<int64_t>(b) * r.to2;
            if (r.atomic != 0) {
                atomic_update(r.atomic, r.type, d, s, r.bytes);
            } else {
                memmove(d, s, r.bytes);
            }
        }
    }
}

void taint_runs(Exec &x, const Instr &i)
{
    const auto &r = i.get<Runs>();
    const Operand &from = i.operand[0], &to = i.operand[1];
    for (uint64_t b = 0; b < r.n2; b++) {
        for (uint64_t a = 0; a < r.n1; a++) {
            const uint64_t s = from.region.addr + static_cast<uint64_t>(r.from0 + static_cast<int64_t>(a) * r.from1 + static_cast<int64_t>(b) * r.from2);
            const uint64_t d = to.region.addr + static_cast<uint64_t>(static_cast<int64_t>(a) * r.to1 + static_cast<int64_t>(b) * r.to2);
            if (r.atomic != 0) {
                taint_atomic(x, d, from.mem, s, r.bytes, r.type);
            } else {
                x.define_like(to.mem, d, from.mem, s, r.bytes, to.peer, from.peer);
            }
        }
    }
}

const char *kind_name(uint8_t type) { return type_name(type); }

Use gm_use(const Call &c, Kind kind, uint8_t &op, uint8_t &type)
{
    const CoreState &s = state();
    op = s.atomic;
    type = s.atomic_type;
    if (op == 0) {
        return Use::Write;
    }
    if (kind.type != type) {
        fail(Rule::Usage, c.api, "dst", c.site, "atomic operation on %s is set (line %u), but the elements written are %s",
             type_name(type), s.atomic_site.line, type_name(kind.type));
    }
    return Use::Atomic;
}

void set_atomic(int op, Kind kind, const char *api, Site site)
{
    CoreState &s = state();
    if (op == 0) {
        s.atomic = 0;
    } else {
        switch (kind.type) {
        case ASCEND_TWIN_F32:
        case ASCEND_TWIN_F16:
        case ASCEND_TWIN_BF16:
        case ASCEND_TWIN_I32:
        case ASCEND_TWIN_I16:
        case ASCEND_TWIN_I8:
            break;
        default:
            fail(Rule::Type, api, nullptr, site, "there are no atomic operations on %s in GM", type_name(kind.type));
        }
        if (op > 0) {
            s.atomic = static_cast<uint8_t>(op);
        }
        s.atomic_type = kind.type;
        s.atomic_site = site;
    }
    scalar_call(0, api, site);
}

namespace {

struct Path {
    Pipe pipe;
    bool cube; // of which core
    Peer to, from;
};

// The path between two memories, as a copy that keeps the layout has it.
Path path(const Call &c, const Place &dst, const Place &src)
{
    const Mem d = dst.mem, s = src.mem;
    const bool new_chip = __NPU_ARCH__ == 3510;
    Path p{Pipe::MTE2, false, Peer::Self, Peer::Self};
    if (s == Mem::GM && d == Mem::UB) {
        p = {Pipe::MTE2, false, Peer::Self, Peer::Self};
    } else if (s == Mem::GM && d == Mem::L1) {
        p = {Pipe::MTE2, true, Peer::Self, Peer::Self};
    } else if (s == Mem::UB && d == Mem::GM) {
        p = {Pipe::MTE3, false, Peer::Self, Peer::Self};
    } else if (s == Mem::UB && d == Mem::UB) {
        p = {Pipe::V, false, Peer::Self, Peer::Self};
    } else if (s == Mem::L1 && d == Mem::GM && !new_chip) {
        p = {Pipe::MTE3, true, Peer::Self, Peer::Self};
    } else if (s == Mem::UB && d == Mem::L1 && new_chip) {
        p = {Pipe::MTE3, false, Peer::Aic, Peer::Self};
        if (vector_per_cube() == 0) {
            fail(Rule::WrongCore, c.api, "dst", c.site, "L1 belongs to a cube core, and this kernel has none");
        }
    } else if (s == Mem::L1 && d == Mem::BT) {
        p = {Pipe::MTE1, true, Peer::Self, Peer::Self};
    } else if (s == Mem::L1 && d == Mem::FB) {
        p = {Pipe::FIX, true, Peer::Self, Peer::Self};
    } else if (s == Mem::UB && d == Mem::L1) {
        fail(Rule::Usage, c.api, "dst", c.site, "this chip has no path from UB to L1: go through GM");
    } else if (s == Mem::L1 && d == Mem::UB) {
        fail(Rule::Usage, c.api, "dst", c.site,
             new_chip ? "L1 to UB is copied by DataCopyL1ToUB" : "this chip has no path from L1 to UB: go through GM");
    } else {
        fail(Rule::Usage, c.api, "dst", c.site, "this chip has no copy from %s to %s", mem_name(s), mem_name(d));
    }
    if (p.cube) {
        c.on_cube();
    } else {
        c.on_vector();
    }
    return p;
}

void describe(Instr &i, const Call &c, const Place &dst, const Place &src, const Path &p, Kind kind)
{
    i.api = c.api;
    i.site = c.site;
    i.pipe = p.pipe;
    i.dtype = kind.type;
    i.l2 = src.l2 | dst.l2;
}

void add_source(Instr &i, const Place &src, const Path &p, Region r)
{
    Operand &o = i.add("src", Use::Read, src.mem, r, src.buffer);
    o.peer = p.from;
    o.strict = false;
}

void add_target(Instr &i, const Place &dst, const Path &p, Region r, Use use)
{
    Operand &o = i.add("dst", use, dst.mem, r, dst.buffer);
    o.peer = p.to;
    o.strict = false;
}

void tell(Instr &i, uint64_t bursts, uint64_t bytes)
{
    i.a[0] = static_cast<uint32_t>(bursts);
    i.a[1] = static_cast<uint32_t>(bytes);
    i.a[2] = static_cast<uint32_t>(bursts * bytes);
}

// A loop mode that is set for this path (3510), or null.
const uint64_t *loop_mode(const Place &dst, const Place &src)
{
    const CoreState &s = state();
    if (src.mem == Mem::GM && dst.mem == Mem::UB && s.loop_mode_set[1]) {
        return s.loop_mode[1];
    }
    if (src.mem == Mem::UB && dst.mem == Mem::GM && s.loop_mode_set[0]) {
        return s.loop_mode[0];
    }
    return nullptr;
}

// Issues n runs; all pitches from start to start.
void issue_runs(const Call &c, const Place &dst, const Place &src, const Path &p, Kind kind, uint64_t bytes, uint64_t n,
                uint64_t from_pitch, uint64_t to_pitch)
{
    if (n == 0 || bytes == 0) {
        scalar_call(0, c.api, c.site);
        return;
    }
    uint64_t outer = 1, inner = 1, f1 = 0, t1 = 0, f2 = 0, t2 = 0;
    if (const uint64_t *m = loop_mode(dst, src)) {
        inner = m[0];
        outer = m[1];
        f1 = m[2];
        t1 = m[3];
        f2 = m[4];
        t2 = m[5];
    }
    for (uint64_t k = 0; k < outer; k++) {
        Runs r{};
        r.bytes = bytes;
        r.n1 = n;
        r.n2 = inner;
        r.from1 = static_cast<int64_t>(from_pitch);
        r.to1 = static_cast<int64_t>(to_pitch);
        r.from2 = static_cast<int64_t>(f1);
        r.to2 = static_cast<int64_t>(t1);
        Instr i;
        describe(i, c, dst, src, p, kind);
        Use use = Use::Write;
        if (dst.mem == Mem::GM && src.mem == Mem::UB) {
            use = gm_use(c, kind, r.atomic, r.type);
        }
        add_source(i, src, p, runs(src.addr + k * f2, bytes, n, from_pitch, inner, f1));
        add_target(i, dst, p, runs(dst.addr + k * t2, bytes, n, to_pitch, inner, t1), use);
        // Runs that follow each other on both sides are one.
        if (r.n1 > 1 && from_pitch == bytes && to_pitch == bytes) {
            r.bytes *= r.n1;
            r.n1 = 1;
        }
        tell(i, r.n1 * r.n2, r.bytes);
        i.put(r);
        i.effect = move_runs;
        i.taint = taint_runs;
        issue(i);
    }
}

// Runs that overlap what they copy from.
void check_overlap(const Call &c, const Place &dst, const Place &src, uint64_t bytes)
{
    if (dst.mem == Mem::UB && src.mem == Mem::UB && dst.addr != src.addr && dst.addr < src.addr + bytes && src.addr < dst.addr + bytes) {
        fail(Rule::Overlap, c.api, "dst", c.site, "source and destination overlap without being the same");
    }
}

struct Widen {
    Runs r; // bytes and pitches of the source; the destination has twice as many
    uint8_t type;
};

void widen_runs(Exec &x, const Instr &i)
{
    const auto &w = i.get<Widen>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    for (uint64_t a = 0; a < w.r.n1; a++) {
        float row[2048];
        const uint64_t n = w.r.bytes / 2;
        for (uint64_t at = 0; at < n; at += 2048) {
            const uint64_t part = n - at < 2048 ? n - at : 2048;
            widen(w.type, row, from + a * static_cast<uint64_t>(w.r.from1) + at * 2, part);
            memcpy(to + a * static_cast<uint64_t>(w.r.to1) + at * 4, row, part * 4);
        }
    }
}

void taint_widen(Exec &x, const Instr &i)
{
    const auto &w = i.get<Widen>();
    const Operand &from = i.operand[0], &to = i.operand[1];
    for (uint64_t a = 0; a < w.r.n1; a++) {
        for (uint64_t e = 0; e < w.r.bytes / 2; e++) {
            x.define(to.mem, to.region.addr + a * static_cast<uint64_t>(w.r.to1) + e * 4, 4,
                     x.defined(from.mem, from.region.addr + a * static_cast<uint64_t>(w.r.from1) + e * 2, 2));
        }
    }
}

} // namespace

void data_copy(const Place &dst, const Place &src, Kind kind, Field<uint32_t> count, Site site)
{
    const Call c{"DataCopy", site};
    const Path p = path(c, dst, src);
    c.field(count, "count", 0, 0xffffffffll);
    const uint64_t bits = static_cast<uint64_t>(count.wide()) * kind.bits;
    if (bits % 256 != 0) {
        fail(Rule::Alignment, c.api, "dst", site,
             "count is %lld: %.1f bytes are no multiple of 32, and the rest would not be copied; use DataCopyPad",
             static_cast<long long>(count.wide()), static_cast<double>(bits) / 8);
    }
    check_overlap(c, dst, src, bits / 8);
    issue_runs(c, dst, src, p, kind, bits / 8, 1, 0, 0);
}

void data_copy(const Place &dst, const Place &src, Kind to, Kind from, const AscendC::DataCopyParams &q, Site site)
{
    const Call c{"DataCopy", site};
    const Path p = path(c, dst, src);
    const uint64_t count = c.field(q.blockCount, "blockCount", 0, 4095);
    const uint64_t len = c.field(q.blockLen, "blockLen", 0, 65535);
    const uint64_t from_gap = c.field(q.srcGap, "srcGap", 0, 65535);
    const uint64_t to_gap = c.field(q.dstGap, "dstGap", 0, 65535);
    if (dst.mem == Mem::BT) {
        // Bursts are counted in 64 B on 2201, the gap of the destination as well.
        const uint64_t unit = __NPU_ARCH__ == 3510 ? 32 : 64;
        if (unit == 32 && len % 2 != 0) {
            fail(Rule::Range, c.api, "dst", site, "blockLen is %llu, a copy to the bias table needs an even number",
                 static_cast<unsigned long long>(len));
        }
        const bool same = to.type == from.type && (to.type == ASCEND_TWIN_F32 || to.type == ASCEND_TWIN_I32);
        const bool wider = to.type == ASCEND_TWIN_F32 &&
                           (from.type == ASCEND_TWIN_F16 || (__NPU_ARCH__ == 3510 && from.type == ASCEND_TWIN_BF16));
        if (!same && !wider) {
            fail(Rule::Type, c.api, "src", site, "the bias table is not filled with %s from %s", type_name(to.type), type_name(from.type));
        }
        if (same) {
            issue_runs(c, dst, src, p, to, len * unit, count, len * unit + from_gap * 32, len * unit + to_gap * unit);
            return;
        }
        if (count == 0 || len == 0) {
            return;
        }
        Widen w{};
        w.r.bytes = len * unit;
        w.r.n1 = count;
        w.r.from1 = static_cast<int64_t>(w.r.bytes + from_gap * 32);
        w.r.to1 = static_cast<int64_t>(w.r.bytes * 2 + to_gap * unit);
        w.type = from.type;
        Instr i;
        describe(i, c, dst, src, p, to);
        add_source(i, src, p, runs(src.addr, w.r.bytes, count, static_cast<uint64_t>(w.r.from1)));
        add_target(i, dst, p, runs(dst.addr, w.r.bytes * 2, count, static_cast<uint64_t>(w.r.to1)), Use::Write);
        tell(i, count, w.r.bytes * 2);
        i.put(w);
        i.effect = widen_runs;
        i.taint = taint_widen;
        issue(i);
        return;
    }
    if (to.type != from.type || to.bits != from.bits) {
        fail(Rule::Type, c.api, "src", site, "source and destination have different element types");
    }
    if (dst.mem == Mem::FB) {
        // Both gaps are from start to start here.
        const uint64_t unit = __NPU_ARCH__ == 3510 ? 64 : 128;
        issue_runs(c, dst, src, p, to, len * unit, count, from_gap * 32, to_gap * 128);
        return;
    }
    if (count == 1) {
        check_overlap(c, dst, src, len * 32);
    }
    issue_runs(c, dst, src, p, to, len * 32, count, (len + from_gap) * 32, (len + to_gap) * 32);
}

void check_plain(const AscendC::DataCopyEnhancedParams &p, Site site)
{
    if (p.blockMode != AscendC::BlockMode::BLOCK_MODE_NORMAL || p.deqScale != AscendC::DeqScale::DEQ_NONE || p.isRelu ||
        p.padMode != pad_t::PAD_NONE) {
        fail(Rule::Usage, "DataCopy", nullptr, site, "this chip has no DataCopyEnhancedParams other than the defaults");
    }
}

void data_copy_through_gm(Site site)
{
    fail(Rule::Usage, "DataCopyPad", "dst", site,
         "copies from UB to L1 through the matrix library's workspace are not modelled: use GM of your own, or on 3510 DataCopy");
}

// ---- changes of layout

namespace {

// A matrix of rows x columns whose element (r, c) lies at r * row_pitch + c * element (ND), becomes blocks of C0 columns.
struct ToNz {
    uint64_t matrices, rows, columns; // columns in elements
    uint64_t from_matrix, from_row; // bytes; DN: from_row is the pitch of a column of the result
    uint64_t to_matrix, to_block, to_row; // bytes
    uint32_t size; // bytes of an element
    uint32_t block; // bytes of a row of a block: 32, or 4 elements
    bool transposed; // DN
};

void to_nz(Exec &x, const Instr &i)
{
    const auto &t = i.get<ToNz>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    const uint64_t wide = t.block / t.size;
    for (uint64_t m = 0; m < t.matrices; m++) {
        for (uint64_t at = 0; at < t.columns; at += wide) {
            const uint64_t n = t.columns - at < wide ? t.columns - at : wide;
            uint8_t *d = to + m * t.to_matrix + at / wide * t.to_block;
            const uint8_t *s = from + m * t.from_matrix;
            for (uint64_t r = 0; r < t.rows; r++, d += t.to_row) {
                if (!t.transposed) {
                    memcpy(d, s + r * t.from_row + at * t.size, n * t.size);
                } else {
                    for (uint64_t e = 0; e < n; e++) {
                        memcpy(d + e * t.size, s + (at + e) * t.from_row + r * t.size, t.size);
                    }
                }
                if (n < wide) {
                    memset(d + n * t.size, 0, (wide - n) * t.size);
                }
            }
        }
    }
    // Small blocks: the end of the last 32 B is filled.
    if (t.block < 32) {
        for (uint64_t m = 0; m < t.matrices; m++) {
            const uint64_t used = t.rows * t.block;
            memset(to + m * t.to_matrix + used, 0, round_up(used, 32) - used);
        }
    }
}

void taint_nz(Exec &x, const Instr &i)
{
    const auto &t = i.get<ToNz>();
    const Operand &from = i.operand[0], &to = i.operand[1];
    const uint64_t wide = t.block / t.size;
    for (uint64_t m = 0; m < t.matrices; m++) {
        for (uint64_t at = 0; at < t.columns; at += wide) {
            const uint64_t n = t.columns - at < wide ? t.columns - at : wide;
            for (uint64_t r = 0; r < t.rows; r++) {
                const uint64_t d = to.region.addr + m * t.to_matrix + at / wide * t.to_block + r * t.to_row;
                const uint64_t s = from.region.addr + m * t.from_matrix;
                if (!t.transposed) {
                    x.define_like(to.mem, d, from.mem, s + r * t.from_row + at * t.size, n * t.size, to.peer, from.peer);
                } else {
                    for (uint64_t e = 0; e < n; e++) {
                        x.define_like(to.mem, d + e * t.size, from.mem, s + (at + e) * t.from_row + r * t.size, t.size, to.peer,
                                      from.peer);
                    }
                }
                if (n < wide) {
                    x.define(to.mem, d + n * t.size, (wide - n) * t.size, true, to.peer);
                }
            }
        }
        if (t.block < 32) {
            const uint64_t used = t.rows * t.block;
            x.define(to.mem, to.region.addr + m * t.to_matrix + used, round_up(used, 32) - used, true, to.peer);
        }
    }
}

void issue_nz(const Call &c, const Place &dst, const Place &src, const Path &p, Kind kind, const ToNz &t)
{
    const uint64_t wide = t.block / t.size;
    const uint64_t blocks = up(t.columns, wide);
    if (t.block == 32 && t.to_row == 32 && blocks > 1 && t.to_block < t.rows * 32) {
        fail(Rule::Overlap, c.api, "dst", c.site, "dstNzC0Stride of %llu is less than the %llu rows: what is written overlaps",
             static_cast<unsigned long long>(t.to_block / 32), static_cast<unsigned long long>(t.rows));
    }
    // Three levels fit a region; matrix by matrix where there are four.
    const bool split = t.matrices > 1 && t.rows > 1 && blocks > 1 && t.to_row != t.block;
    const uint64_t n = split ? 1 : t.matrices;
    for (uint64_t k = 0; k < (split ? t.matrices : 1); k++) {
        ToNz part = t;
        part.matrices = n;
        Instr i;
        describe(i, c, dst, src, p, kind);
        const uint64_t s = src.addr + k * t.from_matrix, d = dst.addr + k * t.to_matrix;
        add_source(i, src, p,
                   t.transposed ? runs(s, t.rows * t.size, t.columns, t.from_row, n, t.from_matrix)
                                : runs(s, t.columns * t.size, t.rows, t.from_row, n, t.from_matrix));
        if (t.block < 32) {
            add_target(i, dst, p, runs(d, round_up(t.rows * t.block, 32), n, t.to_matrix), Use::Write);
        } else if (t.to_row == 32 || t.rows == 1) {
            add_target(i, dst, p, runs(d, t.rows * 32, blocks, t.to_block, n, t.to_matrix), Use::Write);
        } else if (blocks == 1) {
            add_target(i, dst, p, runs(d, 32, t.rows, t.to_row, n, t.to_matrix), Use::Write);
        } else {
            add_target(i, dst, p, runs(d, 32, t.rows, t.to_row, blocks, t.to_block), Use::Write);
        }
        tell(i, (t.transposed ? t.columns : t.rows) * n, (t.transposed ? t.rows : t.columns) * t.size);
        i.put(part);
        i.effect = to_nz;
        i.taint = taint_nz;
        issue(i);
    }
}

bool nz_source(const Call &c, const Place &dst, const Place &src)
{
    if (src.mem == Mem::GM && (dst.mem == Mem::L1 || dst.mem == Mem::UB)) {
        return true;
    }
    if (src.mem == Mem::UB && dst.mem == Mem::L1) {
        return true;
    }
    fail(Rule::Usage, c.api, "dst", c.site, "there is no copy with change of layout from %s to %s", mem_name(src.mem), mem_name(dst.mem));
}

} // namespace

void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Nd2NzParams &q, bool small_c0, Site site)
{
    const Call c{"DataCopyNd2Nz", site};
    nz_source(c, dst, src);
    const Path p = path(c, dst, src);
    constexpr bool new_chip = __NPU_ARCH__ == 3510;
    const int64_t pitch = new_chip ? (1ll << 40) - 1 : 65535;
    ToNz t{};
    t.matrices = c.field(q.ndNum, "ndNum", 0, src.mem == Mem::UB ? 1 : 4095);
    t.rows = c.field(q.nValue, "nValue", 0, 16384);
    t.columns = c.field(q.dValue, "dValue", 0, new_chip ? (1 << 21) - 1 : 65535);
    t.size = kind.bits < 8 ? 1 : kind.bits / 8; // 4-bit elements are copied as bytes, and counted so
    t.from_matrix = static_cast<uint64_t>(c.field(q.srcNdMatrixStride, "srcNdMatrixStride", 0, pitch)) * t.size;
    if (t.matrices == 0 || t.rows == 0 || t.columns == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    t.from_row = static_cast<uint64_t>(c.field(q.srcDValue, "srcDValue", 1, pitch)) * t.size;
    t.to_matrix = static_cast<uint64_t>(c.field(q.dstNzMatrixStride, "dstNzMatrixStride", 0, dst.mem == Mem::UB ? 65535 : 16384)) * t.size;
    if (small_c0 && t.columns <= 4) {
        t.block = 4 * t.size;
        t.to_row = t.block;
        t.to_block = 0;
    } else {
        t.block = 32;
        t.to_block = static_cast<uint64_t>(c.field(q.dstNzC0Stride, "dstNzC0Stride", 1, 16384)) * 32;
        t.to_row = static_cast<uint64_t>(c.field(q.dstNzNStride, "dstNzNStride", 1, 16384)) * 32;
    }
    if (t.matrices > 1 && t.to_matrix % 32 != 0) {
        fail(Rule::Alignment, c.api, "dst", site, "dstNzMatrixStride is %llu bytes, no multiple of 32",
             static_cast<unsigned long long>(t.to_matrix));
    }
    issue_nz(c, dst, src, p, kind, t);
}

#if __NPU_ARCH__ == 3510
void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Dn2NzParams &q, bool small_c0, Site site)
{
    const Call c{"DataCopyDn2Nz", site};
    if (src.mem != Mem::GM || dst.mem != Mem::L1) {
        fail(Rule::Usage, c.api, "dst", site, "this copy goes from GM to L1");
    }
    const Path p = path(c, dst, src);
    ToNz t{};
    t.transposed = true;
    t.matrices = c.field(q.dnNum, "dnNum", 0, 4095);
    t.rows = c.field(q.nValue, "nValue", 0, 16384);
    t.columns = c.field(q.dValue, "dValue", 0, (1 << 21) - 1);
    t.size = kind.bits < 8 ? 1 : kind.bits / 8;
    t.from_matrix = static_cast<uint64_t>(c.field(q.srcDnMatrixStride, "srcDnMatrixStride", 0, (1ll << 40) - 1)) * t.size;
    if (t.matrices == 0 || t.rows == 0 || t.columns == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    if (kind.bits < 8) {
        fail(Rule::Usage, c.api, "src", site, "4-bit elements are not modelled here");
    }
    t.from_row = static_cast<uint64_t>(c.field(q.srcDValue, "srcDValue", 1, (1ll << 40) - 1)) * t.size;
    t.to_matrix = static_cast<uint64_t>(c.field(q.dstNzMatrixStride, "dstNzMatrixStride", 0, 16384)) * t.size;
    if (small_c0 && t.columns <= 4) {
        t.block = 4 * t.size;
        t.to_row = t.block;
    } else {
        t.block = 32;
        t.to_block = static_cast<uint64_t>(c.field(q.dstNzC0Stride, "dstNzC0Stride", 1, 16384)) * 32;
        t.to_row = static_cast<uint64_t>(c.field(q.dstNzNStride, "dstNzNStride", 1, 16384)) * 32;
    }
    if (t.matrices > 1 && t.to_matrix % 32 != 0) {
        fail(Rule::Alignment, c.api, "dst", site, "dstNzMatrixStride is %llu bytes, no multiple of 32",
             static_cast<unsigned long long>(t.to_matrix));
    }
    issue_nz(c, dst, src, p, kind, t);
}
#endif

namespace {

// Matrices in NZ form with blocks of 16 columns, to rows.
struct ToNd {
    uint64_t matrices, rows, blocks;
    uint64_t from_matrix, from_block, to_matrix, to_row; // bytes
    uint64_t block; // bytes of a row of a block
    uint8_t atomic, type;
};

template <class F> void walk_nd(const ToNd &t, F f)
{
    for (uint64_t m = 0; m < t.matrices; m++) {
        for (uint64_t r = 0; r < t.rows; r++) {
            for (uint64_t b = 0; b < t.blocks; b++) {
                f(m * t.to_matrix + r * t.to_row + b * t.block, m * t.from_matrix + b * t.from_block + r * t.block);
            }
        }
    }
}

void to_nd(Exec &x, const Instr &i)
{
    const auto &t = i.get<ToNd>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    walk_nd(t, [&](uint64_t d, uint64_t s) {
        if (t.atomic != 0) {
            atomic_update(t.atomic, t.type, to + d, from + s, t.block);
        } else {
            memcpy(to + d, from + s, t.block);
        }
    });
}

void taint_nd(Exec &x, const Instr &i)
{
    const auto &t = i.get<ToNd>();
    const Operand &from = i.operand[0], &to = i.operand[1];
    walk_nd(t, [&](uint64_t d, uint64_t s) {
        if (t.atomic != 0) {
            taint_atomic(x, to.region.addr + d, from.mem, from.region.addr + s, t.block, t.type);
        } else {
            x.define_like(to.mem, to.region.addr + d, from.mem, from.region.addr + s, t.block);
        }
    });
}

} // namespace

void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Nz2NdParamsFull &q, Site site)
{
    const Call c{"DataCopyNz2Nd", site};
    if (src.mem != Mem::UB || dst.mem != Mem::GM) {
        fail(Rule::Usage, c.api, "dst", site, "this copy goes from UB to GM");
    }
    const Path p = path(c, dst, src);
    ToNd t{};
    t.matrices = c.field(q.ndNum, "ndNum", 0, 4095);
    t.rows = c.field(q.nValue, "nValue", 1, 8192);
    const uint64_t columns = c.field(q.dValue, "dValue", 1, 8192);
    if (columns % 16 != 0) {
        fail(Rule::Range, c.api, "src", site, "dValue is %llu, no multiple of 16", static_cast<unsigned long long>(columns));
    }
    t.blocks = columns / 16;
    t.block = bytes_of(16, kind);
    t.from_matrix = bytes_of(static_cast<uint64_t>(c.field(q.srcNdMatrixStride, "srcNdMatrixStride", 1, 512)) * 256, kind);
    t.from_block = bytes_of(static_cast<uint64_t>(c.field(q.srcNStride, "srcNStride", 0, 4096)) * 16, kind);
    t.to_row = bytes_of(c.field(q.dstDStride, "dstDStride", 1, 65535), kind);
    t.to_matrix = bytes_of(c.field(q.dstNdMatrixStride, "dstNdMatrixStride", 1, 65535), kind);
    if (t.matrices == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    Instr i;
    describe(i, c, dst, src, p, kind);
    const Use use = gm_use(c, kind, t.atomic, t.type);
    add_source(i, src, p, runs(src.addr, t.rows * t.block, t.blocks, t.from_block, t.matrices, t.from_matrix));
    add_target(i, dst, p, runs(dst.addr, t.blocks * t.block, t.rows, t.to_row, t.matrices, t.to_matrix), use);
    tell(i, t.rows * t.matrices, t.blocks * t.block);
    i.put(t);
    i.effect = to_nd;
    i.taint = taint_nd;
    issue(i);
}

// ---- slices

void data_copy_slices(const Place &dst, const Place &src, Kind kind, const AscendC::SliceInfo *to, const AscendC::SliceInfo *from,
                      uint32_t dims, Site site)
{
    const Call c{"DataCopy", site};
    const Path p = path(c, dst, src);
    c.range("dimValue", dims, 1, 8);
    const uint64_t size = kind.bits / 8;
    uint64_t pieces = 0;
    uint64_t count[2][8], pitch[2][8];
    for (int side = 0; side < 2; side++) {
        const AscendC::SliceInfo *s = side == 0 ? from : to;
        uint64_t below = 1;
        for (uint32_t d = 0; d < dims; d++) {
            if (s[d].startIndex > s[d].endIndex || (dims > 1 && s[d].endIndex >= s[d].shapeValue)) {
                fail(Rule::Range, c.api, side == 0 ? "src" : "dst", site, "dimension %u: slice [%u, %u] of %u", d, s[d].startIndex,
                     s[d].endIndex, s[d].shapeValue);
            }
            const uint64_t piece = d == 0 ? s[d].burstLen * 32ull / size : s[d].burstLen;
            if (from[d].burstLen != to[d].burstLen || (d > 0 && s[d].burstLen != 1)) {
                fail(Rule::Range, c.api, side == 0 ? "src" : "dst", site,
                     "dimension %u: burstLen must be the same on both sides, and 1 beyond the first", d);
            }
            const uint64_t span = s[d].endIndex - s[d].startIndex + 1ull + s[d].stride;
            if (span % (piece + s[d].stride) != 0) {
                fail(Rule::Range, c.api, side == 0 ? "src" : "dst", site,
                     "dimension %u: [%u, %u] is no whole number of pieces of %llu with gaps of %u", d, s[d].startIndex, s[d].endIndex,
                     static_cast<unsigned long long>(piece), s[d].stride);
            }
            count[side][d] = span / (piece + s[d].stride);
            pitch[side][d] = (piece + s[d].stride) * below * size;
            below *= s[d].shapeValue;
        }
    }
    uint64_t outer = 1;
    for (uint32_t d = 0; d < dims; d++) {
        if (count[0][d] != count[1][d]) {
            fail(Rule::Range, c.api, "dst", site, "dimension %u: the source has %llu pieces, the destination %llu", d,
                 static_cast<unsigned long long>(count[0][d]), static_cast<unsigned long long>(count[1][d]));
        }
        pieces = count[0][0];
        outer *= d > 0 ? count[0][d] : 1;
    }
    const uint64_t bytes = from[0].burstLen * 32ull;
    for (uint64_t k = 0; k < outer; k++) {
        uint64_t at[2] = {0, 0};
        uint64_t rest = k;
        for (int side = 0; side < 2; side++) {
            const AscendC::SliceInfo *s = side == 0 ? from : to;
            uint64_t below = 1;
            rest = k;
            for (uint32_t d = 0; d < dims; d++) {
                at[side] += s[d].startIndex * below * size;
                if (d > 0) {
                    at[side] += rest % count[side][d] * pitch[side][d];
                    rest /= count[side][d];
                }
                below *= s[d].shapeValue;
            }
        }
        Place s = src, d = dst;
        s.addr += at[0];
        d.addr += at[1];
        issue_runs(c, d, s, p, kind, bytes, pieces, pitch[0][0], pitch[1][0]);
    }
}

// ---- DataCopyPad

namespace {

struct Pad {
    uint64_t bytes, count; // of a block
    int64_t from_pitch;
    uint64_t to_pitch;
    uint32_t left, right, dummy; // bytes around a block; compact: dummy at the end of all
    uint32_t size; // of an element
    bool compact;
    bool pad_defined; // left and right have a value
    bool dummy_defined;
    bool dummy_first; // dummies repeat the first element of the block
    uint64_t value;
    uint64_t inner;
    int64_t from_inner, to_inner;
};

void fill(uint8_t *to, uint64_t bytes, uint64_t value, uint32_t size)
{
    for (uint64_t i = 0; i < bytes; i++) {
        to[i] = static_cast<uint8_t>(value >> (i % size * 8));
    }
}

void pad_in(Exec &x, const Instr &i)
{
    const auto &p = i.get<Pad>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    const Operand &o = i.operand[1];
    for (uint64_t k = 0; k < p.inner; k++) {
        const uint8_t *s = from + static_cast<int64_t>(k) * p.from_inner;
        uint8_t *d = to + static_cast<int64_t>(k) * p.to_inner;
        for (uint64_t b = 0; b < p.count; b++, s += p.from_pitch, d += p.to_pitch) {
            memcpy(d + p.left, s, p.bytes);
            const bool last = b + 1 == p.count;
            fill(d, p.left, p.value, p.size);
            fill(d + p.left + p.bytes, p.right, p.value, p.size);
            if (p.dummy != 0 && (!p.compact || last)) {
                uint64_t value = p.value;
                if (p.dummy_first) {
                    value = 0;
                    memcpy(&value, p.compact ? from + static_cast<int64_t>(k) * p.from_inner : s, p.size);
                }
                fill(d + p.left + p.bytes + p.right, p.dummy, value, p.size);
            }
            const uint64_t at = o.region.addr + static_cast<uint64_t>(d - to);
            if (!p.pad_defined && p.left != 0) {
                x.define(o.mem, at, p.left, false);
            }
            if (!p.pad_defined && p.right != 0) {
                x.define(o.mem, at + p.left + p.bytes, p.right, false);
            }
            if (!p.dummy_defined && p.dummy != 0 && (!p.compact || last)) {
                x.define(o.mem, at + p.left + p.bytes + p.right, p.dummy, false);
            }
        }
    }
}

void taint_pad(Exec &x, const Instr &i)
{
    const auto &p = i.get<Pad>();
    const Operand &from = i.operand[0], &o = i.operand[1];
    for (uint64_t k = 0; k < p.inner; k++) {
        for (uint64_t b = 0; b < p.count; b++) {
            const uint64_t s = from.region.addr + static_cast<uint64_t>(static_cast<int64_t>(k) * p.from_inner + static_cast<int64_t>(b) * p.from_pitch);
            const uint64_t at = o.region.addr + static_cast<uint64_t>(static_cast<int64_t>(k) * p.to_inner) + b * p.to_pitch;
            x.define_like(o.mem, at + p.left, from.mem, s, p.bytes);
            if (p.left != 0) {
                x.define(o.mem, at, p.left, p.pad_defined);
            }
            if (p.right != 0) {
                x.define(o.mem, at + p.left + p.bytes, p.right, p.pad_defined);
            }
            if (p.dummy != 0 && (!p.compact || b + 1 == p.count)) {
                x.define(o.mem, at + p.left + p.bytes + p.right, p.dummy, p.dummy_defined);
            }
        }
    }
}

// From GM: blocks are rounded up to 32 B each, or (compact) all together.
void issue_pad_in(const Call &c, const Place &dst, const Place &src, const Path &path, Kind kind, const AscendC::DataCopyExtParams &q,
                  const PadWish &wish)
{
    constexpr bool new_chip = __NPU_ARCH__ == 3510;
    const CoreState &s = state();
    Pad p{};
    p.size = kind.bits < 8 ? 1 : kind.bits / 8;
    p.compact = wish.compact;
    p.count = c.field(q.blockCount, "blockCount", 0, 4095);
    p.bytes = c.field(q.blockLen, "blockLen", 0, 2097151);
    const int64_t from_gap = static_cast<int64_t>(
        c.field(q.srcStride, "srcStride", new_chip ? -static_cast<int64_t>(p.bytes) : 0, new_chip ? (1ll << 40) - 1 : 0xffffffffll));
    uint64_t to_gap = static_cast<uint64_t>(c.field(q.dstStride, "dstStride", 0, new_chip ? 65535 : 0xffffffffll));
    c.range("leftPadding", wish.left, 0, 255);
    c.range("rightPadding", wish.right, 0, 255);
    if (!p.compact) {
        c.range("leftPadding in bytes", wish.left * p.size, 0, 32);
        c.range("rightPadding in bytes", wish.right * p.size, 0, 32);
        p.left = static_cast<uint32_t>(wish.left) * p.size;
        p.right = static_cast<uint32_t>(wish.right) * p.size;
    }
    if (p.bytes % p.size != 0) {
        fail(Rule::Range, c.api, "src", c.site, "blockLen is %llu bytes, no multiple of an element",
             static_cast<unsigned long long>(p.bytes));
    }
    if (kind.bits == 64 && wish.is_pad && wish.value != 0) {
        fail(Rule::Range, c.api, "dst", c.site, "paddingValue of 64-bit elements must be 0");
    }
    if (p.count == 0 || p.bytes == 0) {
        scalar_call(0, c.api, c.site);
        return;
    }
    p.value = wish.is_pad ? wish.value : s.pad_value_set ? s.pad_value : 0xa5a5a5a5a5a5a5a5ull;
    p.pad_defined = wish.is_pad || s.pad_value_set;
    const bool around = p.left != 0 || p.right != 0;
    // Documented for 3510: without explicit padding, isPad fills up to 32 B with its value.
    p.dummy_defined = new_chip && !around && p.pad_defined;
    p.dummy_first = !around && !p.dummy_defined;
    uint64_t row = p.left + p.bytes + p.right;
    uint64_t all = 0;
    if (p.compact) {
        all = round_up(p.bytes * p.count, 32);
        p.dummy = static_cast<uint32_t>(all - p.bytes * p.count);
        p.to_pitch = p.bytes;
    } else {
        p.dummy = static_cast<uint32_t>(round_up(row, 32) - row);
        row = round_up(row, 32);
        p.to_pitch = row + to_gap * 32;
    }
    p.from_pitch = static_cast<int64_t>(p.bytes) + from_gap;

    uint64_t outer = 1, f2 = 0, t2 = 0;
    p.inner = 1;
    if (const uint64_t *m = loop_mode(dst, src)) {
        p.inner = m[0];
        outer = m[1];
        p.from_inner = static_cast<int64_t>(m[2]);
        p.to_inner = static_cast<int64_t>(m[3]);
        f2 = m[4];
        t2 = m[5];
    }
    for (uint64_t k = 0; k < outer; k++) {
        Instr i;
        describe(i, c, dst, src, path, kind);
        add_source(i, src, path,
                   runs(src.addr + k * f2, p.bytes, p.count, static_cast<uint64_t>(p.from_pitch), p.inner, static_cast<uint64_t>(p.from_inner)));
        if (p.compact) {
            add_target(i, dst, path, runs(dst.addr + k * t2, all, p.inner, static_cast<uint64_t>(p.to_inner)), Use::Write);
        } else {
            add_target(i, dst, path, runs(dst.addr + k * t2, row, p.count, p.to_pitch, p.inner, static_cast<uint64_t>(p.to_inner)), Use::Write);
        }
        tell(i, p.count * p.inner, p.compact ? p.bytes : row);
        i.put(p);
        i.effect = pad_in;
        i.taint = taint_pad;
        issue(i);
    }
}

} // namespace

void data_copy_pad(const Place &dst, const Place &src, Kind kind, const AscendC::DataCopyExtParams &q, const PadWish &wish, Site site)
{
    constexpr bool new_chip = __NPU_ARCH__ == 3510;
    const Call c{"DataCopyPad", site};
    const bool in = src.mem == Mem::GM && (dst.mem == Mem::UB || (new_chip && dst.mem == Mem::L1));
    if (!in && !(src.mem == Mem::UB && dst.mem == Mem::GM)) {
        fail(Rule::Usage, c.api, "dst", site, "this chip has no DataCopyPad from %s to %s", mem_name(src.mem), mem_name(dst.mem));
    }
    const Path p = path(c, dst, src);
    if (in) {
        issue_pad_in(c, dst, src, p, kind, q, wish);
        return;
    }
    const uint64_t size = kind.bits < 8 ? 1 : kind.bits / 8u;
    const uint64_t count = c.field(q.blockCount, "blockCount", 0, 4095);
    const uint64_t bytes = c.field(q.blockLen, "blockLen", 0, 2097151);
    const auto from_gap = static_cast<uint64_t>(c.field(q.srcStride, "srcStride", 0, new_chip ? 65535 : 0xffffffffll));
    const auto to_gap = static_cast<uint64_t>(c.field(q.dstStride, "dstStride", 0, new_chip ? (1ll << 40) - 1 : 0xffffffffll));
    if (bytes % size != 0) {
        fail(Rule::Range, c.api, "src", site, "blockLen is %llu bytes, no multiple of an element", static_cast<unsigned long long>(bytes));
    }
    // Compact: blocks follow each other in UB without being rounded up.
    const uint64_t from_pitch = wish.compact ? bytes : round_up(bytes, 32) + from_gap * 32;
    issue_runs(c, dst, src, p, kind, bytes, count, from_pitch, bytes + to_gap);
}

void set_pad_value(uint64_t bits, Site site)
{
    const Call c{"SetPadValue", site};
    c.on_vector();
    state().pad_value = bits;
    state().pad_value_set = true;
    scalar_call(0, c.api, site);
}

#if __NPU_ARCH__ == 3510
namespace {

void loop_mode_left(void *)
{
    const CoreState &s = state();
    if (s.loop_mode_set[0] || s.loop_mode_set[1]) {
        fail(Rule::StateLeft, "SetLoopModePara", nullptr, Site{"", 0}, "the loop mode of %s is still set when the kernel ends",
             s.loop_mode_set[1] ? "copies from GM to UB" : "copies from UB to GM");
    }
}

} // namespace

void set_loop_mode(const AscendC::LoopModeParams *q, AscendC::DataCopyMVType type, Site site)
{
    const Call c{q != nullptr ? "SetLoopModePara" : "ResetLoopModePara", site};
    c.on_vector();
    CoreState &s = state();
    const int way = type == AscendC::DataCopyMVType::OUT_TO_UB ? 1 : 0;
    if (q == nullptr) {
        s.loop_mode_set[way] = false;
    } else {
        const int64_t small = (1 << 21) - 1, large = (1ll << 40) - 1;
        uint64_t *m = s.loop_mode[way];
        m[0] = c.field(q->loop1Size, "loop1Size", 0, small);
        m[1] = c.field(q->loop2Size, "loop2Size", 0, small);
        m[2] = c.field(q->loop1SrcStride, "loop1SrcStride", 0, way == 1 ? large : small);
        m[3] = c.field(q->loop1DstStride, "loop1DstStride", 0, way == 1 ? small : large);
        m[4] = c.field(q->loop2SrcStride, "loop2SrcStride", 0, way == 1 ? large : small);
        m[5] = c.field(q->loop2DstStride, "loop2DstStride", 0, way == 1 ? small : large);
        const int ub = way == 1 ? 3 : 2;
        if (m[ub] % 32 != 0 || m[ub + 2] % 32 != 0) {
            fail(Rule::Alignment, c.api, nullptr, site, "strides in UB must be multiples of 32 bytes");
        }
        // A size of 0 is taken as 1.
        m[0] = m[0] == 0 ? 1 : m[0];
        m[1] = m[1] == 0 ? 1 : m[1];
        s.loop_mode_set[way] = true;
        at_end(loop_mode_left, nullptr);
    }
    scalar_call(0, c.api, site);
}

namespace {

Path to_ub(const Call &c, const Place &dst, const Place &src, int sub_block)
{
    c.on_cube();
    if (src.mem != Mem::L1 || dst.mem != Mem::UB) {
        fail(Rule::Usage, c.api, "dst", c.site, "DataCopyL1ToUB copies from L1 to UB");
    }
    if (vector_per_cube() != 2) {
        fail(Rule::WrongCore, c.api, "dst", c.site, "DataCopyL1ToUB needs a kernel with two vector cores per cube core");
    }
    return Path{Pipe::MTE1, true, sub_block == 0 ? Peer::Aiv0 : Peer::Aiv1, Peer::Self};
}

} // namespace

void l1_to_ub(const Place &dst, const Place &src, Kind kind, int sub_block, Field<uint32_t> count, Site site)
{
    const Call c{"DataCopyL1ToUB", site};
    const Path p = to_ub(c, dst, src, sub_block);
    c.field(count, "count", 0, 0xffffffffll);
    const uint64_t bits = static_cast<uint64_t>(count.wide()) * kind.bits;
    if (bits % 256 != 0) {
        fail(Rule::Alignment, c.api, "dst", site, "count is %lld: not a multiple of 32 bytes", static_cast<long long>(count.wide()));
    }
    issue_runs(c, dst, src, p, kind, bits / 8, 1, 0, 0);
}

void l1_to_ub(const Place &dst, const Place &src, Kind kind, int sub_block, const AscendC::DataCopyParams &q, Site site)
{
    const Call c{"DataCopyL1ToUB", site};
    const Path p = to_ub(c, dst, src, sub_block);
    const uint64_t count = c.field(q.blockCount, "blockCount", 1, 4095);
    const uint64_t len = c.field(q.blockLen, "blockLen", 1, 65535);
    const uint64_t from_gap = c.field(q.srcGap, "srcGap", 0, 65535);
    const uint64_t to_gap = c.field(q.dstGap, "dstGap", 0, 65535);
    issue_runs(c, dst, src, p, kind, len * 32, count, (len + from_gap) * 32, (len + to_gap) * 32);
}
#endif

} // namespace ascend_twin
