// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Elementwise calls of the vector unit.
//
// Arithmetic on half and bfloat16 is that of F32 with one rounding to nearest at the end. Products that are added
// (MulAddDst, FusedMulAdd, Axpy) are rounded before the addition, which the documentation leaves open. Exp and Ln are those
// of the host's libm (below 1 ulp). Integer overflow wraps unless the control register (bit 53) asks for saturation.

#include "vector_common.h"

#include <math.h>

#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ASCEND_TWIN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ASCEND_TWIN_CLONES
#endif

namespace ascend_twin {

uint32_t arch() { return chip().arch; }

uint64_t scalar_cast(uint8_t type, float v, uint8_t round)
{
    uint64_t bits = 0;
    narrow(type, &bits, &v, 1, static_cast<Round>(round), Overflow::Ieee);
    return bits;
}

void check_apart(const VecArg &dst, uint64_t dst_bytes, const VecArg &src, uint64_t src_bytes, const char *name, const char *api, Site site)
{
    if (dst.addr < src.addr + src_bytes && src.addr < dst.addr + dst_bytes) {
        fail(Rule::Overlap, api, name, site, "%s and the destination share memory, which this call does not allow", name);
    }
}

Overflow overflow_mode(uint8_t dst)
{
    uint64_t ctrl = state().ctrl;
    if ((ctrl >> 48) & 1) {
        return Overflow::Ieee;
    }
    bool small = dst == ASCEND_TWIN_E4M3 || dst == ASCEND_TWIN_E5M2 || dst == ASCEND_TWIN_E8M0;
    return small && ((ctrl >> 50) & 1) ? Overflow::SaturateKeepNan : Overflow::Saturate;
}

bool truncates_int() { return arch() == 3510 && ((state().ctrl >> 59) & 1); }

void check_local(const VecArg &arg, const char *name, const char *api, Site site)
{
    if (arg.mem != Mem::UB) {
        fail(Rule::WrongCore, api, name, site, "the vector unit works on the unified buffer, this tensor lies in %s", mem_name(arg.mem));
    }
}

void check_stride(uint64_t value, uint64_t limit, const char *what, const char *api, Site site)
{
    if (value > limit) {
        fail(Rule::Range, api, what, site, "%s is %llu, its field holds up to %llu", what, static_cast<unsigned long long>(value),
             static_cast<unsigned long long>(limit));
    }
}

void check_repeat(int64_t repeat, const char *api, Site site)
{
    if (repeat < 0 || repeat > 255) {
        fail(Rule::Range, api, "repeatTime", site, "repeatTime is %lld, the field holds up to 255", static_cast<long long>(repeat));
    }
}

bool resolve(const VecMask &mask, uint32_t lanes, const char *api, Site site, Shape &shape)
{
    CoreState &core = state();
    shape = Shape{};
    shape.lanes = lanes;
    auto total = [&](uint64_t n) {
        if (n > (1u << 22)) {
            fail(Rule::Range, api, "count", site, "%llu elements are more than the unified buffer holds", static_cast<unsigned long long>(n));
        }
        shape.prefix = lanes;
        shape.repeats = static_cast<uint32_t>(n / lanes);
        shape.tail = static_cast<uint32_t>(n % lanes);
    };
    switch (mask.kind) {
    case VecMask::Count:
        if (mask.n < 0) {
            fail(Rule::Range, api, "count", site, "count is %lld", static_cast<long long>(mask.n));
        }
        total(static_cast<uint64_t>(mask.n));
        if (arch() == 2201) {
            // These calls set counter mode and the mask themselves, and leave the defaults.
            core.mask[0] = core.mask[1] = ~0ull;
            core.counter_mode = false;
            core.mask_dirty = false;
        }
        break;
    case VecMask::Lanes:
        if (mask.n < 0) {
            fail(Rule::Range, api, "mask", site, "mask is %lld", static_cast<long long>(mask.n));
        }
        if (core.counter_mode) {
            core.mask[0] = static_cast<uint64_t>(mask.n);
            core.mask[1] = 0;
            total(core.mask[0]);
        } else {
            if (mask.n > lanes) {
                fail(Rule::Range, api, "mask", site, "mask is %lld, a repeat has %u elements of this type", static_cast<long long>(mask.n),
                     lanes);
            }
            uint64_t n = static_cast<uint64_t>(mask.n);
            core.mask[0] = n >= 64 ? ~0ull : (1ull << n) - 1;
            core.mask[1] = n >= 128 ? ~0ull : n > 64 ? (1ull << (n - 64)) - 1 : 0;
            check_repeat(mask.repeat, api, site);
            shape.prefix = static_cast<uint32_t>(n);
            shape.repeats = n == 0 ? 0 : static_cast<uint32_t>(mask.repeat);
        }
        break;
    case VecMask::Bits:
    case VecMask::Register: {
        uint64_t bits[2] = {mask.bits[0], mask.bits[1]};
        if (mask.kind == VecMask::Register) {
            bits[0] = core.mask[0];
            bits[1] = core.mask[1];
        } else {
            core.mask[0] = bits[0];
            core.mask[1] = bits[1];
        }
        if (core.counter_mode) {
            total(bits[0]);
            break;
        }
        if (mask.kind == VecMask::Register && mask.repeat == 1 && lanes > 128) {
            bits[0] = bits[1] = ~0ull;
        }
        check_repeat(mask.repeat, api, site);
        if (lanes < 64) {
            bits[0] &= (1ull << lanes) - 1;
        }
        if (lanes <= 64) {
            bits[1] = 0;
        }
        shape.repeats = (bits[0] | bits[1]) == 0 ? 0 : static_cast<uint32_t>(mask.repeat);
        shape.bits[0] = bits[0];
        shape.bits[1] = bits[1];
        // A run of ones from the first lane on.
        uint32_t n = bits[0] == ~0ull ? 64 + (bits[1] == ~0ull ? 64u : static_cast<uint32_t>(__builtin_ctzll(~bits[1])))
                                      : static_cast<uint32_t>(__builtin_ctzll(~bits[0]));
        if (static_cast<int>(n) == __builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1])) {
            shape.prefix = n;
        }
        break;
    }
    }
    if (shape.rows() == 0) {
        if (arch() == 3510) {
            fail(Rule::Range, api, nullptr, site, "no element takes part (count, mask or repeatTime is 0), which does nothing on dav-2201 "
                                                  "and has no defined effect on dav-3510");
        }
        return false;
    }
    return true;
}

