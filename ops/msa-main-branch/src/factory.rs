// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator in the shape of the published factory: sizes fixed beforehand, the rest by environment variables.

use crate::cpu::{Tiling, by_mask, by_position};
use crate::error::Error;
use crate::knobs::{self, Dtype};
use crate::shape::{AttentionDims, Blocks, Data, KeysValues, Query, RowDefined, check_len, check_shape};
use cpu_tiles::{Level, Pool};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ndarray::{ArrayView3, ArrayView4, ArrayViewMut3};

/// The arguments of the published factory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainBranchConfig {
    /// Query heads.
    pub hq: usize,
    /// KV heads.
    pub hkv: usize,
    /// Channels of a head.
    pub dh: usize,
    /// Tokens of a block.
    pub bk: usize,
    /// Slots of gathered blocks.
    pub topk: usize,
    /// The most queries of a call, a multiple of `bk`. `None`: `MSA_MAX_N`, or its default rounded up to a multiple.
    pub max_n: Option<usize>,
}

/// The operator for one geometry: what [`MainBranchConfig::build`] makes of the configuration and the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainBranch {
    dims: AttentionDims,
    topk: usize,
    max_n: usize,
    ntile: usize,
    nq_tile: Option<usize>,
    dtype: Dtype,
}

impl MainBranchConfig {
    /// Checks the sizes and reads the [`knobs`].
    ///
    /// # Errors
    /// [`Error::ZeroSize`], [`Error::HeadGroups`], [`Error::MaxN`] for sizes; [`Error::Knob`] for the environment.
    pub fn build(&self) -> Result<MainBranch, Error> {
        let &Self { hq: heads, hkv: kv_heads, dh: head_dim, bk: block, topk, max_n } = self;
        let sizes = [("hq", heads), ("hkv", kv_heads), ("dh", head_dim), ("bk", block), ("topk", topk)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::ZeroSize { field });
        }
        let dims = AttentionDims { heads, kv_heads, head_dim, block };
        dims.check()?;

        let whole_blocks = |n: usize| n > 0 && n.is_multiple_of(block);
        let of_env = knobs::MAX_N.value()?;
        let max_n = match (max_n, of_env) {
            (Some(found), _) if !whole_blocks(found) => return Err(Error::MaxN { bk: block, found }),
            (Some(max_n), _) => max_n,
            (None, Some(found)) if !whole_blocks(found) => {
                let expected = format!("a positive multiple of {block}, the tokens of a block");
                return Err(knobs::MAX_N.refuse(found.to_string(), expected));
            }
            (None, Some(max_n)) => max_n,
            (None, None) => knobs::MAX_N.default.next_multiple_of(block),
        };
        let keys = topk.saturating_mul(block);
        let ntile = match knobs::NTILE.value()? {
            Some(found) if !keys.is_multiple_of(found) => {
                let expected = format!("a divisor of {keys}, topk times the tokens of a block");
                return Err(knobs::NTILE.refuse(found.to_string(), expected));
            }
            Some(ntile) => ntile,
            None if keys.is_multiple_of(knobs::NTILE.default) => knobs::NTILE.default,
            None => keys,
        };
        let dtype = knobs::DTYPE.value()?.unwrap_or(knobs::DTYPE.default);
        Ok(MainBranch { dims, topk, max_n, ntile, nq_tile: knobs::NQ_TILE.value()?, dtype })
    }
}

impl MainBranch {
    /// The geometry.
    pub fn dims(&self) -> AttentionDims {
        self.dims
    }

    /// Slots of gathered blocks.
    pub fn topk(&self) -> usize {
        self.topk
    }

    /// The most queries of a call.
    pub fn max_n(&self) -> usize {
        self.max_n
    }

    /// Keys of a step of the online softmax on an NPU. The CPU takes a block per step.
    pub fn ntile(&self) -> usize {
        self.ntile
    }

    /// The most queries of a tile, where the environment says so.
    pub fn nq_tile(&self) -> Option<usize> {
        self.nq_tile
    }

    /// What queries, keys and values are cast to.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The published call.
    ///
    /// | argument | shape | |
    /// | --- | --- | --- |
    /// | `query` | `[n, hq, dh]` | `n` is at most `max_n` |
    /// | `key_blocks`, `value_blocks` | `[topk * bk, hkv, dh]` | gathered blocks, slot after slot |
    /// | `block_mask` | `[ceil(n / bk), topk, bk, bk]` | query block, slot, query row, key column; see [`msa_main_branch_masked`](crate::msa_main_branch_masked) |
    /// | `output` | `[n, hq, dh]` | overwritten |
    ///
    /// Any strides.
    ///
    /// # Errors
    /// See [`Error`]; the arguments are checked before the first value is computed.
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
    pub fn run(
        &self,
        level: Level,
        pool: &Pool,
        query: ArrayView3<'_, f32>,
        key_blocks: ArrayView3<'_, f32>,
        value_blocks: ArrayView3<'_, f32>,
        block_mask: ArrayView4<'_, f32>,
        output: ArrayViewMut3<'_, f32>,
    ) -> Result<RowDefined, Error> {
        let n = query.dim().0;
        self.check(n, query, key_blocks, value_blocks, &output)?;
        let block = self.dims.block;
        check_shape("block_mask", &[n.div_ceil(block), self.topk, block, block], block_mask.shape())?;
        let mask = block_mask.as_standard_layout();
        let mask = mask.as_slice().expect("an array in standard layout is one slice");
        self.cast(query, key_blocks, value_blocks, output, |query, keys, values, out| {
            by_mask(level, pool, &self.dims, self.tiling(), query, keys, values, mask, out)
        })
    }

