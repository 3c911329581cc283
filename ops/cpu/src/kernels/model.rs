// SPDX-License-Identifier: MIT OR Apache-2.0

//! A software model of the AVX-512 instructions that the kernels use, one lane at a time, from the instruction set
//! reference's pseudo-code. The AVX-512 levels are compiled against it a second time, so that their tables, lane orders and
//! masks are tested on every machine. Where the CPU has the instructions, each function is tested against its own.

mod arch {
    #![allow(non_camel_case_types, reason = "the names of the intrinsics' types")]
    #![allow(clippy::missing_safety_doc, reason = "the contracts are those of the intrinsics of the same names")]

    /// 16 F32 lanes.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) struct __m512(pub(crate) [f32; 16]);
    /// 64 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct __m512i(pub(crate) [u8; 64]);
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct __m256i(pub(crate) [u8; 32]);
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct __m128i(pub(crate) [u8; 16]);

    pub(crate) fn dwords(v: __m512i) -> [u32; 16] {
        std::array::from_fn(|i| u32::from_le_bytes([v.0[4 * i], v.0[4 * i + 1], v.0[4 * i + 2], v.0[4 * i + 3]]))
    }
    pub(crate) fn from_dwords(v: [u32; 16]) -> __m512i {
        __m512i(std::array::from_fn(|i| v[i / 4].to_le_bytes()[i % 4]))
    }
    fn words(v: __m512i) -> [u16; 32] {
        std::array::from_fn(|i| u16::from_le_bytes([v.0[2 * i], v.0[2 * i + 1]]))
    }
    fn from_words(v: [u16; 32]) -> __m512i {
        __m512i(std::array::from_fn(|i| v[i / 2].to_le_bytes()[i % 2]))
    }
    fn map(v: __m512i, f: impl Fn(u32) -> u32) -> __m512i {
        from_dwords(dwords(v).map(f))
    }
    fn zip(a: __m512i, b: __m512i, f: impl Fn(u32, u32) -> u32) -> __m512i {
        let (a, b) = (dwords(a), dwords(b));
        from_dwords(std::array::from_fn(|i| f(a[i], b[i])))
    }
    fn zip_ps(a: __m512, b: __m512, f: impl Fn(f32, f32) -> f32) -> __m512 {
        __m512(std::array::from_fn(|i| f(a.0[i], b.0[i])))
    }

