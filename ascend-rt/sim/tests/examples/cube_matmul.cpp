// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Whole small products of unaligned sizes against three plain loops, for every element type, and what goes wrong around them.

#include "peek.h"

using namespace AscendC;

namespace {

constexpr uint32_t align(uint32_t n, uint32_t d) { return (n + d - 1) / d * d; }

// Small integers: every sum is exact, whatever the order.
int a_of(size_t i) { return static_cast<int>(i * 7 % 11) - 5; }
int b_of(size_t i) { return static_cast<int>(i * 5 % 9) - 4; }

template <class T> constexpr uint32_t c0() { return 256 / ascend_twin::ElementBits<T>::value; }

// A matrix of rows x columns in GM to L1 in NZ form with `rows16` rows.
template <class T>
void to_l1(const LocalTensor<T> &l1, const GlobalTensor<T> &g, uint32_t rows, uint32_t columns, uint32_t rows16)
{
    Nd2NzParams p;
    p.ndNum = 1;
    p.nValue = rows;
    p.dValue = columns;
    p.srcDValue = columns;
    p.dstNzC0Stride = rows16;
    p.dstNzNStride = 1;
    DataCopy(l1, g, p);
}

// A ([m, k], in L1 with m16 rows) to L0A.
template <class T> void load_a(const LocalTensor<T> &l0, const LocalTensor<T> &l1, uint32_t m, uint32_t k)
{
#if __NPU_ARCH__ == 3510
    LoadData2DParamsV2 p;
    p.mStep = align(m, 16) / 16;
    p.kStep = align(k, c0<T>()) / c0<T>();
    p.srcStride = p.mStep;
    p.dstStride = p.mStep;
    LoadData(l0, l1, p);
#else
    const uint32_t m16 = align(m, 16) / 16, k0 = align(k, c0<T>()) / c0<T>(), fractal = 16 * c0<T>();
    LoadData2DParams p;
    p.repeatTimes = k0;
    p.srcStride = m16;
    for (uint32_t i = 0; i < m16; i++) {
        LoadData(l0[i * k0 * fractal], l1[i * fractal], p);
    }
#endif
}

// B stored [n, k] (in L1 with n16 rows) to L0B: fractals keep their order.
template <class T> void load_b(const LocalTensor<T> &l0, const LocalTensor<T> &l1, uint32_t n, uint32_t k)
{
#if __NPU_ARCH__ == 3510
    load_a(l0, l1, n, k);
#else
    LoadData2DParams p;
    p.repeatTimes = align(n, 16) / 16 * (align(k, c0<T>()) / c0<T>());
    p.srcStride = 1;
    LoadData(l0, l1, p);
#endif
}

template <class C> void store(const GlobalTensor<C> &g, const LocalTensor<C> &l0c, uint32_t m, uint32_t n)
{
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
#else
    FixpipeParamsV220 p;
#endif
    p.nSize = n;
    p.mSize = m;
    p.srcStride = align(m, 16);
    p.dstStride = n;
    Fixpipe(g, l0c, p);
}

template <class T, class C> void product(example::Scratch &gm, uint32_t m, uint32_t n, uint32_t k)
{
    auto a = gm.fill<T>(m * k, a_of), b = gm.fill<T>(n * k, b_of);
    auto c = gm.out<C>(m * n);
    LocalTensor<T> a1(TPosition::A1, 0, align(m, 16) * align(k, c0<T>())), b1(TPosition::B1, 128 * 1024, align(n, 16) * align(k, c0<T>()));
    LocalTensor<T> a2(TPosition::A2, 0, align(m, 16) * align(k, c0<T>())), b2(TPosition::B2, 0, align(n, 16) * align(k, c0<T>()));
    LocalTensor<C> co(TPosition::CO1, 0, align(m, 16) * align(n, 16));
    to_l1(a1, a, m, k, align(m, 16));
    to_l1(b1, b, n, k, align(n, 16));
    example::finish();
    load_a(a2, a1, m, k);
    load_b(b2, b1, n, k);
    example::finish();
    MmadParams p;
    p.m = m;
    p.n = n;
    p.k = k;
    Mmad(co, a2, b2, p);
    example::finish();
    store(c, co, m, n);
    example::finish();
    example::expect_each(c, m * n, [&](size_t i) {
        double sum = 0;
        for (uint32_t q = 0; q < k; q++) {
            sum += a_of(i / n * k + q) * b_of(i % n * k + q);
        }
        return sum;
    });
}

} // namespace

