// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Ids, Setup};
use cpu_tiles::Precision;
use half::bf16;
use msa_sparse_decode::Error;
use msa_sparse_decode::ascend_rt::Stream;
use msa_sparse_decode::ascend_sim::Mode;
pub(crate) use msa_sparse_decode::ascend_sim::testing::{Order, context};
use msa_sparse_decode::ascend_sim::testing::{all, all_mut, download, seeds, upload};
use msa_sparse_decode::npu::{CacheLayout, Call, Kind, Out, Plan, Status, split_queries};

pub(crate) fn kind(setup: &Setup, paged: bool, out_f32: bool) -> Kind {
    let lists = if matches!(setup.ids, Ids::PerKvHead(_)) { setup.batch * setup.dims.kv_heads } else { setup.batch };
    let (Ids::Shared(ids) | Ids::PerKvHead(ids)) = &setup.ids;
    let blocks = setup.blocks;
    Kind {
        batch: setup.batch,
        top_k: ids.len().checked_div(lists).unwrap_or(0),
        per_kv_head: matches!(setup.ids, Ids::PerKvHead(_)),
        cache: if paged { CacheLayout::Paged { blocks } } else { CacheLayout::Plain { blocks } },
        precision: setup.precision,
        out_f32,
    }
}

/// The operator in program order on a plain and a paged cache, with the result in F32 and BF16, then in other orders: the
/// bits are always the same.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, setup: &Setup) -> Result<Vec<f32>, String> {
    let one = |mode: Mode, paged: bool, out_f32: bool| {
        let _order = Order::new(mode);
        let stream = context(chip).stream().map_err(|error| error.to_string())?;
        launch(&stream, setup, paged, out_f32).map_err(|error| format!("{mode}, paged {paged}: {error}"))
    };
    let out = one(Mode::Fast, false, true)?;
    for (mode, paged, out_f32) in [(Mode::Fast, true, false)].into_iter().chain(seeds(2).map(|mode| (mode, true, true)))
    {
        let other = one(mode, paged, out_f32)?;
        let wrong = out.iter().zip(&other).position(|(out, other)| {
            let out = if out_f32 { *out } else { bf16::from_f32(*out).to_f32() };
            out.to_bits() != other.to_bits()
        });
        if let Some(at) = wrong {
            return Err(format!(
                "{mode}, paged {paged}, F32 {out_f32}: element {at} is {}, not {}",
                other[at], out[at]
            ));
        }
    }
    Ok(out)
}

/// One launch, from the host and back. The result is written whole: it begins as NaN.
pub(crate) fn launch(stream: &Stream, setup: &Setup, paged: bool, out_f32: bool) -> Result<Vec<f32>, Error> {
    launch_with_status(stream, setup, paged, out_f32, None)
}

/// The same, and what it says.
pub(crate) fn launch_with_status(
    stream: &Stream,
    setup: &Setup,
    paged: bool,
    out_f32: bool,
    status: Option<&mut Status>,
) -> Result<Vec<f32>, Error> {
    let kind = kind(setup, paged, out_f32);
    let mut plan = Plan::new(stream, &setup.dims, &kind)?;
    let queries = match setup.precision {
        Precision::Bf16 => setup.q.clone(),
        Precision::F32 => split_queries(&setup.q.iter().map(|x| x.to_f32()).collect::<Vec<_>>()),
    };
    let queries = upload(stream, &queries)?;
    let pages = setup.paged();
    let (k, v) = if paged { (&pages.k, &pages.v) } else { (&setup.k, &setup.v) };
    let (keys, values) = (upload(stream, k)?, upload(stream, v)?);
    let table = upload(stream, &pages.table)?;
    let (Ids::Shared(ids) | Ids::PerKvHead(ids)) = &setup.ids;
    let ids = upload(stream, ids)?;
    let lens: Vec<i32> = setup.seq_lens.iter().map(|len| *len as i32).collect();
    let lens = upload(stream, &lens)?;
    let mut out16 = upload(stream, &vec![bf16::NAN; if out_f32 { 0 } else { setup.q.len() }])?;
    let mut out32 = upload(stream, &vec![f32::NAN; if out_f32 { setup.q.len() } else { 0 }])?;
    let out = if out_f32 { Out::F32(all_mut(&mut out32)?) } else { Out::Bf16(all_mut(&mut out16)?) };
    let block_table = paged.then(|| all(&table)).transpose()?;
    let call = Call {
        queries: all(&queries)?,
        keys: all(&keys)?,
        values: all(&values)?,
        block_table,
        block_ids: all(&ids)?,
        seq_lens: all(&lens)?,
        out,
    };
    plan.launch(stream, call)?;
    if let Some(status) = status {
        *status = plan.take_status(stream)?;
    }
    Ok(match out_f32 {
        true => download(stream, &out32)?,
        false => download(stream, &out16)?.into_iter().map(bf16::to_f32).collect(),
    })
}
