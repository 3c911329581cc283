// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Conversion between element types. The pages `precision_conversion` and `Cast` give a number for each pair and mode.

#include "example.h"

#include "vector.h"

using example::Bench;

namespace {

// One value through one conversion.
template <class T, class U>
void one(example::Scratch &gm, double value, std::initializer_list<std::pair<RoundMode, double>> wants,
         ascend_twin::Site site = ascend_twin::Site::here())
{
    Bench b(gm);
    auto src = b.fill<U>(64, [value](size_t) { return value; });
    for (const auto &w : wants) {
        auto dst = b.room<T>(64);
        Cast(dst, src, w.first, 64, site);
        double want = w.second;
        expect_each(b.out(dst, 64, site), 64, [want](size_t) { return want; }, 0, site);
    }
}

constexpr RoundMode kNone = RoundMode::CAST_NONE, kRint = RoundMode::CAST_RINT, kFloor = RoundMode::CAST_FLOOR,
                    kCeil = RoundMode::CAST_CEIL, kRound = RoundMode::CAST_ROUND, kTrunc = RoundMode::CAST_TRUNC,
                    kOdd = RoundMode::CAST_ODD;

const double kSix[] = {1.4, 1.5, 1.6, 2.4, 2.5, 2.6};

void half_to_int(example::Scratch &gm, RoundMode mode, std::initializer_list<double> want)
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return kSix[i % 6]; });
    auto count = b.room<int32_t>(512), lanes = b.room<int32_t>(512);
    Cast(count, src, mode, 512);
    uint64_t mask = 256 / sizeof(int32_t);
    Cast(lanes, src, mode, mask, 8, {1, 1, 8, 4});
    expect(b.out(count, 512), want);
    expect(b.out(lanes, 512), want);
}

} // namespace

EXAMPLE(half_to_int32_ceil, "Cast") { half_to_int(gm, kCeil, {2, 2, 2, 3, 3, 3}); }
EXAMPLE(half_to_int32_rint, "Cast") { half_to_int(gm, kRint, {1, 2, 2, 2, 2, 3}); }
EXAMPLE(half_to_int32_none, "Cast") { half_to_int(gm, kNone, {1, 2, 2, 2, 2, 3}); }
EXAMPLE(half_to_int32_floor, "Cast") { half_to_int(gm, kFloor, {1, 1, 1, 2, 2, 2}); }
EXAMPLE(half_to_int32_round, "Cast") { half_to_int(gm, kRound, {1, 2, 2, 2, 3, 3}); }
EXAMPLE(half_to_int32_trunc, "Cast") { half_to_int(gm, kTrunc, {1, 1, 1, 2, 2, 2}); }

EXAMPLE(half_to_int32_first_half, "Cast")
{
    Bench b(gm);
    auto src = b.in<half>({37.4,  7.11,  53.5,  19.44, 22.66, 43.,   43.16, 5.316, 74.2,  15.7,  87.75, 86.94, 92.56, 25.45, 36.06, 94.6,
                           73.6,  30.48, 48.16, 12.55, 27.81, 14.67, 6.58,  48.38, 67.5,  57.5,  63.3,  85.2,  3.654, 68.7,  52.53, 16.38,
                           13.945, 63.84, 87.2, 82.5,  85.7,  27.78, 15.41, 41.66, 31.38, 14.65, 88.25, 0.0332, 43.06, 46.88, 15.57, 87.1,
                           53.16, 33.5,  91.06, 36.5,  55.34, 60.53, 3.238, 23.92, 97.5,  91.1,  78.44, 54.47, 82.,   53.8,  72.1,  25.06});
    auto dst = b.fill<int32_t>(64, [](size_t) { return -7; });
    Cast(dst, src, kCeil, 32, 1, {1, 1, 8, 4});
    auto g = b.out(dst, 64);
    expect(g, {38, 8, 54, 20, 23, 43, 44, 6, 75, 16, 88, 87, 93, 26, 37, 95, 74, 31, 49, 13, 28, 15, 7, 49, 68, 58, 64, 86, 4, 69, 53, 17,
               -7, -7, -7});
}