CUBE_EXAMPLE(half_40_50_70, "Mmad") { product<half, float>(gm, 40, 50, 70); }
CUBE_EXAMPLE(half_aligned, "Mmad") { product<half, float>(gm, 32, 48, 64); }
CUBE_EXAMPLE(bfloat16_33_17_100, "Mmad") { product<bfloat16_t, float>(gm, 33, 17, 100); }
CUBE_EXAMPLE(float_40_50_70, "Mmad") { product<float, float>(gm, 40, 50, 70); }
CUBE_EXAMPLE(int8_40_50_70, "Mmad") { product<int8_t, int32_t>(gm, 40, 50, 70); }

#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(e4m3_40_50_70, "Mmad") { product<fp8_e4m3fn_t, float>(gm, 40, 50, 70); }
CUBE_EXAMPLE(e5m2_20_30_65, "Mmad") { product<fp8_e5m2_t, float>(gm, 20, 30, 65); }
CUBE_EXAMPLE(hif8_40_50_70, "Mmad") { product<hifloat8_t, float>(gm, 40, 50, 70); }
#endif

// ---- operands that are transposed on the way

namespace {

enum class By { Fractals, Squares, Map };

template <class C> void compare(const GlobalTensor<C> &c, uint32_t m, uint32_t n, uint32_t k, bool at, bool bt)
{
    example::expect_each(c, m * n, [=](size_t i) {
        double sum = 0;
        for (uint32_t q = 0; q < k; q++) {
            sum += a_of(at ? q * m + i / n : i / n * k + q) * b_of(bt ? i % n * k + q : q * n + i % n);
        }
        return sum;
    });
}

// A stored [k, m] and B stored [k, n], both transposed on the way to L0.
template <class T, class C> void transposed_product(example::Scratch &gm, uint32_t m, uint32_t n, uint32_t k, By by)
{
    constexpr uint32_t wide = 32 / sizeof(T), fractal = 16 * wide;
    auto a = gm.fill<T>(m * k, a_of), b = gm.fill<T>(n * k, b_of);
    auto c = gm.out<C>(m * n);
    // The rows of both matrices in L1 run along k. Squares of bytes need 32 of them.
    const uint32_t k16 = align(k, sizeof(T) == 1 ? 32 : 16), m0 = align(m, wide < 16 ? 16 : wide), n0 = align(n, wide < 16 ? 16 : wide);
    LocalTensor<T> a1(TPosition::A1, 0, k16 * m0), b1(TPosition::B1, 128 * 1024, k16 * n0);
    LocalTensor<T> a2(TPosition::A2, 0, m0 * align(k, 32)), b2(TPosition::B2, 0, n0 * align(k, 32));
    // Squares of bytes make two fractals of rows at a time.
    const uint32_t m_real = sizeof(T) == 1 ? m0 : m, n_real = sizeof(T) == 1 ? n0 : n;
    LocalTensor<C> co(TPosition::CO1, 0, align(m_real, 16) * align(n_real, 16));
    to_l1(a1, a, k, m, k16);
    to_l1(b1, b, k, n, k16);
    example::finish();
    MmadParams p;
    p.m = m_real;
    p.n = n_real;
    p.k = k;
#if __NPU_ARCH__ == 3510
    (void)fractal;
    if (by == By::Map) {
        const auto load = [&](const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t columns) {
            LoadData3DParamsV2<T> q;
            q.l1H = 1;
            q.l1W = k16;
            q.channelSize = columns;
            q.kExtension = columns;
            q.mExtension = k16;
            q.enTranspose = true;
            SetLoadDataRepeat(LoadDataRepeatParam(0, 1, 0, columns / 16));
            LoadData(to, from, q);
        };
        load(a2, a1, m0);
        load(b2, b1, n0);
    } else {
        LoadData2DParamsV2 q;
        q.mStep = k16 / 16;
        q.kStep = m0 / wide;
        q.srcStride = k16 / 16;
        q.dstStride = m0 / 16;
        q.ifTranspose = true;
        LoadData(a2, a1, q);
        q.kStep = n0 / wide;
        q.dstStride = n0 / 16;
        LoadData(b2, b1, q);
    }
    // For 32-bit elements, k is filled up to whole fractals only.
    p.m = align(m_real, sizeof(T) == 4 ? 16 : 1);
#else
    if (by == By::Map) {
        LoadData3DParamsV2<T> q;
        q.l1H = 1;
        q.l1W = k16;
        q.channelSize = m0;
        q.kExtension = m0;
        q.mExtension = k16;
        q.enTranspose = true;
        LoadData(a2, a1, q);
        q.channelSize = n0;
        q.kExtension = n0;
        LoadData(b2, b1, q);
        p.kDirectionAlign = sizeof(T) == 4;
    } else if (by == By::Squares) {
        LoadData2dTransposeParams q;
        q.repeatTimes = k16 / (sizeof(T) == 1 ? 32 : 16);
        q.srcStride = 1;
        q.dstFracGap = align(k, wide) / wide - 1;
        const uint32_t row = align(k, wide) / wide * fractal * (sizeof(T) == 1 ? 2 : 1);
        for (uint32_t i = 0; i < m0 / wide; i++) {
            LoadDataWithTranspose(a2[i * row], a1[i * k16 * wide], q);
        }
        q.repeatTimes = n0 / wide;
        q.srcStride = k16 / (sizeof(T) == 1 ? 32 : 16);
        q.dstGap = sizeof(T) == 1 ? 1 : 0;
        q.dstFracGap = 0;
        for (uint32_t i = 0; i < k16 / (sizeof(T) == 1 ? 32 : 16); i++) {
            LoadDataWithTranspose(b2[i * n0 / 16 * fractal], b1[i * fractal * (sizeof(T) == 1 ? 2 : 1)], q);
        }
    } else {
        LoadData2DParams q;
        q.ifTranspose = true;
        q.repeatTimes = k16 / 16;
        q.srcStride = 1;
        for (uint32_t i = 0; i < m0 / 16; i++) {
            LoadData(a2[i * k16 / 16 * fractal], a1[i * k16 / 16 * fractal], q);
        }
        q.repeatTimes = n0 / 16;
        q.srcStride = k16 / 16;
        for (uint32_t i = 0; i < k16 / 16; i++) {
            LoadData(b2[i * n0 / 16 * fractal], b1[i * fractal], q);
        }
    }
#endif
    example::finish();
    Mmad(co, a2, b2, p);
    example::finish();
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
#else
    FixpipeParamsV220 f;
#endif
    f.nSize = n;
    f.mSize = m;
    f.srcStride = align(m_real, 16);
    f.dstStride = n;
    Fixpipe(c, co, f);
    example::finish();
    compare(c, m, n, k, true, false);
}

} // namespace

