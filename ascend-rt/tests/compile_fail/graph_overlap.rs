// SPDX-License-Identifier: MIT OR Apache-2.0

// Two threads do not replay one graph.

use ascend_rt::{Graph, Stream};

fn twice(graph: &mut Graph, one: &Stream, two: &Stream) {
    std::thread::scope(|scope| {
        scope.spawn(|| graph.replay(one));
        scope.spawn(|| graph.replay(two));
    });
}

fn main() {}
