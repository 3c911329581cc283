// SPDX-License-Identifier: MIT OR Apache-2.0

//! A forward pass of a fixed number of tokens as a graph: captured once, replayed for each step.
//!
//! A graph owns every buffer of the pass, and the operators' working memory for the longest sequence it is captured for. What
//! is left to a replay is arithmetic: it allocates nothing, starts no thread and looks nothing up by name. Projections of the
//! same tokens are one round of the threads. The bits are those of the pass that is not captured.

use super::attention::{self, attention_in};
use super::cache::{CacheShape, KvCache, PAGE};
use super::forward::{Network, Sequence, narrow_to};
use super::msa;
use super::rope::Rope;
use super::router::{first_experts, route};
use super::weights::{Ffn, Layer, Linear, Mlps, Moe};
use super::{ModelError, Routing};
use crate::bench::Arm;
use crate::config::ModelConfig;
use cpu_tiles::attention::reserve_attention_scratch;
use cpu_tiles::{Acts, Precision, ShapeError, linear, linears, reserve_max_scores_scratch, reserve_tile_scratch};
use grouped_gemm::{Tokens, moe_ffn_eager_in, moe_ffn_in};
use half::bf16;
use std::sync::OnceLock;

/// A captured forward pass. It belongs to the network it was captured from.
#[derive(Debug)]
pub(super) struct Graph {
    arm: Arm,
    routing: Routing,
    /// Whether layers with index heads attend to all keys.
    dense: bool,
    /// Tokens that the sequence may have after a replay.
    capacity: usize,
    buffers: Buffers,
    /// Inputs of the projections to queries, keys and values; of the output projection; of the router; of the logits.
    acts: Acts,
    attended_acts: Acts,
    router_acts: Acts,
    last_acts: Acts,
    attention: attention::Workspace,
    msa: msa::Workspace,
    moe: grouped_gemm::Workspace,
}

/// Intermediate results, F32 and one row per token unless said otherwise.
#[derive(Debug)]
struct Buffers {
    /// The residual stream.
    hidden: Vec<f32>,
    normed: Vec<f32>,
    /// `normed` as the experts read it, if that is BF16.
    rounded: Vec<bf16>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    index_q: Vec<f32>,
    index_k: Vec<f32>,
    /// Of the heads, before the output projection.
    attended: Vec<f32>,
    attn_out: Vec<f32>,
    router_logits: Vec<f32>,
    ids: Vec<u32>,
    weights: Vec<f32>,
    /// The choice of the only MLP there is: 0 and 1 for each token.
    only: (Vec<u32>, Vec<f32>),
    ffn_out: Vec<f32>,
    shared_out: Vec<f32>,
    /// Of the last token.
    logits: Vec<f32>,
}

impl Buffers {
    fn new(network: &Network, tokens: usize) -> Self {
        let Network { config, msa, precision, .. } = network;
        let (hidden, top_k) = (config.hidden_size, config.num_experts_per_tok);
        let (index_q, index_k) = msa.as_ref().map_or((0, 0), |msa| (msa.index_width(), msa.index_dim()));
        let zeros = |width: usize| vec![0.0; tokens * width];
        Self {
            hidden: zeros(hidden),
            normed: zeros(hidden),
            rounded: vec![bf16::ZERO; if *precision == Precision::Bf16 { tokens * hidden } else { 0 }],
            q: zeros(config.q_size()),
            k: zeros(config.kv_size()),
            v: zeros(config.kv_size()),
            index_q: zeros(index_q),
            index_k: zeros(index_k),
            attended: zeros(config.q_size()),
            attn_out: zeros(hidden),
            router_logits: zeros(config.num_local_experts),
            ids: vec![0; tokens * top_k],
            weights: zeros(top_k),
            only: (vec![0; tokens], vec![1.0; tokens]),
            ffn_out: zeros(hidden),
            shared_out: zeros(hidden),
            logits: vec![0.0; config.vocab_size],
        }
    }
}