    pub(crate) unsafe fn _mm512_set1_ps(x: f32) -> __m512 {
        __m512([x; 16])
    }
    pub(crate) unsafe fn _mm512_loadu_ps(p: *const f32) -> __m512 {
        // SAFETY: the contract of the intrinsic: 64 readable bytes.
        unsafe { __m512(p.cast::<[f32; 16]>().read_unaligned()) }
    }
    pub(crate) unsafe fn _mm512_storeu_ps(p: *mut f32, v: __m512) {
        // SAFETY: the contract of the intrinsic: 64 writable bytes.
        unsafe { p.cast::<[f32; 16]>().write_unaligned(v.0) }
    }
    pub(crate) unsafe fn _mm512_add_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| a + b)
    }
    pub(crate) unsafe fn _mm512_sub_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| a - b)
    }
    pub(crate) unsafe fn _mm512_mul_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| a * b)
    }
    pub(crate) unsafe fn _mm512_div_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| a / b)
    }
    pub(crate) unsafe fn _mm512_fmadd_ps(a: __m512, b: __m512, c: __m512) -> __m512 {
        __m512(std::array::from_fn(|i| a.0[i].mul_add(b.0[i], c.0[i])))
    }
    pub(crate) unsafe fn _mm512_max_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| if a > b { a } else { b })
    }
    pub(crate) unsafe fn _mm512_min_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| if a < b { a } else { b })
    }
    /// Only the control used here: to nearest even, no fraction bits, no exceptions.
    pub(crate) unsafe fn _mm512_roundscale_ps<const CONTROL: i32>(a: __m512) -> __m512 {
        const { assert!(CONTROL == 8) }
        __m512(a.0.map(f32::round_ties_even))
    }
    pub(crate) unsafe fn _mm512_scalef_ps(a: __m512, b: __m512) -> __m512 {
        zip_ps(a, b, |a, b| {
            let quiet = |x: f32| f32::from_bits(x.to_bits() | 0x0040_0000);
            // The "real indefinite" value.
            const INDEFINITE: f32 = f32::from_bits(0xFFC0_0000);
            if a.is_nan() || b.is_nan() {
                quiet(if a.is_nan() { a } else { b })
            } else if (a == 0.0 && b == f32::INFINITY) || (a.is_infinite() && b == f32::NEG_INFINITY) {
                INDEFINITE
            } else {
                // Exact in F64 beyond the range of F32 on both sides, so that only the conversion rounds.
                (f64::from(a) * 2.0_f64.powi(b.floor().clamp(-400.0, 400.0) as i32)) as f32
            }
        })
    }
    pub(crate) unsafe fn _mm512_cvtps_epi32(a: __m512) -> __m512i {
        from_dwords(a.0.map(|x| {
            let rounded = x.round_ties_even();
            // Out of range and NaN give the "integer indefinite" value.
            if (-2147483648.0..2147483648.0).contains(&rounded) { rounded as i32 as u32 } else { 0x8000_0000 }
        }))
    }
    pub(crate) unsafe fn _mm512_set1_epi32(x: i32) -> __m512i {
        from_dwords([x as u32; 16])
    }
    pub(crate) unsafe fn _mm512_set1_epi16(x: i16) -> __m512i {
        from_words([x as u16; 32])
    }
    pub(crate) unsafe fn _mm512_set1_epi8(x: i8) -> __m512i {
        __m512i([x as u8; 64])
    }
    pub(crate) unsafe fn _mm512_add_epi32(a: __m512i, b: __m512i) -> __m512i {
        zip(a, b, u32::wrapping_add)
    }
    pub(crate) unsafe fn _mm512_sub_epi32(a: __m512i, b: __m512i) -> __m512i {
        zip(a, b, u32::wrapping_sub)
    }
    pub(crate) unsafe fn _mm512_and_si512(a: __m512i, b: __m512i) -> __m512i {
        zip(a, b, |a, b| a & b)
    }
    pub(crate) unsafe fn _mm512_or_si512(a: __m512i, b: __m512i) -> __m512i {
        zip(a, b, |a, b| a | b)
    }
    pub(crate) unsafe fn _mm512_slli_epi32<const N: u32>(a: __m512i) -> __m512i {
        map(a, |a| a << N)
    }
    pub(crate) unsafe fn _mm512_srli_epi32<const N: u32>(a: __m512i) -> __m512i {
        map(a, |a| a >> N)
    }
    pub(crate) unsafe fn _mm512_srai_epi32<const N: u32>(a: __m512i) -> __m512i {
        map(a, |a| ((a as i32) >> N) as u32)
    }
    pub(crate) unsafe fn _mm512_castsi512_ps(a: __m512i) -> __m512 {
        __m512(dwords(a).map(f32::from_bits))
    }
    pub(crate) unsafe fn _mm512_castps_si512(a: __m512) -> __m512i {
        from_dwords(a.0.map(f32::to_bits))
    }
    /// The order of the compiler's sequence: halves are folded onto each other, 16 to 8 to 4 to 2 to 1.
    pub(crate) unsafe fn _mm512_reduce_add_ps(a: __m512) -> f32 {
        let mut v = a.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                v[i] += v[i + half];
            }
        }
        v[0]
    }
    pub(crate) unsafe fn _mm512_reduce_max_ps(a: __m512) -> f32 {
        a.0.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    pub(crate) unsafe fn _mm256_loadu_si256(p: *const __m256i) -> __m256i {
        // SAFETY: the contract of the intrinsic: 32 readable bytes.
        unsafe { p.read_unaligned() }
    }
    pub(crate) unsafe fn _mm256_storeu_si256(p: *mut __m256i, v: __m256i) {
        // SAFETY: the contract of the intrinsic: 32 writable bytes.
        unsafe { p.write_unaligned(v) }
    }
    pub(crate) unsafe fn _mm_loadu_si128(p: *const __m128i) -> __m128i {
        // SAFETY: the contract of the intrinsic: 16 readable bytes.
        unsafe { p.read_unaligned() }
    }
    pub(crate) unsafe fn _mm512_loadu_si512(p: *const __m512i) -> __m512i {
        // SAFETY: the contract of the intrinsic: 64 readable bytes.
        unsafe { p.read_unaligned() }
    }
    pub(crate) unsafe fn _mm512_storeu_si512(p: *mut __m512i, v: __m512i) {
        // SAFETY: the contract of the intrinsic: 64 writable bytes.
        unsafe { p.write_unaligned(v) }
    }
    pub(crate) unsafe fn _mm512_cvtepu16_epi32(a: __m256i) -> __m512i {
        from_dwords(std::array::from_fn(|i| u32::from(u16::from_le_bytes([a.0[2 * i], a.0[2 * i + 1]]))))
    }
    pub(crate) unsafe fn _mm512_cvtepu8_epi32(a: __m128i) -> __m512i {
        from_dwords(a.0.map(u32::from))
    }
    pub(crate) unsafe fn _mm512_cvtepi8_epi32(a: __m128i) -> __m512i {
        from_dwords(a.0.map(|byte| i32::from(byte as i8) as u32))
    }
    pub(crate) unsafe fn _mm512_cvtepi32_epi16(a: __m512i) -> __m256i {
        let v = dwords(a);
        __m256i(std::array::from_fn(|i| (v[i / 2] as u16).to_le_bytes()[i % 2]))
    }
    /// Only the predicate used here: 3, unordered.
    pub(crate) unsafe fn _mm512_cmp_ps_mask<const PREDICATE: i32>(a: __m512, b: __m512) -> u16 {
        const { assert!(PREDICATE == 3) }
        (0..16).fold(0, |mask, i| mask | (u16::from(a.0[i].is_nan() || b.0[i].is_nan()) << i))
    }
    pub(crate) unsafe fn _mm512_mask_mov_epi32(src: __m512i, mask: u16, a: __m512i) -> __m512i {
        let (src, a) = (dwords(src), dwords(a));
        from_dwords(std::array::from_fn(|i| if mask >> i & 1 == 1 { a[i] } else { src[i] }))
    }
    pub(crate) unsafe fn _mm_setr_epi32(a: i32, b: i32, c: i32, d: i32) -> __m128i {
        let v = [a, b, c, d];
        __m128i(std::array::from_fn(|i| v[i / 4].to_le_bytes()[i % 4]))
    }
    pub(crate) unsafe fn _mm512_broadcast_i32x4(a: __m128i) -> __m512i {
        __m512i(std::array::from_fn(|i| a.0[i % 16]))
    }
    pub(crate) unsafe fn _mm512_shuffle_epi8(a: __m512i, index: __m512i) -> __m512i {
        __m512i(std::array::from_fn(|i| {
            let select = index.0[i];
            if select & 0x80 != 0 { 0 } else { a.0[(i & !15) + usize::from(select & 15)] }
        }))
    }
    pub(crate) unsafe fn _mm512_permutex2var_epi8(a: __m512i, index: __m512i, b: __m512i) -> __m512i {
        __m512i(index.0.map(|select| {
            let table = if select & 0x40 != 0 { &b } else { &a };
            table.0[usize::from(select & 0x3F)]
        }))
    }
    pub(crate) unsafe fn _mm512_ternarylogic_epi32<const TABLE: i32>(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        __m512i(std::array::from_fn(|i| {
            (0..8).fold(0, |out, bit| {
                let select = (a.0[i] >> bit & 1) << 2 | (b.0[i] >> bit & 1) << 1 | (c.0[i] >> bit & 1);
                out | ((TABLE >> select & 1) as u8) << bit
            })
        }))
    }
    fn unpack(a: __m512i, b: __m512i, first: usize) -> __m512i {
        __m512i(std::array::from_fn(|i| {
            let from = (i & !15) + first + (i & 15) / 2;
            if i % 2 == 0 { a.0[from] } else { b.0[from] }
        }))
    }
    pub(crate) unsafe fn _mm512_unpacklo_epi8(a: __m512i, b: __m512i) -> __m512i {
        unpack(a, b, 0)
    }
    pub(crate) unsafe fn _mm512_unpackhi_epi8(a: __m512i, b: __m512i) -> __m512i {
        unpack(a, b, 8)
    }
    pub(crate) unsafe fn _mm512_test_epi16_mask(a: __m512i, b: __m512i) -> u32 {
        let (a, b) = (words(a), words(b));
        (0..32).fold(0, |mask, i| mask | (u32::from(a[i] & b[i] != 0) << i))
    }
    pub(crate) unsafe fn _mm512_mask_add_epi16(src: __m512i, mask: u32, a: __m512i, b: __m512i) -> __m512i {
        let (src, a, b) = (words(src), words(a), words(b));
        from_words(std::array::from_fn(|i| if mask >> i & 1 == 1 { a[i].wrapping_add(b[i]) } else { src[i] }))
    }
    pub(crate) fn as_bf16(v: __m512i) -> __m512i {
        v
    }
    /// Subnormals are zero on the way in and out; the odd element first, each step rounded to nearest even.
    pub(crate) unsafe fn _mm512_dpbf16_ps(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        let flush = |x: f32| if x.is_subnormal() { 0.0_f32.copysign(x) } else { x };
        let value = |word: u16| flush(f32::from_bits(u32::from(word) << 16));
        let (a, b) = (words(a), words(b));
        __m512(std::array::from_fn(|i| {
            let odd = flush(value(a[2 * i + 1]).mul_add(value(b[2 * i + 1]), flush(sum.0[i])));
            flush(value(a[2 * i]).mul_add(value(b[2 * i]), odd))
        }))
    }
}

