// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Mmad: C = A * B, added up in F32 (integers: int32) with k ascending.

#include <vector>

#include "copy_util.h"
#include "numeric.h"
#include "twin/cube.h"

namespace ascend_twin {

namespace {

constexpr bool kNewChip = __NPU_ARCH__ == 3510;
constexpr uint64_t kFractal = 512;

// Where the first value of C comes from.
enum class Start : uint8_t { Zero, Accumulate, Bias };

struct Product {
    uint32_t m, n, k;
    uint32_t m16, n16, k0; // fractals; k0 those that are read
    uint32_t a_pitch; // fractals from row to row of A (2201)
    uint8_t a_type, b_type;
    bool integers, mx, vector; // vector: A is k elements in a row
    Start start;
    uint8_t hf32; // bits of the mantissa that stay; 0: all
    bool hf32_to_zero;
    int8_t bias, a_scale, b_scale; // operands; -1: none
};

uint32_t wide_of(uint8_t type) { return static_cast<uint32_t>(256 / type_bits(type)); }

// The byte of A where its element (r, block of C0 columns) lies, from the start of A.
uint64_t a_fractal(const Product &p, uint64_t row, uint64_t block)
{
    return (kNewChip ? block * p.m16 + row : row * p.a_pitch + block) * kFractal;
}

// F32 to the 1-8-x format: to nearest, ties to even or toward zero.
void round_hf32(float *v, size_t n, int bits, bool to_zero)
{
    const uint32_t drop = 23u - static_cast<uint32_t>(bits);
    const uint32_t half = 1u << (drop - 1), mask = ~((1u << drop) - 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &v[i], 4);
        if ((u & 0x7f800000u) != 0x7f800000u) {
            const uint32_t odd = to_zero ? 0 : u >> drop & 1;
            u = (u + half - 1 + odd) & mask;
            memcpy(&v[i], &u, 4);
        }
    }
}

struct Room {
    std::vector<float> a, b, c;
    std::vector<int32_t> ia, ib, ic;
};

Room &room()
{
    static thread_local Room r;
    return r;
}

template <class T> T *want(std::vector<T> &v, size_t n)
{
    if (v.size() < n) {
        v.resize(n);
    }
    return v.data();
}

int32_t nibble(const uint8_t *p, uint32_t i)
{
    const int32_t v = p[i / 2] >> (i % 2 * 4) & 15;
    return v >= 8 ? v - 16 : v;
}

void widen_int(uint8_t type, int32_t *to, const uint8_t *from, uint32_t n)
{
    if (type == ASCEND_TWIN_I4) {
        for (uint32_t i = 0; i < n; i++) {
            to[i] = nibble(from, i);
        }
    } else {
        for (uint32_t i = 0; i < n; i++) {
            to[i] = static_cast<int8_t>(from[i]);
        }
    }
}

void widen_float(const Product &p, uint8_t type, float *to, const uint8_t *from, uint32_t n)
{
    widen(type, to, from, n);
    if (p.hf32 != 0) {
        round_hf32(to, n, p.hf32, p.hf32_to_zero);
    }
}

// c[r][j] += a[r][k] * b[k][j]: each element of C adds up its products one by one, k ascending. Two rows and four steps of k
// at a time, so that what is loaded of b and c is used more than once; the order of additions to an element does not change.
template <class T>
inline __attribute__((always_inline)) void multiply_body(const T *__restrict a, const T *__restrict b, T *__restrict c, size_t m, size_t n,
                                                         size_t k, size_t lda, size_t ldb, size_t ldc)
{
    constexpr size_t kPanel = 256; // columns whose rows of b stay in the nearest cache
    for (size_t j0 = 0; j0 < n; j0 += kPanel) {
        const size_t w = n - j0 < kPanel ? n - j0 : kPanel;
        for (size_t r = 0; r < m; r += 2) {
            const bool two = r + 1 < m;
            const T *__restrict a0 = a + r * lda;
            const T *__restrict a1 = two ? a0 + lda : a0;
            T *__restrict c0 = c + r * ldc + j0;
            size_t i = 0;
            if (two) {
                T *__restrict c1 = c0 + ldc;
                for (; i + 4 <= k; i += 4) {
                    const T *__restrict b0 = b + i * ldb + j0;
                    const T *__restrict b1 = b0 + ldb;
                    const T *__restrict b2 = b1 + ldb;
                    const T *__restrict b3 = b2 + ldb;
                    const T p0 = a0[i], p1 = a0[i + 1], p2 = a0[i + 2], p3 = a0[i + 3];
                    const T q0 = a1[i], q1 = a1[i + 1], q2 = a1[i + 2], q3 = a1[i + 3];
                    for (size_t j = 0; j < w; j++) {
                        T x = c0[j], y = c1[j];
                        x = x + p0 * b0[j];
                        y = y + q0 * b0[j];
                        x = x + p1 * b1[j];
                        y = y + q1 * b1[j];
                        x = x + p2 * b2[j];
                        y = y + q2 * b2[j];
                        x = x + p3 * b3[j];
                        y = y + q3 * b3[j];
                        c0[j] = x;
                        c1[j] = y;
                    }
                }
                for (; i < k; i++) {
                    const T *__restrict b0 = b + i * ldb + j0;
                    const T p0 = a0[i], q0 = a1[i];
                    for (size_t j = 0; j < w; j++) {
                        c0[j] = c0[j] + p0 * b0[j];
                        c1[j] = c1[j] + q0 * b0[j];
                    }
                }
            } else {
                for (; i < k; i++) {
                    const T *__restrict b0 = b + i * ldb + j0;
                    const T p0 = a0[i];
                    for (size_t j = 0; j < w; j++) {
                        c0[j] = c0[j] + p0 * b0[j];
                    }
                }
            }
        }
    }
}

__attribute__((target_clones("avx512f", "avx2", "default"))) void multiply(const float *a, const float *b, float *c, size_t m, size_t n,
                                                                           size_t k, size_t lda, size_t ldb, size_t ldc)
{
    multiply_body(a, b, c, m, n, k, lda, ldb, ldc);
}

__attribute__((target_clones("avx512f", "avx2", "default"))) void multiply(const int32_t *a, const int32_t *b, int32_t *c, size_t m,
                                                                           size_t n, size_t k, size_t lda, size_t ldb, size_t ldc)
{
    multiply_body(a, b, c, m, n, k, lda, ldb, ldc);
}

// A as rows of `k0 * C0` elements, B as rows (along k) of n16 * 16.
template <class T, class W> void unpack(const Product &p, const uint8_t *a, const uint8_t *b, T *to_a, T *to_b, W widen_row)
{
    const uint32_t wa = wide_of(p.a_type), wb = wide_of(p.b_type);
    const size_t lda = static_cast<size_t>(p.k0) * wa, ldb = static_cast<size_t>(p.n16) * 16;
    T row[64 * 16];
    if (p.vector) {
        widen_row(p.a_type, to_a, a, p.k);
    } else {
        for (uint32_t r = 0; r < p.m16; r++) {
            const uint32_t rows = p.m - r * 16 < 16 ? p.m - r * 16 : 16;
            for (uint32_t q = 0; q < p.k0; q++) {
                widen_row(p.a_type, row, a + a_fractal(p, r, q), rows * wa);
                for (uint32_t i = 0; i < rows; i++) {
                    memcpy(to_a + (r * 16 + i) * lda + q * wa, row + i * wa, wa * sizeof(T));
                }
            }
        }
    }
    for (uint32_t q = 0; q < p.k0; q++) {
        const uint32_t steps = p.k - q * wb < wb ? p.k - q * wb : wb;
        for (uint32_t j = 0; j < p.n16; j++) {
            widen_row(p.b_type, row, b + (static_cast<uint64_t>(q) * p.n16 + j) * kFractal, 16 * wb);
            for (uint32_t i = 0; i < steps; i++) {
                T *d = to_b + (static_cast<size_t>(q) * wb + i) * ldb + j * 16;
                for (uint32_t e = 0; e < 16; e++) {
                    d[e] = row[e * wb + i];
                }
            }
        }
    }
}

// Rows and columns that are no result hold no value.
void forget_edges(Exec &x, const Instr &i, const Product &p)
{
    const Operand &o = i.operand[0];
    for (uint32_t j = 0; j < p.n16; j++) {
        const uint64_t at = o.region.addr + static_cast<uint64_t>(j) * p.m16 * 1024;
        if (p.m % 16 != 0) {
            x.define(o.mem, at + p.m * 64ull, (p.m16 * 16ull - p.m) * 64, false);
        }
        if (j + 1 == p.n16 && p.n % 16 != 0) {
            for (uint32_t r = 0; r < p.m; r++) {
                x.define(o.mem, at + r * 64ull + p.n % 16 * 4, (16 - p.n % 16) * 4, false);
            }
        }
    }
}

template <class T> void start_of(const Product &p, T *c, size_t ldc, const uint8_t *l0c, const uint8_t *bias)
{
    for (uint32_t r = 0; r < p.m; r++) {
        T *row = c + r * ldc;
        if (p.start == Start::Zero) {
            memset(static_cast<void *>(row), 0, ldc * sizeof(T));
        } else if (p.start == Start::Bias) {
            memset(static_cast<void *>(row), 0, ldc * sizeof(T));
            memcpy(row, bias, p.n * sizeof(T));
        } else {
            for (uint32_t j = 0; j < p.n16; j++) {
                memcpy(row + j * 16, l0c + (static_cast<uint64_t>(j) * p.m16 * 16 + r) * 64, 64);
            }
        }
    }
}

template <class T> void store(const Product &p, const T *c, size_t ldc, uint8_t *l0c)
{
    for (uint32_t j = 0; j < p.n16; j++) {
        const uint32_t n = p.n - j * 16 < 16 ? p.n - j * 16 : 16;
        for (uint32_t r = 0; r < p.m; r++) {
            memcpy(l0c + (static_cast<uint64_t>(j) * p.m16 * 16 + r) * 64, c + r * ldc + j * 16, n * 4);
        }
    }
}

void run(Exec &x, const Instr &i)
{
    const auto &p = i.get<Product>();
    uint8_t *c = x.at(i.operand[0]);
    const uint8_t *a = x.at(i.operand[1]), *b = x.at(i.operand[2]);
    const uint8_t *bias = p.bias < 0 ? nullptr : x.at(i.operand[p.bias]);
    const uint32_t wa = wide_of(p.a_type), wb = wide_of(p.b_type);
    const size_t lda = static_cast<size_t>(p.k0) * wa, ldb = static_cast<size_t>(p.n16) * 16;
    Room &v = room();
    if (p.integers) {
        int32_t *pa = want(v.ia, p.m16 * 16 * lda), *pb = want(v.ib, p.k0 * static_cast<size_t>(wb) * ldb), *pc = want(v.ic, 2 * p.m * ldb);
        int32_t *sum = pc + p.m * ldb;
        unpack(p, a, b, pa, pb, widen_int);
        start_of(p, pc, ldb, c, bias);
        memset(sum, 0, p.m * ldb * sizeof(int32_t));
        // Products of one call cannot overflow (4095 * 2^14); the sum with what was there saturates.
        multiply(pa, pb, sum, p.m, p.n, p.k, lda, ldb, ldb);
        for (size_t e = 0; e < p.m * ldb; e++) {
            const int64_t s = static_cast<int64_t>(pc[e]) + sum[e];
            pc[e] = static_cast<int32_t>(s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s);
        }
        store(p, pc, ldb, c);
    } else {
        float *pa = want(v.a, p.m16 * 16 * lda), *pb = want(v.b, p.k0 * static_cast<size_t>(wb) * ldb), *pc = want(v.c, p.m * ldb);
        unpack(p, a, b, pa, pb, [&](uint8_t type, float *to, const uint8_t *from, uint32_t n) { widen_float(p, type, to, from, n); });
        if (p.mx) {
            // A scale for 32 elements along k; cells of 16 rows (columns of B) by two scales, row of cells by row.
            const uint8_t *sa = x.at(i.operand[p.a_scale]), *sb = x.at(i.operand[p.b_scale]);
            const uint32_t pairs = p.k / 64;
            for (uint32_t r = 0; r < p.m; r++) {
                for (uint32_t g = 0; g < p.k / 32; g++) {
                    const float s = e8m0_to_f32(sa[(r / 16 * pairs + g / 2) * 32 + r % 16 * 2 + g % 2]);
                    for (uint32_t e = 0; e < 32; e++) {
                        pa[r * lda + g * 32 + e] *= s;
                    }
                }
            }
            float *s = want(v.a, p.m16 * 16 * lda + ldb) + p.m16 * 16 * lda;
            pa = v.a.data();
            for (uint32_t g = 0; g < p.k / 32; g++) {
                for (uint32_t e = 0; e < ldb; e++) {
                    s[e] = e8m0_to_f32(sb[(e / 16 * pairs + g / 2) * 32 + e % 16 * 2 + g % 2]);
                }
                for (uint32_t q = 0; q < 32; q++) {
                    for (uint32_t e = 0; e < ldb; e++) {
                        pb[(g * 32 + q) * ldb + e] *= s[e];
                    }
                }
            }
        }
        start_of(p, pc, ldb, c, bias);
        multiply(pa, pb, pc, p.m, p.n, p.k, lda, ldb, ldb);
        store(p, pc, ldb, c);
    }
    forget_edges(x, i, p);
}

// A result is defined where its row of A, its column of B, their scales and what it started from are.
void taint(Exec &x, const Instr &i)
{
    const auto &p = i.get<Product>();
    const Operand &c = i.operand[0], &a = i.operand[1], &b = i.operand[2];
    const uint32_t wa = wide_of(p.a_type), wb = wide_of(p.b_type);
    const auto tail = [](uint32_t k, uint32_t block, uint32_t wide) { // bytes of a row of a block that count
        const uint32_t rest = k - block * wide;
        return rest >= wide ? 32ull : up(static_cast<uint64_t>(rest) * (256 / wide), 8);
    };
    std::vector<uint8_t> rows(p.m, 1), columns(p.n, 1);
    for (uint32_t r = 0; r < p.m; r++) {
        bool ok = true;
        if (p.vector) {
            ok = x.defined(a.mem, a.region.addr, up(static_cast<uint64_t>(p.k) * (256 / wa), 8));
        } else {
            for (uint32_t q = 0; ok && q < p.k0; q++) {
                ok = x.defined(a.mem, a.region.addr + a_fractal(p, r / 16, q) + r % 16 * 32, tail(p.k, q, wa));
            }
        }
        if (ok && p.mx) {
            const Operand &s = i.operand[p.a_scale];
            for (uint32_t g = 0; ok && g < p.k / 64; g++) {
                ok = x.defined(s.mem, s.region.addr + (r / 16 * (p.k / 64) + g) * 32 + r % 16 * 2, 2);
            }
        }
        rows[r] = ok;
    }
    for (uint32_t j = 0; j < p.n; j++) {
        bool ok = true;
        for (uint32_t q = 0; ok && q < p.k0; q++) {
            ok = x.defined(b.mem, b.region.addr + (static_cast<uint64_t>(q) * p.n16 + j / 16) * kFractal + j % 16 * 32, tail(p.k, q, wb));
        }
        if (ok && p.mx) {
            const Operand &s = i.operand[p.b_scale];
            for (uint32_t g = 0; ok && g < p.k / 64; g++) {
                ok = x.defined(s.mem, s.region.addr + (j / 16 * (p.k / 64) + g) * 32 + j % 16 * 2, 2);
            }
        }
        if (ok && p.start == Start::Bias) {
            const Operand &s = i.operand[p.bias];
            ok = x.defined(s.mem, s.region.addr + j * 4ull, 4);
        }
        columns[j] = ok;
    }
    bool all = true;
    for (const uint8_t ok : columns) {
        all = all && ok != 0;
    }
    const auto at = [&](uint32_t r, uint32_t j) { return c.region.addr + (static_cast<uint64_t>(j / 16) * p.m16 * 16 + r) * 64 + j % 16 * 4; };
    for (uint32_t r = 0; r < p.m; r++) {
        if (rows[r] == 0) {
            for (uint32_t j = 0; j < p.n16; j++) {
                x.define(c.mem, at(r, j * 16), 64, false);
            }
            continue;
        }
        if (p.start != Start::Accumulate) {
            for (uint32_t j = 0; j < p.n16; j++) {
                x.define(c.mem, at(r, j * 16), 64, true);
            }
        }
        if (!all) {
            for (uint32_t j = 0; j < p.n; j++) {
                if (columns[j] == 0) {
                    x.define(c.mem, at(r, j), 4, false);
                }
            }
        }
    }
    forget_edges(x, i, p);
}

bool fp8(uint8_t t) { return t == ASCEND_TWIN_E4M3 || t == ASCEND_TWIN_E5M2; }
bool fp4(uint8_t t) { return t == ASCEND_TWIN_E2M1 || t == ASCEND_TWIN_E1M2; }

uint8_t mx_type(uint8_t t)
{
    return t == ASCEND_TWIN_E4M3   ? ASCEND_TWIN_MX_E4M3
           : t == ASCEND_TWIN_E5M2 ? ASCEND_TWIN_MX_E5M2
           : t == ASCEND_TWIN_E2M1 ? ASCEND_TWIN_MX_E2M1
                                   : ASCEND_TWIN_MX_E1M2;
}

void check_types(const Call &c, Kind ck, Kind ak, Kind bk, const Place *bias, Kind bias_kind, bool mx)
{
    bool ok;
    if (mx) {
        ok = (fp8(ak.type) && fp8(bk.type)) || (fp4(ak.type) && fp4(bk.type));
    } else if (kNewChip && fp8(ak.type)) {
        ok = fp8(bk.type);
    } else {
        ok = ak.type == bk.type && (ak.type == ASCEND_TWIN_F16 || ak.type == ASCEND_TWIN_BF16 || ak.type == ASCEND_TWIN_F32 ||
                                    ak.type == ASCEND_TWIN_I8 || (!kNewChip && ak.type == ASCEND_TWIN_I4) ||
                                    (kNewChip && ak.type == ASCEND_TWIN_HIF8));
    }
    const bool integers = ak.type == ASCEND_TWIN_I8 || ak.type == ASCEND_TWIN_I4;
    if (!ok || ck.type != (integers ? ASCEND_TWIN_I32 : ASCEND_TWIN_F32)) {
        fail(Rule::Type, c.api, nullptr, c.site, "this chip does not multiply %s by %s into %s", type_name(ak.type), type_name(bk.type),
             type_name(ck.type));
    }
    if (bias != nullptr && (bias_kind.type != ck.type || ak.type == ASCEND_TWIN_I4)) {
        fail(Rule::Type, c.api, "bias", c.site, "the bias is %s, it must be %s", type_name(bias_kind.type), type_name(ck.type));
    }
}

// Whether the last load filled so many fractals from `addr` on that they hold a matrix of one real row rather than a vector.
bool holds_rows(uint64_t addr, uint64_t bytes, uint64_t blocks)
{
    const CoreState &s = state();
    constexpr uint64_t all = sizeof(s.l0a_load) / sizeof(s.l0a_load[0]);
    const uint64_t first = addr / kFractal;
    if (first >= all || s.l0a_load[first] == 0) {
        return false;
    }
    uint64_t n = 0;
    while (first + n < all && s.l0a_load[first + n] == s.l0a_load[first]) {
        n++;
    }
    return n >= blocks && blocks > up(bytes, kFractal);
}

} // namespace

