// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The number formats against a slow conversion that knows nothing of bits: it decodes by the formula of the format and
// rounds by looking for the neighbours of a value. All codes of all formats, all values of F16 and bfloat16 as sources, and
// what lies between neighbours. Exit status 0: all agree. Linked with lib/numeric.cpp.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "numeric.h"

using namespace ascend_twin;

namespace {

int failures = 0;
unsigned long checks = 0;

bool same(double a, double b) { return (a != a && b != b) || (a == b && signbit(a) == signbit(b)); }

void expect(bool good, const char *what, double input, double got, double want)
{
    checks++;
    if (!good && failures++ < 20) {
        printf("%s: %.17g gives %.17g, not %.17g\n", what, input, got, want);
    }
}

// A format by its formula.
struct Slow {
    const char *name;
    int exponent, mantissa, bias;
    bool infinity; // the top exponent is infinity and NaN
    bool nan; // else: the top code alone is NaN
    double value(unsigned code) const
    {
        unsigned sign = code >> (exponent + mantissa) & 1, e = code >> mantissa & ((1u << exponent) - 1), m = code & ((1u << mantissa) - 1);
        double v;
        if (infinity && e == (1u << exponent) - 1) {
            v = m ? NAN : INFINITY;
        } else if (nan && (code & ((1u << (exponent + mantissa)) - 1)) == (1u << (exponent + mantissa)) - 1) {
            v = NAN;
        } else if (e == 0) {
            v = ldexp(m, 1 - bias - mantissa);
        } else {
            v = ldexp(1 + ldexp(m, -mantissa), static_cast<int>(e) - bias);
        }
        return sign ? -v : v;
    }
    // All finite values from 0 on, ascending; the index is the code.
    std::vector<double> positive() const
    {
        std::vector<double> all;
        for (unsigned c = 0; c < 1u << (exponent + mantissa); c++) {
            double v = value(c);
            if (!std::isfinite(v)) {
                break;
            }
            all.push_back(v);
        }
        return all;
    }
};

const Slow kF16{"half", 5, 10, 15, true, false}, kBf16{"bfloat16_t", 8, 7, 127, true, false}, kE4m3{"e4m3", 4, 3, 7, false, true},
    kE5m2{"e5m2", 5, 2, 15, true, false}, kE2m1{"e2m1", 2, 1, 1, false, false}, kE1m2{"e1m2", 1, 2, 1, false, false};

// What a magnitude rounds to, as the index of a value; `all.size()`: beyond the largest.
size_t slow_round(const std::vector<double> &all, double a, bool negative, Round mode)
{
    size_t high = static_cast<size_t>(std::lower_bound(all.begin(), all.end(), a) - all.begin());
    if (high < all.size() && all[high] == a) {
        return high;
    }
    size_t low = high - 1;
    // The value that would follow the largest one.
    double up = high < all.size() ? all[high] : all[low] + (all[low] - all[low - 1]);
    double below = a - all[low], above = up - a;
    switch (mode) {
    case Round::None:
    case Round::Rint:
        return below < above ? low : above < below ? high : low % 2 == 0 ? low : high;
    case Round::Round:
    case Round::Hybrid:
        return below < above ? low : high;
    case Round::Floor:
        return negative ? high : low;
    case Round::Ceil:
        return negative ? low : high;
    case Round::Trunc:
        return low;
    case Round::Odd:
        return low % 2 == 1 ? low : high;
    }
    return low;
}

double slow_narrow(const Slow &f, const std::vector<double> &all, double v, Round mode, Overflow overflow)
{
    bool negative = signbit(v);
    double sign = negative ? -1 : 1, largest = all.back();
    if (v != v) {
        bool keep = (f.infinity || f.nan) && overflow != Overflow::Saturate;
        return keep ? NAN : 0.0;
    }
    double beyond = f.infinity ? INFINITY : f.nan ? NAN : largest;
    if (overflow != Overflow::Ieee) {
        beyond = largest;
    }
    if (std::isinf(v)) {
        return sign * beyond;
    }
    size_t i = slow_round(all, fabs(v), negative, mode);
    // What is above the place of the value after the largest one does not fit in any mode.
    if (i >= all.size() || fabs(v) > all.back()) {
        bool away = mode == Round::Floor ? negative : mode == Round::Ceil ? !negative : mode != Round::Trunc && mode != Round::Odd;
        double half_way = all.back() + (all.back() - all[all.size() - 2]) / 2;
        bool nearest = mode == Round::None || mode == Round::Rint || mode == Round::Round || mode == Round::Hybrid;
        if (nearest) {
            bool tie_stays = (mode == Round::None || mode == Round::Rint) && fabs(v) == half_way && (all.size() - 1) % 2 == 0;
            return fabs(v) < half_way || tie_stays ? sign * largest : sign * beyond;
        }
        return sign * (away ? beyond : largest);
    }
    return sign * all[i];
}

const Round kModes[] = {Round::None, Round::Rint, Round::Floor, Round::Ceil, Round::Round, Round::Trunc, Round::Odd};
const Overflow kOverflows[] = {Overflow::Ieee, Overflow::Saturate, Overflow::SaturateKeepNan};

float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

// F32 values around everything that the format has: its values, the middles between them and their neighbours.
std::vector<float> probes(const std::vector<double> &all, size_t step)
{
    std::vector<float> out = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f, 3.4028235e38f, -3.4028235e38f, 1.1754944e-38f};
    auto around = [&](double v) {
        float f = static_cast<float>(v);
        for (float g : {f, nextafterf(f, INFINITY), nextafterf(f, -INFINITY)}) {
            out.push_back(g);
            out.push_back(-g);
        }
    };
    for (size_t i = 0; i < all.size(); i += step) {
        around(all[i]);
        if (i + 1 < all.size()) {
            around((all[i] + all[i + 1]) / 2);
            around(all[i] + (all[i + 1] - all[i]) / 4);
        }
    }
    double last = all.back(), gap = last - all[all.size() - 2];
    around(last + gap / 2);
    around(last + gap);
    around(last * 1.5);
    for (uint64_t b = 0; b < 0xff000000u; b += 0x00fedcbau) {
        out.push_back(float_of(static_cast<uint32_t>(b)));
    }
    return out;
}