include!("avx512_ops.rs");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    //! The model against the CPU's own instructions, for every function and many inputs.

    use super::arch as model;
    use crate::level::{Isa, Level};
    use core::arch::x86_64 as real;

    fn inputs() -> Vec<[u8; 64]> {
        // All byte values in varied places, then F32 and BF16 patterns of interest repeated over the lanes.
        let mut out: Vec<[u8; 64]> =
            (0..64u32).map(|s| std::array::from_fn(|i| ((i as u32 * 37 + s * 101) ^ (s << 3)) as u8)).collect();
        for x in [
            0.0_f32,
            -0.0,
            1.0,
            -1.5,
            1e-40,
            -1e-40,
            3e38,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            0.5,
            2.5,
            -126.0,
        ] {
            out.push(std::array::from_fn(|i| x.to_le_bytes()[i % 4]));
        }
        out
    }

    fn same(a: [u8; 64], b: [u8; 64], name: &str) {
        // NaN payloads of arithmetic are not modelled: any NaN equals any NaN.
        let lanes = |v: [u8; 64]| model::dwords(model::__m512i(v));
        for (x, y) in lanes(a).into_iter().zip(lanes(b)) {
            let nan = f32::from_bits(x).is_nan() && f32::from_bits(y).is_nan();
            assert!(x == y || nan, "{name}: model {x:08x}, cpu {y:08x}");
        }
    }

    fn bytes(v: real::__m512i) -> [u8; 64] {
        let mut out = [0; 64];
        // SAFETY: 64 writable bytes; the callers run only where AVX-512 is.
        unsafe { real::_mm512_storeu_si512(out.as_mut_ptr().cast(), v) };
        out
    }

    #[test]
    fn the_model_agrees_with_the_cpu() {
        if let Err(reason) = Level::new(Isa::Avx512Bf16) {
            println!("the model was not compared with the CPU: {reason}");
            return;
        }
        // SAFETY: the level's features were just detected.
        unsafe { compare() }
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16")]
    unsafe fn compare() {
        use real::*;
        let inputs = inputs();
        // SAFETY: every load reads the 64 bytes of an array; features as enabled.
        unsafe {
            for (i, a) in inputs.iter().enumerate() {
                let b = &inputs[(i * 7 + 3) % inputs.len()];
                let c = &inputs[(i * 11 + 5) % inputs.len()];
                let m = |v: &[u8; 64]| model::__m512i(*v);
                let mf = |v: &[u8; 64]| model::_mm512_castsi512_ps(m(v));
                let r = |v: &[u8; 64]| _mm512_loadu_si512(v.as_ptr().cast());
                let rf = |v: &[u8; 64]| _mm512_castsi512_ps(r(v));
                macro_rules! int { ($name:ident $(::<$n:literal>)? ($($arg:ident),*)) => {
                    same(model::$name$(::<$n>)?($(m($arg)),*).0, bytes($name$(::<$n>)?($(r($arg)),*)), stringify!($name));
                }; }
                macro_rules! float { ($name:ident $(::<$n:literal>)? ($($arg:ident),*)) => {
                    same(model::_mm512_castps_si512(model::$name$(::<$n>)?($(mf($arg)),*)).0,
                        bytes(_mm512_castps_si512($name$(::<$n>)?($(rf($arg)),*))), stringify!($name));
                }; }
                float!(_mm512_add_ps(a, b));
                float!(_mm512_sub_ps(a, b));
                float!(_mm512_mul_ps(a, b));
                float!(_mm512_div_ps(a, b));
                float!(_mm512_max_ps(a, b));
                float!(_mm512_min_ps(a, b));
                float!(_mm512_fmadd_ps(a, b, c));
                float!(_mm512_roundscale_ps::<8>(a));
                float!(_mm512_scalef_ps(a, b));
                int!(_mm512_add_epi32(a, b));
                int!(_mm512_sub_epi32(a, b));
                int!(_mm512_and_si512(a, b));
                int!(_mm512_or_si512(a, b));
                int!(_mm512_slli_epi32::<7>(a));
                int!(_mm512_srli_epi32::<16>(a));
                int!(_mm512_srai_epi32::<4>(a));
                int!(_mm512_shuffle_epi8(a, b));
                int!(_mm512_permutex2var_epi8(a, b, c));
                int!(_mm512_ternarylogic_epi32::<0xF8>(a, b, c));
                int!(_mm512_unpacklo_epi8(a, b));
                int!(_mm512_unpackhi_epi8(a, b));
                same(model::_mm512_cvtps_epi32(mf(a)).0, bytes(_mm512_cvtps_epi32(rf(a))), "cvtps_epi32");
                let dot = model::_mm512_dpbf16_ps(mf(c), m(a), m(b));
                let cpu = _mm512_dpbf16_ps(
                    rf(c),
                    crate::kernels::x86::avx512::arch::as_bf16(r(a)),
                    crate::kernels::x86::avx512::arch::as_bf16(r(b)),
                );
                same(model::_mm512_castps_si512(dot).0, bytes(_mm512_castps_si512(cpu)), "dpbf16_ps");
                let mask = _mm512_test_epi16_mask(r(a), r(b));
                assert_eq!(model::_mm512_test_epi16_mask(m(a), m(b)), mask, "test_epi16_mask");
                same(
                    model::_mm512_mask_add_epi16(m(a), mask, m(b), m(c)).0,
                    bytes(_mm512_mask_add_epi16(r(a), mask, r(b), r(c))),
                    "mask_add_epi16",
                );
                let unordered = _mm512_cmp_ps_mask::<3>(rf(a), rf(b));
                assert_eq!(model::_mm512_cmp_ps_mask::<3>(mf(a), mf(b)), unordered, "cmp_ps_mask");
                same(
                    model::_mm512_mask_mov_epi32(m(a), 0xA5C3, m(b)).0,
                    bytes(_mm512_mask_mov_epi32(r(a), 0xA5C3, r(b))),
                    "mask_mov_epi32",
                );
                let half = a.as_ptr();
                same(
                    model::_mm512_cvtepu16_epi32(model::_mm256_loadu_si256(half.cast())).0,
                    bytes(_mm512_cvtepu16_epi32(_mm256_loadu_si256(half.cast()))),
                    "cvtepu16_epi32",
                );
                same(
                    model::_mm512_cvtepu8_epi32(model::_mm_loadu_si128(half.cast())).0,
                    bytes(_mm512_cvtepu8_epi32(_mm_loadu_si128(half.cast()))),
                    "cvtepu8_epi32",
                );
                same(
                    model::_mm512_cvtepi8_epi32(model::_mm_loadu_si128(half.cast())).0,
                    bytes(_mm512_cvtepi8_epi32(_mm_loadu_si128(half.cast()))),
                    "cvtepi8_epi32",
                );
                let mut narrow = [0u8; 32];
                _mm256_storeu_si256(narrow.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(r(a)));
                assert_eq!(model::_mm512_cvtepi32_epi16(m(a)).0, narrow, "cvtepi32_epi16");
            }
        }
    }

    /// The lane structure of the byte shuffles, against 256-bit instructions that more machines have.
    #[test]
    fn the_model_agrees_with_avx2() {
        if let Err(reason) = Level::new(Isa::Avx2) {
            println!("the model was not compared with AVX2: {reason}");
            return;
        }
        // SAFETY: AVX2 was just detected.
        unsafe { compare_avx2() }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn compare_avx2() {
        use real::*;
        let inputs = inputs();
        // SAFETY: the loads and stores stay inside 64-byte arrays; AVX2 is enabled.
        unsafe {
            for (i, a) in inputs.iter().enumerate() {
                let b = &inputs[(i * 7 + 3) % inputs.len()];
                let halves = |f: &dyn Fn(__m256i, __m256i) -> __m256i| {
                    let mut out = [0u8; 64];
                    for half in [0, 32] {
                        let load = |v: &[u8; 64]| _mm256_loadu_si256(v.as_ptr().add(half).cast());
                        _mm256_storeu_si256(out.as_mut_ptr().add(half).cast(), f(load(a), load(b)));
                    }
                    out
                };
                let (x, y) = (model::__m512i(*a), model::__m512i(*b));
                same(model::_mm512_shuffle_epi8(x, y).0, halves(&|a, b| _mm256_shuffle_epi8(a, b)), "shuffle_epi8");
                same(model::_mm512_unpacklo_epi8(x, y).0, halves(&|a, b| _mm256_unpacklo_epi8(a, b)), "unpacklo_epi8");
                same(model::_mm512_unpackhi_epi8(x, y).0, halves(&|a, b| _mm256_unpackhi_epi8(a, b)), "unpackhi_epi8");
                same(
                    model::_mm512_cvtps_epi32(model::_mm512_castsi512_ps(x)).0,
                    halves(&|a, _| _mm256_cvtps_epi32(_mm256_castsi256_ps(a))),
                    "cvtps_epi32",
                );
                let float = |f: &dyn Fn(__m256, __m256) -> __m256| {
                    halves(&|a, b| _mm256_castps_si256(f(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))))
                };
                let (xf, yf) = (model::_mm512_castsi512_ps(x), model::_mm512_castsi512_ps(y));
                let raw = |v| model::_mm512_castps_si512(v).0;
                same(raw(model::_mm512_max_ps(xf, yf)), float(&|a, b| _mm256_max_ps(a, b)), "max_ps");
                same(raw(model::_mm512_min_ps(xf, yf)), float(&|a, b| _mm256_min_ps(a, b)), "min_ps");
                same(raw(model::_mm512_fmadd_ps(xf, yf, xf)), float(&|a, b| _mm256_fmadd_ps(a, b, a)), "fmadd_ps");
                same(
                    raw(model::_mm512_roundscale_ps::<8>(xf)),
                    float(&|a, _| _mm256_round_ps::<8>(a)),
                    "roundscale_ps",
                );
            }
        }
    }
}