namespace {

Operand &add(Instr &in, const char *name, Use use, const VecArg &arg, const Region &r, uint16_t align, bool strict)
{
    if (in.count >= kMaxOperands) {
        fail(Rule::Usage, in.api, name, in.site, "the pattern of the mask is too irregular for the twin");
    }
    Operand &o = in.add(name, use, arg.mem, r, arg.buffer);
    o.align = align;
    o.strict = strict;
    return o;
}

// `rows` repeats from `first` on with the same runs of bytes in each.
struct Run {
    uint64_t offset;
    uint64_t bytes;
};

void touch_rows(Instr &in, const char *name, Use use, const VecArg &arg, const Track &t, uint32_t first, uint32_t rows, uint32_t lanes,
                const uint64_t bits[2], uint32_t prefix, uint16_t align, bool strict)
{
    uint64_t base = t.addr + static_cast<uint64_t>(first) * t.rep;
    uint32_t n2 = t.rep == 0 ? 1 : rows;
    auto region = [&](uint64_t offset, uint64_t bytes, uint64_t pitch1, uint32_t n1) {
        Region r;
        r.addr = base + offset;
        r.bytes = bytes;
        r.n1 = n1;
        r.pitch1 = pitch1;
        r.n2 = n2;
        r.pitch2 = t.rep;
        if (n1 == 1 && n2 > 1 && t.rep == bytes) {
            r.bytes = bytes * n2;
            r.n2 = 1;
        } else if (n1 > 1 && n2 > 1 && t.rep == pitch1 * n1) {
            r.n1 = n1 * n2;
            r.n2 = 1;
        }
        return r;
    };
    // Only the first region starts where the operand does.
    uint16_t rest = static_cast<uint16_t>(t.bits >= 8 ? t.bits / 8 : 1);
    if (prefix != 0) {
        uint64_t bytes = (static_cast<uint64_t>(prefix) * t.bits + 7) / 8;
        if (t.blk == kBlock || bytes <= kBlock) {
            add(in, name, use, arg, region(0, bytes, 0, 1), align, strict);
            return;
        }
        uint32_t blocks = static_cast<uint32_t>(bytes / kBlock);
        uint64_t end = bytes % kBlock;
        add(in, name, use, arg, region(0, kBlock, t.blk, t.blk == 0 ? 1 : blocks), align, strict);
        if (end != 0 && t.blk != 0) {
            add(in, name, use, arg, region(static_cast<uint64_t>(blocks) * t.blk, end, 0, 1), rest, strict);
        }
        return;
    }
    Run runs[128];
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (!((bits[lane / 64] >> (lane % 64)) & 1)) {
            continue;
        }
        uint64_t at = t.at(0, lane) - t.addr, size = t.bits >= 8 ? t.bits / 8 : 1;
        if (count > 0 && runs[count - 1].offset + runs[count - 1].bytes == at) {
            runs[count - 1].bytes += size;
        } else if (count == 0 || runs[count - 1].offset != at || t.bits >= 8) {
            runs[count++] = Run{at, size};
        }
    }
    bool uniform = count > 1;
    for (uint32_t i = 1; uniform && i < count; i++) {
        uniform = runs[i].bytes == runs[0].bytes && runs[i].offset - runs[i - 1].offset == runs[1].offset - runs[0].offset &&
                  runs[i].offset > runs[i - 1].offset;
    }
    if (uniform) {
        add(in, name, use, arg, region(runs[0].offset, runs[0].bytes, runs[1].offset - runs[0].offset, count), rest, strict);
        return;
    }
    if (count <= 3) {
        for (uint32_t i = 0; i < count; i++) {
            add(in, name, use, arg, region(runs[i].offset, runs[i].bytes, 0, 1), rest, strict);
        }
        return;
    }
    // Too many: whole blocks, from the first to the last that is touched. What is read too much does not count as an error.
    uint32_t low = lanes, high = 0;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if ((bits[lane / 64] >> (lane % 64)) & 1) {
            uint32_t block = lane * t.bits / 256;
            low = block < low ? block : low;
            high = block > high ? block : high;
        }
    }
    if (use == Use::Write) {
        use = Use::Update; // what is not written keeps its definedness
    }
    add(in, name, use, arg,
        t.blk == kBlock ? region(static_cast<uint64_t>(low) * t.blk, static_cast<uint64_t>(high - low + 1) * kBlock, 0, 1)
                        : region(static_cast<uint64_t>(low) * t.blk, kBlock, t.blk, t.blk == 0 ? 1 : high - low + 1),
        rest, false);
}

} // namespace

Operand &touch_run(Instr &in, const char *name, Use use, const VecArg &arg, uint64_t addr, uint64_t bytes, uint16_t align)
{
    Region r;
    r.addr = addr;
    r.bytes = bytes;
    return add(in, name, use, arg, r, align, true);
}