template <class Narrow, class Widen> void check_format(const Slow &f, size_t step, Narrow narrow_one, Widen widen_one)
{
    for (unsigned c = 0; c < 1u << (1 + f.exponent + f.mantissa); c++) {
        double got = static_cast<double>(widen_one(c)), want = f.value(c);
        expect(same(got, want), f.name, c, got, want);
    }
    std::vector<double> all = f.positive();
    for (float v : probes(all, step)) {
        for (Round mode : kModes) {
            for (Overflow overflow : kOverflows) {
                double got = static_cast<double>(widen_one(narrow_one(v, mode, overflow)));
                double want = slow_narrow(f, all, static_cast<double>(v), mode, overflow);
                bool good = got == want || (got != got && want != want);
                expect(good, f.name, static_cast<double>(v), got, want);
            }
        }
    }
}

// By the formulas of the dot field.
double slow_hif8(unsigned code)
{
    double sign = code & 0x80 ? -1 : 1;
    unsigned rest = code & 0x7f;
    if (code == 0x80) {
        return NAN;
    }
    if (rest == 0x6f) {
        return sign * INFINITY;
    }
    auto exponent = [](unsigned field, unsigned width) {
        unsigned negative = field >> (width - 1), low = field & ((1u << (width - 1)) - 1);
        int magnitude = static_cast<int>((1u << (width - 1)) | low);
        return negative ? -magnitude : magnitude;
    };
    if (rest >> 3 == 0) {
        return rest == 0 ? 0.0 : sign * ldexp(1, static_cast<int>(rest) - 23);
    }
    if (rest >> 3 == 1) {
        return sign * (1 + (rest & 7) / 8.0);
    }
    if (rest >> 4 == 1) {
        return sign * ldexp(1 + (rest & 7) / 8.0, exponent(rest >> 3 & 1, 1));
    }
    if (rest >> 5 == 1) {
        return sign * ldexp(1 + (rest & 7) / 8.0, exponent(rest >> 3 & 3, 2));
    }
    if (rest >> 5 == 2) {
        return sign * ldexp(1 + (rest & 3) / 4.0, exponent(rest >> 2 & 7, 3));
    }
    return sign * ldexp(1 + (rest & 1) / 2.0, exponent(rest >> 1 & 15, 4));
}

