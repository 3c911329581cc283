// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Whole small products of unaligned sizes against three plain loops, for every element type, and what goes wrong around them.

#include "example.h"

using namespace AscendC;

namespace {

constexpr uint32_t align(uint32_t n, uint32_t d) { return (n + d - 1) / d * d; }

// Small integers: every sum is exact, whatever the order.
int a_of(size_t i) { return static_cast<int>(i * 7 % 11) - 5; }
int b_of(size_t i) { return static_cast<int>(i * 5 % 9) - 4; }

template <class T> constexpr uint32_t c0() { return 256 / ascend_twin::BitsOf<T>::value; }

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
CUBE_EXAMPLE(half_one_row_of_16, "Mmad") { product<half, float>(gm, 2, 16, 16); }
#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(e4m3_40_50_70, "Mmad") { product<fp8_e4m3fn_t, float>(gm, 40, 50, 70); }
CUBE_EXAMPLE(e5m2_40_50_70, "Mmad") { product<fp8_e5m2_t, float>(gm, 20, 30, 65); }
CUBE_EXAMPLE(hif8_40_50_70, "Mmad") { product<hifloat8_t, float>(gm, 40, 50, 70); }
#endif

EXAMPLES_END
