// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Data, Output, Setup};
use half::bf16;
use msa_indexer::Error;
use msa_indexer::ascend_rt::Stream;
use msa_indexer::ascend_sim::Mode;
pub(crate) use msa_indexer::ascend_sim::testing::{Order, context};
use msa_indexer::ascend_sim::testing::{all, all_mut, download, orders, upload};
use msa_indexer::npu::{Call, Kind, Plan, Status, Value};

/// The pages and the block table of a sequence, with room that is `nan`; in a row, the pages are the blocks.
pub(crate) fn pages<T: Copy>(setup: &Setup, keys: &[T], nan: T, paged: bool) -> (Vec<T>, Vec<i32>) {
    let dims = &setup.dims;
    let (blocks, page) = (dims.blocks(setup.length()), dims.block * dims.head_dim);
    let count = if paged { 2 * blocks + 1 } else { blocks };
    let mut pages = vec![nan; count * page];
    let mut table = Vec::new();
    for (block, keys) in keys.chunks(page).enumerate() {
        let at = if paged { 2 * (blocks - 1 - block) + 1 } else { block };
        pages[at * page..][..keys.len()].copy_from_slice(keys);
        table.push(at as i32);
    }
    (pages, table)
}

/// The operator in program order on keys in a row and on pages, then in other orders: the bits are always the same, and the
/// ids do not depend on a wish for scores.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, setup: &Setup) -> Result<Output, String> {
    let one = |mode: Mode, paged: bool, wanted: bool| {
        let _order = Order::new(mode);
        let stream = context(chip).stream().map_err(|error| error.to_string())?;
        launch(&stream, setup, paged, wanted).map_err(|error| format!("{mode}, paged {paged}: {error}"))
    };
    let out = one(Mode::Fast, false, true)?;
    if one(Mode::Fast, false, false)?.ids != out.ids {
        return Err("the ids depend on a wish for scores".to_owned());
    }
    for mode in orders(2) {
        let other = one(mode, true, true)?;
        let bits = |out: &Output| out.scores.iter().map(|score| score.to_bits()).collect::<Vec<_>>();
        if other.ids != out.ids || bits(&other) != bits(&out) {
            return Err(format!("{mode}: pages give another result than keys in a row in program order"));
        }
    }
    Ok(out)
}

/// One launch, from the host and back.
pub(crate) fn launch(stream: &Stream, setup: &Setup, paged: bool, wanted: bool) -> Result<Output, Error> {
    match (&setup.queries, &setup.keys) {
        (Data::Bf16(queries), Data::Bf16(keys)) => launch_of(stream, setup, queries, keys, bf16::NAN, paged, wanted),
        (Data::F32(queries), Data::F32(keys)) => launch_of(stream, setup, queries, keys, f32::NAN, paged, wanted),
        _ => panic!("the kernel takes queries and keys of one format"),
    }
}

fn launch_of<T: Value + Default>(
    stream: &Stream,
    setup: &Setup,
    queries: &[T],
    keys: &[T],
    nan: T,
    paged: bool,
    wanted: bool,
) -> Result<Output, Error> {
    let (dims, length, count) = (&setup.dims, setup.length(), setup.count());
    let kind = Kind { queries: count, blocks: dims.blocks(length), paged };
    let mut plan = Plan::new(stream, dims, &kind)?;
    let (pages, table) = pages(setup, keys, nan, paged);
    let queries = upload(stream, queries)?;
    let (keys, table, first) =
        (upload(stream, &pages)?, upload(stream, &table)?, upload(stream, &[setup.start as i32])?);
    let [_, selections, width] = dims.ids_shape(count, length);
    let mut ids = upload(stream, &vec![12345; count * selections * width])?;
    let mut scores = upload(stream, &vec![f32::NAN; count * selections * kind.blocks])?;
    let call = Call {
        queries: all(&queries)?,
        keys: all(&keys)?,
        block_table: paged.then(|| all(&table)).transpose()?,
        first: all(&first)?,
        ids: all_mut(&mut ids)?,
        scores: wanted.then(|| all_mut(&mut scores)).transpose()?,
    };
    plan.launch(stream, call)?;
    assert_eq!(plan.take_status(stream)?, Status::default());
    Ok(Output { ids: download(stream, &ids)?, scores: download(stream, &scores)? })
}