EXAMPLE(scalar_cast, "Cast（float转half-int32_t）")
{
    (void)gm;
    auto check = [](bool good, ascend_twin::Site site = ascend_twin::Site::here()) {
        if (!good) {
            ascend_twin::fail(ascend_twin::Rule::Assert, "Cast", nullptr, site, "another value");
        }
    };
    float v = 3.14159f;
    check(static_cast<float>(Cast<float, half, RoundMode::CAST_ODD>(v)) == 3.142578125f);
    check(Cast<float, int32_t, RoundMode::CAST_ROUND>(1.5f) == 2);
    check(Cast<float, int32_t, RoundMode::CAST_CEIL>(1.5f) == 2);
    check(Cast<float, int32_t, RoundMode::CAST_FLOOR>(1.5f) == 1);
    check(Cast<float, int32_t, RoundMode::CAST_RINT>(1.5f) == 2);
    check(Cast<float, int32_t, RoundMode::CAST_RINT>(2.5f) == 2);
    bfloat16_t b = Cast(v);
    check(static_cast<float>(b) == 3.140625f);
    check(Cast(b) == 3.140625f && ToFloat(b) == 3.140625f && ToFloat(ToBfloat16(v)) == 3.140625f);
}

// A narrower result may lie on its source.
EXAMPLE(cast_in_place, "Cast")
{
    Bench b(gm);
    auto src = b.fill<float>(3000, [](size_t i) { return static_cast<double>(i % 500); });
    auto dst = src.ReinterpretCast<half>();
    Cast(dst, src, kRint, 3000);
    expect_each(b.out(dst, 3000), 3000, [](size_t i) { return static_cast<double>(i % 500); });
}

EXAMPLE(half_to_int4, "Cast")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return static_cast<double>(i % 20) - 10.5; });
    auto bytes = b.room<int8_t>(64);
    auto dst = bytes.ReinterpretCast<int4b_t>();
    Cast<int4b_t, half>(dst, src, kCeil, 128, 1, {1, 1, 2, 8});
    expect_each(b.out(bytes, 64), 64, [](size_t i) {
        auto value = [](size_t k) {
            int v = static_cast<int>(k % 20) - 10;
            return v < -8 ? -8 : v > 7 ? 7 : v;
        };
        return static_cast<double>(static_cast<int8_t>((value(2 * i) & 15) | (value(2 * i + 1) & 15) << 4));
    });
}

EXAMPLE(int4_to_half, "precision_conversion")
{
    Bench b(gm);
    auto bytes = b.fill<int8_t>(64, [](size_t i) { return static_cast<double>(static_cast<int8_t>((i & 15) | ((15 - (i & 15)) << 4))); });
    auto dst = b.room<half>(128);
    Cast(dst, bytes.ReinterpretCast<int4b_t>(), kNone, 128);
    expect_each(b.out(dst, 128), 128, [](size_t i) {
        size_t nibble = i % 2 == 0 ? i / 2 % 16 : 15 - i / 2 % 16;
        return nibble < 8 ? static_cast<double>(nibble) : static_cast<double>(nibble) - 16;
    });
}

EXAMPLE(int8_to_half, "precision_conversion") { one<half, int8_t>(gm, -1, {{kNone, -1}}); }
EXAMPLE(uint8_to_half, "precision_conversion") { one<half, uint8_t>(gm, 1, {{kNone, 1}}); }

EXAMPLE(int16_to_half, "precision_conversion")
{
    one<half, int16_t>(gm, 4096 + 2, {{kRint, 4096}, {kFloor, 4096}, {kCeil, 4100}, {kRound, 4100}, {kTrunc, 4096}});
}
EXAMPLE(int16_to_float, "precision_conversion") { one<float, int16_t>(gm, 32767, {{kNone, 32767}}); }