CUBE_EXAMPLE(transposed_half, "LoadData_2D") { transposed_product<half, float>(gm, 40, 50, 70, By::Fractals); }
CUBE_EXAMPLE(transposed_bfloat16, "LoadData_2D") { transposed_product<bfloat16_t, float>(gm, 17, 31, 33, By::Fractals); }
CUBE_EXAMPLE(transposed_half_by_map, "LoadData_3D") { transposed_product<half, float>(gm, 40, 50, 70, By::Map); }
CUBE_EXAMPLE(transposed_float_by_map, "LoadData_3D") { transposed_product<float, float>(gm, 40, 50, 70, By::Map); }
CUBE_EXAMPLE(transposed_float_36, "Mmad") { transposed_product<float, float>(gm, 24, 20, 36, By::Map); }
CUBE_EXAMPLE(transposed_int8, "LoadDataWithTranspose") { transposed_product<int8_t, int32_t>(gm, 40, 50, 70, By::Squares); }
CUBE_EXAMPLE(transposed_half_by_squares, "LoadDataWithTranspose") { transposed_product<half, float>(gm, 40, 50, 70, By::Squares); }
#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(transposed_int8_by_map, "LoadData_3D") { transposed_product<int8_t, int32_t>(gm, 40, 50, 70, By::Map); }
CUBE_EXAMPLE(transposed_float, "LoadData_2D_V2") { transposed_product<float, float>(gm, 40, 50, 70, By::Fractals); }
#endif