void touch(Instr &in, const char *name, Use use, const VecArg &arg, const Track &t, const Shape &s, uint16_t align, bool strict)
{
    if (align == 0 && t.addr % kBlock != 0) {
        fail(Rule::Alignment, in.api, name, in.site, "the tensor starts at byte %llu of the unified buffer, which is no multiple of 32",
             static_cast<unsigned long long>(t.addr));
    }
    if (t.single) {
        add(in, name, use, arg, Region{t.addr, t.bits >= 8 ? t.bits / 8u : 1u, 0, 0, 1, 1}, align, strict);
        return;
    }
    if (s.full() && t.dense(s)) {
        add(in, name, use, arg, Region{t.addr, (s.elements() * t.bits + 7) / 8, 0, 0, 1, 1}, align, strict);
        return;
    }
    if (s.repeats != 0) {
        touch_rows(in, name, use, arg, t, 0, s.repeats, s.lanes, s.bits, s.prefix, align, strict);
    }
    if (s.tail != 0) {
        touch_rows(in, name, use, arg, t, s.repeats, 1, s.lanes, s.bits, s.tail, align, strict);
    }
}

void vector_instr(Instr &in, const char *api, Site site, uint8_t dtype, uint32_t bytes, uint64_t elements, uint32_t repeats)
{
    in.api = api;
    in.site = site;
    in.pipe = Pipe::V;
    in.dtype = dtype;
    in.a[0] = repeats;
    in.a[1] = bytes;
    in.a[2] = static_cast<uint32_t>(elements);
}

