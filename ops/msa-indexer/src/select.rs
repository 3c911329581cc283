// SPDX-License-Identifier: MIT OR Apache-2.0

//! From block scores to block ids.

use crate::shape::IndexerDims;
use cpu_tiles::mem::Scratch;

/// Selects the blocks of queries.
pub(crate) struct Selector {
    topk: usize,
    init: usize,
    local: usize,
}

/// A number that orders scores: NaN before everything, the two zeros equal.
fn rank(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    // Adding zero turns minus zero into zero.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

impl Selector {
    pub(crate) fn new(dims: &IndexerDims) -> Self {
        // Init wins where both do not fit; of the local blocks, the latest.
        let init = dims.init_blocks.min(dims.topk);
        Self { topk: dims.topk, init, local: dims.local_blocks.min(dims.topk - init) }
    }

    /// All of `visible` blocks, if they fit: no score decides then.
    pub(crate) fn all(&self, visible: usize, ids: &mut [i32]) -> bool {
        if visible > self.topk {
            return false;
        }
        for (block, id) in ids.iter_mut().enumerate() {
            *id = if block < visible { block as i32 } else { -1 };
        }
        true
    }

    /// The blocks of one query, ascending, from the scores of those it sees. `ids` has room for the smaller of top-k and
    /// the number of scores, at least.
    pub(crate) fn select(&self, scores: &[f32], ids: &mut [i32]) {
        if self.all(scores.len(), ids) {
            return;
        }
        // There are more than `topk` blocks, so the forced ones are distinct.
        let free = self.init..scores.len() - self.local;
        let room = self.topk - self.init - self.local;
        // Rank and block, the best first.
        let mut best = Scratch::<_, 64>::new(room, (0, 0));
        let (mut count, mut least) = (0, 0);
        for block in free.clone() {
            let rank = rank(scores[block]);
            if count == room && (room == 0 || rank <= least) {
                continue;
            }
            // Behind its equals, which have lower ids.
            let at = best[..count].partition_point(|(other, _)| *other >= rank);
            count = room.min(count + 1);
            best.copy_within(at..count - 1, at + 1);
            best[at] = (rank, block as i32);
            least = best[count - 1].0;
        }
        let best = &mut best[..count];
        best.sort_unstable_by_key(|(_, block)| *block);
        let chosen = best.iter().map(|(_, block)| *block);
        let forced = |range: std::ops::Range<usize>| range.map(|block| block as i32);
        let blocks = forced(0..free.start).chain(chosen).chain(forced(free.end..scores.len()));
        for (id, block) in ids.iter_mut().zip(blocks) {
            *id = block;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_order_scores() {
        let ascending = [f32::NEG_INFINITY, -3e38, -1.0, -1e-45, 0.0, 1e-45, 1.0, 3e38, f32::INFINITY, f32::NAN];
        for pair in ascending.windows(2) {
            assert!(rank(pair[0]) < rank(pair[1]), "{pair:?}");
        }
        assert_eq!(rank(-0.0), rank(0.0));
        assert_eq!(rank(-f32::NAN), rank(f32::NAN));
    }
}