void check_hif8()
{
    std::vector<double> all = {0};
    for (unsigned c = 0; c < 256; c++) {
        double got = static_cast<double>(hif8_to_f32(static_cast<uint8_t>(c))), want = slow_hif8(c);
        expect(got == want || (got != got && want != want), "hif8", c, got, want);
        if (c < 128 && std::isfinite(want) && want > 0) {
            all.push_back(want);
        }
    }
    std::sort(all.begin(), all.end());
    expect(all.size() == 127, "hif8 values", 127, static_cast<double>(all.size()), 127);
    for (float v : probes(all, 1)) {
        double a = fabs(static_cast<double>(v)), want;
        double sign = signbit(v) ? -1 : 1;
        if (v != v) {
            want = NAN;
        } else if (a < ldexp(1, -23)) {
            want = 0;
        } else {
            // To nearest, ties away from zero; half of the value after the largest one is infinite.
            size_t i = slow_round(all, std::min(a, 65536.0), false, Round::Round);
            want = sign * (a >= 32768 * 1.25 ? INFINITY : all[std::min(i, all.size() - 1)]);
        }
        double got = static_cast<double>(hif8_to_f32(f32_to_hif8(v)));
        expect(got == want || (got != got && want != want), "to hif8", static_cast<double>(v), got, want);
    }
    // Hybrid rounding: outside of [1/8, 16) the first fourteen bits that are dropped are compared with the last fourteen of
    // the source; inside it is to nearest.
    uint64_t x = 88172645463325252ull;
    for (int k = 0; k < 200000; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t bits = (static_cast<uint32_t>(x) & 0x807fffffu) | (static_cast<uint32_t>(127 - 24 + (x >> 40) % 41) << 23);
        float v = float_of(bits);
        double a = fabs(static_cast<double>(v)), sign = signbit(v) ? -1 : 1;
        size_t high = static_cast<size_t>(std::upper_bound(all.begin(), all.end(), a) - all.begin());
        double want;
        if (a >= 32768) {
            want = high == all.size() && a >= 65536 ? INFINITY : 0;
            double part = (a - 32768) / 16384;
            want = a >= 65536 || floor(ldexp(fmod(part, 1), 14)) >= (bits & 0x3fff) || part >= 1 ? INFINITY : 32768;
        } else if (a < ldexp(1, -23)) {
            want = 0;
        } else {
            double low = all[high - 1], gap = all[high] - low, part = (a - low) / gap;
            bool wide = a >= 16 || a < 1.0 / 8;
            if (a < ldexp(1, -22)) {
                part = a / ldexp(1, -22);
                low = 0;
                gap = ldexp(1, -22);
            }
            bool up = wide ? floor(ldexp(part, 14)) >= (bits & 0x3fff) : part >= 0.5;
            want = up ? low + gap : low;
        }
        double got = static_cast<double>(hif8_to_f32(f32_to_hif8(v, Round::Hybrid)));
        expect(got == sign * want, "to hif8, hybrid", static_cast<double>(v), got, sign * want);
    }
    // Half as the source gives what F32 gives.
    for (unsigned h = 0; h < 65536; h++) {
        float v = f16_to_f32(static_cast<uint16_t>(h));
        uint8_t a = f16_to_hif8(static_cast<uint16_t>(h)), b = f32_to_hif8(v);
        expect(a == b, "half to hif8", static_cast<double>(v), a, b);
    }
}