CUBE_EXAMPLE(rows_by_map, "LoadData_3D")
{
    const uint32_t m = 40, n = 50, k = 70, m16 = 48, n16 = 64, k16 = 80;
    auto a = gm.fill<half>(m * k, a_of), b = gm.fill<half>(n * k, b_of);
    auto c = gm.out<float>(m * n);
    LocalTensor<half> a1(TPosition::A1, 0, m16 * k16), b1(TPosition::B1, 128 * 1024, n16 * k16);
    LocalTensor<half> a2(TPosition::A2, 0, m16 * k16), b2(TPosition::B2, 0, n16 * k16);
    LocalTensor<float> co(TPosition::CO1, 0, m16 * n16);
    to_l1(a1, a, m, k, m16);
    to_l1(b1, b, n, k, n16);
    example::finish();
    LoadData3DParamsV2<half> q;
    q.l1H = 1;
    q.l1W = m16;
    q.channelSize = k16;
    q.kExtension = k16;
    q.mExtension = m16;
#if __NPU_ARCH__ == 3510
    SetLoadDataRepeat(LoadDataRepeatParam(0, 1, 0, m16 / 16));
#endif
    LoadData(a2, a1, q);
    load_b(b2, b1, n, k);
    example::finish();
    MmadParams p(m, n, k, 0, false, true);
    Mmad(co, a2, b2, p);
    example::finish();
    store(c, co, m, n);
    example::finish();
    compare(c, m, n, k, false, true);
}

#if __NPU_ARCH__ == 2201
CUBE_EXAMPLE(int4, "Mmad")
{
    // Values in -8 .. 7, two a byte.
    const uint32_t m = 20, n = 30, k = 130, k64 = 192;
    const auto value = [](size_t r, size_t q) { return static_cast<int>((r * 3 + q * 5) % 16) - 8; };
    const auto pack = [&](uint32_t rows) {
        return gm.fill<uint8_t>(rows * k / 2, [&](size_t i) {
            const size_t r = i / (k / 2), q = i % (k / 2) * 2;
            return (value(r, q) & 15) | (value(r, q + 1) & 15) << 4;
        });
    };
    auto a = pack(m), b = pack(n);
    auto c = gm.out<int32_t>(m * n);
    LocalTensor<uint8_t> a1(TPosition::A1, 0, 32 * k64 / 2), b1(TPosition::B1, 65536, 32 * k64 / 2);
    LocalTensor<int4b_t> a2(TPosition::A2, 0, 32 * k64), b2(TPosition::B2, 0, 32 * k64);
    LocalTensor<int32_t> co(TPosition::CO1, 0, 32 * 32);
    to_l1(a1, a, m, k / 2, 32);
    to_l1(b1, b, n, k / 2, 32);
    example::finish();
    load_a(a2, a1.ReinterpretCast<int4b_t>(), m, k);
    load_b(b2, b1.ReinterpretCast<int4b_t>(), n, k);
    example::finish();
    MmadParams p;
    p.m = m;
    p.n = n;
    p.k = k;
    Mmad(co, a2, b2, p);
    example::finish();
    store(c, co, m, n);
    example::finish();
    expect_each(c, m * n, [&](size_t i) {
        double sum = 0;
        for (size_t q = 0; q < k; q++) {
            sum += value(i / n, q) * value(i % n, q);
        }
        return sum;
    });
}
#else
namespace {

// Products of scaled operands: values by code, scales by position.
template <class T> void scaled(example::Scratch &gm, uint32_t m, uint32_t n, uint32_t k, double (*number)(int))
{
    constexpr bool nibbles = ascend_twin::ElementBits<T>::value == 4;
    const uint32_t row = nibbles ? k / 2 : k; // bytes
    const auto code = [](size_t r, size_t q) { return static_cast<int>((r * 5 + q * 3) % 16); };
    const auto scale = [](size_t r, size_t g) { return static_cast<int>((r + 2 * g) % 5) - 2; };
    const auto pack = [&](uint32_t rows) {
        return gm.fill<uint8_t>(rows * row, [&](size_t i) {
            const size_t r = i / row, q = i % row;
            return nibbles ? code(r, 2 * q) | code(r, 2 * q + 1) << 4 : code(r, q);
        });
    };
    // Rows of k / 32 scales, as pairs of bytes: columns of pairs become fractals of 16 rows.
    const auto scales = [&](uint32_t rows) {
        return gm.fill<uint16_t>(rows * k / 64, [&](size_t i) {
            const size_t r = i / (k / 64), g = i % (k / 64) * 2;
            return (scale(r, g) + 127) | (scale(r, g + 1) + 127) << 8;
        });
    };
    auto a = pack(m), b = pack(n);
    auto sa = scales(m), sb = scales(n);
    auto c = gm.out<float>(m * n);
    const uint32_t m16 = align(m, 16), n16 = align(n, 16), pairs = k / 64;
    LocalTensor<uint8_t> a1(TPosition::A1, 0, m16 * row), b1(TPosition::B1, 65536, n16 * row);
    LocalTensor<uint16_t> sa1(TPosition::A1, 2 * 65536, m16 * pairs), sb1(TPosition::B1, 3 * 65536, n16 * pairs);
    LocalTensor<T> a2(TPosition::A2, 0, m16 * k), b2(TPosition::B2, 0, n16 * k);
    LocalTensor<float> co(TPosition::CO1, 0, m16 * n16);
    to_l1(a1, a, m, row, m16);
    to_l1(b1, b, n, row, n16);
    DataCopy(sa1, sa, Dn2NzParams{1, pairs, m, 0, pairs, pairs, 1, 0});
    DataCopy(sb1, sb, Dn2NzParams{1, pairs, n, 0, pairs, pairs, 1, 0});
    example::finish();
    const auto load = [&](const LocalTensor<T> &to, const LocalTensor<uint8_t> &from, const LocalTensor<uint16_t> &s, uint32_t rows) {
        LoadData2DParamsV2 p;
        p.mStep = rows / 16;
        p.kStep = row / 32;
        p.srcStride = rows / 16;
        p.dstStride = rows / 16;
        LoadData2DMxParams mx;
        mx.xStep = rows / 16;
        mx.yStep = pairs;
        mx.srcStride = pairs;
        mx.dstStride = pairs;
        LoadData(to, from.ReinterpretCast<T>(), s.ReinterpretCast<fp8_e8m0_t>(), p, mx);
    };
    load(a2, a1, sa1, m16);
    load(b2, b1, sb1, n16);
    example::finish();
    MmadParams p;
    p.m = m;
    p.n = n;
    p.k = k;
    MmadMx(co, a2, b2, p);
    example::finish();
    store(c, co, m, n);
    example::finish();
    expect_each(c, m * n, [&](size_t i) {
        double sum = 0;
        for (size_t q = 0; q < k; q++) {
            sum += number(code(i / n, q)) * std::ldexp(1.0, scale(i / n, q / 32)) * number(code(i % n, q)) * std::ldexp(1.0, scale(i % n, q / 32));
        }
        return sum;
    });
}

double e2m1(int code)
{
    constexpr double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code < 8 ? values[code] : -values[code - 8];
}
double e1m2(int code)
{
    constexpr double values[] = {0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75};
    return code < 8 ? values[code] : -values[code - 8];
}
double e4m3(int code) { return code < 8 ? code / 512.0 : (code / 8.0) / 64; } // codes 0 .. 15
double e5m2(int code) { return code < 4 ? code / 65536.0 : std::ldexp(1 + code % 4 / 4.0, code / 4 - 15); }

} // namespace