EXAMPLE(half_to_int8, "precision_conversion")
{
    one<int8_t, half>(gm, 127.5, {{kRint, 127}, {kFloor, 127}, {kCeil, 127}, {kRound, 127}, {kTrunc, 127}});
}
EXAMPLE(half_to_uint8, "precision_conversion")
{
    one<uint8_t, half>(gm, 1.75, {{kRint, 2}, {kFloor, 1}, {kCeil, 2}, {kRound, 2}, {kTrunc, 1}});
}
EXAMPLE(half_to_int16, "precision_conversion")
{
    one<int16_t, half>(gm, 127.5, {{kRint, 128}, {kFloor, 127}, {kCeil, 128}, {kRound, 128}, {kTrunc, 127}});
}
EXAMPLE(half_to_int32_negative, "precision_conversion")
{
    one<int32_t, half>(gm, -1.5, {{kRint, -2}, {kFloor, -2}, {kCeil, -1}, {kRound, -2}, {kTrunc, -1}});
}
EXAMPLE(half_to_float, "precision_conversion") { one<float, half>(gm, 1.5 - 1.0 / 1024, {{kNone, 1.5 - 1.0 / 1024}}); }
EXAMPLE(bf16_to_int32, "precision_conversion")
{
    one<int32_t, bfloat16_t>(gm, 64.5, {{kRint, 64}, {kFloor, 64}, {kCeil, 65}, {kRound, 65}, {kTrunc, 64}});
}
EXAMPLE(bf16_to_float, "precision_conversion") { one<float, bfloat16_t>(gm, 1.5 - 1.0 / 64, {{kNone, 1.5 - 1.0 / 64}}); }
EXAMPLE(int32_to_int16, "precision_conversion") { one<int16_t, int32_t>(gm, 2147483647, {{kNone, 32767}}); }
EXAMPLE(int32_to_float, "precision_conversion")
{
    double base = 33554432;
    one<float, int32_t>(gm, base + 3, {{kRint, base + 4}, {kFloor, base}, {kCeil, base + 4}, {kRound, base + 4}, {kTrunc, base}});
}
EXAMPLE(int32_to_int64, "precision_conversion") { one<int64_t, int32_t>(gm, 2147483647, {{kNone, 2147483647}}); }
EXAMPLE(float_to_int16, "precision_conversion")
{
    one<int16_t, float>(gm, 4194304.5, {{kRint, 32767}, {kFloor, 32767}, {kCeil, 32767}, {kRound, 32767}, {kTrunc, 32767}});
}
EXAMPLE(float_to_half, "precision_conversion")
{
    double low = 0.5, high = 0.5 + std::ldexp(1, -11);
    one<half, float>(gm, 0.5 + std::ldexp(1, -12),
                     {{kRint, low}, {kFloor, low}, {kCeil, high}, {kRound, high}, {kTrunc, low}, {kOdd, high}, {kNone, low}});
}
EXAMPLE(float_to_bf16, "precision_conversion")
{
    double low = 0.5, high = 0.5 + std::ldexp(1, -8);
    one<bfloat16_t, float>(gm, 0.5 + std::ldexp(1, -9) + std::ldexp(1, -11),
                           {{kRint, high}, {kFloor, low}, {kCeil, high}, {kRound, high}, {kTrunc, low}});
}
EXAMPLE(float_to_int32, "precision_conversion")
{
    double base = 4194304;
    one<int32_t, float>(gm, base + 0.5, {{kRint, base}, {kFloor, base}, {kCeil, base + 1}, {kRound, base + 1}, {kTrunc, base}});
}
EXAMPLE(float_to_float, "precision_conversion")
{
    one<float, float>(gm, 0.5, {{kRint, 0}, {kFloor, 0}, {kCeil, 1}, {kRound, 1}, {kTrunc, 0}});
}
EXAMPLE(float_to_int64, "precision_conversion")
{
    double base = 4194304;
    one<int64_t, float>(gm, base + 0.5, {{kRint, base}, {kFloor, base}, {kCeil, base + 1}, {kRound, base + 1}, {kTrunc, base}});
}
EXAMPLE(int64_to_int32, "precision_conversion") { one<int32_t, int64_t>(gm, 2147483648.0, {{kNone, 2147483647}}); }
EXAMPLE(int64_to_float, "precision_conversion")
{
    double base = std::ldexp(1, 35), low = base + 4096, high = base + 8192;
    one<float, int64_t>(gm, base + 4096 + 2048, {{kRint, high}, {kFloor, low}, {kCeil, high}, {kRound, high}, {kTrunc, low}});
}

EXAMPLE(int32_to_half_scaled, "SetDeqScale")
{
    Bench b(gm);
    auto src = b.fill<int32_t>(256, [](size_t i) { return static_cast<double>(i) * 3 - 300; });
    auto same = b.room<half>(256), half_of = b.room<half>(256);
    half scale = 1.0;
    SetDeqScale(scale);
    Cast(same, src, kNone, 256);
    SetDeqScale((half)0.5);
    Cast(half_of, src, kNone, 256);
    expect_each(b.out(same, 256), 256, [](size_t i) { return static_cast<double>(i) * 3 - 300; });
    expect_each(b.out(half_of, 256), 256, [](size_t i) { return static_cast<double>(i) * 1.5 - 150; });
}

