#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes README.md of the golden directory: hand-written text plus a listing read from the files."""

import json
import os
import struct
import sys

root = sys.argv[1]


def header(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        h = json.loads(f.read(n))
    meta = h.pop("__metadata__", {})
    return {k: (v["dtype"], v["shape"]) for k, v in h.items()}, meta


def sh(v):
    return f"{v[0]} {v[1]}".replace(" ", "").replace("[", " [")


TEXT = """# Golden data

Expected results for the MiniMax-M2.7 and MiniMax-M3 (text) implementation. Everything is small and made from seeds;
no published weights are contained.

```
models/<name>/   tiny random checkpoints in the layout of the published ones, each with expected.safetensors
ops/*.safetensors   single operators: inputs (or a recipe for them) and outputs
```

All files are safetensors or JSON. Scalars and recipes of `ops` files are in the safetensors header under
`__metadata__`: one JSON string per case.

## How it was made, and how far to trust it

Made with Python 3.11.7, torch 2.15.0 on CPU, transformers 5.24.0, tokenizers 0.23.3, safetensors 0.8.0, numpy 2.4.6,
ml_dtypes 0.6.0.

* `models`: computed by the `MiniMaxM2ForCausalLM` and `MiniMaxM3SparseForConditionalGeneration` classes of transformers
  (eager attention, float32) from the exactly dequantised weights. Cross-checks that passed: transformers loads all four
  directories as they are (BF16 directly, FP8 and MXFP8 with its own dequantisation) without missing or unexpected
  tensors and with bit-equal logits; greedy runs with and without a KV cache agree; a second implementation in numpy
  float64, written separately, agrees within 7e-5 on every stored tensor (block scores of the long MXFP8 prompt: 2.3e-4
  on values near 100), on all expert ids, all selected blocks, and all greedy tokens.
* `ops`: computed with torch in float32 or float64 and re-computed with numpy float64 from the stored inputs or recipes;
  differences are at float32 rounding level (the grouped GEMM outputs: at bfloat16 rounding level).

No decision in the model goldens is a near tie. Over prompts and generated tokens the expert choice has a margin of at
least 1.9e-4 (sigmoid + bias; float32 error there is near 3e-6), the block choice at least 4.6e-4 (m3-tiny-bf16) and 9.4e-4
(m3-tiny-mxfp8; float32 error there is up to 2.2e-4), and every greedy token at least 0.022 in logits. Float32 implementations must
therefore reproduce all ids exactly. For bfloat16 use the `mini` prompts (margins including the generated tokens: experts
>= 0.0048, logits >= 0.075; the bfloat16 reference gives the same 16 tokens); elsewhere bfloat16 may pick another expert or
block at some position and then differs there.

# models

| name | weights | shape in short |
| --- | --- | --- |
| m27-tiny-bf16 | BF16, one file | 2 layers, hidden 128, 6/2 heads of 32 (rotary 16), 8 experts top 3, expert size 64 |
| m27-tiny-fp8 | E4M3 + F32 `weight_scale_inv` per 128x128, two files, zero-based names | 2 layers, hidden 256, 4/2 heads of 128 (rotary 64), 8 experts top 2, expert size 128 |
| m3-tiny-bf16 | BF16, two files | 5 layers (0-2 dense), hidden 128, 8/4 heads of 32 (rotary 16), 4 index heads of 32, block 128, top 2 blocks, 8 experts top 4, expert size 32, shared expert |
| m3-tiny-mxfp8 | E4M3 + U8 (E8M0) `weight_scale_inv` per 32 along K, two files | 5 layers (0-2 dense), hidden 128, 4/2 heads of 128 (rotary 64), 2 index heads of 128, block 128, top 3 blocks, 8 experts top 2, expert size 64, shared expert |

Layout facts reproduced on purpose: tensor names and prefixes (`model.` / `language_model.model.`), router weight and
`e_score_correction_bias` in F32 with biases near 8 (M2.7) and 12 (M3), everything else BF16 or quantised as published
(in MXFP8 also the index projections, the dense MLP and the shared expert), vision tensors that a text loader must skip
(`vision_tower.`, `multi_modal_projector.`, `patch_merge_mlp.`; one of them F32), three `language_model.model.mtp.` tensors
in m3-tiny-mxfp8 that must be skipped too, a `text_config` without `model_type`, configuration fields of the published
files (including `use_mtp` and `num_mtp_modules` without MTP weights), and, in the quantised ones, a weight whose scale lies in the other file.
Dequantisation: `w = fp8 * weight_scale_inv[row / 128][col / 128]` and `w = fp8 * 2^(u8[row][col / 32] - 127)`.
MXFP8 scales were chosen as 2^ceil(log2(amax / 448)); a reader must not depend on that.

Tokenizer: byte-level BPE with 512 entries and the GPT-4o style split, then 64 added tokens in the published order, so
that id = published id - 199488 (`]~b]` 531, `[e~[` 532, image 537, video 538, `]~!b[` 546, `<think>` 562, `</think>` 563,
tool call 564/565; M3 also `]<]minimax[>[` 570, `<mm:think>` 571, `</mm:think>` 572). Added tokens 512-561 are special, the
others are not and stay visible when special tokens are skipped. `generation_config.json`: bos 531, eos 532, sampling
defaults. The chat templates (file `chat_template.jinja`, and the same text in `tokenizer_config.json`) follow the published
turn layout but are own, shorter text. `tokenizer_cases.json` (in the two bf16 directories): `texts` (text, ids without
special tokens added, decoded with and without special tokens), `chats` (messages, tools, kwargs, add_generation_prompt,
rendered string, ids), `chat_errors` (must fail, message contains the given text).

## expected.safetensors

Three prompts: `mini` (10 tokens, comfortable margins), `short` (a chat prompt), `long` (M2.7: 200 tokens; M3: 757 tokens =
6 blocks, so that blocks are really dropped; its greedy run crosses the block edge at 768). S = prompt length, H = hidden,
V = 576, k = experts per token, P = number of `positions`, L = layer.

| tensor | shape | meaning |
| --- | --- | --- |
| `X.input_ids` | [S] I64 | prompt |
| `X.positions` | [P] I64 | rows stored below for `short` and `long`; `mini` stores every row |
| `mini.embeddings`, `mini.final_norm` | [S, H] F32 | after the embedding; after the last norm |
| `X.layerL.hidden` | [S or P, H] F32 | residual stream after layer L |
| `X.layerL.attn_out` | [S or P, H] F32 | output of o_proj (mini: all layers; short, long: sparse layers) |
| `X.layerL.router_logits` | [S or P, E] F32 | gate output, before the sigmoid |
| `X.layerL.topk_ids`, `.topk_weights` | [S or P, k] I32, F32 | ids ascending; weights in the same order, normalised to sum 1, without the routed scaling factor |
| `X.layerL.router_margin` | [S] F32 | k-th minus (k+1)-th of sigmoid + bias, all rows |
| `X.layerL.msa_blocks` | [index heads, S, min(topk, blocks)] I32 | selected key blocks per query, ascending, -1 at the end |
| `X.layerL.msa_block_scores` | [index heads, S or P, blocks] F32 | max over visible keys of the block, -inf if none, before the local block is forced |
| `X.layerL.msa_margin` | [index heads, S] F32 | last kept minus first dropped among the blocks not forced; inf if nothing is dropped |
| `X.logits` | [S or P, V] F32 | |
| `X.greedy_ids`, `X.greedy_margin` | [16 or 24] I64, F32 | greedy continuation, not stopped at EOS (EOS does not occur); best minus second logit |
| `X.layerL.greedy_msa_blocks` | [index heads, steps, topk] I32 | selection of the last position at every step |
| `bf16.X.logits`, `bf16.X.greedy_ids` | as above | the same model with weights and activations in bfloat16 (router in float32) |
| `bf16w.X.logits` (m27-tiny-fp8) | as above | float32 arithmetic, dequantised weights rounded to bfloat16 |

Header metadata `short.text` is the rendered chat prompt of `short`. `models/stats.json` lists the weight seeds, the margins of the
prompts and the measured distance of the bfloat16 runs.

Suggested tolerances: float32 arithmetic: 2e-4 absolute on hidden states and logits, ids exact. Engines that round FP8
weights to bfloat16: compare with `bf16w` at 2e-4. Bfloat16 arithmetic: `mini` greedy ids exact, `mini` logits within 0.25 of the
float32 logits and mean difference below 0.05; `short`/`long`: look only at rows whose router margin is above 0.02 in every layer.
Measured distance of `bf16` from float32: %(bf16)s.
The goldens are weight-only: an engine that also quantises activations to FP8 has to allow far more.

# ops

Inputs that are not stored come from this generator ("splitmix-u24"), element i of the row-major tensor:

```
z = seed + (i + 1) * 0x9E3779B97F4A7C15            all modulo 2^64
z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
z = (z ^ (z >> 27)) * 0x94D049BB133111EB
z =  z ^ (z >> 31)
v = (float32(z >> 40) * 2^-23 - 1) * float32(scale)    in float32, then rounded to the dtype (nearest even)
```

`checksum` = sum over the raw 16-bit (bf16) or 32-bit (f32) words w_i of w_i * (i + 1) modulo 2^64, in hex.

| file | formula | tolerance |
| --- | --- | --- |
| activation | `silu_glu = gate * sigmoid(gate) * up`; `swigluoai`: g = min(gate, 7), u = clamp(up, -7, 7), `(u + 1) * g * sigmoid(1.702 g)`; the grid holds every pair of 20 edge values | 1e-5 relative + 1e-6 |
| grouped_gemm | per expert e over its rows: `gu = x @ gate_up_proj[e]^T` (first I columns gate, last I up), activation in float32, rounded to bfloat16 (`act`), `out = act @ down_proj[e]^T` in float32, rounded to bfloat16. `out_f32` before the last rounding. x is sorted by expert, `expert_cumsum` has E + 1 entries; experts without rows occur. Metadata `clamp_hits` counts values beyond the limits | 0.008 * abs(ref) + 0.002 * max abs(ref) |
| weight_layout | `w13_flat[e * H + h][j] = gate_up_proj[e][j][h]`, `w2_flat[e * I + i][h] = down_proj[e][h][i]` | exact |
| router | logits = gate_weight . hidden, s = sigmoid, choose top k of s + bias, weights = s / sum(s) of the chosen (ids ascending). Published sizes: 256 top 8, 128 top 4; margins above 3e-3 | 1e-5; ids exact |
| norm_rope | RMS norm (eps 1e-6) plain `w * x` and Gemma `(1 + w) * x`; q/k norm over all heads (`per_layer`) or per head with Gemma scale; rotary on the first 64 of 128 channels of `qk/out_per_head`, pairs (i, i + 32), theta 5e6, angles in float32 (at position 200000 a float64 angle differs by 3e-3) | 1e-5; rope 5e-4 up to position 4096 |
| quant | value tables of E4M3, E5M2, E8M0 (code 255 is NaN); block FP8 with ragged edges (200 x 300), MXFP8 (96 x 256), each with a linear `y = x . w^T`; MXFP8 quantisation with scale 2^ceil(log2(amax / 448)), an all-zero group gets the smallest scale used for amax 1e-30 | tables and dequantisation exact; y 1e-5 relative |
| msa_indexer | scores = idx_q . idx_k^T without scale; keys at or beyond `length` are not visible; block score = max over the block; `ids_shared`: max over the 4 heads first, one selection; `ids_per_head`: one selection per head (what the model does). All blocks when nb <= 16, else the forced blocks (first `init_blocks`, last `local_blocks`) plus the best others, 16 in all, ascending. The same ids follow from scores rounded to bfloat16 | scores 1e-4, ids as sets exact |
| msa_sparse_decode | one query per sequence, 64 query heads, 4 KV heads, D 128, blocks of 128: softmax over the keys of the listed blocks with absolute position < seq_len, scale 1/sqrt(128). `block_ids` [B, topk], or [B, 4, topk] in `per_kv_head_ids`. Cases: partial last block, one key in the last block, nb <= topk, nb 1, listed blocks beyond the sequence | 1e-4 float32, 1e-2 bfloat16 probabilities |
| msa_main_branch | float32 prefill attention of N queries over the listed blocks of their own keys, causal; out rows `rows`. A row that sees no listed block is zero and has `row_defined` false (an additive -1e9 mask gives an average there: do not compare). `block_mask_hidden` [blocks, topk, bk, bk] is 1 where the additive mask is -1e9; as a matrix: transpose to [blocks, bk, topk, bk] and flatten to [blocks * bk, topk * bk] | 1e-3 absolute and relative; float32 reaches 1e-5 |
| grouped_matmul_finalize_routing | `out = out_init; out[row_index[t]] += logit[t] * sum_k x1[t,k] sx[t,k/32] x2[e(t),k,:] sw[k/32,:]; out[offset : offset + rows] += shared_input * weight`. Scale groups are 32 values: index k/64 on the middle axis, (k/32) mod 2 on the last; with an odd number of groups the last entry is unused. `scale` has no expert axis. Codes of E8M0 are stored as U8. group_list_type 0: running ends, 1: counts. Without logit / shared the terms are left out | 1e-3 absolute and relative |

## Cases and tensors

%(listing)s
"""


def listing():
    out = []
    ops = os.path.join(root, "ops")
    for fn in sorted(os.listdir(ops)):
        tensors, meta = header(os.path.join(ops, fn))
        out.append(f"### ops/{fn}\n")
        groups = {}
        for k, v in tensors.items():
            c, _, t = k.rpartition("/")
            groups.setdefault(c, {})[t] = v
        for c in sorted(groups):
            m = json.loads(meta[c]) if c in meta else {}
            inputs = m.pop("inputs", {}) if isinstance(m, dict) else {}
            bits = ", ".join(f"{t} {sh(v)}" for t, v in sorted(groups[c].items()))
            line = f"* `{c or fn.split('.')[0]}`: {bits}"
            if inputs:
                line += "; from recipes: " + ", ".join(f"{n} {r['dtype']} {r['shape']}".replace(", ", ",") for n, r in inputs.items())
            out.append(line)
        out.append("")
    return "\n".join(out)


def bf16_table(stats):
    bits = []
    for n, s in stats.items():
        bits.append(f"{n} mini max {s['bf16.mini.max_logit_diff']:.2f} mean {s['bf16.mini.mean_logit_diff']:.3f}")
    return "; ".join(bits)


stats = json.load(open(os.path.join(root, "models", "stats.json")))
open(os.path.join(root, "README.md"), "w").write(TEXT % {"listing": listing(), "bf16": bf16_table(stats)})