CUBE_EXAMPLE(mx_e2m1, "MmadMx") { scaled<fp4x2_e2m1_t>(gm, 40, 50, 128, e2m1); }
CUBE_EXAMPLE(mx_e1m2, "MmadMx") { scaled<fp4x2_e1m2_t>(gm, 33, 16, 192, e1m2); }
CUBE_EXAMPLE(mx_e4m3, "MmadMx") { scaled<fp8_e4m3fn_t>(gm, 40, 50, 128, e4m3); }
CUBE_EXAMPLE(mx_e5m2, "MmadMx") { scaled<fp8_e5m2_t>(gm, 17, 20, 64, e5m2); }

CUBE_EXAMPLE(mx_k_is_no_multiple_of_64, "!range")
{
    LocalTensor<fp8_e4m3fn_t> a(TPosition::A2, 0, 16 * 96), b(TPosition::B2, 0, 16 * 96);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    MmadMx(c, a, b, MmadParams(16, 16, 96, 0, false, true));
}
#endif

// ---- where C starts

namespace {

// L0A and L0B filled with ones, whatever the layout.
void ones(const LocalTensor<half> &a, const LocalTensor<half> &b, uint32_t count)
{
    example::poke(a, count, [](size_t) { return 1.0; });
    example::poke(b, count, [](size_t) { return 1.0; });
    example::finish();
}

struct Operands {
    LocalTensor<half> a{TPosition::A2, 0, 64 * 64}, b{TPosition::B2, 0, 64 * 64};
    LocalTensor<float> c{TPosition::CO1, 0, 64 * 64};
    Operands() { ones(a, b, 64 * 64); }
};

} // namespace

CUBE_EXAMPLE(accumulates, "Mmad")
{
    Operands o;
    auto out = gm.out<float>(32 * 32);
    Mmad(o.c, o.a, o.b, MmadParams(32, 32, 64, 0, false, true));
    PipeBarrier<PIPE_M>();
    Mmad(o.c, o.a, o.b, MmadParams(32, 32, 16, 0, false, false));
    example::finish();
    store(out, o.c, 32, 32);
    example::finish();
    expect_each(out, 32 * 32, [](size_t) { return 80; });
}