// The bulk conversions, all lengths of tails, against the single ones.
void check_bulk()
{
    std::vector<float> values;
    for (uint64_t b = 0; b < 0xffffff00u; b += 0x00012345u) {
        values.push_back(float_of(static_cast<uint32_t>(b)));
    }
    for (const Slow &f : {kF16, kBf16}) {
        for (float v : probes(f.positive(), 11)) {
            values.push_back(v);
        }
    }
    std::vector<uint16_t> h(values.size());
    for (Overflow overflow : kOverflows) {
        for (Round mode : kModes) {
            f32_to_f16(h.data(), values.data(), values.size(), mode, overflow);
            for (size_t i = 0; i < values.size(); i++) {
                expect(h[i] == f32_to_f16(values[i], mode, overflow), "bulk half", static_cast<double>(values[i]), h[i],
                       f32_to_f16(values[i], mode, overflow));
            }
            f32_to_bf16(h.data(), values.data(), values.size(), mode, overflow);
            for (size_t i = 0; i < values.size(); i++) {
                expect(h[i] == f32_to_bf16(values[i], mode, overflow), "bulk bfloat16", static_cast<double>(values[i]), h[i],
                       f32_to_bf16(values[i], mode, overflow));
            }
        }
    }
    std::vector<uint16_t> codes(65536);
    std::vector<float> wide(65536);
    for (unsigned c = 0; c < 65536; c++) {
        codes[c] = static_cast<uint16_t>(c);
    }
    f16_to_f32(wide.data(), codes.data(), codes.size());
    for (unsigned c = 0; c < 65536; c++) {
        expect(memcmp(&wide[c], std::vector<float>{f16_to_f32(codes[c])}.data(), 4) == 0, "bulk from half", c, static_cast<double>(wide[c]),
               static_cast<double>(f16_to_f32(codes[c])));
    }
    bf16_to_f32(wide.data(), codes.data(), codes.size());
    for (unsigned c = 0; c < 65536; c++) {
        expect(memcmp(&wide[c], std::vector<float>{bf16_to_f32(codes[c])}.data(), 4) == 0, "bulk from bfloat16", c,
               static_cast<double>(wide[c]), 0);
    }
    for (size_t n = 0; n < 70; n++) {
        std::vector<uint16_t> some(71, 0x1234);
        f32_to_bf16(some.data(), values.data() + 100, n);
        expect(some[n] == 0x1234, "bulk tail", static_cast<double>(n), some[n], 0x1234);
    }
    // Nibbles: low first, in pairs and alone.
    uint8_t packed[256];
    for (unsigned c = 0; c < 256; c++) {
        packed[c] = static_cast<uint8_t>(c);
    }
    std::vector<float> out(512);
    i4_to_f32(out.data(), packed, 511);
    for (unsigned i = 0; i < 511; i++) {
        int v = packed[i / 2] >> (i % 2 * 4) & 15;
        v = v < 8 ? v : v - 16;
        expect(static_cast<int>(out[i]) == v, "int4", i, static_cast<double>(out[i]), v);
    }
    e2m1_to_f32(out.data(), packed, 512);
    for (unsigned i = 0; i < 512; i++) {
        double want = kE2m1.value(packed[i / 2] >> (i % 2 * 4) & 15);
        expect(same(static_cast<double>(out[i]), want), "e2m1 packed", i, static_cast<double>(out[i]), want);
    }
}

double slow_integral(double v, Round mode)
{
    double low = floor(v), rest = v - low;
    if (rest == 0) {
        return v;
    }
    switch (mode) {
    case Round::Floor:
        return low;
    case Round::Ceil:
        return low + 1;
    case Round::Trunc:
        return v < 0 ? low + 1 : low;
    case Round::Round:
    case Round::Hybrid:
        return rest > 0.5 || (rest == 0.5 && v > 0) ? low + 1 : low;
    case Round::Odd:
        return fmod(low, 2) != 0 ? low : low + 1;
    default:
        return rest > 0.5 || (rest == 0.5 && fmod(low, 2) != 0) ? low + 1 : low;
    }
}