// Two calls, one for each half of the destination's blocks.
EXAMPLE(cast_deq_halves, "SetDeqScale")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(256, [](size_t i) { return static_cast<double>(i) - 128; });
    auto dst = b.fill<int8_t>(512, [](size_t) { return 99; });
    SetDeqScale(1.0f, static_cast<int16_t>(0), true);
    CastDequant<int8_t, int16_t, true, false, false>(dst, src, 128, 2, {1, 1, 8, 8});
    PipeBarrier<PIPE_V>();
    CastDequant<int8_t, int16_t, true, false, true>(dst, src, 128, 2, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) {
        size_t block = i / 32, lane = i % 16;
        return static_cast<double>(block * 16 + lane) - 128;
    });
}

EXAMPLE(cast_deq_per_channel, "CastDequant")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(128, [](size_t i) { return static_cast<double>(i / 16); });
    auto deq = b.room<uint64_t>(16);
    auto dst = b.fill<uint8_t>(256, [](size_t) { return 7; });
    float scale[16];
    int16_t offset[16];
    bool sign[16];
    for (int i = 0; i < 16; i++) {
        scale[i] = static_cast<float>(i);
        offset[i] = static_cast<int16_t>(i % 2);
        sign[i] = false;
    }
    VdeqInfo info(scale, offset, sign);
    SetDeqScale<uint64_t>(deq, info);
    finish();
    CastDequant<uint8_t, int16_t, true, true>(dst, src, 128);
    expect_each(b.out(dst, 256), 256, [](size_t i) {
        size_t block = i / 32, lane = i % 16;
        return i % 32 < 16 ? 7.0 : static_cast<double>(block * lane + lane % 2);
    });
}

// Infinity and NaN stay as they are unless the control register asks for saturation.
EXAMPLE(infinity_to_half, "SetCtrlSpr(ISASI)")
{
    Bench b(gm);
    auto src = b.in<float>({1e6, -1e6, INFINITY, NAN, 1, 2, 3, 4});
    auto kept = b.room<half>(16), saturated = b.room<half>(16);
    Cast(kept, src, kRint, 8);
    ascend_twin::state().ctrl &= ~(1ull << 48);
    Cast(saturated, src, kRint, 8);
    ascend_twin::state().ctrl |= 1ull << 48;
    expect(b.out(kept, 8), {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(INFINITY),
                            static_cast<double>(NAN), 1.0});
    expect(b.out(saturated, 8), {65504.0, -65504.0, 65504.0, 0.0, 1.0});
}