namespace {

struct Elementwise {
    VecOp op;
    uint8_t args;
    Round round;
    Overflow overflow;
    bool update;
    bool flush;
    bool round_shift;
    bool saturate_int;
    bool truncate_int;
    bool dense;
    uint8_t type[3];
    uint8_t scalar_type;
    Shape shape;
    Track t[3];
    uint64_t scalar;
    uint64_t step; // of Index
    uint64_t deq; // DEQSCALE
};

template <class T> inline T bits_to(uint64_t bits)
{
    T v;
    memcpy(&v, &bits, sizeof(T));
    return v;
}

inline float keep_nan_max(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
inline float keep_nan_min(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
inline float relu(float a) { return a != a ? a : a > 0 ? a : 0.0f; }

#define EACH(expression)                                                                                               \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        o[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

// The operations in F32. `d` is the old destination; `s` the scalar. Any of them may be the same as `o`.
ASCEND_TWIN_CLONES void run_f32(VecOp op, float *o, const float *a, const float *b, const float *d, float s, size_t n)
{
    switch (op) {
    case VecOp::Abs:
        EACH(__builtin_fabsf(a[i]));
    case VecOp::Exp:
        EACH(expf(a[i]));
    case VecOp::Ln:
        EACH(logf(a[i]));
    case VecOp::Sqrt:
        EACH(sqrtf(a[i]));
    case VecOp::Rsqrt:
        EACH(1.0f / sqrtf(a[i]));
    case VecOp::Reciprocal:
        EACH(1.0f / a[i]);
    case VecOp::Relu:
        EACH(relu(a[i]));
    case VecOp::Neg:
        EACH(-a[i]);
    case VecOp::Add:
    case VecOp::AddReluCast:
    case VecOp::AddRelu:
        if (op == VecOp::Add) {
            EACH(a[i] + b[i]);
        }
        EACH(relu(a[i] + b[i]));
    case VecOp::Sub:
        EACH(a[i] - b[i]);
    case VecOp::SubRelu:
    case VecOp::SubReluCast:
        EACH(relu(a[i] - b[i]));
    case VecOp::Mul:
    case VecOp::MulCast:
        EACH(a[i] * b[i]);
    case VecOp::Div:
        EACH(a[i] / b[i]);
    case VecOp::Max:
        EACH(keep_nan_max(a[i], b[i]));
    case VecOp::Min:
        EACH(keep_nan_min(a[i], b[i]));
    case VecOp::Prelu:
        EACH(a[i] >= 0 ? a[i] : a[i] * b[i]);
    case VecOp::AbsSub:
        EACH(__builtin_fabsf(a[i] - b[i]));
    case VecOp::ExpSub:
        EACH(expf(a[i] - b[i]));
    case VecOp::MulAddDst:
        EACH(a[i] * b[i] + d[i]);
    case VecOp::FusedMulAdd:
        EACH(a[i] * d[i] + b[i]);
    case VecOp::MulAddRelu:
        EACH(relu(a[i] * d[i] + b[i]));
    case VecOp::Adds:
        EACH(a[i] + s);
    case VecOp::Subs:
        EACH(a[i] - s);
    case VecOp::SubsFrom:
        EACH(s - a[i]);
    case VecOp::Muls:
    case VecOp::MulsCast:
        EACH(a[i] * s);
    case VecOp::Divs:
        EACH(a[i] / s);
    case VecOp::DivsFrom:
        EACH(s / a[i]);
    case VecOp::Maxs:
        EACH(keep_nan_max(a[i], s));
    case VecOp::Mins:
        EACH(keep_nan_min(a[i], s));
    case VecOp::LeakyRelu:
        EACH(a[i] >= 0 ? a[i] : a[i] * s);
    case VecOp::Axpy:
        EACH(a[i] * s + d[i]);
    default:
        break;
    }
}

template <class T> inline T clamp_to(__int128 v)
{
    __int128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    return static_cast<T>(v < low ? low : v > high ? high : v);
}

template <class T> inline T shift_left(T v, uint64_t s)
{
    constexpr uint64_t bits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    if (std::is_unsigned<T>::value) {
        return s >= bits ? T(0) : static_cast<T>(static_cast<U>(v) << s);
    }
    // The sign stays, the bits below it are shifted out.
    U sign = static_cast<U>(U(1) << (bits - 1));
    U rest = s >= bits ? U(0) : static_cast<U>((static_cast<U>(v) << s) & static_cast<U>(sign - 1));
    if (s >= bits) {
        return T(0);
    }
    return static_cast<T>((static_cast<U>(v) & sign) | rest);
}

template <class T> inline T shift_right(T v, uint64_t s, bool round)
{
    constexpr uint64_t bits = 8 * sizeof(T);
    T r = s >= bits ? static_cast<T>(v < 0 ? -1 : 0) : static_cast<T>(v >> s);
    if (round && s > 0 && s <= bits && ((static_cast<std::make_unsigned_t<T>>(v) >> (s - 1)) & 1)) {
        r = static_cast<T>(r + 1);
    }
    return r;
}

template <class T> inline T divide(T a, T b)
{
    if (b == 0) {
        return static_cast<T>(-1);
    }
    if (std::is_signed<T>::value && b == static_cast<T>(-1)) {
        return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    }
    return static_cast<T>(a / b);
}

// The operations on integers of one type.
template <class T> void run_int(const Elementwise &p, T *o, const T *a, const T *b, const T *d, T s, size_t n)
{
    using U = std::make_unsigned_t<T>;
    using W = std::conditional_t<sizeof(T) == 8, __int128, int64_t>;
    bool sat = p.saturate_int;
    auto fit = [sat](W v) -> T { return sat ? clamp_to<T>(v) : static_cast<T>(static_cast<U>(v)); };
    switch (p.op) {
    case VecOp::Abs:
        EACH(fit(a[i] < 0 ? -static_cast<W>(a[i]) : static_cast<W>(a[i])));
    case VecOp::Neg:
        EACH(fit(-static_cast<W>(a[i])));
    case VecOp::Not:
        EACH(static_cast<T>(~a[i]));
    case VecOp::Relu:
        EACH(a[i] > 0 ? a[i] : T(0));
    case VecOp::Reciprocal:
        EACH(divide<T>(1, a[i]));
    case VecOp::Add:
        EACH(fit(static_cast<W>(a[i]) + b[i]));
    case VecOp::Sub:
        EACH(fit(static_cast<W>(a[i]) - b[i]));
    case VecOp::Mul:
        EACH(fit(static_cast<W>(a[i]) * b[i]));
    case VecOp::Div:
        EACH(divide<T>(a[i], b[i]));
    case VecOp::Max:
        EACH(a[i] > b[i] ? a[i] : b[i]);
    case VecOp::Min:
        EACH(a[i] < b[i] ? a[i] : b[i]);
    case VecOp::And:
        EACH(static_cast<T>(a[i] & b[i]));
    case VecOp::Or:
        EACH(static_cast<T>(a[i] | b[i]));
    case VecOp::AddRelu:
        for (size_t i = 0; i < n; i++) {
            T v = fit(static_cast<W>(a[i]) + b[i]);
            o[i] = v > 0 ? v : T(0);
        }
        break;
    case VecOp::SubRelu:
        for (size_t i = 0; i < n; i++) {
            T v = fit(static_cast<W>(a[i]) - b[i]);
            o[i] = v > 0 ? v : T(0);
        }
        break;
    case VecOp::ShiftLeftBy:
        EACH(shift_left<T>(a[i], static_cast<U>(b[i])));
    case VecOp::ShiftRightBy:
        EACH(shift_right<T>(a[i], static_cast<U>(b[i]), false));
    case VecOp::MulAddDst:
        EACH(fit(static_cast<W>(a[i]) * b[i] + d[i]));
    case VecOp::FusedMulAdd:
        EACH(fit(static_cast<W>(a[i]) * d[i] + b[i]));
    case VecOp::MulAddRelu:
        for (size_t i = 0; i < n; i++) {
            T v = fit(static_cast<W>(a[i]) * d[i] + b[i]);
            o[i] = v > 0 ? v : T(0);
        }
        break;
    case VecOp::Adds:
        EACH(fit(static_cast<W>(a[i]) + s));
    case VecOp::Subs:
        EACH(fit(static_cast<W>(a[i]) - s));
    case VecOp::SubsFrom:
        EACH(fit(static_cast<W>(s) - a[i]));
    case VecOp::Muls:
        EACH(fit(static_cast<W>(a[i]) * s));
    case VecOp::Divs:
        EACH(divide<T>(a[i], s));
    case VecOp::DivsFrom:
        EACH(divide<T>(s, a[i]));
    case VecOp::Maxs:
        EACH(a[i] > s ? a[i] : s);
    case VecOp::Mins:
        EACH(a[i] < s ? a[i] : s);
    case VecOp::Ands:
        EACH(static_cast<T>(a[i] & s));
    case VecOp::Ors:
        EACH(static_cast<T>(a[i] | s));
    case VecOp::ShiftLeft:
        EACH(shift_left<T>(a[i], static_cast<U>(s)));
    case VecOp::ShiftRight:
        EACH(shift_right<T>(a[i], static_cast<U>(s), p.round_shift));
    case VecOp::Axpy:
        EACH(fit(static_cast<W>(a[i]) * s + d[i]));
    default:
        break;
    }
}
#undef EACH

bool is_float(uint8_t type) { return type == ASCEND_TWIN_F32 || type == ASCEND_TWIN_F16 || type == ASCEND_TWIN_BF16; }

// The integer of any integer type, widened.
int64_t read_int(uint8_t type, const uint8_t *p, size_t i)
{
    switch (type) {
    case ASCEND_TWIN_I4: {
        int v = (p[i / 2] >> (i % 2 * 4)) & 15;
        return v < 8 ? v : v - 16;
    }
    case ASCEND_TWIN_I8:
        return static_cast<int8_t>(p[i]);
    case ASCEND_TWIN_U8:
        return p[i];
    case ASCEND_TWIN_I16: {
        int16_t v;
        memcpy(&v, p + 2 * i, 2);
        return v;
    }
    case ASCEND_TWIN_U16: {
        uint16_t v;
        memcpy(&v, p + 2 * i, 2);
        return v;
    }
    case ASCEND_TWIN_I32: {
        int32_t v;
        memcpy(&v, p + 4 * i, 4);
        return v;
    }
    case ASCEND_TWIN_U32: {
        uint32_t v;
        memcpy(&v, p + 4 * i, 4);
        return v;
    }
    default: {
        int64_t v;
        memcpy(&v, p + 8 * i, 8);
        return v;
    }
    }
}

bool is_signed(uint8_t type)
{
    return type == ASCEND_TWIN_I4 || type == ASCEND_TWIN_I8 || type == ASCEND_TWIN_I16 || type == ASCEND_TWIN_I32 || type == ASCEND_TWIN_I64;
}

void write_int(uint8_t type, uint8_t *p, size_t i, int64_t v, bool truncate)
{
    int bits = type_bits(type);
    if (!truncate && bits < 64) {
        int64_t low = is_signed(type) ? -(int64_t{1} << (bits - 1)) : 0;
        int64_t high = is_signed(type) ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
        v = v < low ? low : v > high ? high : v;
    }
    if (type == ASCEND_TWIN_I4) {
        uint8_t nibble = static_cast<uint8_t>(v & 15);
        p[i / 2] = static_cast<uint8_t>(i % 2 ? (p[i / 2] & 15) | (nibble << 4) : (p[i / 2] & 0xf0) | nibble);
        return;
    }
    memcpy(p + i * static_cast<size_t>(bits / 8), &v, static_cast<size_t>(bits / 8)); // little endian
}

constexpr size_t kChunk = 1024;

void convert(const Elementwise &p, uint8_t *out, const uint8_t *in, size_t n)
{
    uint8_t to = p.type[0], from = p.type[1];
    bool from_int = type_bits(from) != 0 && (from >= ASCEND_TWIN_I4 && from <= ASCEND_TWIN_U64);
    bool to_int = to >= ASCEND_TWIN_I4 && to <= ASCEND_TWIN_U64;
    if (from_int && to_int) {
        for (size_t i = 0; i < n; i++) {
            // A wider unsigned type takes no negative values: they become 0 in either mode.
            int64_t v = read_int(from, in, i);
            bool wider = type_bits(to) > type_bits(from);
            write_int(to, out, i, v, p.truncate_int && !wider);
        }
        return;
    }
    float tmp[kChunk];
    if (from_int) {
        if (from == ASCEND_TWIN_I32 && to == ASCEND_TWIN_F16) {
            float scale = f16_to_f32(static_cast<uint16_t>(p.deq));
            for (size_t i = 0; i < n; i++) {
                tmp[i] = static_cast<float>(static_cast<double>(read_int(from, in, i)) * static_cast<double>(scale));
            }
            f32_to_f16(out, tmp, n, Round::Rint, p.overflow);
            return;
        }
        for (size_t i = 0; i < n; i++) {
            tmp[i] = i64_to_f32(read_int(from, in, i), p.round);
        }
        narrow(to, out, tmp, n, p.round, p.overflow);
        return;
    }
    if (from == ASCEND_TWIN_F16 && to == ASCEND_TWIN_HIF8) {
        for (size_t i = 0; i < n; i++) {
            uint16_t v;
            memcpy(&v, in + 2 * i, 2);
            out[i] = f16_to_hif8(v, p.round, p.overflow);
        }
        return;
    }
    widen(from, tmp, in, n);
    if (to == ASCEND_TWIN_F32 && from == ASCEND_TWIN_F32) {
        for (size_t i = 0; i < n; i++) {
            tmp[i] = round_f32(tmp[i], p.round);
        }
        memcpy(out, tmp, 4 * n);
        return;
    }
    if (to_int && p.truncate_int) {
        for (size_t i = 0; i < n; i++) {
            bool infinite = tmp[i] == INFINITY || tmp[i] == -INFINITY;
            write_int(to, out, i, f32_to_int(tmp[i], p.round, 64, true), !infinite);
        }
        return;
    }
    narrow(to, out, tmp, n, p.round, p.overflow);
}

template <class T> void compute_int(const Elementwise &p, uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n)
{
    T s = bits_to<T>(p.scalar);
    run_int<T>(p, reinterpret_cast<T *>(out), reinterpret_cast<const T *>(a), reinterpret_cast<const T *>(b),
               reinterpret_cast<const T *>(out), s, n);
}

// n <= kChunk elements that follow each other; `out` holds the old destination where the operation reads it.
void compute(const Elementwise &p, uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t to = p.type[0];
    switch (p.op) {
    case VecOp::Copy:
        memmove(out, a, (n * static_cast<size_t>(type_bits(to)) + 7) / 8);
        return;
    case VecOp::Cast:
        convert(p, out, a, n);
        return;
    case VecOp::Duplicate: {
        int bits = type_bits(to);
        if (bits == 4) {
            memset(out, static_cast<int>(p.scalar & 0xff), (n + 1) / 2);
            return;
        }
        size_t size = static_cast<size_t>(bits / 8);
        for (size_t i = 0; i < n; i++) {
            memcpy(out + i * size, &p.scalar, size);
        }
        return;
    }
    case VecOp::Truncate: {
        float tmp[kChunk];
        widen(to, tmp, a, n);
        for (size_t i = 0; i < n; i++) {
            tmp[i] = round_f32(tmp[i], p.round);
        }
        narrow(to, out, tmp, n, Round::Rint, Overflow::Ieee);
        return;
    }
    case VecOp::AddDeqRelu: {
        float tmp[kChunk];
        float scale = f16_to_f32(static_cast<uint16_t>(p.deq));
        for (size_t i = 0; i < n; i++) {
            double sum = static_cast<double>(static_cast<int32_t>(read_int(ASCEND_TWIN_I32, a, i) + read_int(ASCEND_TWIN_I32, b, i)));
            tmp[i] = relu(static_cast<float>(sum * static_cast<double>(scale)));
        }
        f32_to_f16(out, tmp, n, Round::Rint, p.overflow);
        return;
    }
    case VecOp::AddReluCast:
    case VecOp::SubReluCast:
        if (p.type[1] == ASCEND_TWIN_I16) {
            for (size_t i = 0; i < n; i++) {
                int64_t x = read_int(ASCEND_TWIN_I16, a, i), y = read_int(ASCEND_TWIN_I16, b, i);
                int64_t v = p.op == VecOp::AddReluCast ? x + y : x - y;
                write_int(to, out, i, v > 0 ? v : 0, false);
            }
            return;
        }
        break;
    case VecOp::Not:
    case VecOp::And:
    case VecOp::Or:
    case VecOp::Ands:
    case VecOp::Ors: {
        // Bits, of whatever type.
        int bits = type_bits(to);
        bits == 8 ? compute_int<uint8_t>(p, out, a, b, n)
        : bits == 16 ? compute_int<uint16_t>(p, out, a, b, n)
        : bits == 32 ? compute_int<uint32_t>(p, out, a, b, n)
                     : compute_int<uint64_t>(p, out, a, b, n);
        return;
    }
    default:
        break;
    }
    if (is_float(p.type[1])) {
        float x[kChunk], y[kChunk], z[kChunk], r[kChunk];
        const float *fa = reinterpret_cast<const float *>(a), *fb = reinterpret_cast<const float *>(b), *fd = nullptr;
        float *fo = reinterpret_cast<float *>(out);
        if (p.type[1] != ASCEND_TWIN_F32) {
            widen(p.type[1], x, a, n);
            fa = x;
            if (b != nullptr) {
                widen(p.type[2], y, b, n);
                fb = y;
            }
        }
        if (p.update) {
            fd = fo;
            if (to != ASCEND_TWIN_F32) {
                widen(to, z, out, n);
                fd = z;
            }
        }
        if (to != ASCEND_TWIN_F32) {
            fo = r;
        }
        float s = 0;
        if (p.scalar_type != ASCEND_TWIN_NONE) {
            widen(p.scalar_type, &s, &p.scalar, 1);
        }
        run_f32(p.op, fo, fa, fb, fd, s, n);
        if (p.flush && to == ASCEND_TWIN_F32) {
            for (size_t i = 0; i < n; i++) {
                fo[i] = fabsf(fo[i]) < 1.17549435e-38f ? 0.0f : fo[i];
            }
        }
        if (to != ASCEND_TWIN_F32) {
            narrow(to, out, r, n, p.round, p.overflow);
        }
        return;
    }
    switch (to) {
    case ASCEND_TWIN_I8:
        return compute_int<int8_t>(p, out, a, b, n);
    case ASCEND_TWIN_U8:
        return compute_int<uint8_t>(p, out, a, b, n);
    case ASCEND_TWIN_I16:
        return compute_int<int16_t>(p, out, a, b, n);
    case ASCEND_TWIN_U16:
        return compute_int<uint16_t>(p, out, a, b, n);
    case ASCEND_TWIN_I32:
        return compute_int<int32_t>(p, out, a, b, n);
    case ASCEND_TWIN_U32:
        return compute_int<uint32_t>(p, out, a, b, n);
    case ASCEND_TWIN_I64:
        return compute_int<int64_t>(p, out, a, b, n);
    case ASCEND_TWIN_U64:
        return compute_int<uint64_t>(p, out, a, b, n);
    default:
        return;
    }
}

// The values first, first + step, ... of the elements from number `begin` on.
void index_values(const Elementwise &p, uint8_t *out, uint64_t begin, size_t n)
{
    uint8_t to = p.type[0];
    size_t size = static_cast<size_t>(type_bits(to) / 8);
    for (size_t i = 0; i < n; i++) {
        if (is_float(to)) {
            float first, step;
            widen(to, &first, &p.scalar, 1);
            widen(to, &step, &p.step, 1);
            float v = first + static_cast<float>(begin + i) * step;
            narrow(to, out + i * size, &v, 1, Round::Rint, p.overflow);
        } else {
            int64_t first = read_int(to, reinterpret_cast<const uint8_t *>(&p.scalar), 0);
            int64_t step = read_int(to, reinterpret_cast<const uint8_t *>(&p.step), 0);
            write_int(to, out, i, static_cast<int64_t>(static_cast<uint64_t>(first) + (begin + i) * static_cast<uint64_t>(step)), true);
        }
    }
}

// Copies the elements of one repeat together, or apart.
void load_row(uint8_t *to, const uint8_t *ub, const Track &t, uint32_t repeat, uint32_t lanes)
{
    size_t size = t.bits / 8u;
    if (t.single) {
        for (uint32_t i = 0; i < lanes; i++) {
            memcpy(to + i * size, ub + t.addr, size);
        }
        return;
    }
    size_t bytes = (static_cast<size_t>(lanes) * t.bits + 7) / 8;
    for (size_t done = 0; done < bytes; done += kBlock) {
        size_t part = bytes - done < kBlock ? bytes - done : kBlock;
        memcpy(to + done, ub + t.addr + static_cast<uint64_t>(repeat) * t.rep + done / kBlock * t.blk, part);
    }
}

// The lanes that a repeat needs at most.
uint32_t reach(const Shape &s, uint32_t row)
{
    if (row >= s.repeats) {
        return s.tail;
    }
    if (s.prefix != 0) {
        return s.prefix;
    }
    return s.bits[1] != 0 ? 128u - static_cast<uint32_t>(__builtin_clzll(s.bits[1])) : 64u - static_cast<uint32_t>(__builtin_clzll(s.bits[0]));
}

void run_elementwise(Exec &x, const Instr &in)
{
    const Elementwise &p = in.get<Elementwise>();
    uint8_t *ub = x.at(Mem::UB, 0);
    const Shape &s = p.shape;
    if (p.dense) {
        uint64_t total = s.elements();
        for (uint64_t i = 0; i < total; i += kChunk) {
            size_t n = static_cast<size_t>(total - i < kChunk ? total - i : kChunk);
            uint8_t *out = ub + p.t[0].addr + i * p.t[0].bits / 8;
            if (p.op == VecOp::Index) {
                index_values(p, out, i, n);
                continue;
            }
            const uint8_t *a = p.args > 1 ? ub + p.t[1].addr + i * p.t[1].bits / 8 : nullptr;
            const uint8_t *b = p.args > 2 ? ub + p.t[2].addr + i * p.t[2].bits / 8 : nullptr;
            if (p.t[0].bits == p.t[1].bits || p.args < 2 || p.op == VecOp::Duplicate) {
                compute(p, out, a, b, n);
            } else {
                // Types of different widths: a result must not fall on a source that is still to be read.
                alignas(64) uint8_t old[2][kChunk * 8];
                memcpy(old[0], a, (n * p.t[1].bits + 7) / 8);
                if (b != nullptr) {
                    memcpy(old[1], b, (n * p.t[2].bits + 7) / 8);
                }
                compute(p, out, old[0], b != nullptr ? old[1] : nullptr, n);
            }
        }
        return;
    }
    alignas(64) uint8_t row[3][256 * 8];
    for (uint32_t r = 0; r < s.rows(); r++) {
        uint32_t n = reach(s, r);
        for (int i = 1; i < p.args; i++) {
            load_row(row[i], ub, p.t[i], r, n);
        }
        if (p.update || p.t[0].bits < 8) {
            load_row(row[0], ub, p.t[0], r, n);
        }
        if (p.op == VecOp::Index) {
            index_values(p, row[0], static_cast<uint64_t>(r) * s.lanes, n);
        } else {
            compute(p, row[0], row[1], p.args > 2 ? row[2] : nullptr, n);
        }
        const Track &t = p.t[0];
        if (r < s.repeats && s.prefix == 0) {
            size_t size = t.bits >= 8 ? t.bits / 8u : 1u;
            for (uint32_t lane = 0; lane < n; lane++) {
                if (s.on(r, lane)) {
                    memcpy(ub + t.at(r, lane), row[0] + static_cast<size_t>(lane) * t.bits / 8, size);
                }
            }
            continue;
        }
        size_t bytes = (static_cast<size_t>(n) * t.bits + 7) / 8;
        for (size_t done = 0; done < bytes; done += kBlock) {
            size_t part = bytes - done < kBlock ? bytes - done : kBlock;
            memcpy(ub + t.addr + static_cast<uint64_t>(r) * t.rep + done / kBlock * t.blk, row[0] + done, part);
        }
    }
}

// An element of the result is defined when the elements that it was made from are.
void taint_elementwise(Exec &x, const Instr &in)
{
    const Elementwise &p = in.get<Elementwise>();
    const Shape &s = p.shape;
    auto size = [](const Track &t) -> uint64_t { return t.bits >= 8 ? t.bits / 8u : 1u; };
    for (uint32_t r = 0; r < s.rows(); r++) {
        uint32_t n = reach(s, r);
        for (uint32_t lane = 0; lane < n; lane++) {
            if (!s.on(r, lane)) {
                continue;
            }
            bool known = true;
            for (int i = 1; i < p.args; i++) {
                known = known && x.defined(Mem::UB, p.t[i].at(r, lane), size(p.t[i]));
            }
            if (p.update) {
                known = known && x.defined(Mem::UB, p.t[0].at(r, lane), size(p.t[0]));
            }
            if (p.t[0].bits < 8 && lane % 2 == 1) {
                // The byte was judged by its first half.
                known = known && x.defined(Mem::UB, p.t[0].at(r, lane), 1);
            }
            x.define(Mem::UB, p.t[0].at(r, lane), size(p.t[0]), known);
        }
    }
}

} // namespace

void vector_call(const VecCall &call)
{
    static const char *const two[] = {"dst", "src", "scalar"};
    static const char *const three[] = {"dst", "src0", "src1"};
    const char *const *names = call.args > 2 && !call.arg[2].single ? three : two;
    uint32_t widest = 8;
    for (int i = 0; i < call.args; i++) {
        check_local(call.arg[i], names[i], call.api, call.site);
        uint32_t bits = static_cast<uint32_t>(type_bits(call.arg[i].type));
        widest = bits > widest ? bits : widest;
    }
    uint32_t lanes = kRepeat * 8 / widest;
    Elementwise p;
    memset(static_cast<void *>(&p), 0, sizeof(p));
    VecMask mask = call.mask;
    bool copies = call.op == VecOp::Copy && call.rep_limit == 4095;
    uint32_t copy_rows = 0;
    if (copies && state().counter_mode && mask.kind != VecMask::Count) {
        // In counter mode the mask of Copy is the number of elements of one repeat, and repeatTime counts.
        copy_rows = static_cast<uint32_t>(mask.repeat);
        check_repeat(mask.repeat, call.api, call.site);
    }
    if (!resolve(mask, lanes, call.api, call.site, p.shape)) {
        return;
    }
    bool count = mask.kind == VecMask::Count;
    for (int i = 0; i < call.args; i++) {
        if (!count) {
            check_stride(call.arg[i].blk, call.blk_limit, i == 0 ? "dstBlkStride" : "srcBlkStride", call.api, call.site);
            check_stride(call.arg[i].rep, call.rep_limit, i == 0 ? "dstRepStride" : "srcRepStride", call.api, call.site);
            if (i == 0 && call.arg[0].blk == 0 && p.shape.active() > lanes / 8) {
                fail(Rule::Range, call.api, "dst", call.site, "a dstBlkStride of 0 writes all blocks of a repeat to one place");
            }
        }
        p.t[i] = count || (mask.kind == VecMask::Register && mask.repeat == 1 && call.mask.n != 0) ? flat_track(call.arg[i], lanes)
                                                                                                   : track(call.arg[i]);
        p.type[i] = call.arg[i].type;
    }
    for (int i = 1; i < call.args; i++) {
        if (call.arg[i].addr == call.arg[0].addr && p.t[i].bits < p.t[0].bits && !p.t[i].single) {
            fail(Rule::Overlap, call.api, names[i], call.site,
                 "the elements of dst are wider than those of %s, which lies at the same place: results fall on what is still to be read",
                 names[i]);
        }
    }
    if (type_bits(call.arg[0].type) == 4 || (call.args > 1 && type_bits(call.arg[1].type) == 4)) {
        const Shape &s = p.shape;
        bool odd = s.tail % 2 != 0 || s.prefix % 2 != 0 ||
                   (s.prefix == 0 && ((s.bits[0] ^ (s.bits[0] >> 1)) & 0x5555555555555555ull) != 0) ||
                   (s.prefix == 0 && ((s.bits[1] ^ (s.bits[1] >> 1)) & 0x5555555555555555ull) != 0);
        if (odd) {
            fail(Rule::Range, call.api, "mask", call.site, "elements of four bits take part in pairs");
        }
    }
    p.op = call.op;
    p.args = call.args;
    p.round = static_cast<Round>(call.round);
    p.overflow = overflow_mode(call.arg[0].type);
    if (call.op == VecOp::MulsCast) {
        p.overflow = Overflow::Saturate; // as the page says
    }
    p.update = call.update;
    p.flush = call.flush;
    p.round_shift = call.round_shift;
    p.saturate_int = arch() == 3510 && ((state().ctrl >> 53) & 1);
    p.truncate_int = truncates_int();
    p.scalar = call.scalar;
    p.scalar_type = call.scalar_type;
    p.deq = state().spare[0];
    if (call.op == VecOp::Index) {
        float one = 1;
        p.step = 1;
        if (call.stepped) {
            p.step = call.step;
        } else if (is_float(call.arg[0].type)) {
            narrow(call.arg[0].type, &p.step, &one, 1, Round::Rint, Overflow::Ieee);
        }
    }
    if (call.op == VecOp::ShiftLeft || call.op == VecOp::ShiftRight) {
        int bits = type_bits(call.arg[0].type);
        int64_t s = read_int(call.arg[0].type, reinterpret_cast<const uint8_t *>(&call.scalar), 0);
        if (s < 0 || (arch() == 2201 && s > bits)) {
            fail(Rule::Range, call.api, "scalarValue", call.site, "a shift by %lld of values of %d bits", static_cast<long long>(s), bits);
        }
        if (call.round_shift && arch() == 3510) {
            fail(Rule::Range, call.api, "roundEn", call.site, "dav-3510 does not round shifts");
        }
    }
    if (call.op == VecOp::Duplicate && type_bits(call.arg[0].type) == 4) {
        p.scalar = (call.scalar & 15) | ((call.scalar & 15) << 4);
    }
    // The scalar of an operation on elements of a tensor: the effect reads it with the element.
    if (call.args > 2 && call.arg[2].single) {
        switch (call.op) {
        case VecOp::Adds:
            p.op = VecOp::Add;
            break;
        case VecOp::Subs:
            p.op = VecOp::Sub;
            break;
        case VecOp::Muls:
            p.op = VecOp::Mul;
            break;
        case VecOp::MulsCast:
            p.op = VecOp::MulCast;
            break;
        case VecOp::Divs:
            p.op = VecOp::Div;
            break;
        case VecOp::Maxs:
            p.op = VecOp::Max;
            break;
        case VecOp::Mins:
            p.op = VecOp::Min;
            break;
        case VecOp::Ands:
            p.op = VecOp::And;
            break;
        case VecOp::Ors:
            p.op = VecOp::Or;
            break;
        case VecOp::SubsFrom:
        case VecOp::DivsFrom: {
            Track t = p.t[1];
            p.t[1] = p.t[2];
            p.t[2] = t;
            p.op = call.op == VecOp::SubsFrom ? VecOp::Sub : VecOp::Div;
            break;
        }
        default:
            break;
        }
    }
    if (copy_rows > 1) {
        // Every repeat moves `total` elements: as many calls of one repeat each.
        VecCall one = call;
        one.mask.repeat = 1;
        for (uint32_t r = 0; r < copy_rows; r++) {
            vector_call(one);
            one.arg[0].addr += one.arg[0].rep * kBlock;
            one.arg[1].addr += one.arg[1].rep * kBlock;
        }
        return;
    }
    const Shape &s = p.shape;
    p.dense = s.full();
    for (int i = 0; i < call.args; i++) {
        p.dense = p.dense && p.t[i].dense(s);
    }
    Instr in;
    uint8_t dtype = call.args > 1 ? call.arg[1].type : call.arg[0].type;
    vector_instr(in, call.api, call.site, dtype, widest / 8, s.elements(), s.rows());
    touch(in, names[0], call.update ? Use::Update : Use::Write, call.arg[0], p.t[0], s);
    bool swapped = call.args > 2 && call.arg[2].single && (call.op == VecOp::SubsFrom || call.op == VecOp::DivsFrom);
    for (int i = 1; i < call.args; i++) {
        const VecArg &arg = call.arg[i];
        const Track &t = p.t[swapped ? 3 - i : i];
        touch(in, names[i], Use::Read, arg, t, s, t.single ? static_cast<uint16_t>(t.bits / 8) : 0);
    }
    in.put(p);
    in.effect = run_elementwise;
    in.taint = taint_elementwise;
    issue(in);
}

} // namespace ascend_twin