impl Graph {
    /// Captures passes of one token each, up to a sequence of `capacity` tokens, for which the sequence then has room. One
    /// pass is run, whose token does not become part of the sequence.
    ///
    /// # Errors
    /// [`ModelError`] when the sequence cannot be that long or is that long already, or memory runs out.
    pub(super) fn capture(
        network: &Network,
        sequence: &mut Sequence,
        arm: Arm,
        capacity: usize,
    ) -> Result<Self, ModelError> {
        sequence.cache.reserve(capacity.saturating_sub(sequence.cache.len()))?;
        sequence.rope.extend(capacity);
        let mut graph = Self::new(network, arm, network.routing, 1, capacity)?;
        let Network { config, level, msa, .. } = network;
        // All layers have heads of the same sizes.
        graph.attention.reserve(*level, sequence.cache.layer(0), config.num_attention_heads, capacity)?;
        if let Some(msa) = msa {
            graph.msa.reserve(msa, *level, capacity)?;
        }
        graph.step(network, sequence, &[0])?;
        Ok(graph)
    }

    fn new(network: &Network, arm: Arm, routing: Routing, tokens: usize, capacity: usize) -> Result<Self, ModelError> {
        let Network { config, level, precision, .. } = network;
        reserve_scratch(network, tokens)?;
        let mut buffers = Buffers::new(network, tokens);
        if routing == Routing::Static {
            first_experts(config.num_experts_per_tok, &mut buffers.ids, &mut buffers.weights);
        }
        let acts = |precision, rows, width| Acts::zeroed(*level, precision, rows, width);
        Ok(Self {
            arm,
            routing,
            dense: false,
            capacity,
            buffers,
            acts: acts(*precision, tokens, config.hidden_size)?,
            attended_acts: acts(*precision, tokens, config.q_size())?,
            router_acts: acts(Precision::F32, tokens, config.hidden_size)?,
            last_acts: acts(*precision, 1, config.hidden_size)?,
            attention: attention::Workspace::new(),
            msa: msa::Workspace::new(),
            moe: grouped_gemm::Workspace::new(),
        })
    }

    /// How the experts run.
    pub(super) fn arm(&self) -> Arm {
        self.arm
    }

    /// Tokens that the sequence may have after a replay.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends a token to the sequence and returns its logits.
    ///
    /// # Errors
    /// [`ModelError::Cache`] when the sequence becomes longer than what was captured.
    pub(super) fn replay(&mut self, network: &Network, sequence: &mut Sequence, id: u32) -> Result<&[f32], ModelError> {
        self.step(network, sequence, &[id])?;
        sequence.cache.advance(1);
        Ok(&self.buffers.logits)
    }

    /// The pass. The sequence does not include the tokens after it, though there is something of them in its cache.
    fn step(&mut self, network: &Network, sequence: &mut Sequence, ids: &[u32]) -> Result<(), ModelError> {
        network.embed(ids, &mut self.buffers.hidden);
        for (number, layer) in network.weights.layers.iter().enumerate() {
            self.attention(network, number, layer, sequence)?;
            network.add(&mut self.buffers.hidden, &self.buffers.attn_out);
            self.ffn(network, layer)?;
            network.add(&mut self.buffers.hidden, &self.buffers.ffn_out);
        }
        let Buffers { hidden, normed, logits, .. } = &mut self.buffers;
        let width = network.config.hidden_size;
        let (last, normed) = (&hidden[hidden.len() - width..], &mut normed[..width]);
        network.normalize(&network.weights.norm, last, normed);
        self.last_acts.write_f32(&network.pool, normed)?;
        Ok(linear(&network.pool, &self.last_acts, network.weights.lm_head.weight(), logits)?)
    }