#if __NPU_ARCH__ == 3510
EXAMPLE(int4_to_int16, "precision_conversion")
{
    Bench b(gm);
    auto bytes = b.fill<int8_t>(32, [](size_t) { return 0x71; });
    auto dst = b.room<int16_t>(64);
    Cast(dst, bytes.ReinterpretCast<int4b_t>(), kNone, 64);
    expect_each(b.out(dst, 64), 64, [](size_t i) { return i % 2 == 0 ? 1.0 : 7.0; });
}
EXAMPLE(int8_widens, "precision_conversion")
{
    one<int16_t, int8_t>(gm, 127, {{kNone, 127}});
    one<int32_t, int8_t>(gm, 127, {{kNone, 127}});
}
EXAMPLE(uint8_widens, "precision_conversion")
{
    one<uint16_t, uint8_t>(gm, 255, {{kNone, 255}});
    one<uint32_t, uint8_t>(gm, 255, {{kNone, 255}});
}
EXAMPLE(int16_to_int4, "precision_conversion")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(128, [](size_t) { return 32767; });
    auto bytes = b.room<int8_t>(64);
    Cast(bytes.ReinterpretCast<int4b_t>(), src, kNone, 128);
    expect_each(b.out(bytes, 64), 64, [](size_t) { return 0x77; });
}
EXAMPLE(int16_saturates, "precision_conversion")
{
    one<uint8_t, int16_t>(gm, 32767, {{kNone, 255}});
    one<uint32_t, int16_t>(gm, 32767, {{kNone, 32767}});
    one<uint32_t, int16_t>(gm, -5, {{kNone, 0}});
    one<int32_t, int16_t>(gm, 32767, {{kNone, 32767}});
}
EXAMPLE(unsigned_saturates, "precision_conversion")
{
    one<uint8_t, uint16_t>(gm, 65535, {{kNone, 255}});
    one<uint32_t, uint16_t>(gm, 65535, {{kNone, 65535}});
    one<uint8_t, uint32_t>(gm, 4294967295.0, {{kNone, 255}});
    one<uint16_t, uint32_t>(gm, 4294967295.0, {{kNone, 65535}});
    one<int16_t, uint32_t>(gm, 4294967295.0, {{kNone, 32767}});
}
EXAMPLE(int32_saturates, "precision_conversion")
{
    one<uint8_t, int32_t>(gm, 2147483647, {{kNone, 255}});
    one<uint16_t, int32_t>(gm, 2147483647, {{kNone, 65535}});
}
EXAMPLE(int32_truncates, "SetCtrlSpr(ISASI)")
{
    ascend_twin::state().ctrl |= 1ull << 59;
    one<uint8_t, int32_t>(gm, 256, {{kNone, 0}});
    one<uint8_t, half>(gm, 257, {{kRint, 1}});
    ascend_twin::state().ctrl &= ~(1ull << 59);
}
EXAMPLE(bf16_to_half, "precision_conversion")
{
    Bench b(gm);
    auto src = b.fill<bfloat16_t>(16, [](size_t) { return 2.90573e-06; });
    auto floor = b.room<half>(16), ceil = b.room<half>(16);
    Cast(floor, src, kFloor, 16);
    Cast(ceil, src, kCeil, 16);
    expect_each(b.out(floor, 16), 16, [](size_t) { return 2.861e-06; }, 1e-9);
    expect_each(b.out(ceil, 16), 16, [](size_t) { return 2.92e-06; }, 1e-8);
}
EXAMPLE(half_to_bf16, "precision_conversion")
{
    one<bfloat16_t, half>(gm, 257, {{kRint, 256}, {kFloor, 256}, {kCeil, 258}, {kRound, 258}, {kTrunc, 256}});
}
EXAMPLE(fp8_round_trip, "precision_conversion")
{
    one<fp8_e4m3fn_t, float>(gm, 2.5, {{kRint, 2.5}});
    one<fp8_e5m2_t, float>(gm, 2.5, {{kRint, 2.5}});
    one<float, fp8_e4m3fn_t>(gm, 2, {{kNone, 2}});
    one<float, fp8_e5m2_t>(gm, 2, {{kNone, 2}});
    one<fp8_e4m3fn_t, float>(gm, 449, {{kRint, 448}});
    one<fp8_e5m2_t, float>(gm, 2.25, {{kRint, 2}});
}
EXAMPLE(hif8, "precision_conversion")
{
    one<hifloat8_t, float>(gm, 14, {{kRound, 14}});
    one<hifloat8_t, half>(gm, 14, {{kRound, 14}});
    one<float, hifloat8_t>(gm, 2, {{kNone, 2}});
    one<half, hifloat8_t>(gm, 2, {{kNone, 2}});
    one<hifloat8_t, float>(gm, 17, {{kRound, 16}});
    one<hifloat8_t, float>(gm, 18, {{kRound, 20}});
}
EXAMPLE(bf16_to_fp4, "precision_conversion")
{
    Bench b(gm);
    auto src = b.fill<bfloat16_t>(128, [](size_t) { return 2.5; });
    const RoundMode modes[] = {kRint, kFloor, kCeil, kRound, kTrunc};
    const double want[] = {2, 2, 3, 3, 2};
    for (int m = 0; m < 5; m++) {
        auto packed = b.room<fp4x2_e2m1_t>(128);
        auto back = b.room<bfloat16_t>(128);
        Cast(packed, src, modes[m], 128);
        PipeBarrier<PIPE_V>();
        Cast(back, packed, kNone, 128);
        double w = want[m];
        expect_each(b.out(back, 128), 128, [w](size_t) { return w; });
    }
}
EXAMPLE(truncate_floor, "Truncate(ISASI)")
{
    Bench b(gm);
    auto src = b.in<float>({-37.063736, 64.17277, -33.448692, 0.5, 1.5, -0.5, 2, 3});
    auto dst = b.room<float>(8);
    Truncate<float, RoundMode::CAST_FLOOR>(dst, src, 8);
    expect(b.out(dst, 8), {-38, 64, -34, 0, 1, -1, 2, 3});
}
#endif

EXAMPLES_END