CUBE_EXAMPLE(barrier_between_small_products, "!hazard-raw|hazard-waw")
{
    Operands o;
    Mmad(o.c, o.a, o.b, MmadParams(32, 32, 64, 0, false, true));
    Mmad(o.c, o.a, o.b, MmadParams(32, 32, 16, 0, false, false));
}

CUBE_EXAMPLE(no_barrier_between_large_products, "Mmad")
{
    Operands o;
    auto out = gm.out<float>(64 * 48);
    Mmad(o.c, o.a, o.b, MmadParams(64, 48, 64, 0, false, true));
    Mmad(o.c, o.a, o.b, MmadParams(64, 48, 16, 0, false, false));
    example::finish();
    store(out, o.c, 64, 48);
    example::finish();
    expect_each(out, 64 * 48, [](size_t) { return 80; });
}

CUBE_EXAMPLE(starts_from_bias, "Mmad")
{
    Operands o;
    auto out = gm.out<float>(20 * 24);
    LocalTensor<float> bias(TPosition::C2, 64, 24);
    example::poke(bias, 24, [](size_t i) { return static_cast<double>(i); });
    example::finish();
    Mmad(o.c, o.a, o.b, bias, MmadParams(20, 24, 32, 0, false, true));
    example::finish();
    store(out, o.c, 20, 24);
    example::finish();
    expect_each(out, 20 * 24, [](size_t i) { return 32 + i % 24; });
}

CUBE_EXAMPLE(starts_from_the_first_bias, "Mmad")
{
    Operands o;
    auto out = gm.out<float>(16 * 16);
    LocalTensor<float> bias(TPosition::C2, 0, 16);
    example::poke(bias, 16, [](size_t i) { return static_cast<double>(i); });
    example::finish();
    MmadParams p;
    p.m = p.n = p.k = 16;
    p.cmatrixSource = true;
    p.cmatrixInitVal = false;
    Mmad(o.c, o.a, o.b, p);
    example::finish();
    store(out, o.c, 16, 16);
    example::finish();
    expect_each(out, 256, [](size_t i) { return 16 + i % 16; });
}

CUBE_EXAMPLE(accumulates_on_nothing, "!read-before-write")
{
    Operands o;
    Mmad(o.c, o.a, o.b, MmadParams(16, 16, 16, 0, false, false));
}

CUBE_EXAMPLE(operand_never_loaded, "!read-before-write")
{
    LocalTensor<half> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
}

CUBE_EXAMPLE(nothing_to_multiply, "Mmad")
{
    LocalTensor<half> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 0, 16, 0, false, true));
    example::finish();
    auto out = gm.out<uint8_t>(1024);
    example::peek_defined(out, c, 1024);
    example::finish();
    expect_each(out, 1024, [](size_t) { return 0; });
}

CUBE_EXAMPLE(only_real_rows_and_columns_are_results, "Mmad")
{
    Operands o;
    auto map = gm.out<uint8_t>(4096);
    Mmad(o.c, o.a, o.b, MmadParams(20, 20, 16, 0, false, true));
    example::finish();
    example::peek_defined(map, o.c, 4096);
    example::finish();
    expect_each(map, 4096, [](size_t i) {
        const size_t column = i / 2048 * 16 + i % 64 / 4, row = i % 2048 / 64;
        return row < 20 && column < 20;
    });
}

CUBE_EXAMPLE(padding_rows_to_gm, "!undefined")
{
    Operands o;
    auto out = gm.out<float>(32 * 16);
    Mmad(o.c, o.a, o.b, MmadParams(20, 16, 16, 0, false, true));
    example::finish();
    store(out, o.c, 32, 16);
}

