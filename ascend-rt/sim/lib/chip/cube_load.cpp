// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Loads into L0A and L0B (and, as far as the loads of fractals go there, L1), and what fills them with a constant.

#include "copy_util.h"
#include "numeric.h"
#include "twin/cube.h"

namespace ascend_twin {

namespace {

constexpr bool kNewChip = __NPU_ARCH__ == 3510;
constexpr uint64_t kFractal = 512;

// Elements of a row of a fractal.
uint64_t c0(Kind k) { return 256u / k.bits; }

// Positions are counted in elements of 4 bits from the start of an operand.
void move_nibble(uint8_t *to, uint64_t at, const uint8_t *from, uint64_t index)
{
    const uint8_t v = from[index / 2] >> (index % 2 * 4) & 15;
    uint8_t &d = to[at / 2];
    d = static_cast<uint8_t>(at % 2 == 0 ? (d & 0xf0) | v : (d & 0x0f) | v << 4);
}

// Two elements share a byte of 4-bit types: the first one sets what the second one can only lower.
void taint_element(Exec &x, const Operand &to, uint64_t at, const Operand &from, uint64_t index, int bits)
{
    if (bits == 4) {
        const bool ok = x.defined(from.mem, from.region.addr + index / 2, 1);
        if (at % 2 == 0 || !ok) {
            x.define(to.mem, to.region.addr + at / 2, 1, ok);
        }
    } else {
        const uint64_t n = static_cast<uint64_t>(bits) / 8;
        x.define_like(to.mem, to.region.addr + at * n, from.mem, from.region.addr + index * n, n);
    }
}

void begin(Instr &i, const Call &c, Pipe pipe, Kind kind)
{
    i.api = c.api;
    i.site = c.site;
    i.pipe = pipe;
    i.dtype = kind.type;
}

Operand &reads(Instr &i, const char *name, const Place &p, Region r)
{
    Operand &o = i.add(name, Use::Read, p.mem, r, p.buffer);
    o.strict = false;
    i.l2 = p.l2;
    return o;
}

Operand &writes(Instr &i, const char *name, const Place &p, Region r)
{
    Operand &o = i.add(name, Use::Write, p.mem, r, p.buffer);
    o.strict = false;
    return o;
}

// Remembers which load filled the fractals of L0A (for GEMV).
void note_load(const Place &dst, uint64_t offset, uint64_t n, uint64_t pitch, bool first)
{
    if (dst.mem != Mem::L0A) {
        return;
    }
    CoreState &s = state();
    s.loads += first ? 1 : 0;
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t f = (dst.addr + offset + k * pitch) / kFractal;
        if (f < sizeof(s.l0a_load) / sizeof(s.l0a_load[0])) {
            s.l0a_load[f] = s.loads;
        }
    }
}

// The pipe of a load of fractals; fails where the chip has no such path.
Pipe load_path(const Call &c, const Place &dst, const Place &src)
{
    c.on_cube();
    const bool l0 = dst.mem == Mem::L0A || dst.mem == Mem::L0B;
    if (src.mem == Mem::L1 && l0) {
        return Pipe::MTE1;
    }
    if (src.mem == Mem::GM && (dst.mem == Mem::L1 || (l0 && !kNewChip))) {
        return Pipe::MTE2;
    }
    if (src.mem == Mem::GM && l0) {
        fail(Rule::Usage, c.api, "dst", c.site, "this chip has no path from GM to %s: load through L1", mem_name(dst.mem));
    }
    fail(Rule::Usage, c.api, "dst", c.site, "there is no load from %s to %s", mem_name(src.mem), mem_name(dst.mem));
}

// Transposes squares of 16-bit fractals and the like: square i lies at from0 + i * from_step (fractals `from_gap` apart) and
// its result, fractal by fractal `to_gap` apart, at i * to_step. All in bytes.
struct Squares {
    uint32_t count;
    uint32_t fractals; // of a square
    uint32_t side; // elements
    int bits;
    int64_t from0; // from the start of the region
    int64_t from_step;
    uint64_t from_fractal, to_step, to_fractal;
};

template <class F> void walk_squares(const Squares &q, F f)
{
    const uint32_t wide = 256u / static_cast<uint32_t>(q.bits); // elements of a row of a fractal
    const auto elements = [&](uint64_t bytes) { return bytes * 8 / static_cast<uint64_t>(q.bits); };
    const uint64_t from_fractal = elements(q.from_fractal), to_fractal = elements(q.to_fractal);
    for (uint32_t i = 0; i < q.count; i++) {
        const uint64_t from = elements(static_cast<uint64_t>(q.from0 + static_cast<int64_t>(i) * q.from_step));
        const uint64_t to = elements(i * q.to_step);
        // A square is `fractals` fractals below each other (4 and 8 bits), or beside each other (32 bits).
        if (q.bits == 32) {
            for (uint32_t col = 0; col < 16; col++) {
                const uint64_t s = from + col / 8 * from_fractal + col % 8, d = to + col * 8;
                for (uint32_t r = 0; r < 16; r++) {
                    f(d + r / 8 * to_fractal + r % 8, s + r * 8);
                }
            }
            continue;
        }
        for (uint32_t col = 0; col < q.side; col++) {
            const uint64_t s = from + col, d = to + col / 16 * to_fractal + col % 16 * wide;
            for (uint32_t r = 0; r < q.side; r += 16) {
                const uint64_t part = s + r / 16 * from_fractal;
                for (uint32_t in = 0; in < 16; in++) {
                    f(d + r + in, part + in * wide);
                }
            }
        }
    }
}

// Elements of whole bytes, known at compile time.
template <class T, class Walk, class Job> void move_typed(const Job &job, Walk walk, uint8_t *to, const uint8_t *from)
{
    walk(job, [=](uint64_t d, uint64_t s) { memcpy(to + d * sizeof(T), from + s * sizeof(T), sizeof(T)); });
}

template <class Walk, class Job> void move_elements(const Job &job, Walk walk, uint8_t *to, const uint8_t *from)
{
    switch (job.bits) {
    case 8:
        move_typed<uint8_t>(job, walk, to, from);
        break;
    case 16:
        move_typed<uint16_t>(job, walk, to, from);
        break;
    case 32:
        move_typed<uint32_t>(job, walk, to, from);
        break;
    default:
        walk(job, [=](uint64_t d, uint64_t s) { move_nibble(to, d, from, s); });
        break;
    }
}

void move_squares(Exec &x, const Instr &i)
{
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    move_elements(i.get<Squares>(), [](const Squares &q, auto f) { walk_squares(q, f); }, to, from);
}

void taint_squares(Exec &x, const Instr &i)
{
    const auto &q = i.get<Squares>();
    walk_squares(q, [&](uint64_t d, uint64_t s) { taint_element(x, i.operand[1], d, i.operand[0], s, q.bits); });
}

} // namespace

