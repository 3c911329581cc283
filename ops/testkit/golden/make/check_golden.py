#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Second, independent check of the golden data: numpy in float64 only (no torch, no transformers).

    python check_golden.py GOLDEN_DIR
"""

import json
import math
import os
import struct
import sys

import ml_dtypes
import numpy as np

DT = {
    "F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_,
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
}


def load(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8 : 8 + n])
    meta = head.pop("__metadata__", {})
    base = 8 + n
    out = {}
    for k, v in head.items():
        a, b = v["data_offsets"]
        out[k] = np.frombuffer(raw[base + a : base + b], dtype=DT[v["dtype"]]).reshape(v["shape"])
    return out, meta


def f64(x):
    return np.asarray(x).astype(np.float64)


def e8m0(u):
    return np.exp2(u.astype(np.float64) - 127)


# ---------------------------------------------------------------------------------------------- models


class Checkpoint:
    def __init__(self, d):
        self.cfg = json.load(open(os.path.join(d, "config.json")))
        idx = os.path.join(d, "model.safetensors.index.json")
        files = sorted(set(json.load(open(idx))["weight_map"].values())) if os.path.exists(idx) else ["model.safetensors"]
        self.t = {}
        for f in files:
            self.t.update(load(os.path.join(d, f))[0])
        if os.path.exists(idx):
            wm = json.load(open(idx))["weight_map"]
            assert set(wm) == set(self.t)
        q = self.cfg.get("quantization_config") or {}
        self.block = q.get("weight_block_size")

    def w(self, name):
        t = self.t[name]
        s = self.t.get(name + "_scale_inv")
        v = f64(t)
        if s is None:
            return v
        bo, bi = self.block
        s = e8m0(s) if s.dtype == np.uint8 else f64(s)
        return v * np.repeat(np.repeat(s, bo, 0)[: v.shape[0]], bi, 1)[:, : v.shape[1]]


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rope(x, pos, rot, theta):
    """x [S, heads, D]; the first `rot` channels rotate, channel i with channel i + rot/2."""
    inv = 1.0 / theta ** (np.arange(0, rot, 2) / rot)
    a = pos[:, None] * inv
    c, s = np.cos(a)[:, None], np.sin(a)[:, None]
    h = rot // 2
    x1, x2 = x[..., :h], x[..., h:rot]
    return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s, x[..., rot:]], -1)


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def silu_glu(g, u):
    return g * sigmoid(g) * u


def swigluoai(g, u, alpha=1.702, limit=7.0):
    g = np.minimum(g, limit)
    u = np.clip(u, -limit, limit)
    return (u + 1) * g * sigmoid(alpha * g)


def forward(ck, ids):
    cfg = ck.cfg
    m3 = "text_config" in cfg
    t = cfg["text_config"] if m3 else cfg
    lm = "language_model." if m3 else ""
    eps, hd, nh, nkv = t["rms_norm_eps"], t["head_dim"], t["num_attention_heads"], t["num_key_value_heads"]
    grp = nh // nkv
    s = len(ids)
    pos = np.arange(s, dtype=np.float64)
    add = 1.0 if m3 else 0.0
    act = (lambda g, u: swigluoai(g, u, t["swiglu_alpha"], t["swiglu_limit"])) if m3 else silu_glu
    cap = {}
    x = ck.w(lm + "model.embed_tokens.weight")[ids]
    cap["embeddings"] = x
    causal = pos[None, :] <= pos[:, None]
    for i in range(t["num_hidden_layers"]):
        p = f"{lm}model.layers.{i}."
        a = p + "self_attn."
        h = rms(x, eps) * (add + ck.w(p + "input_layernorm.weight"))
        q, k, v = (h @ ck.w(f"{a}{n}_proj.weight").T for n in "qkv")
        qn, kn = ck.w(a + "q_norm.weight"), ck.w(a + "k_norm.weight")
        if m3:
            q = rms(q.reshape(s, nh, hd), eps) * (1 + qn)
            k = rms(k.reshape(s, nkv, hd), eps) * (1 + kn)
        else:
            q = (rms(q, eps) * qn).reshape(s, nh, hd)
            k = (rms(k, eps) * kn).reshape(s, nkv, hd)
        q = rope(q, pos, t["rotary_dim"], t["rope_theta"])
        k = rope(k, pos, t["rotary_dim"], t["rope_theta"])
        v = v.reshape(s, nkv, hd)
        allow = np.broadcast_to(causal[None], (nkv, s, s)).copy()
        sp = t.get("sparse_attention_config")
        if m3 and sp["sparse_attention_freq"][i]:
            ni, di, bs = sp["sparse_num_index_heads"], sp["sparse_index_dim"], sp["sparse_block_size"]
            iq = rms((h @ ck.w(a + "index_q_proj.weight").T).reshape(s, ni, di), eps) * (1 + ck.w(a + "index_q_norm.weight"))
            ik = rms((h @ ck.w(a + "index_k_proj.weight").T).reshape(s, 1, di), eps) * (1 + ck.w(a + "index_k_norm.weight"))
            iq = rope(iq, pos, t["rotary_dim"], t["rope_theta"])
            ik = rope(ik, pos, t["rotary_dim"], t["rope_theta"])[:, 0]
            nb = -(-s // bs)
            sc = np.einsum("qhd,kd->hqk", iq, ik)
            sc = np.where(causal[None], sc, -np.inf)
            sc = np.pad(sc, ((0, 0), (0, 0), (0, nb * bs - s)), constant_values=-np.inf)
            sc = sc.reshape(ni, s, nb, bs).max(-1)
            cap[f"layer{i}.msa_block_scores"] = sc.copy()
            blocks = np.full((ni, s, min(sp["sparse_topk_blocks"], nb)), -1, dtype=np.int32)
            for hh in range(ni):
                for r in range(s):
                    z = sc[hh, r].copy()
                    cur = r // bs
                    for l in range(sp["sparse_local_block"]):
                        if cur - l >= 0:
                            z[cur - l] = np.inf
                    order = [b for b in np.argsort(-z, kind="stable") if z[b] > -np.inf][: blocks.shape[-1]]
                    order.sort()
                    blocks[hh, r, : len(order)] = order
                    m = np.zeros(nb, bool)
                    m[order] = True
                    allow[hh, r] &= np.repeat(m, bs)[:s]
            cap[f"layer{i}.msa_blocks"] = blocks
        o = np.zeros((s, nh, hd))
        for hh in range(nh):
            kv = hh // grp
            z = (q[:, hh] @ k[:, kv].T) * hd**-0.5
            z = np.where(allow[kv], z, -np.inf)
            z = np.exp(z - z.max(-1, keepdims=True))
            o[:, hh] = (z / z.sum(-1, keepdims=True)) @ v[:, kv]
        att = o.reshape(s, nh * hd) @ ck.w(a + "o_proj.weight").T
        cap[f"layer{i}.attn_out"] = att
        x = x + att
        h = rms(x, eps) * (add + ck.w(p + "post_attention_layernorm.weight"))
        b = p + "block_sparse_moe."
        if b + "gate.weight" in ck.t:
            lg = h @ ck.w(b + "gate.weight").T
            sg = sigmoid(lg)
            ch = sg + ck.w(b + "e_score_correction_bias")
            kk = t["num_experts_per_tok"]
            ids_ = np.sort(np.argsort(-ch, -1, kind="stable")[:, :kk], -1)
            wt = np.take_along_axis(sg, ids_, -1)
            wt = wt / wt.sum(-1, keepdims=True)
            cap[f"layer{i}.router_logits"], cap[f"layer{i}.topk_ids"], cap[f"layer{i}.topk_weights"] = lg, ids_, wt
            y = np.zeros_like(x)
            for e in range(t["num_local_experts"]):
                rows, col = np.nonzero(ids_ == e)
                if rows.size:
                    g = act(h[rows] @ ck.w(f"{b}experts.{e}.w1.weight").T, h[rows] @ ck.w(f"{b}experts.{e}.w3.weight").T)
                    y[rows] += (g @ ck.w(f"{b}experts.{e}.w2.weight").T) * wt[rows, col][:, None]
            if m3:
                y = y * t["routed_scaling_factor"]
                f = b + "shared_experts."
                y = y + act(h @ ck.w(f + "gate_proj.weight").T, h @ ck.w(f + "up_proj.weight").T) @ ck.w(f + "down_proj.weight").T
        else:
            f = p + "mlp."
            y = act(h @ ck.w(f + "gate_proj.weight").T, h @ ck.w(f + "up_proj.weight").T) @ ck.w(f + "down_proj.weight").T
        x = x + y
        cap[f"layer{i}.hidden"] = x
    x = rms(x, eps) * (add + ck.w(lm + "model.norm.weight"))
    cap["final_norm"] = x
    cap["logits"] = x @ ck.w(lm + "lm_head.weight").T
    return cap


def check_models(root):
    for name in sorted(os.listdir(os.path.join(root, "models"))):
        d = os.path.join(root, "models", name)
        if not os.path.isdir(d):
            continue
        ck = Checkpoint(d)
        exp, _ = load(os.path.join(d, "expected.safetensors"))
        for which in ("mini", "short", "long"):
            ids = exp[f"{which}.input_ids"]
            pos = exp.get(f"{which}.positions")
            cap = forward(ck, ids)
            worst = {}
            for k, v in exp.items():
                if not k.startswith(which + "."):
                    continue
                key = k[len(which) + 1 :]
                if key not in cap:
                    continue
                got = cap[key]
                if pos is not None and key.endswith("msa_block_scores"):
                    got = got[:, pos]
                elif pos is not None and not key.endswith("msa_blocks"):
                    got = got[pos]
                if v.dtype == np.int32:
                    assert np.array_equal(got, v), (name, k)
                    kind = "ids"
                    worst[kind] = worst.get(kind, 0) + v.size
                else:
                    fin = np.isfinite(v)
                    assert np.array_equal(fin, np.isfinite(got)), (name, k)
                    kind = key.split(".")[-1]
                    worst[kind] = max(worst.get(kind, 0.0), float(np.abs(got[fin] - v[fin]).max()))
            # greedy continuation, recomputed in one pass over prompt + answer
            g = exp[f"{which}.greedy_ids"]
            full = forward(ck, np.concatenate([ids, g[:-1]]))
            lg = full["logits"][len(ids) - 1 :]
            assert np.array_equal(lg.argmax(-1), g), (name, which, "greedy")
            for k, v in exp.items():
                if k.startswith(which) and k.endswith("greedy_msa_blocks"):
                    lay = k.split(".")[1]
                    got = full[f"{lay}.msa_blocks"][:, len(ids) - 1 :]
                    assert np.array_equal(got[..., : v.shape[-1]], v), (name, k)
            print(f"{name:16s} {which:5s}", {k: (f"{v:.2e}" if isinstance(v, float) else v) for k, v in worst.items()}, "greedy ok")


# ---------------------------------------------------------------------------------------------- operators


def recipe(r):
    n = int(np.prod(r["shape"]))
    with np.errstate(over="ignore"):
        i = np.arange(1, n + 1, dtype=np.uint64)
        z = np.uint64(r["seed"]) + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        v = ((z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)) * np.float32(r["scale"])
        v = v.astype(ml_dtypes.bfloat16 if r["dtype"] == "bf16" else np.float32)
        w = v.view(np.uint16 if r["dtype"] == "bf16" else np.uint32).astype(np.uint64)
        assert f"{int((w * i).sum(dtype=np.uint64)):016x}" == r["checksum"]
    return v.reshape(r["shape"])


def report(name, diff, tol):
    assert diff <= tol, (name, diff, tol)
    print(f"{name:58s} max abs diff {diff:.2e}")


def check_ops(root):
    ops = os.path.join(root, "ops")
    t, _ = load(os.path.join(ops, "activation.safetensors"))
    g, u = f64(t["gate"]), f64(t["up"])
    report("activation/silu", np.abs(silu_glu(g, u) - t["silu_glu"]).max(), 1e-3)
    report("activation/swigluoai", np.abs(swigluoai(g, u) - t["swigluoai"]).max(), 1e-5)

    t, meta = load(os.path.join(ops, "grouped_gemm.safetensors"))
    for name in sorted(k for k in meta if k != "format"):
        m = json.loads(meta[name])
        if m["H"] > 1024:
            e_list = [0]
        else:
            e_list = range(m["E"])
        x, gu, dn = (recipe(m["inputs"][k]) for k in ("x", "gate_up_proj", "down_proj"))
        cum, out = t[name + "/expert_cumsum"], f64(t[name + "/out"])
        worst = 0.0
        for e in e_list:
            a, b = cum[e], cum[e + 1]
            if a == b:
                continue
            h = f64(x[a:b]) @ f64(gu[e]).T
            gg, uu = h[:, : m["I"]], h[:, m["I"] :]
            z = silu_glu(gg, uu) if m["activation"] == "silu" else swigluoai(gg, uu)
            y = f64(z.astype(np.float32).astype(ml_dtypes.bfloat16)) @ f64(dn[e]).T
            worst = max(worst, float((np.abs(y - out[a:b]) / (np.abs(y) + 1e-2 * np.abs(out).max())).max()))
        assert worst < 0.012, (name, worst)
        print(f"grouped_gemm/{name:45s} max rel diff {worst:.2e} (experts {list(e_list)})")

    t, _ = load(os.path.join(ops, "weight_layout.safetensors"))
    e, i2, h = t["gate_up_proj"].shape
    assert np.array_equal(t["w13_flat"], np.concatenate([t["gate_up_proj"][k].T for k in range(e)]))
    assert np.array_equal(t["w2_flat"], np.concatenate([t["down_proj"][k].T for k in range(e)]))

    t, meta = load(os.path.join(ops, "router.safetensors"))
    for name in ("m27", "m3"):
        m = json.loads(meta[name])
        lg = f64(t[name + "/hidden"]) @ f64(t[name + "/gate_weight"]).T
        s = sigmoid(lg)
        ids = np.sort(np.argsort(-(s + t[name + "/e_score_correction_bias"]), -1)[:, : m["top_k"]], -1)
        assert np.array_equal(ids, t[name + "/topk_ids"])
        w = np.take_along_axis(s, ids, -1)
        report(f"router/{name}", np.abs(w / w.sum(-1, keepdims=True) - t[name + "/topk_weights"]).max(), 1e-6)

    t, _ = load(os.path.join(ops, "norm_rope.safetensors"))
    x = f64(t["rms/x"])
    report("rms plain", np.abs(rms(x, 1e-6) * f64(t["rms/weight"]) - t["rms/out_plain"]).max(), 1e-6)
    report("rms gemma", np.abs(rms(x, 1e-6) * (1 + f64(t["rms/weight_gemma"])) - t["rms/out_gemma"]).max(), 1e-6)
    q = f64(t["qk/q"])
    report("qk per layer", np.abs((rms(q, 1e-6) * f64(t["qk/weight_per_layer"])).reshape(5, 3, 128) - t["qk/out_per_layer"]).max(), 1e-6)
    ph = rms(q.reshape(5, 3, 128), 1e-6) * (1 + f64(t["qk/weight_per_head"]))
    report("qk per head", np.abs(ph - t["qk/out_per_head"]).max(), 1e-6)
    small = t["rope/positions"] < 10000
    got = rope(f64(t["qk/out_per_head"]), f64(t["rope/positions"]), 64, 5000000)
    report("rope (positions below 10000)", np.abs(got - t["rope/out"])[small].max(), 2e-3)
    report("rope (all positions)", np.abs(got - t["rope/out"]).max(), 5e-2)

    t, _ = load(os.path.join(ops, "quant.safetensors"))
    codes = np.arange(256, dtype=np.uint8)
    for nm, dt in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2), ("e8m0", ml_dtypes.float8_e8m0fnu)):
        ref = codes.view(dt).astype(np.float32)
        assert np.array_equal(ref, t["tables/" + nm], equal_nan=True), nm
    s = t["fp8_block/weight_scale_inv"]
    d = f64(t["fp8_block/weight"]) * np.repeat(np.repeat(f64(s), 128, 0)[:200], 128, 1)[:, :300]
    report("fp8 block linear", np.abs(f64(t["fp8_block/x"]) @ d.T - t["fp8_block/y"]).max(), 1e-3)
    d = f64(t["mxfp8/weight"]) * np.repeat(e8m0(t["mxfp8/weight_scale_inv"]), 32, 1)
    assert np.array_equal(d, f64(t["mxfp8/dequant_bf16"]))
    report("mxfp8 linear", np.abs(f64(t["mxfp8/x"]) @ d.T - t["mxfp8/y"]).max(), 1e-2)
    a = t["mxfp8_quantize/x"].reshape(3, 4, 32)
    am = np.maximum(np.abs(a).max(-1), 1e-30).astype(np.float64)
    ex = np.clip(np.ceil(np.log2(am / 448)), -127, 127)
    assert np.array_equal((ex + 127).astype(np.uint8), t["mxfp8_quantize/scale"])
    qq = np.clip(a / np.exp2(ex)[..., None], -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(qq.reshape(3, 128).view(np.uint8), t["mxfp8_quantize/q"].view(np.uint8))
    print("quant tables, dequantisation and quantisation agree")

    t, meta = load(os.path.join(ops, "msa_indexer.safetensors"))
    for name in sorted(k for k in meta if k != "format"):
        m = json.loads(meta[name])
        iq, ik = f64(recipe(m["inputs"]["idx_q"])), f64(recipe(m["inputs"]["idx_k"]))
        sc = np.array([[(iq[h] @ ik[b * 128 : min((b + 1) * 128, m["length"])].T).max() for b in range(m["nb"])] for h in range(4)])
        report("msa_indexer/" + name, np.abs(sc - t[name + "/block_scores_per_head"]).max(), 1e-4)

        def pick(v):
            nb = m["nb"]
            if nb <= 16:
                return list(range(nb))
            forced = set(range(m["init_blocks"])) | set(range(nb - m["local_blocks"], nb))
            rest = sorted((b for b in range(nb) if b not in forced), key=lambda b: -v[b])[: 16 - len(forced)]
            return sorted(forced | set(rest))

        assert pick(sc.max(0)) == t[name + "/ids_shared"].tolist()
        assert [pick(sc[h]) for h in range(4)] == t[name + "/ids_per_head"].tolist()

    def softmax(z):
        z = np.exp(z - z.max(-1, keepdims=True))
        return z / z.sum(-1, keepdims=True)

    t, meta = load(os.path.join(ops, "msa_sparse_decode.safetensors"))
    for name in sorted(k for k in meta if k != "format"):
        m = json.loads(meta[name])
        q, k, v = (f64(recipe(m["inputs"][x])) for x in ("q", "k_blocks", "v_blocks"))
        ids, out = t[name + "/block_ids"], t[name + "/out"]
        worst = 0.0
        for b in range(m["B"]):
            for h in range(4):
                sel = sorted((ids[b, h] if ids.ndim == 3 else ids[b]).tolist())
                kk = np.concatenate([k[b, h, s][: max(0, m["seq_len"] - 128 * s)] for s in sel])
                vv = np.concatenate([v[b, h, s][: max(0, m["seq_len"] - 128 * s)] for s in sel])
                qq = q[b, h * 16 : h * 16 + 16]
                worst = max(worst, float(np.abs(softmax(qq @ kk.T / math.sqrt(128)) @ vv - out[b, h * 16 : h * 16 + 16]).max()))
        report("msa_sparse_decode/" + name, worst, 1e-6)

    t, meta = load(os.path.join(ops, "msa_main_branch.safetensors"))
    for name in sorted(k for k in meta if k != "format"):
        m = json.loads(meta[name])
        q, k, v = (f64(recipe(m["inputs"][x])) for x in ("query", "key", "value"))
        sel = sorted(t[name + "/block_indices"].tolist())
        worst = 0.0
        for ri, row in enumerate(t[name + "/rows"].tolist()):
            cols = [c for s in sel for c in range(s * m["bk"], min((s + 1) * m["bk"], row + 1))]
            assert bool(cols) == bool(t[name + "/row_defined"][ri])
            if not cols:
                assert not t[name + "/out"][ri].any()
                continue
            for h in range(m["hq"]):
                kv = h // (m["hq"] // m["hkv"])
                o = softmax(k[cols, kv] @ q[row, h] / math.sqrt(m["dh"])) @ v[cols, kv]
                worst = max(worst, float(np.abs(o - t[name + "/out"][ri, h]).max()))
        report("msa_main_branch/" + name, worst, 1e-6)

    t, meta = load(os.path.join(ops, "grouped_matmul_finalize_routing.safetensors"))
    for name in sorted(k for k in meta if k != "format"):
        m = json.loads(meta[name])
        g = {k.split("/", 1)[1]: v for k, v in t.items() if k.startswith(name + "/")}
        out = f64(g["out_init"]).copy()
        gl = g["group_list"]
        ends = gl if m["group_list_type"] == 0 else np.cumsum(gl)
        for r in range(m["M"]):
            ex = int(np.searchsorted(ends, r, side="right"))
            acc = np.zeros(m["N"])
            for kk in range(m["K"]):
                sx = e8m0(g["pertoken_scale"][r, kk // 64, (kk // 32) % 2])
                sw = e8m0(g["scale"][:, kk // 64, (kk // 32) % 2] if m["transpose_x2"] else g["scale"][kk // 64, :, (kk // 32) % 2])
                w = f64(g["x2"][ex, :, kk] if m["transpose_x2"] else g["x2"][ex, kk, :])
                acc += float(g["x1"][r, kk]) * sx * w * sw
            if m["has_logit"]:
                acc *= float(g["logit"][r])
            out[g["row_index"][r]] += acc
        if m["has_shared_input"]:
            n, o = g["shared_input"].shape[0], m["shared_input_offset"]
            out[o : o + n] += f64(g["shared_input"]) * m["shared_input_weight"]
        report("finalize_routing/" + name, np.abs(out - g["output"]).max(), 1e-4)


if __name__ == "__main__":
    root = sys.argv[1]
    which = sys.argv[2] if len(sys.argv) > 2 else "all"
    if which in ("all", "ops"):
        check_ops(root)
    if which in ("all", "models"):
        check_models(root)
    print("ALL CHECKS PASSED")