CUBE_EXAMPLE(padding_of_k_does_not_count, "Mmad")
{
    // k = 10: the rest of the fractal holds what nobody gave a value.
    auto a = gm.fill<half>(160, a_of), b = gm.fill<half>(160, b_of);
    auto out = gm.out<float>(256);
    LocalTensor<half> a1(TPosition::A1, 0, 256), b1(TPosition::B1, 512, 256), a2(TPosition::A2, 0, 256), b2(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    // Rows of 20 bytes at a pitch of 32: 12 bytes a row are never written.
    for (uint32_t r = 0; r < 16; r++) {
        example::poke(a1[r * 16], 10, [](size_t i) { return static_cast<double>(i); });
        example::poke(b1[r * 16], 10, [](size_t) { return 2.0; });
    }
    (void)a;
    (void)b;
    example::finish();
    load_a(a2, a1, 16, 10);
    load_b(b2, b1, 16, 10);
    example::finish();
    Mmad(c, a2, b2, MmadParams(16, 16, 10, 0, false, true));
    example::finish();
    store(out, c, 16, 16);
    example::finish();
    expect_each(out, 256, [](size_t) { return 90; });
}

CUBE_EXAMPLE(undefined_element_of_k, "!undefined")
{
    auto out = gm.out<float>(256);
    LocalTensor<half> a1(TPosition::A1, 0, 256), a2(TPosition::A2, 0, 256), b2(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    for (uint32_t r = 0; r < 16; r++) {
        example::poke(a1[r * 16], 10, [](size_t i) { return static_cast<double>(i); });
    }
    example::poke(b2, 256, [](size_t) { return 1.0; });
    example::finish();
    load_a(a2, a1, 16, 16);
    example::finish();
    Mmad(c, a2, b2, MmadParams(16, 16, 11, 0, false, true));
    example::finish();
    store(out, c, 16, 16);
}

// ---- one row

namespace {

void one_row(example::Scratch &gm, uint32_t k, uint32_t fractals_of_a, bool plain)
{
    const uint32_t n = 32;
    auto b = gm.fill<half>(n * k, b_of);
    auto c = gm.out<float>(n);
    LocalTensor<half> a1(TPosition::A1, 0, fractals_of_a * 256), b1(TPosition::B1, 65536, n * align(k, 16));
    LocalTensor<half> a2(TPosition::A2, 0, fractals_of_a * 256), b2(TPosition::B2, 0, n * align(k, 16));
    LocalTensor<float> co(TPosition::CO1, 0, 16 * n);
    example::poke(a1, fractals_of_a * 256, [](size_t i) { return static_cast<double>(a_of(i)); });
    to_l1(b1, b, n, k, n);
    example::finish();
#if __NPU_ARCH__ == 3510
    LoadData(a2, a1, LoadData2DParamsV2{0, 0, 1, fractals_of_a, 1, 1, false, 0});
#else
    LoadData(a2, a1, LoadData2DParams(0, fractals_of_a, 1, 0, 0, false, 0));
#endif
    load_b(b2, b1, n, k);
    example::finish();
    MmadParams p;
    p.m = 1;
    p.n = n;
    p.k = k;
#if __NPU_ARCH__ == 3510
    p.disableGemv = !plain;
#endif
    Mmad(co, a2, b2, p);
    example::finish();
    store(c, co, 1, n);
    example::finish();
    expect_each(c, n, [=](size_t j) {
        double sum = 0;
        for (uint32_t q = 0; q < k; q++) {
            sum += a_of(plain ? q : q / 16 * 256 + q % 16) * b_of(j * k + q);
        }
        return sum;
    });
}

} // namespace

CUBE_EXAMPLE(vector_256, "GEMV") { one_row(gm, 256, 1, true); }
CUBE_EXAMPLE(vector_500, "GEMV") { one_row(gm, 500, 2, true); }
CUBE_EXAMPLE(vector_of_one_fractal, "GEMV") { one_row(gm, 16, 1, true); }
CUBE_EXAMPLE(one_row_of_fractals, "!gemv") { one_row(gm, 64, 4, true); }
#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(one_row_without_gemv, "GEMV") { one_row(gm, 64, 4, false); }
#endif

// ---- HF32

namespace {

void hf32(example::Scratch &gm, bool on, HF32TransMode mode, double first, double want)
{
    LocalTensor<float> a(TPosition::A2, 0, 128), b(TPosition::B2, 0, 128), c(TPosition::CO1, 0, 256);
    auto out = gm.out<float>(256);
    auto in = gm.fill<float>(128, [=](size_t i) { return i % 8 == 0 ? first : 0.0; });
    LocalTensor<float> a1(TPosition::A1, 0, 128);
    DataCopy(a1, in, 128);
    example::poke(b, 128, [](size_t) { return 1.0; });
    example::finish();
    load_a(a, a1, 16, 8);
    example::finish();
    SetHF32Mode(on ? HF32Mode::ENABLE : HF32Mode::DISABLE);
    SetHF32TransMode(mode);
    Mmad(c, a, b, MmadParams(16, 16, 8, 0, false, true));
    SetHF32Mode(HF32Mode::DISABLE);
    SetHF32TransMode(HF32TransMode::NEAREST_EVEN);
    example::finish();
    store(out, c, 16, 16);
    example::finish();
    expect_each(out, 256, [=](size_t) { return want; });
}

// The last bit that stays: 11 bits of mantissa, 10 on 3510.
constexpr double kLast = __NPU_ARCH__ == 3510 ? 1.0 / 1024 : 1.0 / 2048;

} // namespace

CUBE_EXAMPLE(full_f32, "HF32") { hf32(gm, false, HF32TransMode::NEAREST_EVEN, 1 + kLast / 2, 1 + kLast / 2); }
CUBE_EXAMPLE(hf32_tie_to_even, "HF32") { hf32(gm, true, HF32TransMode::NEAREST_EVEN, 1 + kLast * 1.5, 1 + kLast * 2); }
CUBE_EXAMPLE(hf32_tie_to_zero, "HF32") { hf32(gm, true, HF32TransMode::NEAREST_ZERO, 1 + kLast * 1.5, 1 + kLast); }
CUBE_EXAMPLE(hf32_nearest, "HF32") { hf32(gm, true, HF32TransMode::NEAREST_ZERO, 1 + kLast * 1.75, 1 + kLast * 2); }

// ---- the hand-over of L0C without events

CUBE_EXAMPLE(unit_flag, "UnitFlag")
{
    Operands o;
    auto out = gm.out<float>(3 * 64 * 64);
    SetMMRowMajor();
    for (uint32_t tile = 0; tile < 3; tile++) {
        for (uint32_t k = 0; k < 3; k++) {
            MmadParams p;
            p.m = 64;
            p.n = 64;
            p.k = 16 * (tile + 1);
            p.unitFlag = k == 2 ? 3 : 2;
            p.cmatrixInitVal = k == 0;
            Mmad(o.c, o.a, o.b, p);
        }
#if __NPU_ARCH__ == 3510
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
#else
        FixpipeParamsV220 f;
#endif
        f.nSize = f.mSize = 64;
        f.srcStride = 64;
        f.dstStride = 64;
        f.unitFlag = 3;
        Fixpipe(out[tile * 64 * 64], o.c, f);
    }
    example::finish();
    expect_each(out, 3 * 64 * 64, [](size_t i) { return (i / 4096 + 1) * 48; });
}

CUBE_EXAMPLE(no_unit_flag_and_no_event, "!hazard-raw|read-before-write")
{
    Operands o;
    auto out = gm.out<float>(64 * 64);
    Mmad(o.c, o.a, o.b, MmadParams(64, 64, 16, 0, false, true));
    store(out, o.c, 64, 64);
}

CUBE_EXAMPLE(unit_flag_1, "!range")
{
    Operands o;
    Mmad(o.c, o.a, o.b, MmadParams(16, 16, 16, 1, false, true));
}

// ---- what must not pass

CUBE_EXAMPLE(m_beyond_4095, "!range")
{
    Operands o;
    Mmad(o.c, o.a, o.b, MmadParams(4096, 16, 16, 0, false, true));
}
CUBE_EXAMPLE(k_overflows, "!range")
{
    Operands o;
    MmadParams p(16, 16, 16, 0, false, true);
    p.k = 65536 + 16;
    Mmad(o.c, o.a, o.b, p);
}
CUBE_EXAMPLE(types_that_do_not_go, "!type")
{
    LocalTensor<half> a(TPosition::A2, 0, 256);
    LocalTensor<bfloat16_t> b(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
}
CUBE_EXAMPLE(half_result, "!type")
{
    LocalTensor<half> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256), c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
}
#if __NPU_ARCH__ == 2201
CUBE_EXAMPLE(fp8_of_an_old_chip, "!type")
{
    LocalTensor<fp8_e4m3fn_t> a(TPosition::A2, 0, 512), b(TPosition::B2, 0, 512);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 16, 32, 0, false, true));
}
#endif
CUBE_EXAMPLE(operands_swapped, "!usage")
{
    Operands o;
    Mmad(o.c, o.b, o.a, MmadParams(16, 16, 16, 0, false, true));
}
CUBE_EXAMPLE(result_at_64, "!alignment")
{
    Operands o;
    Mmad(o.c[16], o.a, o.b, MmadParams(16, 16, 16, 0, false, true));
}
EXAMPLE(product_on_a_vector_core, "!wrong-core")
{
    LocalTensor<half> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
}

EXAMPLES_END
