// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::ControlFlow;
use std::sync::Arc;

use model_minimax::bench::activity::{Collector, Observed};
use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::cpu_tiles::{Level, Pool};
use model_minimax::generate::{GenerateOptions, generate};
use model_minimax::model::{Event, LoadOptions, Model};

#[test]
fn loads_and_choices_are_counted() {
    let mut collector = Collector::new(300, 128);
    let weights = [0.5; 4];
    collector.observe(Event::TopK { layer: 1, ids: &[0, 2, 2, 3], weights: &weights });
    collector.observe(Event::TopK { layer: 4, ids: &[1, 2], weights: &weights });
    collector.observe(Event::TopK { layer: 1, ids: &[0, 1], weights: &weights });
    // 260 tokens of one KV head: each chooses its own block, the last ones block 0 too.
    let ids: Vec<i32> = (0..260).flat_map(|t| if t < 256 { [t / 128, -1] } else { [0, 2] }).collect();
    let (first, rest) = ids.split_at(200);
    for ids in [first, rest] {
        collector.observe(Event::Blocks { layer: 4, kv_heads: 1, top_k: 2, ids });
    }
    let activity = collector.finish(5, 128);
    assert_eq!(activity.experts.iter().map(|load| load.layer).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(activity.experts[0].tokens, [2, 1, 2, 1, 0]);
    assert_eq!(activity.experts[1].tokens, [0, 1, 1, 0, 0]);
    let map = activity.blocks.unwrap();
    assert_eq!((map.positions, map.blocks, map.positions_per_row, map.blocks_per_column), (260, 3, 4, 1));
    assert_eq!(map.shares.len(), 65);
    assert_eq!(map.shares[0], [1.0, 0.0, 0.0]);
    assert_eq!(map.shares[32], [0.0, 1.0, 0.0]);
    assert_eq!(map.shares[64], [1.0, 0.0, 1.0]);
}

#[test]
fn long_sequences_are_put_into_bins() {
    let mut collector = Collector::new(100_000, 128);
    for _ in 0..100 {
        let ids: Vec<i32> = vec![0; 1000];
        collector.observe(Event::Blocks { layer: 0, kv_heads: 1, top_k: 1, ids: &ids });
    }
    let map = collector.finish(1, 128).blocks.unwrap();
    assert!(map.shares.len() <= 96 && map.shares.iter().all(|row| row.len() <= 128 && row.len() > 60));
    // One of the blocks of a column.
    assert!((map.shares[3][0] - 1.0 / map.blocks_per_column as f64).abs() < 1e-12);
}

#[test]
fn a_generation_is_listened_to_without_changing_it() {
    let dir = op_testkit::golden::dir().join("models/m3-tiny-bf16");
    let config = ModelConfig::load(&dir).unwrap();
    let options = LoadOptions::new(Level::best(), Arc::new(Pool::new(1).unwrap()));
    let mut model = Model::load(&Checkpoint::open(&dir).unwrap(), &config, &options, |_, _| ()).unwrap();
    let prompt: Vec<u32> = (0..200).map(|i| 3 + i % 60).collect();
    let request = GenerateOptions { max_new_tokens: 8, ignore_eos: true, ..GenerateOptions::default() };
    let plain = generate(&mut model, &prompt, &request, |_| ControlFlow::Continue(())).unwrap().ids;
    let mut observed = Observed::new(&mut model, 208);
    assert_eq!(generate(&mut observed, &prompt, &request, |_| ControlFlow::Continue(())).unwrap().ids, plain);
    let activity = observed.finish();
    assert_eq!(activity.tokens, 207, "the last token of an answer does not go through the model");
    let layers = config.layers.iter().filter(|layer| matches!(layer.ffn, model_minimax::config::FfnKind::Moe)).count();
    assert_eq!(activity.experts.len(), layers);
    for load in &activity.experts {
        assert_eq!(load.tokens.len(), config.num_local_experts);
        assert_eq!(load.tokens.iter().sum::<u64>(), (207 * config.num_experts_per_tok) as u64);
    }
    let map = activity.blocks.unwrap();
    assert_eq!((map.positions, map.blocks), (207, 2));
    // A query's own block is always among its choices.
    assert!(map.shares[0][0] == 1.0 && map.shares.last().unwrap()[1] == 1.0);
}