    /// [`run`](Self::run) with positions in place of a mask: `block_ids`, `[topk]`, says which block of the sequence each
    /// slot holds, -1 for none; the queries are at the positions from 0 on and see the keys up to their own.
    ///
    /// # Errors
    /// See [`Error`]; the arguments are checked before the first value is computed.
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
    pub fn run_by_position(
        &self,
        level: Level,
        pool: &Pool,
        query: ArrayView3<'_, f32>,
        key_blocks: ArrayView3<'_, f32>,
        value_blocks: ArrayView3<'_, f32>,
        block_ids: &[i32],
        output: ArrayViewMut3<'_, f32>,
    ) -> Result<RowDefined, Error> {
        self.check(query.dim().0, query, key_blocks, value_blocks, &output)?;
        check_len("block_ids", &[self.topk], block_ids.len())?;
        self.cast(query, key_blocks, value_blocks, output, |data, keys, values, out| {
            let query = Query { data, start: 0 };
            let gathered = KeysValues::Gathered { keys, values, ids: block_ids };
            by_position(level, pool, &self.dims, self.tiling(), query, gathered, Blocks::All, out)
        })
    }

    fn tiling(&self) -> Tiling {
        let default = Tiling::default();
        Tiling { queries: self.nq_tile.unwrap_or(default.queries), ..default }
    }

    fn check(
        &self,
        n: usize,
        query: ArrayView3<'_, f32>,
        key_blocks: ArrayView3<'_, f32>,
        value_blocks: ArrayView3<'_, f32>,
        output: &ArrayViewMut3<'_, f32>,
    ) -> Result<(), Error> {
        let AttentionDims { heads, kv_heads, head_dim, block } = self.dims;
        check_shape("query", &[n, heads, head_dim], query.shape())?;
        if n > self.max_n {
            return Err(Error::TooManyQueries { max_n: self.max_n, found: n });
        }
        let gathered = [self.topk.saturating_mul(block), kv_heads, head_dim];
        check_shape("key_blocks", &gathered, key_blocks.shape())?;
        check_shape("value_blocks", &gathered, value_blocks.shape())?;
        check_shape("output", query.shape(), output.shape())
    }

    /// Calls `compute` with contiguous arrays of the number format, and writes its result.
    fn cast(
        &self,
        query: ArrayView3<'_, f32>,
        key_blocks: ArrayView3<'_, f32>,
        value_blocks: ArrayView3<'_, f32>,
        mut output: ArrayViewMut3<'_, f32>,
        compute: impl Fn(Data<'_>, Data<'_>, Data<'_>, &mut [f32]) -> Result<RowDefined, Error>,
    ) -> Result<RowDefined, Error> {
        let arrays = [query, key_blocks, value_blocks];
        let arrays = arrays.each_ref().map(|array| array.as_standard_layout());
        let [q, k, v] =
            arrays.each_ref().map(|array| array.as_slice().expect("an array in standard layout is one slice"));
        let compute = |out: &mut [f32]| match self.dtype {
            Dtype::F32 => compute(Data::F32(q), Data::F32(k), Data::F32(v), out),
            Dtype::F16 => {
                let [q, k, v] = [q, k, v].map(|values| {
                    let mut cast = vec![f16::ZERO; values.len()];
                    cast.convert_from_f32_slice(values);
                    cast
                });
                compute(Data::F16(&q), Data::F16(&k), Data::F16(&v), out)
            }
            Dtype::Bf16 => {
                let [q, k, v] = [q, k, v].map(|values| {
                    let mut cast = vec![bf16::ZERO; values.len()];
                    cast.convert_from_f32_slice(values);
                    cast
                });
                compute(Data::Bf16(&q), Data::Bf16(&k), Data::Bf16(&v), out)
            }
        };
        if let Some(out) = output.as_slice_mut() {
            return compute(out);
        }
        let mut out = vec![0.0; output.len()];
        let defined = compute(&mut out)?;
        for (to, from) in output.iter_mut().zip(out) {
            *to = from;
        }
        Ok(defined)
    }
}