void load_2d(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2DParams &q, Site site)
{
    const Call c{"LoadData", site};
    const Pipe pipe = load_path(c, dst, src);
    if (kind.bits == 4 && (kNewChip || src.mem == Mem::GM)) {
        fail(Rule::Type, c.api, "src", site, "this load does not take 4-bit elements here");
    }
    const uint64_t start = c.field(q.startIndex, "startIndex", 0, 65535);
    const uint64_t n = c.field(q.repeatTimes, "repeatTimes", 0, 255);
    const uint64_t stride = c.field(q.srcStride, "srcStride", 0, 65535);
    uint64_t gap = c.field(q.dstGap, "dstGap", 0, 65535);
    const bool down = c.field(q.addrMode, "addrMode", 0, src.mem == Mem::GM && dst.mem == Mem::L1 ? 1 : 0) == 1;
    if (kNewChip) {
        gap = 0; // has no effect there
    }
    if (q.ifTranspose && (src.mem != Mem::L1 || kind.bits != 16)) {
        fail(Rule::Type, c.api, "src", site, "ifTranspose takes 16-bit elements from L1 only");
    }
    if (n == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    if (down && stride * (n - 1) > start) {
        fail(Rule::Bounds, c.api, "src", site, "fractal indices go below 0: startIndex %llu, %llu steps of %llu",
             static_cast<unsigned long long>(start), static_cast<unsigned long long>(n - 1), static_cast<unsigned long long>(stride));
    }
    const uint64_t first = down ? start - stride * (n - 1) : start;
    Instr i;
    begin(i, c, pipe, kind);
    reads(i, "src", src, runs(src.addr + first * kFractal, kFractal, n, stride * kFractal));
    writes(i, "dst", dst, runs(dst.addr, kFractal, n, (gap + 1) * kFractal));
    note_load(dst, 0, n, (gap + 1) * kFractal, true);
    i.a[0] = static_cast<uint32_t>(n);
    i.a[1] = q.ifTranspose ? 1 : 0;
    i.a[2] = static_cast<uint32_t>(n * kFractal);
    if (q.ifTranspose) {
        Squares t{};
        t.count = static_cast<uint32_t>(n);
        t.fractals = 1;
        t.side = 16;
        t.bits = 16;
        t.from_step = static_cast<int64_t>(stride * kFractal);
        t.from_fractal = t.to_fractal = kFractal;
        t.to_step = (gap + 1) * kFractal;
        i.put(t);
        i.effect = move_squares;
        i.taint = taint_squares;
    } else {
        Runs r{};
        r.bytes = kFractal;
        r.n1 = n;
        r.n2 = 1;
        r.from0 = static_cast<int64_t>((start - first) * kFractal);
        r.from1 = static_cast<int64_t>(stride * kFractal) * (down ? -1 : 1);
        r.to1 = static_cast<int64_t>((gap + 1) * kFractal);
        i.put(r);
        i.effect = move_runs;
        i.taint = taint_runs;
    }
    issue(i);
}

namespace {

// `from_unit`, `step_unit`: bytes that startIndex and srcStride count.
void issue_squares(const Call &c, const Place &dst, const Place &src, Kind kind, uint64_t start, uint64_t n, uint64_t stride,
                   uint64_t unit, uint64_t gap, uint64_t to_fractal_gap, uint64_t from_fractal_gap, bool down)
{
    Squares t{};
    t.bits = kind.bits;
    t.fractals = kind.bits == 4 ? 4 : kind.bits == 8 || kind.bits == 32 ? 2 : 1;
    t.side = kind.bits == 4 ? 64 : kind.bits == 8 ? 32 : 16;
    t.count = static_cast<uint32_t>(n);
    t.from_fractal = (from_fractal_gap + 1) * kFractal;
    t.to_fractal = (to_fractal_gap + 1) * kFractal;
    t.to_step = (gap + 1) * kFractal;
    if (n == 0) {
        scalar_call(0, c.api, c.site);
        return;
    }
    if (down && stride * (n - 1) > start) {
        fail(Rule::Bounds, c.api, "src", c.site, "indices of squares go below 0");
    }
    const uint64_t first = down ? start - stride * (n - 1) : start;
    t.from0 = static_cast<int64_t>((start - first) * unit);
    t.from_step = static_cast<int64_t>(stride * unit) * (down ? -1 : 1);
    Instr i;
    begin(i, c, Pipe::MTE1, kind);
    reads(i, "src", src, runs(src.addr + first * unit, kFractal, t.fractals, t.from_fractal, n, stride * unit));
    if (t.fractals == 1) {
        writes(i, "dst", dst, runs(dst.addr, kFractal, n, t.to_step));
    } else if (t.to_step < t.to_fractal) {
        writes(i, "dst", dst, runs(dst.addr, kFractal, n, t.to_step, t.fractals, t.to_fractal));
    } else {
        writes(i, "dst", dst, runs(dst.addr, kFractal, t.fractals, t.to_fractal, n, t.to_step));
    }
    for (uint64_t k = 0; k < n; k++) {
        note_load(dst, k * t.to_step, t.fractals, t.to_fractal, k == 0);
    }
    i.a[0] = static_cast<uint32_t>(n * t.fractals);
    i.a[1] = 1;
    i.a[2] = static_cast<uint32_t>(n * t.fractals * kFractal);
    i.put(t);
    i.effect = move_squares;
    i.taint = taint_squares;
    issue(i);
}

void check_transposed(const Call &c, const Place &dst, const Place &src, Kind kind)
{
    c.on_cube();
    if (src.mem != Mem::L1 || (dst.mem != Mem::L0A && dst.mem != Mem::L0B)) {
        fail(Rule::Usage, c.api, "dst", c.site, "this load goes from L1 to L0A or L0B");
    }
    if (kNewChip && dst.mem == Mem::L0A) {
        fail(Rule::Usage, c.api, "dst", c.site, "this chip transposes to L0B only; use LoadData with LoadData2DParamsV2");
    }
    if (kind.bits == 4 && (dst.mem == Mem::L0A || kNewChip)) {
        fail(Rule::Type, c.api, "src", c.site, "4-bit elements are not transposed on this path");
    }
}

} // namespace

void load_transposed(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2dTransposeParams &q, Site site)
{
    const Call c{"LoadDataWithTranspose", site};
    check_transposed(c, dst, src, kind);
    const uint64_t square = kind.bits == 4 ? 2048 : kind.bits == 16 ? 512 : 1024;
    const uint64_t start = c.field(q.startIndex, "startIndex", 0, 65535);
    const uint64_t n = c.field(q.repeatTimes, "repeatTimes", 0, 255);
    const uint64_t stride = c.field(q.srcStride, "srcStride", 0, 65535);
    const uint64_t gap = c.field(q.dstGap, "dstGap", 0, 65535);
    const uint64_t inner = c.field(q.dstFracGap, "dstFracGap", 0, 65535);
    const bool down = c.field(q.addrMode, "addrMode", 0, 1) == 1;
    issue_squares(c, dst, src, kind, start, n, stride, square, gap, inner, 0, down);
}

#if __NPU_ARCH__ == 3510
void load_transposed(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2dTransposeParamsV2 &q, Site site)
{
    const Call c{"LoadDataWithTranspose", site};
    check_transposed(c, dst, src, kind);
    if (kind.bits == 32) {
        fail(Rule::Usage, c.api, "src", site, "32-bit elements with LoadData2dTransposeParamsV2 are not modelled; use LoadData with LoadData2DParamsV2");
    }
    const uint64_t start = c.field(q.startIndex, "startIndex", 0, 65535);
    const uint64_t n = c.field(q.repeatTimes, "repeatTimes", 0, 255);
    const uint64_t stride = c.field(q.srcStride, "srcStride", 0, 65535);
    const uint64_t gap = c.field(q.dstGap, "dstGap", 0, 65535);
    const uint64_t inner = c.field(q.dstFracGap, "dstFracGap", 0, 65535);
    const uint64_t from_inner = c.field(q.srcFracGap, "srcFracGap", 0, 65535);
    const bool down = c.field(q.addrMode, "addrMode", 0, 1) == 1;
    issue_squares(c, dst, src, kind, start, n, stride, kFractal, gap, inner, from_inner, down);
}

namespace {

// A matrix of m_step times k_step fractals; see the header for the strides.
struct Matrix {
    uint32_t m_step, k_step;
    uint64_t from_stride, to_stride; // bytes
    int bits;
    bool transposed;
    // Scales (MX): x_step runs.
    uint32_t x_step;
    uint64_t scale_bytes, scale_from, scale_to;
};

template <class F> void walk_transposed(const Matrix &t, F f)
{
    const uint64_t wide = 256u / static_cast<uint64_t>(t.bits);
    const auto elements = [&](uint64_t bytes) { return bytes * 8 / static_cast<uint64_t>(t.bits); };
    const uint64_t fractal = elements(kFractal), from = elements(t.from_stride), to = elements(t.to_stride);
    const uint64_t run = wide < 16 ? wide : 16; // rows of the source that stay in one fractal on both sides
    for (uint64_t col = 0; col < t.k_step * wide; col++) {
        const uint64_t d0 = col / 16 * fractal + col % 16 * wide, s0 = col / wide * from + col % wide;
        for (uint64_t r = 0; r < t.m_step * 16ull; r += run) {
            const uint64_t d = d0 + r / wide * to + r % wide, s = s0 + r / 16 * fractal + r % 16 * wide;
            for (uint64_t in = 0; in < run; in++) {
                f(d + in, s + in * wide);
            }
        }
    }
}

void move_matrix(Exec &x, const Instr &i)
{
    const auto &t = i.get<Matrix>();
    if (t.m_step != 0 && t.k_step != 0) {
        const uint8_t *from = x.at(i.operand[0]);
        uint8_t *to = x.at(i.operand[1]);
        if (t.transposed) {
            move_elements(t, [](const Matrix &q, auto f) { walk_transposed(q, f); }, to, from);
        } else {
            for (uint32_t k = 0; k < t.k_step; k++) {
                memcpy(to + k * t.to_stride, from + k * t.from_stride, t.m_step * kFractal);
            }
        }
    }
    if (t.x_step != 0) {
        const uint8_t *from = x.at(i.operand[i.count - 2]);
        uint8_t *to = x.at(i.operand[i.count - 1]);
        for (uint32_t k = 0; k < t.x_step; k++) {
            memcpy(to + k * t.scale_to, from + k * t.scale_from, t.scale_bytes);
        }
    }
}

void taint_matrix(Exec &x, const Instr &i)
{
    const auto &t = i.get<Matrix>();
    if (t.m_step != 0 && t.k_step != 0) {
        const Operand &from = i.operand[0], &to = i.operand[1];
        if (t.transposed) {
            walk_transposed(t, [&](uint64_t d, uint64_t s) { taint_element(x, to, d, from, s, t.bits); });
        } else {
            for (uint32_t k = 0; k < t.k_step; k++) {
                x.define_like(to.mem, to.region.addr + k * t.to_stride, from.mem, from.region.addr + k * t.from_stride,
                              t.m_step * kFractal);
            }
        }
    }
    if (t.x_step != 0) {
        const Operand &from = i.operand[i.count - 2], &to = i.operand[i.count - 1];
        for (uint32_t k = 0; k < t.x_step; k++) {
            x.define_like(to.mem, to.region.addr + k * t.scale_to, from.mem, from.region.addr + k * t.scale_from, t.scale_bytes);
        }
    }
}

void matrix(const Call &c, Instr &i, Matrix &t, const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2DParamsV2 &q)
{
    t.m_step = c.field(q.mStep, "mStep", 0, 255);
    t.k_step = c.field(q.kStep, "kStep", 0, 255);
    const uint64_t m0 = c.field(q.mStartPosition, "mStartPosition", 0, 0xffffffffll);
    const uint64_t k0 = c.field(q.kStartPosition, "kStartPosition", 0, 0xffffffffll);
    const auto from = static_cast<uint64_t>(c.field(q.srcStride, "srcStride", 0, 0x7fffffffll));
    const uint64_t to = c.field(q.dstStride, "dstStride", 0, 65535);
    t.bits = kind.bits;
    t.transposed = q.ifTranspose;
    t.from_stride = from * kFractal;
    t.to_stride = to * kFractal;
    if (t.m_step == 0 || t.k_step == 0) {
        return;
    }
    uint64_t rows = t.m_step, columns = t.k_step; // of the result, in fractals
    if (t.transposed) {
        if (src.mem != Mem::L1) {
            fail(Rule::Usage, c.api, "src", c.site, "ifTranspose works from L1 only");
        }
        const uint32_t per = kind.bits == 4 ? 4 : kind.bits == 8 ? 2 : 1;
        if (t.m_step % per != 0) {
            fail(Rule::Range, c.api, "src", c.site, "mStep is %u, transposing %d-bit elements needs a multiple of %u", t.m_step, kind.bits, per);
        }
        if (kind.bits == 32 && t.k_step % 2 != 0) {
            fail(Rule::Range, c.api, "src", c.site, "kStep is %u, transposing 32-bit elements needs a multiple of 2", t.k_step);
        }
        rows = t.k_step * c0(kind) / 16;
        columns = t.m_step * 16 / c0(kind);
    }
    if (columns > 1 && to < rows) {
        fail(Rule::Overlap, c.api, "dst", c.site, "dstStride is %llu, less than the %llu fractals of a column",
             static_cast<unsigned long long>(to), static_cast<unsigned long long>(rows));
    }
    reads(i, "src", src, runs(src.addr + (k0 * from + m0) * kFractal, t.m_step * kFractal, t.k_step, t.from_stride));
    writes(i, "dst", dst, runs(dst.addr, rows * kFractal, columns, t.to_stride));
    for (uint64_t k = 0; k < columns; k++) {
        note_load(dst, k * t.to_stride, rows, kFractal, k == 0);
    }
    i.a[0] = t.m_step * t.k_step;
    i.a[1] = t.transposed ? 1 : 0;
    i.a[2] = static_cast<uint32_t>(t.m_step * t.k_step * kFractal);
    i.effect = move_matrix;
    i.taint = taint_matrix;
}

} // namespace

void load_2d_v2(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2DParamsV2 &q, Site site)
{
    const Call c{"LoadData", site};
    const Pipe pipe = load_path(c, dst, src);
    Instr i;
    begin(i, c, pipe, kind);
    Matrix t{};
    matrix(c, i, t, dst, src, kind, q);
    if (i.count == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    i.put(t);
    issue(i);
}

void load_mx(const Place &dst, const Place &src, const Place &scales, Kind kind, Kind scale_kind, const AscendC::LoadData2DParamsV2 &q,
             const AscendC::LoadData2DMxParams &mx, Site site)
{
    const Call c{"LoadDataMx", site};
    c.on_cube();
    if (src.mem != Mem::L1 || scales.mem != Mem::L1 || (dst.mem != Mem::L0A && dst.mem != Mem::L0B)) {
        fail(Rule::Usage, c.api, "dst", site, "this load goes from L1 to L0A or L0B");
    }
    const bool nibbles = kind.type == ASCEND_TWIN_E2M1 || kind.type == ASCEND_TWIN_E1M2;
    if (!nibbles && kind.type != ASCEND_TWIN_E4M3 && kind.type != ASCEND_TWIN_E5M2) {
        fail(Rule::Type, c.api, "src", site, "there is no MX load of %s", type_name(kind.type));
    }
    if (scale_kind.type != ASCEND_TWIN_E8M0) {
        fail(Rule::Type, c.api, "srcMx", site, "scales are fp8_e8m0_t, not %s", type_name(scale_kind.type));
    }
    Instr i;
    begin(i, c, Pipe::MTE1, kind);
    Matrix t{};
    matrix(c, i, t, dst, src, kind, q);
    if (i.count != 0) {
        i.operand[1].align = nibbles ? 512 : 1024;
    }
    const uint64_t x0 = c.field(mx.xStartPosition, "xStartPosition", 0, 65535);
    const uint64_t y0 = c.field(mx.yStartPosition, "yStartPosition", 0, 65535);
    t.x_step = c.field(mx.xStep, "xStep", 0, 255);
    const uint64_t y_step = c.field(mx.yStep, "yStep", 0, 255);
    t.scale_from = c.field(mx.srcStride, "srcStride", 0, 65535) * 32ull;
    t.scale_to = c.field(mx.dstStride, "dstStride", 0, 65535) * 32ull;
    t.scale_bytes = y_step * 32;
    if (y_step == 0) {
        t.x_step = 0;
    }
    if (t.x_step != 0) {
        Place to = dst;
        to.mem = dst.mem == Mem::L0A ? Mem::L0A_MX : Mem::L0B_MX;
        to.addr = dst.addr / 16;
        to.buffer = Buffer{};
        reads(i, "srcMx", scales, runs(scales.addr + x0 * t.scale_from + y0 * 32, t.scale_bytes, t.x_step, t.scale_from));
        writes(i, "dstMx", to, runs(to.addr, t.scale_bytes, t.x_step, t.scale_to));
        i.a[3] = static_cast<uint32_t>(t.x_step * t.scale_bytes);
        i.effect = move_matrix;
        i.taint = taint_matrix;
    }
    if (i.count == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    i.put(t);
    issue(i);
}
#endif

// ---- three dimensions

namespace {

struct Conv {
    int32_t h, w, pad_left, pad_top, out_w, out; // out: rows of the matrix that the feature map gives
    int32_t stride_w, stride_h, filter_w, filter_h, dilation_w, dilation_h;
    int32_t m_start, k_start, m, k; // k, k_start in blocks of C0 columns; m in rows
    int32_t repeats, repeat_step; // rows or blocks
    bool along_k, transposed, zz; // zz: fractals of the destination row by row
    uint32_t bits;
    uint64_t pad_value;
    uint64_t row_fractals, column_fractals; // of the destination
    uint64_t to_stride; // fractals between neighbours along the columns of the destination (not zz)
    int64_t from0; // where the feature map starts, from the region's start
};

constexpr int64_t kPadding = -1, kNothing = -2;

// Calls f(row of the matrix, block of its columns, offset of the 32 bytes in the source or one of the above), rows up to a
// multiple of 16.
template <class F> void walk_conv(const Conv &v, F f)
{
    const int32_t rows_one = v.m, blocks_one = v.k;
    const int32_t rows = v.along_k ? rows_one : rows_one * v.repeats;
    const int32_t blocks = v.along_k ? blocks_one * v.repeats : blocks_one;
    const int32_t padded = (rows + 15) / 16 * 16;
    for (int32_t b = 0; b < blocks; b++) {
        const int32_t kb = v.k_start + (v.along_k ? b / blocks_one * v.repeat_step + b % blocks_one : b);
        const int32_t c1 = kb / (v.filter_h * v.filter_w), in = kb % (v.filter_h * v.filter_w);
        const int32_t y = in / v.filter_w * v.dilation_h - v.pad_top, z = in % v.filter_w * v.dilation_w - v.pad_left;
        for (int32_t r = 0; r < padded; r++) {
            const int32_t mr = v.m_start + (v.along_k || v.repeats == 1 ? r : r / rows_one * v.repeat_step + r % rows_one);
            int64_t source = kNothing;
            if (mr < v.out) {
                const int32_t line = mr / v.out_w;
                const int32_t ph = line * v.stride_h + y, pw = (mr - line * v.out_w) * v.stride_w + z;
                source = ph < 0 || ph >= v.h || pw < 0 || pw >= v.w
                             ? kPadding
                             : v.from0 + ((static_cast<int64_t>(c1) * v.h + ph) * v.w + pw) * 32;
            }
            f(r, b, source);
        }
    }
}

uint64_t conv_fractal(const Conv &v, uint64_t row, uint64_t column)
{
    return (v.zz ? row * v.column_fractals + column : column * v.to_stride + row) * kFractal;
}

// How many fractals of the destination, along rows and columns, the walk fills completely (transposed).
uint64_t full_rows(const Conv &v) { return static_cast<uint64_t>(v.k) * static_cast<uint64_t>(v.along_k ? v.repeats : 1) * (256 / v.bits) / 16; }
uint64_t full_columns(const Conv &v)
{
    return round_up(static_cast<uint64_t>(v.m) * static_cast<uint64_t>(v.along_k ? 1 : v.repeats), 16) / (256 / v.bits);
}

template <class T> void scatter_conv(Exec &x, const Instr &i, const uint8_t *padding)
{
    const auto &v = i.get<Conv>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    const Operand &o = i.operand[1];
    constexpr uint64_t wide = 32 / sizeof(T);
    const uint64_t rows = full_rows(v), columns = full_columns(v);
    // What the walk does not write keeps no value.
    for (uint64_t r = 0; r < v.row_fractals; r++) {
        for (uint64_t col = r < rows ? columns : 0; col < v.column_fractals; col++) {
            x.define(o.mem, o.region.addr + conv_fractal(v, r, col), kFractal, false);
        }
    }
    static const uint8_t nothing[32] = {0};
    walk_conv(v, [&](int32_t r, int32_t b, int64_t source) {
        const uint8_t *s = source == kPadding ? padding : source == kNothing ? nothing : from + source;
        const auto ur = static_cast<uint64_t>(r), ub = static_cast<uint64_t>(b);
        for (uint64_t e = 0; e < wide; e++) {
            const uint64_t row = ub * wide + e;
            const uint64_t d = conv_fractal(v, row / 16, ur / wide) + (row % 16 * wide + ur % wide) * sizeof(T);
            memcpy(to + d, s + e * sizeof(T), sizeof(T));
            if (source == kNothing) {
                x.define(o.mem, o.region.addr + d, sizeof(T), false);
            } else if (row / 16 >= rows || ur / wide >= columns) {
                x.define(o.mem, o.region.addr + d, sizeof(T), true);
            }
        }
    });
}

void move_conv(Exec &x, const Instr &i)
{
    const auto &v = i.get<Conv>();
    const uint64_t size = v.bits / 8;
    uint8_t padding[32];
    for (uint64_t k = 0; k < 32; k++) {
        padding[k] = size == 0 ? 0 : static_cast<uint8_t>(v.pad_value >> (k % size * 8));
    }
    if (v.transposed) {
        size == 1 ? scatter_conv<uint8_t>(x, i, padding) : size == 2 ? scatter_conv<uint16_t>(x, i, padding) : scatter_conv<uint32_t>(x, i, padding);
        return;
    }
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[1]);
    const Operand &o = i.operand[1];
    walk_conv(v, [&](int32_t r, int32_t b, int64_t source) {
        const auto ur = static_cast<uint64_t>(r), ub = static_cast<uint64_t>(b);
        const uint64_t d = conv_fractal(v, ur / 16, ub) + ur % 16 * 32;
        if (source >= 0) {
            memcpy(to + d, from + source, 32);
        } else if (source == kPadding) {
            memcpy(to + d, padding, 32);
        } else {
            memset(to + d, 0, 32);
            x.define(o.mem, o.region.addr + d, 32, false);
        }
    });
}

void taint_conv(Exec &x, const Instr &i)
{
    const auto &v = i.get<Conv>();
    const Operand &from = i.operand[0], &to = i.operand[1];
    const uint64_t size = v.bits / 8, wide = 256 / v.bits;
    for (uint32_t k = 0; k < to.region.n1; k++) {
        for (uint32_t j = 0; j < to.region.n2; j++) {
            x.define(to.mem, to.region.addr + k * to.region.pitch1 + j * to.region.pitch2, to.region.bytes, false);
        }
    }
    walk_conv(v, [&](int32_t r, int32_t b, int64_t source) {
        const auto ur = static_cast<uint64_t>(r), ub = static_cast<uint64_t>(b);
        const auto one = [&](uint64_t d, uint64_t offset, uint64_t bytes) {
            if (source < 0) {
                x.define(to.mem, to.region.addr + d, bytes, source == kPadding);
            } else {
                x.define_like(to.mem, to.region.addr + d, from.mem, from.region.addr + static_cast<uint64_t>(source) + offset, bytes);
            }
        };
        if (!v.transposed) {
            one(conv_fractal(v, ur / 16, ub) + ur % 16 * 32, 0, 32);
            return;
        }
        for (uint64_t e = 0; e < wide; e++) {
            const uint64_t row = ub * wide + e;
            one(conv_fractal(v, row / 16, ur / wide) + row % 16 * 32 + ur % wide * size, e * size, size);
        }
    });
}

} // namespace

void load_3d(const Place &dst, const Place &src, Kind kind, const Load3D &q, const char *api, Site site)
{
    const Call c{api, site};
    c.on_cube();
    if (src.mem != Mem::L1 || (dst.mem != Mem::L0A && dst.mem != Mem::L0B)) {
        fail(Rule::Usage, c.api, "dst", site, "this load goes from L1 to L0A or L0B");
    }
    CoreState &s = state();
    const bool right = dst.mem == Mem::L0B;
    const uint64_t wide = c0(kind);
    uint64_t h = c.field(q.l1_h, "l1H", 0, 32767), w = c.field(q.l1_w, "l1W", 0, 32767);
    uint64_t pad[4] = {q.pad[0], q.pad[1], q.pad[2], q.pad[3]};
    if (q.right_matrix) {
        fail(Rule::Range, c.api, nullptr, site, "fMatrixCtrl must be false");
    }
    if (q.small_k) {
        fail(Rule::Range, c.api, nullptr, site, "this chip has no enSmallK");
    }
    if (q.set_matrix) {
        s.fmatrix[0] = h | w << 16 | pad[0] << 32 | pad[1] << 40 | pad[2] << 48 | pad[3] << 56;
        s.fmatrix[2] = 1;
    } else {
        if (s.fmatrix[2] == 0) {
            fail(Rule::Usage, c.api, nullptr, site, "isSetFMatrix is false, but SetFmatrix was not called");
        }
        const uint64_t m = s.fmatrix[0];
        h = m & 0xffff;
        w = m >> 16 & 0xffff;
        for (int k = 0; k < 4; k++) {
            pad[k] = m >> (32 + 8 * k) & 0xff;
        }
    }
    if (q.set_padding) {
        s.load_padding = q.pad_value;
    }
    const uint64_t channels = c.field(q.channels, "channelSize", 0, 65535);
    const uint64_t k_ext = c.field(q.k_extension, "kExtension", 0, 65535), m_ext = c.field(q.m_extension, "mExtension", 0, 65535);
    const uint64_t k_start = c.field(q.k_start, "kStartPt", 0, 65535), m_start = c.field(q.m_start, "mStartPt", 0, 32767);
    Conv v{};
    v.stride_w = c.field(q.stride_w, "strideW", 0, 63);
    v.stride_h = c.field(q.stride_h, "strideH", 0, 63);
    v.filter_w = c.field(q.filter_w, "filterW", 0, 255) + (q.wide_filter ? 256 : 0);
    v.filter_h = c.field(q.filter_h, "filterH", 0, 255) + (q.high_filter ? 256 : 0);
    v.dilation_w = c.field(q.dilation_w, "dilationFilterW", 0, 255);
    v.dilation_h = c.field(q.dilation_h, "dilationFilterH", 0, 255);
    v.repeats = static_cast<int32_t>(s.load_repeat[1]);
    if (h == 0 || w == 0 || channels == 0 || k_ext == 0 || m_ext == 0 || v.filter_w == 0 || v.filter_h == 0 || v.repeats == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    if (v.stride_w == 0 || v.stride_h == 0) {
        fail(Rule::Range, c.api, nullptr, site, "strideW and strideH must not be 0");
    }
    if (channels % wide != 0) {
        fail(Rule::Range, c.api, "src", site, "channelSize is %llu: only multiples of %llu are modelled for %s",
             static_cast<unsigned long long>(channels), static_cast<unsigned long long>(wide), type_name(kind.type));
    }
    if (k_start % wide != 0) {
        fail(Rule::Range, c.api, "src", site, "kStartPt is %llu, no multiple of %llu", static_cast<unsigned long long>(k_start),
             static_cast<unsigned long long>(wide));
    }
    v.transposed = right || q.transpose;
    const bool narrow = kind.bits < 16;
    if ((v.transposed && kind.bits == 4) || (!kNewChip && narrow && v.transposed)) {
        fail(Rule::Type, c.api, "dst", site, "%s is not transposed by this load%s", type_name(kind.type),
             right ? ", and every load to L0B transposes" : "");
    }
    if (s.load_boundary != 0) {
        fail(Rule::Usage, c.api, "src", site, "a boundary set by SetLoadDataBoundary is not modelled");
    }
    v.h = static_cast<int32_t>(h);
    v.w = static_cast<int32_t>(w);
    v.pad_left = static_cast<int32_t>(pad[0]);
    v.pad_top = static_cast<int32_t>(pad[2]);
    const int32_t high = v.h + static_cast<int32_t>(pad[2] + pad[3]) - ((v.filter_h - 1) * v.dilation_h + 1);
    const int32_t across = v.w + static_cast<int32_t>(pad[0] + pad[1]) - ((v.filter_w - 1) * v.dilation_w + 1);
    if (high < 0 || across < 0) {
        fail(Rule::Range, c.api, "src", site, "the filter is larger than the padded feature map");
    }
    v.out_w = across / v.stride_w + 1;
    v.out = v.out_w * (high / v.stride_h + 1);
    v.m_start = static_cast<int32_t>(m_start);
    v.m = static_cast<int32_t>(m_ext);
    v.k_start = static_cast<int32_t>(k_start / wide);
    v.k = static_cast<int32_t>(up(k_ext, wide));
    v.along_k = s.load_repeat[2] == 1;
    v.repeat_step = static_cast<int32_t>(s.load_repeat[0]) * (v.along_k ? 1 : 16);
    v.bits = kind.bits;
    v.pad_value = s.load_padding;
    const int32_t last_step = (v.repeats - 1) * v.repeat_step;
    const int32_t last_row = v.m_start + (v.along_k ? 0 : last_step) + v.m;
    const int32_t last_block = v.k_start + (v.along_k ? last_step : 0) + v.k;
    const auto all_blocks = static_cast<int32_t>(channels / wide) * v.filter_h * v.filter_w;
    if (last_row > static_cast<int32_t>(round_up(static_cast<uint64_t>(v.out), 16))) {
        fail(Rule::Range, c.api, "src", site, "rows up to %d are loaded, but the feature map gives %d (mStartPt %d, mExtension %d)", last_row,
             v.out, v.m_start, v.m);
    }
    if (last_block > all_blocks) {
        fail(Rule::Range, c.api, "src", site, "columns up to %d are loaded, but the feature map gives %d (kStartPt, kExtension)",
             last_block * static_cast<int32_t>(wide), all_blocks * static_cast<int32_t>(wide));
    }
    if (v.repeats > 1 && !v.along_k && v.m % 16 != 0) {
        fail(Rule::Range, c.api, "src", site, "mExtension is %d, repeats along m need a multiple of 16", v.m);
    }
    const uint64_t rows = static_cast<uint64_t>(v.m) * static_cast<uint64_t>(v.along_k ? 1 : v.repeats);
    const uint64_t blocks = static_cast<uint64_t>(v.k) * static_cast<uint64_t>(v.along_k ? v.repeats : 1);
    const uint64_t rows16 = up(rows, 16);
    if (v.transposed) {
        v.row_fractals = up(blocks * wide, 16);
        v.column_fractals = up(rows16 * 16, wide);
    } else {
        v.row_fractals = rows16;
        v.column_fractals = blocks;
    }
    v.zz = !kNewChip && !right;
    v.to_stride = kNewChip ? s.load_repeat[3] : v.row_fractals;
    if (kNewChip && v.column_fractals > 1 && v.to_stride < v.row_fractals) {
        fail(Rule::Usage, c.api, "dst", site, "dstStride is %llu, the %llu fractals of a column do not fit (SetLoadDataRepeat sets it)",
             static_cast<unsigned long long>(v.to_stride), static_cast<unsigned long long>(v.row_fractals));
    }

    Instr i;
    begin(i, c, Pipe::MTE1, kind);
    // With a filter of one point, the rows that are taken; else the planes of all channels that take part.
    const uint64_t plane = h * w * 32;
    const bool plain = v.filter_w == 1 && v.filter_h == 1 && v.stride_w == 1 && v.stride_h == 1 && pad[0] + pad[1] + pad[2] + pad[3] == 0 &&
                       v.repeats == 1;
    if (plain) {
        const uint64_t end = m_start + rows16 * 16 < static_cast<uint64_t>(v.out) ? m_start + rows16 * 16 : static_cast<uint64_t>(v.out);
        const uint64_t first = static_cast<uint64_t>(v.k_start) * plane + m_start * 32;
        reads(i, "src", src, runs(src.addr + first, (end - m_start) * 32, blocks, plane));
        v.from0 = -static_cast<int64_t>(first);
    } else {
        const int32_t points = v.filter_h * v.filter_w;
        const auto first = static_cast<uint64_t>(v.k_start / points), end = up(static_cast<uint64_t>(last_block), static_cast<uint64_t>(points));
        reads(i, "src", src, runs(src.addr + first * plane, (end - first) * plane, 1, 0));
        v.from0 = -static_cast<int64_t>(first * plane);
    }
    if (v.zz) {
        writes(i, "dst", dst, runs(dst.addr, v.row_fractals * v.column_fractals * kFractal, 1, 0));
    } else {
        writes(i, "dst", dst, runs(dst.addr, v.row_fractals * kFractal, v.column_fractals, v.to_stride * kFractal));
    }
    for (uint64_t k = 0; k < v.row_fractals * v.column_fractals; k++) {
        note_load(dst, conv_fractal(v, k / v.column_fractals, k % v.column_fractals), 1, 0, k == 0);
    }
    i.a[0] = static_cast<uint32_t>(v.row_fractals * v.column_fractals);
    i.a[1] = v.transposed ? 1 : 0;
    i.a[2] = static_cast<uint32_t>(v.row_fractals * v.column_fractals * kFractal);
    i.put(v);
    i.effect = move_conv;
    i.taint = taint_conv;
    issue(i);
}

void set_fmatrix(Field<uint16_t> h, Field<uint16_t> w, const uint8_t pad[4], bool right, Site site)
{
    const Call c{"SetFmatrix", site};
    c.on_cube();
    if (right) {
        fail(Rule::Range, c.api, nullptr, site, "fmatrixMode must be FMATRIX_LEFT");
    }
    uint64_t m = static_cast<uint64_t>(c.field(h, "l1H", 1, 32767)) | static_cast<uint64_t>(c.field(w, "l1W", 1, 32767)) << 16;
    for (int k = 0; k < 4; k++) {
        m |= static_cast<uint64_t>(pad[k]) << (32 + 8 * k);
    }
    state().fmatrix[0] = m;
    state().fmatrix[2] = 1;
    scalar_call(0, c.api, site);
}

void set_load_boundary(uint32_t value, Site site)
{
    const Call c{"SetLoadDataBoundary", site};
    c.on_cube();
    if (value != 0) {
        c.range("boundaryValue", value, 1024, 0xffffffffll);
    }
    state().load_boundary = value;
    scalar_call(0, c.api, site);
}

void set_load_padding(uint64_t bits, Site site)
{
    const Call c{"SetLoadDataPaddingValue", site};
    c.on_cube();
    state().load_padding = bits;
    scalar_call(0, c.api, site);
}

void set_load_repeat(const AscendC::LoadDataRepeatParam &q, const char *api, Site site)
{
    const Call c{api, site};
    c.on_cube();
    CoreState &s = state();
    s.load_repeat[0] = c.field(q.repeatStride, "repeatStride", 0, 65535);
    s.load_repeat[1] = c.field(q.repeatTime, "repeatTime", 0, 255);
    s.load_repeat[2] = c.field(q.repeatMode, "repeatMode", 0, 1);
#if __NPU_ARCH__ == 3510
    s.load_repeat[3] = c.field(q.dstStride, "dstStride", 0, 65535);
#endif
    scalar_call(0, c.api, site);
}

// ---- constants

namespace {

struct Constant {
    uint64_t value;
    uint64_t bytes, n, pitch;
    uint32_t size;
};

void write_constant(Exec &x, const Instr &i)
{
    const auto &k = i.get<Constant>();
    uint8_t *to = x.at(i.operand[0]);
    for (uint64_t r = 0; r < k.n; r++) {
        for (uint64_t b = 0; b < k.bytes; b += k.size) {
            memcpy(to + r * k.pitch + b, &k.value, k.size);
        }
    }
}

} // namespace

void fill_constant(const Place &dst, Kind kind, Field<uint16_t> repeats, Field<uint16_t> blocks, Field<uint16_t> gap, uint64_t value,
                   const char *api, Site site)
{
    const Call c{api, site};
    c.on_cube();
    const bool l0 = dst.mem == Mem::L0A || dst.mem == Mem::L0B;
    if (dst.mem != Mem::L1 && (!l0 || kNewChip)) {
        fail(Rule::Usage, c.api, "dst", site, "this chip does not fill %s", mem_name(dst.mem));
    }
    if (kind.bits != 16 && kind.bits != 32) {
        fail(Rule::Type, c.api, "dst", site, "only 16-bit and 32-bit elements are filled, not %s", type_name(kind.type));
    }
    const uint64_t unit = l0 ? kFractal : 32;
    Constant k{};
    k.n = c.field(repeats, "repeatTimes", 0, 32767);
    k.bytes = c.field(blocks, "blockNum", 0, 32767) * unit;
    k.pitch = k.bytes + c.field(gap, "dstGap", 0, 32767) * unit;
    k.value = value;
    k.size = kind.bits / 8;
    if (k.n == 0 || k.bytes == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    Instr i;
    begin(i, c, l0 ? Pipe::MTE1 : Pipe::MTE2, kind);
    writes(i, "dst", dst, runs(dst.addr, k.bytes, k.n, k.pitch));
    i.a[0] = static_cast<uint32_t>(k.n);
    i.a[1] = static_cast<uint32_t>(k.bytes);
    i.a[2] = static_cast<uint32_t>(k.n * k.bytes);
    i.put(k);
    i.effect = write_constant;
    issue(i);
}

} // namespace ascend_twin