void mmad(const Place &cp, const Place &ap, const Place &bp, const Place *bias, Kind ck, Kind ak, Kind bk, Kind bias_kind,
          const AscendC::MmadParams &q, bool mx, Site site)
{
    const Call c{mx ? "MmadMx" : "Mmad", site};
    c.on_cube();
    if (cp.mem != Mem::L0C || ap.mem != Mem::L0A || bp.mem != Mem::L0B) {
        fail(Rule::Usage, c.api, cp.mem != Mem::L0C ? "dst" : ap.mem != Mem::L0A ? "fm" : "filter", site,
             "the operands lie in L0C, L0A and L0B, not in %s, %s and %s", mem_name(cp.mem), mem_name(ap.mem), mem_name(bp.mem));
    }
    check_types(c, ck, ak, bk, bias, bias_kind, mx);
    Product p{};
    p.m = c.field(q.m, "m", 0, 4095);
    p.n = c.field(q.n, "n", 0, 4095);
    p.k = c.field(q.k, "k", 0, 4095);
    const uint8_t unit = c.field(q.unitFlag, "unitFlag", 0, 3);
    if (unit == 1) {
        fail(Rule::Range, c.api, nullptr, site, "unitFlag is 1, it must be 0, 2 or 3");
    }
    if (p.m == 0 || p.n == 0 || p.k == 0) {
        scalar_call(0, c.api, site);
        return;
    }
    if (mx && p.k % 64 != 0) {
        fail(Rule::Range, c.api, nullptr, site, "k is %u, MmadMx needs a multiple of 64", p.k);
    }
    const uint32_t wide = 256u / ak.bits;
    p.m16 = static_cast<uint32_t>(up(p.m, 16));
    p.n16 = static_cast<uint32_t>(up(p.n, 16));
    p.k0 = static_cast<uint32_t>(up(p.k, wide));
    p.a_pitch = p.k0;
    if (q.kDirectionAlign && ak.type == ASCEND_TWIN_F32 && !kNewChip) {
        p.a_pitch = static_cast<uint32_t>(up(p.k, 16) * 2);
    }
    p.a_type = ak.type;
    p.b_type = bk.type;
    p.integers = ck.type == ASCEND_TWIN_I32;
    p.mx = mx;
    p.bias = p.a_scale = p.b_scale = -1;
    const uint64_t vector_bytes = up(static_cast<uint64_t>(p.k) * ak.bits, 8);
#if __NPU_ARCH__ == 3510
    const bool gemv = p.m == 1 && !q.disableGemv;
#else
    const bool gemv = p.m == 1;
#endif
    if (gemv && p.k0 > 1) {
        if (mx || holds_rows(ap.addr, vector_bytes, p.k0)) {
            fail(Rule::Gemv, c.api, "fm", site,
                 "m is 1, so the cube unit reads %u elements of A as a plain vector, but A was loaded as fractals of 16 rows%s", p.k,
                 kNewChip ? "; use m = 16 or disableGemv" : "; use m = 16");
        }
        p.vector = true;
    }
    if (bias != nullptr && bias->mem == Mem::BT) {
        p.start = Start::Bias;
    } else if (bias != nullptr) {
        if (bias->mem != Mem::L0C || bias->addr != cp.addr) {
            fail(Rule::Usage, c.api, "bias", site, "the bias lies in the bias table (TPosition::C2), not in %s", mem_name(bias->mem));
        }
        p.start = Start::Accumulate;
    } else if (q.isBias || !q.cmatrixInitVal) {
        p.start = q.cmatrixSource && !q.isBias ? Start::Bias : Start::Accumulate;
    }
    const uint64_t ctrl = state().ctrl;
    if (ak.type == ASCEND_TWIN_F32 && (ctrl >> kBitHf32 & 1) != 0) {
        p.hf32 = kNewChip ? 10 : 11;
        p.hf32_to_zero = (ctrl >> kBitHf32Round & 1) != 0;
    }

    Instr i;
    i.api = c.api;
    i.site = site;
    i.pipe = Pipe::M;
    i.dtype = mx ? mx_type(ak.type) : ak.type;
    i.ordered = p.m16 * p.n16 >= 10;
    i.unit_flag = unit;
    const uint64_t c_bytes = static_cast<uint64_t>(p.m16) * p.n16 * 1024;
    Operand &o = i.add("dst", p.start == Start::Accumulate ? Use::Update : Use::Write, Mem::L0C, runs(cp.addr, c_bytes, 1, 0), cp.buffer);
    o.align = 1024;
    const uint16_t align = mx && fp8(ak.type) ? 1024 : 512;
    if (p.vector) {
        i.add("fm", Use::Read, Mem::L0A, runs(ap.addr, vector_bytes, 1, 0), ap.buffer).align = align;
    } else if (kNewChip) {
        i.add("fm", Use::Read, Mem::L0A, runs(ap.addr, static_cast<uint64_t>(p.m16) * p.k0 * kFractal, 1, 0), ap.buffer).align = align;
    } else {
        i.add("fm", Use::Read, Mem::L0A, runs(ap.addr, p.k0 * kFractal, p.m16, p.a_pitch * kFractal), ap.buffer).align = align;
    }
    i.add("filter", Use::Read, Mem::L0B, runs(bp.addr, static_cast<uint64_t>(p.k0) * p.n16 * kFractal, 1, 0), bp.buffer).align = align;
    if (p.start == Start::Bias) {
        p.bias = static_cast<int8_t>(i.count);
        i.add("bias", Use::Read, Mem::BT, runs(bias != nullptr ? bias->addr : 0, p.n * 4ull, 1, 0), bias != nullptr ? bias->buffer : Buffer{});
    }
    if (mx) {
        p.a_scale = static_cast<int8_t>(i.count);
        i.add("fm scales", Use::Read, Mem::L0A_MX, runs(ap.addr / 16, p.m16 * (p.k / 64) * 32ull, 1, 0));
        p.b_scale = static_cast<int8_t>(i.count);
        i.add("filter scales", Use::Read, Mem::L0B_MX, runs(bp.addr / 16, p.n16 * (p.k / 64) * 32ull, 1, 0));
    }
    i.a[0] = p.m;
    i.a[1] = p.n;
    i.a[2] = p.k;
    i.a[3] = (p.start == Start::Bias ? 1u : 0u) | (unit != 0 ? 2u : 0u);
    i.put(p);
    i.effect = run;
    i.taint = taint;
    issue(i);
}

void set_cube_mode(int bit, bool on, const char *api, Site site)
{
    const Call c{api, site};
    c.on_cube();
    uint64_t &ctrl = state().ctrl;
    ctrl = (ctrl & ~(1ull << bit)) | static_cast<uint64_t>(on) << bit;
    scalar_call(0, api, site);
}

} // namespace ascend_twin
