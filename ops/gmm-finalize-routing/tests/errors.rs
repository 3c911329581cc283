// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message, and what no refused call touches.

use crate::fixture::{Call, Fp8, Shared, levels, pool};
use cpu_tiles::{E8M0, Level, Pool};
use gmm_finalize_routing::{Dims, Dtype, Error, Experts, GroupList, PackedWeights, finalize_routing, reference};
use half::bf16;
use ndarray::{Array2, ArrayView2};

/// Three experts with 2, 0 and 3 rows, four rows of output.
fn call() -> Call {
    Call::new(Dtype::E4M3, Dims { experts: 3, k: 96, n: 8 }, &[2, 0, 3], 4, 1)
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

fn refused_with<'a>(call: &Call, dims: &Dims, experts: impl Into<Experts<'a>>) -> String {
    let mut out = call.out.clone();
    let message = message(finalize_routing(Level::SCALAR, &pool(1), dims, experts, &call.inputs(), &mut out));
    assert_eq!(out, call.out, "{message}: the output was touched");
    message
}

/// The message of the operator, which must be that of the reference too; the output stays as it was.
fn refused(change: impl FnOnce(&mut Call)) -> String {
    let mut call = call();
    change(&mut call);
    let in_operator = refused_with(&call, &call.dims, call.weights());
    let out = ArrayView2::from_shape([1, call.out.len()], &call.out).unwrap();
    let in_reference = message(reference::finalize_routing(&call.dims, &call.weights(), &call.inputs(), out));
    assert_eq!(in_reference, in_operator);
    in_operator
}

#[test]
fn sizes() {
    assert_eq!(refused(|call| call.dims.experts = 0), "`dims.experts` is 0, expected at least 1");
    assert_eq!(refused(|call| call.dims.k = 0), "`dims.k` is 0, expected at least 1");
    assert_eq!(refused(|call| call.dims.n = 0), "`dims.n` is 0, expected at least 1");
    assert_eq!(refused(|call| call.dims.k = 80), "`dims.k` is 80, expected a multiple of 32");
    let huge = refused(|call| {
        call.dims.k = usize::MAX / 32 * 32;
        call.dims.n = usize::MAX;
    });
    assert!(huge.starts_with("`x1` has 480 elements, expected those of the shape [5, "), "{huge}");
}

#[test]
fn lengths() {
    assert_eq!(
        refused(|call| call.x1 = Fp8::new(Dtype::E4M3, 1, 479, 1.0)),
        "`x1` has 479 elements, expected those of the shape [5, 96]"
    );
    assert_eq!(
        refused(|call| call.pertoken_scale.truncate(19)),
        "`pertoken_scale` has 19 elements, expected those of the shape [5, 2, 2]"
    );
    assert_eq!(
        refused(|call| call.x2 = Fp8::new(Dtype::E4M3, 1, 3 * 96 * 8 + 1, 1.0)),
        "`x2` has 2305 elements, expected those of the shape [3, 8, 96]"
    );
    assert_eq!(
        refused(|call| {
            call.transpose_x2 = false;
            call.x2 = Fp8::new(Dtype::E4M3, 1, 7, 1.0);
        }),
        "`x2` has 7 elements, expected those of the shape [3, 96, 8]"
    );
    assert_eq!(
        refused(|call| call.scale.truncate(31)),
        "`scale` has 31 elements, expected those of the shape [8, 2, 2]"
    );
    assert_eq!(
        refused(|call| {
            call.transpose_x2 = false;
            call.scale.push(E8M0::NAN);
        }),
        "`scale` has 33 elements, expected those of the shape [2, 8, 2]"
    );
    assert_eq!(
        refused(|call| call.per_expert = true),
        "`scale` has 32 elements, expected those of the shape [3, 8, 2, 2]"
    );
    assert_eq!(
        refused(|call| call.logit = Some(vec![1.0; 4])),
        "`logit` has 4 elements, expected those of the shape [5]"
    );
    assert_eq!(
        refused(|call| call.group_list = vec![5]),
        "`group_list` has 1 elements, expected those of the shape [3]"
    );
    assert_eq!(refused(|call| call.out.truncate(31)), "`out` has 31 elements, expected a multiple of 8, which is N");
}

#[test]
fn number_formats_differ() {
    assert_eq!(
        refused(|call| call.x1 = Fp8::new(Dtype::E5M2, 1, 480, 1.0)),
        "`x2` has the dtype e4m3, expected e5m2, that of `x1`"
    );
    let mut call = call();
    let packed = call.pack(Level::SCALAR);
    call.x1 = Fp8::new(Dtype::E5M2, 1, 480, 1.0);
    assert_eq!(refused_with(&call, &call.dims, &packed), "`x2` has the dtype e4m3, expected e5m2, that of `x1`");
}