void check_integers()
{
    std::vector<float> values = {0.0f, -0.0f, 0.5f, -0.5f, 1.5f, 2.5f, -1.5f, -2.5f, INFINITY, -INFINITY, NAN, 127.5f, 128.0f, 255.5f, 2147483648.0f,
                                 -2147483648.0f, 9.2233720e18f, -9.2233720e18f, 1.8446744e19f, 8388607.5f, 8388609.0f};
    for (uint64_t b = 0; b < 0xffffff00u; b += 0x00098765u) {
        values.push_back(float_of(static_cast<uint32_t>(b)));
    }
    for (float v : values) {
        for (Round mode : kModes) {
            double r = v != v || std::isinf(v) ? static_cast<double>(v) : slow_integral(static_cast<double>(v), mode);
            double got = static_cast<double>(round_f32(v, mode));
            expect(got == r || (got != got && r != r), "integral", static_cast<double>(v), got, r);
            for (int bits : {4, 8, 16, 32, 64}) {
                double low = -ldexp(1, bits - 1), high = ldexp(1, bits - 1);
                int64_t most = bits == 64 ? INT64_MAX : static_cast<int64_t>(high) - 1;
                int64_t want = r != r ? 0 : r >= high ? most : r < low ? -most - 1 : static_cast<int64_t>(r);
                int64_t i = f32_to_int(v, mode, bits, true);
                expect(i == want, "to integer", static_cast<double>(v), static_cast<double>(i), static_cast<double>(want));
                if (bits < 64) {
                    double top = ldexp(1, bits);
                    want = r != r || r <= 0 ? 0 : r >= top ? static_cast<int64_t>(top) - 1 : static_cast<int64_t>(r);
                    i = f32_to_int(v, mode, bits, false);
                    expect(i == want, "to unsigned", static_cast<double>(v), static_cast<double>(i), static_cast<double>(want));
                }
            }
        }
    }
    // Integers of up to 62 bits to F32 and double, against the neighbours that nextafter knows.
    uint64_t x = 88172645463325252ull;
    for (int k = 0; k < 100000; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        int64_t v = static_cast<int64_t>(x) >> (k % 60);
        for (Round mode : kModes) {
            float got = i64_to_f32(v, mode);
            float near = static_cast<float>(v); // to nearest, ties to even, by the hardware
            long double exact = static_cast<long double>(v), n = static_cast<long double>(near);
            float low = n <= exact ? near : nextafterf(near, -INFINITY), high = n >= exact ? near : nextafterf(near, INFINITY);
            float want = near;
            if (low != high) {
                long double below = exact - static_cast<long double>(low), above = static_cast<long double>(high) - exact;
                switch (mode) {
                case Round::Floor:
                    want = low;
                    break;
                case Round::Ceil:
                    want = high;
                    break;
                case Round::Trunc:
                    want = v < 0 ? high : low;
                    break;
                case Round::Round:
                    want = below == above ? (v < 0 ? low : high) : near;
                    break;
                case Round::Odd: {
                    uint32_t bits;
                    memcpy(&bits, &low, 4);
                    want = bits & 1 ? low : high;
                    break;
                }
                default:
                    break;
                }
            }
            expect(got == want, "i64 to float", static_cast<double>(v), static_cast<double>(got), static_cast<double>(want));
        }
        double d = i64_to_f64(v, Round::Rint);
        expect(d == static_cast<double>(v), "i64 to double", static_cast<double>(v), d, static_cast<double>(v));
        double y;
        memcpy(&y, &x, 8);
        float f = f64_to_f32(y, Round::Rint), g = static_cast<float>(y);
        expect(f == g || (f != f && g != g), "double to float", y, static_cast<double>(f), static_cast<double>(g));
    }
}

void check_e8m0()
{
    for (unsigned c = 0; c < 255; c++) {
        double got = static_cast<double>(e8m0_to_f32(static_cast<uint8_t>(c))), want = ldexp(1, static_cast<int>(c) - 127);
        expect(got == want, "e8m0", c, got, want);
        if (c > 0) { // 2^-127 is a subnormal of F32: its exponent field is 0
            expect(f32_to_e8m0(static_cast<float>(want)) == c, "to e8m0", want, f32_to_e8m0(static_cast<float>(want)), c);
            expect(f32_to_e8m0(static_cast<float>(-want * 1.9)) == c, "to e8m0", -want * 1.9, f32_to_e8m0(static_cast<float>(-want * 1.9)), c);
        }
    }
    expect(e8m0_to_f32(255) != e8m0_to_f32(255), "e8m0 NaN", 255, 0, 0);
    expect(f32_to_e8m0(INFINITY) == 254 && f32_to_e8m0(NAN) == 255, "to e8m0", INFINITY, f32_to_e8m0(INFINITY), 254);
}

} // namespace

int main()
{
    check_format(
        kF16, 3, [](float v, Round r, Overflow o) { return f32_to_f16(v, r, o); },
        [](unsigned c) { return f16_to_f32(static_cast<uint16_t>(c)); });
    check_format(
        kBf16, 7, [](float v, Round r, Overflow o) { return f32_to_bf16(v, r, o); },
        [](unsigned c) { return bf16_to_f32(static_cast<uint16_t>(c)); });
    check_format(
        kE4m3, 1, [](float v, Round r, Overflow o) { return f32_to_e4m3(v, r, o); },
        [](unsigned c) { return e4m3_to_f32(static_cast<uint8_t>(c)); });
    check_format(
        kE5m2, 1, [](float v, Round r, Overflow o) { return f32_to_e5m2(v, r, o); },
        [](unsigned c) { return e5m2_to_f32(static_cast<uint8_t>(c)); });
    check_format(
        kE2m1, 1, [](float v, Round r, Overflow) { return f32_to_e2m1(v, r); },
        [](unsigned c) { return e2m1_to_f32(static_cast<uint8_t>(c)); });
    check_format(
        kE1m2, 1, [](float v, Round r, Overflow) { return f32_to_e1m2(v, r); },
        [](unsigned c) { return e1m2_to_f32(static_cast<uint8_t>(c)); });
    check_hif8();
    check_e8m0();
    check_bulk();
    check_integers();
    printf("%lu checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
