// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Fixpipe: results from L0C to GM, L1 or UB, converted and laid out on the way.

#include <vector>

#include "copy_util.h"
#include "numeric.h"
#include "twin/cube.h"

namespace ascend_twin {

namespace {

constexpr bool kNewChip = __NPU_ARCH__ == 3510;

using AscendC::CO2Layout;

// What a mode of quantisation does.
enum class How : uint8_t { Keep, Cast, Scale, Scale8, Requant8, Dequant };

struct Mode {
    const char *name;
    How how;
    bool table; // parameters per column
    uint8_t from;
    uint8_t to; // I8: int8_t and uint8_t
    bool new_chip; // only there
};

constexpr Mode kModes[] = {
    {"NoQuant", How::Keep, false, ASCEND_TWIN_NONE, ASCEND_TWIN_NONE, false},
    {"F322F16", How::Cast, false, ASCEND_TWIN_F32, ASCEND_TWIN_F16, false},
    {"F322BF16", How::Cast, false, ASCEND_TWIN_F32, ASCEND_TWIN_BF16, false},
    {"DEQF16", How::Dequant, false, ASCEND_TWIN_I32, ASCEND_TWIN_F16, false},
    {"VDEQF16", How::Dequant, true, ASCEND_TWIN_I32, ASCEND_TWIN_F16, false},
    {"QF322B8_PRE", How::Scale8, false, ASCEND_TWIN_F32, ASCEND_TWIN_I8, false},
    {"VQF322B8_PRE", How::Scale8, true, ASCEND_TWIN_F32, ASCEND_TWIN_I8, false},
    {"REQ8", How::Requant8, false, ASCEND_TWIN_I32, ASCEND_TWIN_I8, false},
    {"VREQ8", How::Requant8, true, ASCEND_TWIN_I32, ASCEND_TWIN_I8, false},
    {"QF322FP8_PRE", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_E4M3, true},
    {"VQF322FP8_PRE", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_E4M3, true},
    {"QF322HIF8_PRE", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_HIF8, true},
    {"VQF322HIF8_PRE", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_HIF8, true},
    {"QF322HIF8_PRE_HYBRID", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_HIF8, true},
    {"VQF322HIF8_PRE_HYBRID", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_HIF8, true},
    {"QS322BF16_PRE", How::Dequant, false, ASCEND_TWIN_I32, ASCEND_TWIN_BF16, true},
    {"VQS322BF16_PRE", How::Dequant, true, ASCEND_TWIN_I32, ASCEND_TWIN_BF16, true},
    {"QF322F16_PRE", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_F16, true},
    {"VQF322F16_PRE", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_F16, true},
    {"QF322BF16_PRE", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_BF16, true},
    {"VQF322BF16_PRE", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_BF16, true},
    {"QF322F32_PRE", How::Scale, false, ASCEND_TWIN_F32, ASCEND_TWIN_F32, true},
    {"VQF322F32_PRE", How::Scale, true, ASCEND_TWIN_F32, ASCEND_TWIN_F32, true},
};

struct Out {
    uint32_t m, n, matrices;
    uint64_t from_stride, from_matrix, from_row; // bytes
    uint64_t to_stride, to_matrix; // bytes; rows, blocks or columns of the result
    uint64_t scalar;
    uint8_t from_type, to_type, size; // size of an element written
    uint8_t mode;
    CO2Layout layout;
    uint8_t block; // NZ: columns of a block
    bool relu, infinities, keep_nan;
    uint8_t dual;
    int8_t table; // operand, -1: none
    uint8_t target; // first operand that is written
    uint8_t atomic, atomic_type;
};

// Parameters of quantisation: a factor with 10 bits of mantissa, an offset, and for integers a shift.
struct Factor {
    float factor;
    int32_t offset;
    bool is_signed;
    int shift; // 0: none
};

Factor factor_of(uint64_t bits)
{
    Factor f;
    const uint32_t u = static_cast<uint32_t>(bits) & ~0x1fffu;
    memcpy(&f.factor, &u, 4);
    const auto offset = static_cast<int32_t>(bits >> 37 & 0x1ff);
    f.offset = offset >= 256 ? offset - 512 : offset;
    f.is_signed = (bits >> 46 & 1) != 0;
    f.shift = !kNewChip && (bits >> 36 & 1) != 0 ? static_cast<int>(bits >> 32 & 15) + 1 : 0;
    return f;
}

// n values of one row, from column j on, converted to `to`.
void convert(const Out &o, const uint8_t *from, uint32_t n, const uint64_t *parameters, uint8_t *to)
{
    const Mode &mode = kModes[o.mode];
    if (mode.how == How::Keep && o.from_type == ASCEND_TWIN_I32) {
        for (uint32_t e = 0; e < n; e++) {
            int32_t v;
            memcpy(&v, from + e * 4, 4);
            v = o.relu && v < 0 ? 0 : v;
            memcpy(to + e * 4, &v, 4);
        }
        return;
    }
    float row[16];
    memcpy(row, from, n * 4);
    if (o.from_type == ASCEND_TWIN_I32) {
        for (uint32_t e = 0; e < n; e++) {
            int32_t v;
            memcpy(&v, from + e * 4, 4);
            if (const int shift = factor_of(parameters[mode.table ? e : 0]).shift) {
                v >>= shift;
                v = v > 32767 ? 32767 : v < -32768 ? -32768 : v;
            }
            row[e] = static_cast<float>(v);
        }
    }
    if (mode.how == How::Keep || mode.how == How::Cast) {
        for (uint32_t e = 0; o.relu && e < n; e++) {
            row[e] = row[e] < 0 ? 0.0f : row[e];
        }
    } else {
        for (uint32_t e = 0; e < n; e++) {
            const Factor f = factor_of(parameters[mode.table ? e : 0]);
            row[e] = o.relu && row[e] < 0 ? 0.0f : row[e] * f.factor;
            if (mode.how == How::Scale8 || mode.how == How::Requant8) {
                int64_t v = f32_to_int(row[e], Round::Rint, 9, true) + f.offset;
                const int64_t least = f.is_signed ? -128 : 0, most = f.is_signed ? 127 : 255;
                v = v < least ? least : v > most ? most : v;
                to[e] = static_cast<uint8_t>(v);
            }
        }
        if (mode.how == How::Scale8 || mode.how == How::Requant8) {
            return;
        }
    }
    const Overflow overflow = o.infinities ? Overflow::Ieee : o.keep_nan && o.to_type == ASCEND_TWIN_E4M3 ? Overflow::SaturateKeepNan : Overflow::Saturate;
    switch (o.to_type) {
    case ASCEND_TWIN_F16:
        f32_to_f16(to, row, n, Round::Rint, overflow);
        break;
    case ASCEND_TWIN_BF16:
        f32_to_bf16(to, row, n, Round::Rint, overflow);
        break;
    case ASCEND_TWIN_E4M3:
        f32_to_e4m3(to, row, n, Round::Rint, overflow);
        break;
    case ASCEND_TWIN_HIF8:
        f32_to_hif8(to, row, n,
                    o.mode == QF322HIF8_PRE_HYBRID || o.mode == VQF322HIF8_PRE_HYBRID ? Round::Hybrid : Round::Round, overflow);
        break;
    default:
        memcpy(to, row, n * 4);
        break;
    }
}

// Where the result's element lies from the start of its destination.
uint64_t place_of(const Out &o, uint32_t matrix, uint32_t row, uint32_t column, uint32_t columns)
{
    const uint64_t base = matrix * o.to_matrix;
    if (o.layout == CO2Layout::ROW_MAJOR) {
        return base + row * o.to_stride + static_cast<uint64_t>(column) * o.size;
    }
    if (o.layout == CO2Layout::COLUMN_MAJOR) {
        return base + column * o.to_stride + static_cast<uint64_t>(row) * o.size;
    }
    // Bytes come in blocks of 32 columns, but an odd last 16 stay a block of their own.
    const uint32_t b = column / o.block;
    const uint32_t wide = o.block == 32 && columns - b * 32 < 32 ? 16 : o.block;
    return base + b * o.to_stride + (static_cast<uint64_t>(row) * wide + column % o.block) * o.size;
}

// Calls f(target operand, destination offset, source offset, matrix column of the first, count) for pieces of a row whose
// elements lie in a row on both sides.
template <class F> void walk(const Out &o, F f)
{
    const uint32_t step = o.layout == CO2Layout::COLUMN_MAJOR ? 1 : o.layout == CO2Layout::NZ && o.block < 16 ? o.block : 16;
    const uint32_t half_m = o.dual == 1 ? o.m / 2 : o.m, half_n = o.dual == 2 ? o.n / 2 : o.n;
    for (uint32_t x = 0; x < o.matrices; x++) {
        for (uint32_t r = 0; r < o.m; r++) {
            for (uint32_t j = 0; j < o.n; j += step) {
                const uint32_t count = o.n - j < step ? o.n - j : step;
                const uint64_t from = x * o.from_matrix + j / 16 * o.from_stride + r * o.from_row + j % 16 * 4;
                const uint32_t second = (r >= half_m || j >= half_n) ? 1 : 0;
                const uint64_t to = place_of(o, x, r >= half_m ? r - half_m : r, j >= half_n ? j - half_n : j, half_n);
                f(o.target + second, to, from, j, count);
            }
        }
    }
}

// Rows of floats without parameters: whole rows at a time.
void move_rows(Exec &x, const Instr &i)
{
    const auto &o = i.get<Out>();
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to = x.at(i.operand[o.target]);
    float row[4096];
    alignas(4) uint8_t out[4096 * 4];
    const Overflow overflow = o.infinities ? Overflow::Ieee : Overflow::Saturate;
    for (uint32_t k = 0; k < o.matrices; k++) {
        for (uint32_t r = 0; r < o.m; r++) {
            const uint8_t *s = from + k * o.from_matrix + r * o.from_row;
            uint8_t *d = to + k * o.to_matrix + r * o.to_stride;
            for (uint32_t j = 0; j < o.n; j += 16) {
                memcpy(row + j, s + j / 16 * o.from_stride, (o.n - j < 16 ? o.n - j : 16) * 4);
            }
            for (uint32_t j = 0; o.relu && j < o.n; j++) {
                row[j] = row[j] < 0 ? 0.0f : row[j];
            }
            const uint8_t *bytes = reinterpret_cast<const uint8_t *>(row);
            if (o.to_type == ASCEND_TWIN_F16) {
                f32_to_f16(out, row, o.n, Round::Rint, overflow);
                bytes = out;
            } else if (o.to_type == ASCEND_TWIN_BF16) {
                f32_to_bf16(out, row, o.n, Round::Rint, overflow);
                bytes = out;
            }
            if (o.atomic != 0) {
                atomic_update(o.atomic, o.atomic_type, d, bytes, static_cast<uint64_t>(o.n) * o.size);
            } else {
                memcpy(d, bytes, static_cast<uint64_t>(o.n) * o.size);
            }
        }
    }
}

void move(Exec &x, const Instr &i)
{
    const auto &o = i.get<Out>();
    const How how = kModes[o.mode].how;
    if (o.layout == CO2Layout::ROW_MAJOR && o.dual == 0 && o.from_type == ASCEND_TWIN_F32 && (how == How::Keep || how == How::Cast)) {
        move_rows(x, i);
        return;
    }
    const uint8_t *from = x.at(i.operand[0]);
    uint8_t *to[2] = {x.at(i.operand[o.target]), nullptr};
    to[1] = o.dual != 0 ? x.at(i.operand[o.target + 1]) : to[0];
    std::vector<uint64_t> table;
    if (o.table >= 0) {
        table.resize(o.n);
        memcpy(table.data(), x.at(i.operand[o.table]), o.n * 8ull);
    }
    uint8_t piece[64];
    walk(o, [&](uint32_t target, uint64_t d, uint64_t s, uint32_t column, uint32_t count) {
        convert(o, from + s, count, o.table >= 0 ? &table[column] : &o.scalar, piece);
        uint8_t *at = to[target - o.target] + d;
        if (o.atomic != 0) {
            atomic_update(o.atomic, o.atomic_type, at, piece, static_cast<uint64_t>(count) * o.size);
        } else {
            memcpy(at, piece, static_cast<uint64_t>(count) * o.size);
        }
    });
}

void taint(Exec &x, const Instr &i)
{
    const auto &o = i.get<Out>();
    const Operand &from = i.operand[0];
    walk(o, [&](uint32_t target, uint64_t d, uint64_t s, uint32_t column, uint32_t count) {
        const Operand &to = i.operand[target];
        const bool whole = x.defined(from.mem, from.region.addr + s, count * 4ull) &&
                           (o.table < 0 || x.defined(i.operand[o.table].mem, i.operand[o.table].region.addr + column * 8ull, count * 8ull));
        for (uint32_t e = 0; e < (whole ? 1 : count); e++) {
            const bool ok = whole || (x.defined(from.mem, from.region.addr + s + e * 4ull, 4) &&
                                      (o.table < 0 || x.defined(i.operand[o.table].mem, i.operand[o.table].region.addr + (column + e) * 8ull, 8)));
            if (!ok || o.atomic == 0) {
                x.define(to.mem, to.region.addr + d + static_cast<uint64_t>(e) * o.size, whole ? static_cast<uint64_t>(count) * o.size : o.size,
                         ok, to.peer);
            }
        }
    });
}

void check_quant(const Call &c, const Fix &f, Kind to, Kind from, const Place &dst)
{
    const Mode &mode = kModes[f.quant];
    if (mode.new_chip && !kNewChip) {
        fail(Rule::Quant, c.api, "dst", c.site, "this chip has no quantPre %s", mode.name);
    }
    const bool bytes = to.type == ASCEND_TWIN_I8 || to.type == ASCEND_TWIN_U8;
    bool ok;
    if (mode.how == How::Keep) {
        ok = from.type == to.type && (from.type == ASCEND_TWIN_F32 || from.type == ASCEND_TWIN_I32);
    } else {
        ok = from.type == mode.from && (mode.to == ASCEND_TWIN_I8 ? bytes : to.type == mode.to);
    }
    if (!ok) {
        fail(Rule::Quant, c.api, "dst", c.site, "quantPre is %s, which does not make %s of %s", mode.name, type_name(to.type),
             type_name(from.type));
    }
    if (!kNewChip && dst.mem == Mem::L1 && mode.how == How::Keep) {
        fail(Rule::Quant, c.api, "dst", c.site, "this chip writes half, bfloat16_t and 8-bit elements to L1, not %s", type_name(to.type));
    }
}

// Infinite, NaN and denormal factors are excluded.
void check_factor(const Call &c, uint64_t bits)
{
    const uint32_t exponent = static_cast<uint32_t>(bits) >> 23 & 0xff;
    if (exponent == 0xff || (exponent == 0 && (bits & 0x7fffff) != 0)) {
        fail(Rule::Range, c.api, nullptr, c.site, "the factor of quantisation is infinite, NaN or denormal (bits %08x)",
             static_cast<uint32_t>(bits));
    }
}

} // namespace

void fixpipe(const Place &dst, const Place &src, const Place *table, Kind to, Kind from, const Fix &f, Site site)
{
    const Call c{f.api, site};
    c.on_cube();
    if (src.mem != Mem::L0C) {
        fail(Rule::Usage, c.api, "src", site, "%s reads L0C, not %s", c.api, mem_name(src.mem));
    }
    const bool to_ub = dst.mem == Mem::UB;
    if (to_ub && !kNewChip) {
        fail(Rule::Usage, c.api, "dst", site, "this chip has no path from L0C to UB: go through GM");
    }
    if (!to_ub && dst.mem != Mem::GM && dst.mem != Mem::L1) {
        fail(Rule::Usage, c.api, "dst", site, "there is no path from L0C to %s", mem_name(dst.mem));
    }
    if (to_ub != f.to_ub) {
        fail(Rule::Usage, c.api, "dst", site, to_ub ? "a FixpipeConfig with isToUB = true is needed to write UB"
                                                   : "isToUB is set, but the destination is not UB");
    }
    if (!kNewChip && f.layout == CO2Layout::COLUMN_MAJOR) {
        fail(Rule::Usage, c.api, "dst", site, "this chip does not write columns");
    }
    if (!kNewChip && dst.mem == Mem::L1 && f.layout != CO2Layout::NZ) {
        fail(Rule::Usage, c.api, "dst", site, "this chip writes L1 in NZ form only (CFG_NZ)");
    }
    check_quant(c, f, to, from, dst);
    const Mode &mode = kModes[f.quant];

    Out o{};
    o.n = c.field(f.n, "nSize", 0, 4095);
    o.m = c.field(f.m, "mSize", 0, !kNewChip && f.layout == CO2Layout::ROW_MAJOR ? 8192 : 65535);
    o.matrices = f.layout == CO2Layout::NZ ? 1 : c.field(f.matrices, "ndNum", 0, 65535);
    o.from_type = from.type;
    o.to_type = to.type;
    o.size = to.bits / 8;
    o.mode = static_cast<uint8_t>(f.quant);
    o.layout = f.layout;
    o.relu = f.relu;
    o.from_stride = c.field(f.from_stride, "srcStride", 0, 65535) * 64ull;
    o.from_row = 64;
    if (f.layout == CO2Layout::COLUMN_MAJOR) {
        o.from_row = c.field(f.from_row, "srcNzC0Stride", 1, 65535) * 64ull;
    }
    o.from_matrix = static_cast<uint64_t>(c.field(f.from_matrix, "srcNdStride", 0, kNewChip ? 65535 : 512)) * f.from_matrix_unit * 64;
    o.to_matrix = static_cast<uint64_t>(c.field(f.to_matrix, "dstNdStride", 0, kNewChip ? 0xffffffffll : 65535)) * o.size;
    const uint8_t unit = c.field(f.unit_flag, "unitFlag", 0, 3);
    o.dual = to_ub ? static_cast<uint8_t>(c.field(f.dual, "dualDstCtl", 0, 2)) : 0;
    if (unit == 1) {
        fail(Rule::Range, c.api, nullptr, site, "unitFlag is 1, it must be 0, 2 or 3");
    }
    if (o.m == 0 || o.n == 0 || o.matrices == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    o.to_stride = static_cast<uint64_t>(c.field(f.to_stride, "dstStride", 1, 0xffffffffll)) * (f.to_stride_in_blocks ? 32 : o.size);
    if (f.channel_split) {
        if (f.layout != CO2Layout::NZ || dst.mem != Mem::GM || to.type != ASCEND_TWIN_F32 || from.type != ASCEND_TWIN_F32 || unit != 0) {
            fail(Rule::Usage, c.api, "dst", site, "isChannelSplit is for float from L0C to GM in NZ form without unitFlag");
        }
    }
    o.block = f.channel_split ? 8 : o.size == 1 ? 32 : 16;
    if (f.layout == CO2Layout::NZ && o.n % (f.channel_split ? 8 : 16) != 0) {
        fail(Rule::Range, c.api, "dst", site, "nSize is %u, the NZ form needs a multiple of %u", o.n, f.channel_split ? 8 : 16);
    }
    if (unit != 0 && f.layout == CO2Layout::COLUMN_MAJOR && o.from_row != 64) {
        fail(Rule::Usage, c.api, nullptr, site, "unitFlag needs srcNzC0Stride = 1");
    }
    if (o.n > 16 && o.from_stride < o.m * o.from_row) {
        fail(Rule::Range, c.api, "src", site, "srcStride is %llu, less than the %u rows of mSize", static_cast<unsigned long long>(o.from_stride / 64),
             o.m);
    }
    if (o.dual == 1 && o.m % 2 != 0) {
        fail(Rule::Range, c.api, "dst", site, "mSize is %u, halves need an even number", o.m);
    }
    if (o.dual == 2 && o.n % 32 != 0) {
        fail(Rule::Range, c.api, "dst", site, "nSize is %u, halves need a multiple of 32", o.n);
    }
    if (o.dual != 0 && f.layout == CO2Layout::COLUMN_MAJOR) {
        fail(Rule::Usage, c.api, "dst", site, "dualDstCtl does not go with columns");
    }
    if (to_ub && vector_per_cube() < (o.dual != 0 || f.sub_block ? 2u : 1u)) {
        fail(Rule::WrongCore, c.api, "dst", site, "UB belongs to a vector core that this kernel does not have");
    }
    const uint64_t line = f.layout == CO2Layout::COLUMN_MAJOR ? o.m : o.n / (o.dual == 2 ? 2 : 1);
    if (to_ub && f.layout != CO2Layout::NZ && line * o.size % 32 != 0) {
        fail(Rule::Alignment, c.api, "dst", site, "lines of %llu elements in UB are no multiple of 32 bytes", static_cast<unsigned long long>(line));
    }
    const uint64_t lines = f.layout == CO2Layout::ROW_MAJOR ? o.m / (o.dual == 1 ? 2 : 1)
                           : f.layout == CO2Layout::COLUMN_MAJOR ? o.n
                                                                 : up(o.n / (o.dual == 2 ? 2 : 1), o.block);
    const uint64_t used = (f.layout == CO2Layout::NZ ? static_cast<uint64_t>(o.m / (o.dual == 1 ? 2 : 1)) * o.block : line) * o.size;
    if (lines > 1 && o.to_stride < used) {
        fail(Rule::Overlap, c.api, "dst", site, "dstStride is %llu bytes, but %llu are written before the next line: what is written overlaps",
             static_cast<unsigned long long>(o.to_stride), static_cast<unsigned long long>(used));
    }
    if (dst.mem != Mem::GM && o.to_stride % 32 != 0) {
        fail(Rule::Alignment, c.api, "dst", site, "dstStride is %llu bytes, no multiple of 32", static_cast<unsigned long long>(o.to_stride));
    }
    const CoreState &s = state();
    o.scalar = f.scalar;
    o.infinities = (s.ctrl >> 48 & 1) != 0;
    o.keep_nan = (s.ctrl >> 50 & 1) != 0;
    if (mode.how != How::Keep && mode.how != How::Cast && !mode.table) {
        check_factor(c, o.scalar);
    }

    Instr i;
    i.api = c.api;
    i.site = site;
    i.pipe = Pipe::FIX;
    i.dtype = to.type;
    i.l2 = dst.l2;
    i.unit_flag = unit;
    const uint64_t blocks = up(o.n, 16);
    if (o.from_row == 64) {
        i.add("src", Use::Read, Mem::L0C, runs(src.addr, o.m * 64ull, blocks, o.from_stride, o.matrices, o.from_matrix), src.buffer);
    } else {
        // Rows apart: what lies between is taken along, as far as hazards go.
        i.add("src", Use::Read, Mem::L0C,
              runs(src.addr, (o.m - 1) * o.from_row + 64, blocks, o.from_stride, o.matrices, o.from_matrix), src.buffer);
    }
    o.table = -1;
    if (mode.table) {
        Place t{};
        if (table != nullptr) {
            t = *table;
            if (t.mem != Mem::L1) {
                fail(Rule::Usage, c.api, "cbufWorkspace", site, "the parameters per column lie in L1, not in %s", mem_name(t.mem));
            }
        } else {
            if (s.fixpipe_table == ~0ull) {
                fail(Rule::Quant, c.api, "dst", site, "quantPre is %s, but no parameters per column were given", mode.name);
            }
            t.mem = Mem::FB;
            t.addr = s.fixpipe_table;
            t.buffer = s.fixpipe_table_buffer;
        }
        o.table = static_cast<int8_t>(i.count);
        i.add("quant", Use::Read, t.mem, runs(t.addr, o.n * 8ull, 1, 0), t.buffer);
    }
    Use use = Use::Write;
    if (dst.mem == Mem::GM) {
        use = gm_use(c, to, o.atomic, o.atomic_type);
    }
    o.target = i.count;
    for (int k = 0; k < (o.dual != 0 ? 2 : 1); k++) {
        const uint64_t m = o.dual == 1 ? o.m / 2 : o.m, n = o.dual == 2 ? o.n / 2 : o.n;
        Region r;
        if (f.layout == CO2Layout::ROW_MAJOR) {
            r = runs(dst.addr, n * o.size, m, o.to_stride, o.matrices, o.to_matrix);
        } else if (f.layout == CO2Layout::COLUMN_MAJOR) {
            r = runs(dst.addr, m * o.size, n, o.to_stride, o.matrices, o.to_matrix);
        } else {
            r = runs(dst.addr, m * o.block * o.size, n / o.block, o.to_stride);
        }
        if (f.layout != CO2Layout::NZ || n / o.block != 0) {
            Operand &t = i.add("dst", use, dst.mem, r, dst.buffer);
            t.peer = !to_ub ? Peer::Self : o.dual != 0 ? (k == 0 ? Peer::Aiv0 : Peer::Aiv1) : f.sub_block ? Peer::Aiv1 : Peer::Aiv0;
            if (dst.mem == Mem::GM && f.layout != CO2Layout::ROW_MAJOR) {
                t.align = 32;
            }
        }
    }
    // The odd last 16 columns of bytes.
    if (f.layout == CO2Layout::NZ && o.block == 32 && (o.dual == 2 ? o.n / 2 : o.n) % 32 != 0) {
        const uint64_t m = o.dual == 1 ? o.m / 2 : o.m, n = o.dual == 2 ? o.n / 2 : o.n;
        for (int k = 0; k < (o.dual != 0 ? 2 : 1); k++) {
            const uint64_t at = dst.addr + n / 32 * o.to_stride;
            if (n / 32 == 0) {
                Operand &t = i.add("dst", use, dst.mem, runs(at, m * 16, 1, 0), dst.buffer);
                t.peer = !to_ub ? Peer::Self : o.dual != 0 ? (k == 0 ? Peer::Aiv0 : Peer::Aiv1) : f.sub_block ? Peer::Aiv1 : Peer::Aiv0;
            } else {
                Operand &t = i.add("dst", use, dst.mem, runs(at, m * 16, 1, 0), dst.buffer);
                t.peer = i.operand[o.target + k].peer;
            }
        }
    }
    i.a[0] = o.m * o.matrices;
    i.a[1] = o.n;
    i.a[2] = o.size;
    i.a[3] = o.dual != 0 ? 1 : 0;
    i.put(o);
    i.effect = move;
    i.taint = taint;
    issue(i);
}

Fix fix_params(const AscendC::DataCopyCO12DstParams &p, Site site)
{
    const CoreState &s = state();
    if (p.clipReluPre != 0 || p.eltWiseOp != 0) {
        fail(Rule::Usage, "DataCopy", nullptr, site, "this chip has no clipReluPre and no eltWiseOp");
    }
    Fix f{};
    f.api = "DataCopy";
    f.layout = p.nz2ndEn ? CO2Layout::ROW_MAJOR : CO2Layout::NZ;
    f.n = p.nSize;
    f.m = p.mSize;
    f.from_stride = p.srcStride;
    f.to_stride = p.dstStride;
    f.to_stride_in_blocks = !p.nz2ndEn;
    f.quant = p.quantPre;
    f.scalar = s.fixpipe_quant;
    f.relu = p.reluPre != 0;
    f.unit_flag = p.unitFlag;
    f.matrices = s.fixpipe_nd_num;
    f.from_matrix = s.fixpipe_src_nd;
    f.to_matrix = s.fixpipe_dst_nd;
    f.from_matrix_unit = kNewChip ? 1 : 16;
    f.from_row = 1;
    f.channel_split = p.channelSplit;
    return f;
}

void set_fixpipe_matrices(Field<uint16_t> n, Field<uint16_t> from, Field<uint32_t> to, Site site)
{
    const Call c{"SetFixpipeNz2ndFlag", site};
    c.on_cube();
    CoreState &s = state();
    s.fixpipe_nd_num = c.field(n, "ndNum", 1, 65535);
    s.fixpipe_src_nd = c.field(from, "srcNdStride", 0, kNewChip ? 65535 : 512);
    s.fixpipe_dst_nd = static_cast<uint64_t>(c.field(to, "dstNdStride", 0, kNewChip ? 0xffffffffll : 65535));
    scalar_call(0, c.api, site);
}

void set_fixpipe_scalar(uint64_t value, Site site)
{
    const Call c{"SetFixpipePreQuantFlag", site};
    c.on_cube();
    state().fixpipe_quant = value;
    scalar_call(0, c.api, site);
}

void set_fixpipe_table(const Place &table, bool reset, Site site)
{
    const Call c{"SetFixPipeConfig", site};
    c.on_cube();
    if (reset && table.mem == Mem::L0C) {
        scalar_call(0, c.api, site); // the tensor only says that there is no table
        return;
    }
    if (table.mem != Mem::FB) {
        fail(Rule::Usage, c.api, "quantPre", site, "the parameters per column lie in the Fixpipe buffer (TPosition::C2PIPE2GM), not in %s",
             mem_name(table.mem));
    }
    state().fixpipe_table = table.addr;
    state().fixpipe_table_buffer = table.buffer;
    scalar_call(0, c.api, site);
}

} // namespace ascend_twin