    /// The attention block, its output projection included.
    fn attention(
        &mut self,
        network: &Network,
        number: usize,
        layer: &Layer,
        sequence: &mut Sequence,
    ) -> Result<(), ModelError> {
        let Network { config, level, pool, .. } = network;
        let ModelConfig { head_dim, num_attention_heads: heads, .. } = *config;
        let Sequence { cache, rope } = sequence;
        let first = cache.len();
        let Buffers { hidden, normed, q, k, v, index_q, index_k, attended, attn_out, .. } = &mut self.buffers;
        network.normalize(&layer.input_norm, hidden, normed);
        self.acts.write_f32(pool, normed)?;

        let [wq, wk, wv] = [&layer.q, &layer.k, &layer.v].map(Linear::weight);
        let index = layer.index.as_ref().zip(network.msa.as_ref()).filter(|_| !self.dense);
        let chooses = index.is_some_and(|(_, msa)| first >= msa.first_that_chooses());
        match index {
            None => linears(pool, &self.acts, [(wq, q), (wk, k), (wv, v)])?,
            Some((index, _)) if chooses => {
                let (of_q, of_k) = (index.q.weight(), index.k.weight());
                linears(pool, &self.acts, [(wq, q), (wk, k), (wv, v), (of_q, index_q), (of_k, index_k)])?;
            }
            Some((index, _)) => {
                linears(pool, &self.acts, [(wq, q), (wk, k), (wv, v), (index.k.weight(), index_k)])?;
            }
        }
        let heads_of = |values: &mut [f32], width, norm, dim| {
            network.each_row(values, width, |_, row| network.round(row));
            network.normalize_and_rotate(values, width, norm, dim, rope, first);
        };
        heads_of(q, config.q_size(), &layer.q_norm, head_dim);
        heads_of(k, config.kv_size(), &layer.k_norm, head_dim);
        network.each_row(v, config.kv_size(), |_, row| network.round(row));
        match index {
            None => cache.append(pool, number, k, v, &[])?,
            Some((index, msa)) => {
                heads_of(index_k, msa.index_dim(), &index.k_norm, msa.index_dim());
                cache.append(pool, number, k, v, index_k)?;
            }
        }
        match index {
            Some((index, msa)) if chooses => {
                heads_of(index_q, msa.index_width(), &index.q_norm, msa.index_dim());
                msa.decode(&mut self.msa, *level, pool, cache.layer(number), first, index_q, q, attended)?;
            }
            _ => attention_in(&mut self.attention, *level, pool, cache.layer(number), heads, q, attended)?,
        }
        self.attended_acts.write_f32(pool, attended)?;
        linear(pool, &self.attended_acts, layer.o.weight(), attn_out)?;
        network.each_row(attn_out, config.hidden_size, |_, row| network.round(row));
        Ok(())
    }

    /// The feed-forward part.
    fn ffn(&mut self, network: &Network, layer: &Layer) -> Result<(), ModelError> {
        let Network { config, level, pool, .. } = network;
        let Buffers { hidden, normed, rounded, router_logits, ids, weights, only, ffn_out, shared_out, .. } =
            &mut self.buffers;
        network.normalize(&layer.post_norm, hidden, normed);
        let tokens = match network.precision {
            Precision::F32 => Tokens::F32(normed),
            Precision::Bf16 => {
                narrow_to(*level, pool, normed, rounded);
                Tokens::Bf16(rounded)
            }
        };
        let (arm, moe) = (self.arm, &mut self.moe);
        let mut run = |mlps: &Mlps, ids: &[u32], weights: &[f32], out: &mut [f32]| match arm.is_fused() {
            true => moe_ffn_in(moe, *level, pool, &mlps.dims, tokens, mlps, ids, weights, out),
            false => moe_ffn_eager_in(moe, *level, pool, &mlps.dims, tokens, mlps, ids, weights, out),
        };
        match &layer.ffn {
            Ffn::Dense(mlp) => run(mlp, &only.0, &only.1, ffn_out)?,
            Ffn::Moe(layer) => {
                let Moe { router, bias, experts, shared } = &**layer;
                if self.routing == Routing::Learned {
                    self.router_acts.write_f32(pool, normed)?;
                    linear(pool, &self.router_acts, router.weight(), router_logits)?;
                    route(*level, pool, router_logits, bias, config.num_experts_per_tok, ids, weights)?;
                }
                run(experts, ids, weights, ffn_out)?;
                if let Some(shared) = shared {
                    run(shared, &only.0, &only.1, shared_out)?;
                }
                network.scale_and_share(ffn_out, shared.is_some().then_some(&shared_out[..]));
            }
        }
        network.each_row(ffn_out, config.hidden_size, |_, row| network.round(row));
        Ok(())
    }
}