#[test]
fn group_list_is_fully_checked() {
    let of_type = |group_list_type: i64, group_list: [i64; 3]| {
        refused(|call| (call.group_list_type, call.group_list) = (group_list_type, group_list.to_vec()))
    };
    assert_eq!(of_type(0, [2, 1, 5]), "`group_list` gives expert 1 the rows 2..1, expected no decrease");
    assert_eq!(of_type(0, [-1, 2, 5]), "`group_list` gives expert 0 the rows 0..-1, expected no decrease");
    assert_eq!(of_type(0, [2, 6, 5]), "`group_list` gives expert 1 rows up to 6, expected at most 5, which is M");
    assert_eq!(of_type(1, [2, -1, 3]), "`group_list` gives expert 1 the count -1, expected at least 0");
    assert_eq!(of_type(1, [2, 0, 4]), "`group_list` gives expert 2 rows up to 6, expected at most 5, which is M");
    let huge = "`group_list` gives expert 1 rows up to 9223372036854775807, expected at most 5, which is M";
    assert_eq!(of_type(1, [2, i64::MAX, 0]), huge);
    assert_eq!(of_type(0, [2, i64::MAX, 5]), huge);
    let unknown = message(GroupList::new(2, &[]));
    assert_eq!(unknown, "group list type is 2, expected 0 (running ends) or 1 (counts)");
}

#[test]
fn row_index_is_fully_checked() {
    for (entry, found) in [(0, -1), (3, 4), (4, i64::MAX), (1, i64::MIN), (2, 1 << 32)] {
        assert_eq!(
            refused(|call| call.row_index[entry] = found),
            format!("`row_index[{entry}]` is {found}, expected at least 0 and less than 4, the rows of `out`")
        );
    }
    assert_eq!(
        refused(|call| (call.out, call.shared_input) = (Vec::new(), None)),
        "`row_index[0]` is 0, expected at least 0 and less than 0, the rows of `out`"
    );
}

#[test]
fn shared_input_fits() {
    let shared = |rows: usize, offset: usize| {
        refused(|call| {
            call.shared_input = Some(Shared { values: vec![bf16::ONE; rows * 8], offset, weight: 1.0 });
        })
    };
    let end = "expected an end by 4, the rows of `out`";
    assert_eq!(shared(3, 2), format!("`shared_input` has 3 rows at offset 2, {end}"));
    assert_eq!(shared(5, 0), format!("`shared_input` has 5 rows at offset 0, {end}"));
    assert_eq!(shared(0, 5), format!("`shared_input` has 0 rows at offset 5, {end}"));
    assert_eq!(shared(1, usize::MAX), format!("`shared_input` has 1 rows at offset {}, {end}", usize::MAX));
    assert_eq!(
        refused(|call| {
            call.shared_input = Some(Shared { values: vec![bf16::ONE; 9], offset: 0, weight: 1.0 });
        }),
        "`shared_input` has 9 elements, expected a multiple of 8, which is N"
    );
}

#[test]
fn packed_weights_of_other_sizes() {
    let call = call();
    let packed = call.pack(Level::SCALAR);
    assert_eq!((packed.dims(), packed.dtype()), (call.dims, Dtype::E4M3));
    let dims = Dims { experts: 4, ..call.dims };
    assert_eq!(refused_with(&call, &dims, &packed), "`x2` has shape [3, 96, 8], expected [4, 96, 8]");
}

#[test]
fn packing_checks_as_a_call_does() {
    let pack = |change: fn(&mut Call)| {
        let mut call = call();
        change(&mut call);
        message(PackedWeights::pack(Level::SCALAR, &pool(1), &call.dims, call.weights()))
    };
    assert_eq!(pack(|call| call.dims.k = 33), "`dims.k` is 33, expected a multiple of 32");
    assert_eq!(
        pack(|call| call.x2 = Fp8::new(Dtype::E5M2, 1, 5, 1.0)),
        "`x2` has 5 elements, expected those of the shape [3, 8, 96]"
    );
    assert_eq!(pack(|call| call.scale.clear()), "`scale` has 0 elements, expected those of the shape [8, 2, 2]");
}

#[test]
fn the_reference_takes_rows_of_n() {
    let call = call();
    let out = Array2::<f32>::zeros((8, 4));
    let refused = message(reference::finalize_routing(&call.dims, &call.weights(), &call.inputs(), out.view()));
    assert_eq!(refused, "`out` has shape [8, 4], expected [8, 8]");
}

/// Sources of errors are kept.
#[test]
fn errors_of_the_tiles_carry_their_source() {
    let error = Error::from(cpu_tiles::ShapeError::Memory(std::io::ErrorKind::OutOfMemory.into()));
    assert!(std::error::Error::source(&error).is_some());
    assert!(error.to_string().starts_with("the CPU tiles failed: no memory"), "{error}");
}

/// A call of the smallest sizes works at every level and from any pool.
#[test]
fn the_smallest_call() {
    let mut call = Call::new(Dtype::E4M3, Dims { experts: 1, k: 32, n: 1 }, &[1], 1, 1);
    call.x1 = Fp8::of_bits(Dtype::E4M3, std::iter::repeat_n(0x38, 32));
    call.x2 = call.x1.clone();
    call.pertoken_scale.fill(E8M0::from_bits(127));
    call.scale.fill(E8M0::from_bits(128));
    (call.logit, call.out) = (Some(vec![0.5]), vec![-1.0]);
    for level in levels() {
        let pool: &Pool = &pool(1);
        let mut out = call.out.clone();
        let rows = finalize_routing(level, pool, &call.dims, call.weights(), &call.inputs(), &mut out).unwrap();
        assert_eq!((rows, out), (1, vec![31.0]));
    }
}