/// The captured pass of the published graph arms: a window of tokens at positions from 0 on without anything cached, all
/// attending to all before them, all going to the same experts.
#[derive(Debug)]
pub(super) struct Window {
    graph: Graph,
    /// The keys and values of the window; without tokens between replays.
    sequence: Sequence,
}

impl Window {
    /// Captures passes of `tokens` tokens. One pass is run.
    ///
    /// # Errors
    /// [`ModelError::Cache`] or [`ModelError::Tiles`] when memory runs out.
    pub(super) fn capture(network: &Network, arm: Arm, tokens: usize) -> Result<Self, ModelError> {
        let config = &network.config;
        let shape = CacheShape {
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            index_dims: vec![0; network.weights.layers.len()],
            max_tokens: tokens,
        };
        let mut sequence = Sequence {
            cache: KvCache::new(network.precision, shape),
            rope: Rope::new(config.rope_theta, config.rotary_dim),
        };
        sequence.cache.reserve(tokens)?;
        sequence.rope.extend(tokens);
        let mut graph = Graph { dense: true, ..Graph::new(network, arm, Routing::Static, tokens, tokens)? };
        graph.step(network, &mut sequence, &vec![0; tokens])?;
        Ok(Self { graph, sequence })
    }

    /// How the experts run.
    pub(super) fn arm(&self) -> Arm {
        self.graph.arm
    }

    /// Tokens of the window.
    pub(super) fn tokens(&self) -> usize {
        self.graph.capacity
    }

    /// The logits of the last of `ids`, of which there are as many as were captured.
    ///
    /// # Errors
    /// [`ModelError`] of an operator.
    pub(super) fn replay(&mut self, network: &Network, ids: &[u32]) -> Result<&[f32], ModelError> {
        self.graph.step(network, &mut self.sequence, ids)?;
        Ok(&self.graph.buffers.logits)
    }
}

/// Makes the scratch of all threads ready for passes of `tokens` tokens.
fn reserve_scratch(network: &Network, tokens: usize) -> Result<(), ShapeError> {
    let Network { config, level, pool, precision, weights, msa, .. } = network;
    let intermediate = weights.layers.iter().flat_map(|layer| match &layer.ffn {
        Ffn::Dense(mlp) => [Some(mlp), None],
        Ffn::Moe(moe) => [Some(&moe.experts), moe.shared.as_ref()],
    });
    let intermediate = intermediate.flatten().map(|mlps| mlps.dims.intermediate).max().unwrap_or(0);
    let inputs = config.hidden_size.max(config.q_size()).max(intermediate);
    let group = config.num_attention_heads / config.num_key_value_heads;
    let rows = attention::most_rows(group, tokens);
    let failed = OnceLock::new();
    pool.on_each_thread(|| {
        let reserved = reserve_tile_scratch(tokens, inputs)
            .and_then(|()| reserve_attention_scratch(*level, *precision, config.head_dim, rows, PAGE))
            .and_then(|()| reserve_max_scores_scratch(msa.as_ref().map_or(0, |msa| msa.index_dim())));
        if let Err(error) = reserved {
            failed.get_or_init(|| error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}
