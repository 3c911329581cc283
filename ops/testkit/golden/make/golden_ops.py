# SPDX-License-Identifier: MIT OR Apache-2.0

"""Per-operator goldens, computed with torch in float32 (float64 where stated)."""

import math
import os

import numpy as np
import torch
import torch.nn.functional as F

from golden_common import (
    E4M3,
    E5M2,
    Recipes,
    dequant_fp8_block,
    dequant_mxfp8,
    e8m0_to_f32,
    quant_fp8_block,
    quant_mxfp8,
    write_safetensors,
)

ALPHA, LIMIT = 1.702, 7.0


def swigluoai(gate, up, alpha=ALPHA, limit=LIMIT):
    g = gate.clamp(max=limit)
    u = up.clamp(min=-limit, max=limit)
    return (u + 1.0) * (g * torch.sigmoid(alpha * g))


def silu_glu(gate, up):
    return F.silu(gate) * up


# ------------------------------------------------------------------------------------------------


def activation(out):
    edge = torch.tensor(
        [-100.0, -20.0, -7.5, -7.0, -6.5, -3.0, -1.0, -0.5, -1e-3, -0.0, 0.0, 1e-3, 0.5, 1.0, 3.0, 6.5, 7.0, 7.5, 20.0, 100.0]
    )
    gate = edge[:, None].expand(-1, edge.numel()).reshape(-1)
    up = edge[None, :].expand(edge.numel(), -1).reshape(-1)
    write_safetensors(
        os.path.join(out, "activation.safetensors"),
        {
            "gate": gate,
            "up": up,
            "silu_glu": silu_glu(gate.double(), up.double()).float(),
            "swigluoai": swigluoai(gate.double(), up.double()).float(),
        },
    )


def grouped_gemm(out, log):
    cases = [
        # name, activation, H, I, counts, x scale, w scale, keep f32 output
        ("silu_e4h256i128", "silu", 256, 128, [1, 0, 3, 4], 1.7, 0.11, True),
        ("silu_e8h512i256", "silu", 512, 256, [0, 5, 0, 2, 1, 0, 7, 0], 1.7, 0.08, False),
        ("silu_e3h256i128_one_expert", "silu", 256, 128, [0, 6, 0], 1.7, 0.11, False),
        ("silu_e8h3072i1536", "silu", 3072, 1536, [3, 0, 1, 4, 0, 2, 5, 1], 1.7, 0.035, False),
        ("swigluoai_e4h256i128", "swigluoai", 256, 128, [1, 0, 3, 4], 0.9, 0.7, True),
        ("swigluoai_e8h512i256", "swigluoai", 512, 256, [2, 0, 0, 6, 1, 3, 0, 1], 0.9, 0.48, False),
        ("swigluoai_e2h6144i3072", "swigluoai", 6144, 3072, [2, 3], 0.9, 0.14, False),
    ]
    tensors, meta = {}, {}
    for ci, (name, act, h, i, counts, xs, ws, keep) in enumerate(cases):
        e, n = len(counts), sum(counts)
        r = Recipes()
        x = r.make("x", 1000 + 10 * ci, [n, h], xs)
        gu = r.make("gate_up_proj", 1001 + 10 * ci, [e, 2 * i, h], ws)
        dn = r.make("down_proj", 1002 + 10 * ci, [e, h, i], ws)
        cum = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        o32 = torch.zeros(n, h)
        acts = torch.zeros(n, i, dtype=torch.bfloat16)
        hit = [0, 0, 0, 0, 0]
        for k in range(e):
            s, t = int(cum[k]), int(cum[k + 1])
            if s == t:
                continue
            g = x[s:t].float() @ gu[k].float().T
            gate, up = g[:, :i], g[:, i:]
            if act == "swigluoai":
                hit[0] += int((gate > LIMIT).sum())
                hit[1] += int((gate < -LIMIT).sum())
                hit[2] += int((up > LIMIT).sum())
                hit[3] += int((up < -LIMIT).sum())
                hit[4] += gate.numel()
                a = swigluoai(gate, up)
            else:
                a = silu_glu(gate, up)
            acts[s:t] = a.to(torch.bfloat16)
            o32[s:t] = acts[s:t].float() @ dn[k].float().T
        if act == "swigluoai":
            assert min(hit[:4]) > 0, (name, hit)
        tensors[f"{name}/counts"] = torch.tensor(counts, dtype=torch.int32)
        tensors[f"{name}/expert_cumsum"] = torch.from_numpy(cum)
        tensors[f"{name}/out"] = o32.to(torch.bfloat16)
        if keep:
            tensors[f"{name}/out_f32"] = o32
            tensors[f"{name}/act"] = acts
        meta[name] = {
            "activation": act,
            "H": h,
            "I": i,
            "E": e,
            "inputs": r.items,
            "clamp_hits": {"gate_gt": hit[0], "gate_lt": hit[1], "up_gt": hit[2], "up_lt": hit[3], "of": hit[4]}
            if act == "swigluoai"
            else None,
        }
        log(f"grouped_gemm {name}: out std {o32.std():.3f} max {o32.abs().max():.2f} clamp {hit}")
    write_safetensors(os.path.join(out, "grouped_gemm.safetensors"), tensors, {k: v for k, v in meta.items()})


def weight_layout(out):
    e, h, i = 2, 3, 2
    gu = torch.arange(e * 2 * i * h, dtype=torch.float32).reshape(e, 2 * i, h)
    dn = 100 + torch.arange(e * h * i, dtype=torch.float32).reshape(e, h, i)
    write_safetensors(
        os.path.join(out, "weight_layout.safetensors"),
        {
            "gate_up_proj": gu.bfloat16(),
            "down_proj": dn.bfloat16(),
            "w13_flat": gu.transpose(1, 2).reshape(e * h, 2 * i).bfloat16(),
            "w2_flat": dn.transpose(1, 2).reshape(e * i, h).bfloat16(),
        },
    )


# ------------------------------------------------------------------------------------------------


def router(out, log):
    tensors, meta = {}, {}
    for name, e, k, h, t, bias0, scale in (("m27", 256, 8, 64, 12, 8.0, 1.0), ("m3", 128, 4, 64, 12, 12.0, 2.0)):
        best = None
        for seed in range(200):  # first seed whose selections all have a clear margin
            g = torch.Generator().manual_seed(7000 + seed)
            x = torch.randn(t, h, generator=g).bfloat16()
            w = torch.randn(e, h, generator=g) * 1.5 * h**-0.5
            b = bias0 + torch.randn(e, generator=g) * 0.2
            logits = x.float() @ w.T
            s = torch.sigmoid(logits)
            c = s + b
            top = c.sort(-1, descending=True).values
            m = float((top[:, k - 1] - top[:, k]).min())
            if best is None or m > best[0]:
                best = (m, x, w, b, logits, s, c)
            if m > 3e-3:
                break
        m, x, w, b, logits, s, c = best
        ids = c.topk(k, -1).indices.sort(-1).values
        raw = s.gather(1, ids)
        tensors.update(
            {
                f"{name}/hidden": x,
                f"{name}/gate_weight": w,
                f"{name}/e_score_correction_bias": b,
                f"{name}/logits": logits,
                f"{name}/topk_ids": ids.int(),
                f"{name}/topk_weights": raw / raw.sum(-1, keepdim=True),
            }
        )
        meta[name] = {"top_k": k, "routed_scaling_factor": scale, "min_margin": m}
        log(f"router {name}: min margin {m:.5f}")
    write_safetensors(os.path.join(out, "router.safetensors"), tensors, meta)


def norm_rope(out):
    g = torch.Generator().manual_seed(11)
    eps = 1e-6
    tensors = {}

    def rms(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    x = (torch.randn(4, 256, generator=g) * torch.tensor([[1.0], [0.01], [30.0], [1e-4]])).bfloat16()
    w = (1 + 0.2 * torch.randn(256, generator=g)).bfloat16()
    wg = (0.2 * torch.randn(256, generator=g)).bfloat16()
    tensors["rms/x"], tensors["rms/weight"], tensors["rms/weight_gemma"] = x, w, wg
    tensors["rms/out_plain"] = rms(x.double()).float() * w.float()
    tensors["rms/out_gemma"] = rms(x.double()).float() * (1.0 + wg.float())
    # q/k norm: over the whole flattened projection ("per_layer") or over each head ("per_head", Gemma scale)
    heads, hd = 3, 128
    q = torch.randn(5, heads * hd, generator=g).bfloat16()
    wl = (1 + 0.2 * torch.randn(heads * hd, generator=g)).bfloat16()
    wh = (0.2 * torch.randn(hd, generator=g)).bfloat16()
    tensors["qk/q"], tensors["qk/weight_per_layer"], tensors["qk/weight_per_head"] = q, wl, wh
    per_layer = (rms(q.double()) * wl.double()).float().view(5, heads, hd)
    per_head = (rms(q.double().view(5, heads, hd)) * (1.0 + wh.double())).float()
    tensors["qk/out_per_layer"], tensors["qk/out_per_head"] = per_layer, per_head
    # partial rotary: first 64 of 128 channels, halves (i, i + 32) are paired, theta 5e6
    pos = torch.tensor([0, 1, 127, 4096, 200000])
    inv = 1.0 / (5000000.0 ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64))
    ang = pos.float()[:, None] * inv
    cos, sin = ang.cos(), ang.sin()
    tensors["rope/positions"] = pos
    tensors["rope/inv_freq"], tensors["rope/cos"], tensors["rope/sin"] = inv, cos, sin
    a, b, rest = per_head[..., :32], per_head[..., 32:64], per_head[..., 64:]
    c, s = cos[:, None], sin[:, None]
    tensors["rope/out"] = torch.cat([a * c - b * s, b * c + a * s, rest], -1)
    write_safetensors(os.path.join(out, "norm_rope.safetensors"), tensors, {"eps": "1e-6", "theta": "5000000", "rotary_dim": "64"})


def quant(out):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    t = {
        "tables/e4m3": codes.view(E4M3).float(),
        "tables/e5m2": codes.view(E5M2).float(),
        "tables/e8m0": e8m0_to_f32(codes),
    }
    g = torch.Generator().manual_seed(21)
    w = torch.randn(200, 300, generator=g) * torch.logspace(-3, 1, 300)
    q, s = quant_fp8_block(w)
    t["fp8_block/weight"], t["fp8_block/weight_scale_inv"] = q, s
    d = dequant_fp8_block(q, s)
    t["fp8_block/dequant_bf16"] = d.bfloat16()
    x = torch.randn(4, 300, generator=g).bfloat16()
    t["fp8_block/x"] = x
    t["fp8_block/y"] = (x.double() @ d.double().T).float()
    w = torch.randn(96, 256, generator=g) * torch.logspace(-4, 2, 256)
    q, u = quant_mxfp8(w)
    d = dequant_mxfp8(q, u)
    assert torch.equal(d, d.bfloat16().float())  # an E4M3 value times a power of two is a bfloat16 value
    t["mxfp8/weight"], t["mxfp8/weight_scale_inv"] = q, u
    t["mxfp8/dequant_bf16"] = d.bfloat16()
    x = torch.randn(5, 256, generator=g).bfloat16()
    t["mxfp8/x"] = x
    t["mxfp8/y"] = (x.double() @ d.double().T).float()
    # quantisation of activations: per 32 values, scale = 2^ceil(log2(amax / 448)), round to nearest even
    a = torch.randn(3, 128, generator=g) * torch.tensor([[1.0], [1e-3], [300.0]])
    a[0, :32] = 0.0
    a[1, 32] = 448.0
    q, u = quant_mxfp8(a)
    t["mxfp8_quantize/x"], t["mxfp8_quantize/q"], t["mxfp8_quantize/scale"] = a, q, u
    t["mxfp8_quantize/dequant"] = dequant_mxfp8(q, u)
    write_safetensors(os.path.join(out, "quant.safetensors"), t)


# ------------------------------------------------------------------------------------------------

HQ, HKV, D, BY, TOPK = 64, 4, 128, 128, 16
GROUP = HQ // HKV


def select_shared(block_scores, topk, local):
    nb = block_scores.numel()
    if nb <= topk:
        return torch.arange(nb)
    ids = block_scores[: nb - local].topk(topk - local).indices
    return torch.cat([ids, torch.arange(nb - local, nb)])


def margin(scores, keep):
    """gap between the keep-th and the next score, inf when nothing is dropped"""
    s = scores.sort(descending=True).values
    return float(s[keep - 1] - s[keep]) if s.numel() > keep else float("inf")


def msa_indexer(out, log):
    tensors, meta = {}, {}
    nidx = 4
    cases = [
        # name, length of the key sequence, init blocks, local blocks
        ("nb1", 128, 0, 1),
        ("nb4_short_guard", 4 * 128, 0, 1),
        ("nb16_equal_topk", 16 * 128, 0, 1),
        ("nb17", 17 * 128, 0, 1),
        ("nb40", 40 * 128, 0, 1),
        ("nb40_partial", 40 * 128 - 77, 0, 1),
        ("nb24_init1_local2", 24 * 128 - 5, 1, 2),
    ]
    for ci, (name, length, init, local) in enumerate(cases):
        nb = -(-length // BY)
        for attempt in range(490):
            r = Recipes()
            iq = r.make("idx_q", 20000 + 1000 * ci + 2 * attempt, [nidx, D], 1.0)
            ik = r.make("idx_k", 20001 + 1000 * ci + 2 * attempt, [nb * BY, D], 1.0)
            sc = iq.double() @ ik.double().T
            sc[:, length:] = float("-inf")
            head = sc.view(nidx, nb, BY).amax(-1)
            shared = head.amax(0)
            free = slice(init, nb - local)
            room = TOPK - init - local
            ms = margin(shared[free], room)
            mh = min(margin(head[h][free], room) for h in range(nidx))
            # bfloat16 scores keep 8 significant bits: ask for gaps above their rounding error
            if min(ms, mh) > 0.0078 * float(shared.abs().max()) or nb <= TOPK:
                break
        else:
            raise AssertionError(name)

        def pick(v):
            if nb <= TOPK:
                return torch.arange(nb)
            forced = list(range(init)) + list(range(nb - local, nb))
            rest = v.clone()
            rest[forced] = float("-inf")
            return torch.tensor(sorted(forced + rest.topk(TOPK - len(forced)).indices.tolist()))

        tensors[f"{name}/block_scores_per_head"] = head.float()
        tensors[f"{name}/block_scores_shared"] = shared.float()
        tensors[f"{name}/ids_shared"] = pick(shared).int()
        tensors[f"{name}/ids_per_head"] = torch.stack([pick(head[h]) for h in range(nidx)]).int()
        if init == 0:
            assert sorted(select_shared(shared, TOPK, local).tolist()) == pick(shared).tolist()
        # the same selection from bfloat16-rounded scores
        hb = sc.float().bfloat16().float().view(nidx, nb, BY).amax(-1)
        assert pick(hb.amax(0)).tolist() == pick(shared).tolist()
        for h in range(nidx):
            assert pick(hb[h]).tolist() == pick(head[h]).tolist()
        meta[name] = {
            "length": length, "nb": nb, "topk": TOPK, "init_blocks": init, "local_blocks": local,
            "margin_shared": ms if math.isfinite(ms) else None, "margin_per_head": mh if math.isfinite(mh) else None,
            "inputs": r.items,
        }
        same = tensors[f"{name}/ids_shared"].tolist() == tensors[f"{name}/ids_per_head"][0].tolist()
        log(f"msa_indexer {name}: attempt {attempt} margins {ms:.3f} {mh:.3f}; head 0 equals shared: {same}")
    write_safetensors(os.path.join(out, "msa_indexer.safetensors"), tensors, meta)


def attend(q, k, v, valid):
    """q [D], k/v [T, D] float64, valid [T] bool."""
    s = (k @ q) / math.sqrt(q.numel())
    s = s.masked_fill(~valid, float("-inf"))
    return torch.softmax(s, -1) @ v


def msa_sparse_decode(out, log):
    tensors, meta = {}, {}
    ids20 = [3, 0, 17, 8, 1, 12, 5, 14, 2, 9, 16, 6, 11, 4, 18]
    cases = [
        # name, batch, nb, block ids [B][topk] or [B][HKV][topk], sequence length
        ("nb20_full", 1, 20, [ids20 + [19]], 20 * 128),
        ("nb20_partial_last", 1, 20, [ids20 + [19]], 19 * 128 + 37),
        ("nb20_one_key_in_last", 1, 20, [ids20 + [19]], 19 * 128 + 1),
        ("nb16_all_blocks", 1, 16, [list(range(16))], 16 * 128 - 50),
        ("nb4_short", 1, 4, [[0, 1, 2, 3]], 3 * 128 + 5),
        ("nb1_five_keys", 1, 1, [[0]], 5),
        ("batch2", 2, 20, [ids20 + [19], [19, 7, 10, 13, 15, 0, 2, 4, 6, 8, 12, 14, 16, 18, 1, 3]], 19 * 128 + 100),
        ("future_blocks_masked", 1, 20, [ids20 + [19]], 17 * 128 + 64),
        ("per_kv_head_ids", 1, 20,
         [[ids20 + [19], [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 1, 3, 5, 7, 9, 19],
           [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 0, 2, 4, 6, 8, 19], [10, 11, 12, 13, 14, 15, 16, 17, 18, 0, 1, 2, 3, 4, 5, 19]]],
         19 * 128 + 37),
    ]
    for ci, (name, b, nb, ids, seq) in enumerate(cases):
        r = Recipes()
        q = r.make("q", 40000 + 10 * ci, [b, HQ, D], 6.0)
        k = r.make("k_blocks", 40001 + 10 * ci, [b, HKV, nb, BY, D], 1.7)
        v = r.make("v_blocks", 40002 + 10 * ci, [b, HKV, nb, BY, D], 1.7)
        idt = torch.tensor(ids)
        per_head = idt.dim() == 3
        o = torch.zeros(b, HQ, D, dtype=torch.float64)
        for bi in range(b):
            for h in range(HKV):
                sel = idt[bi, h] if per_head else idt[bi]
                kk = k[bi, h, sel].reshape(-1, D).double()
                vv = v[bi, h, sel].reshape(-1, D).double()
                token = (sel[:, None] * BY + torch.arange(BY)[None]).reshape(-1)
                for g in range(GROUP):
                    o[bi, h * GROUP + g] = attend(q[bi, h * GROUP + g].double(), kk, vv, token < seq)
        tensors[f"{name}/block_ids"] = idt.int()
        tensors[f"{name}/out"] = o.float()
        meta[name] = {"seq_len": seq, "B": b, "nb": nb, "HQ": HQ, "HKV": HKV, "D": D, "block": BY, "inputs": r.items}
        log(f"msa_sparse_decode {name}: out std {o.std():.3f}")
    write_safetensors(os.path.join(out, "msa_sparse_decode.safetensors"), tensors, meta)


def msa_main_branch(out, log):
    tensors, meta = {}, {}
    cases = [
        # name, N, hq, hkv, dh, bk, topk, selected block indices, rows to keep (None = all)
        ("small", 150, 4, 2, 32, 32, 4, [2, 0, 4, 3], None),
        ("small_padded_topk", 70, 4, 2, 32, 32, 4, [2, 0, 1], None),
        ("n1", 1, 4, 2, 32, 32, 2, [0], None),
        ("first_block_missing", 100, 4, 2, 32, 32, 2, [1, 3], None),
        ("full_shape_n500", 500, HQ, HKV, D, BY, TOPK, [3, 1, 0, 2], [0, 130, 499]),
        ("full_shape_n2304", 2304, HQ, HKV, D, BY, TOPK, [17, 5, 0, 9, 2, 14, 7, 11, 3, 16, 1, 12, 8, 15, 4, 10], [127, 1300, 2303]),
    ]
    neg = -1e9
    for ci, (name, n, hq, hkv, dh, bk, topk, sel, rows) in enumerate(cases):
        r = Recipes()
        q = r.make("query", 60000 + 10 * ci, [n, hq, dh], 6.0, torch.float32)
        k = r.make("key", 60001 + 10 * ci, [n, hkv, dh], 1.7, torch.float32)
        v = r.make("value", 60002 + 10 * ci, [n, hkv, dh], 1.7, torch.float32)
        nblk = -(-n // bk)
        keep = list(range(n)) if rows is None else rows
        o = torch.zeros(len(keep), hq, dh, dtype=torch.float64)
        defined = torch.zeros(len(keep), dtype=torch.bool)
        cols = torch.tensor([s * bk + j for s in sel for j in range(bk)])
        inside = cols < n
        kz = torch.zeros(nblk * bk, hkv, dh, dtype=torch.float64)
        vz = torch.zeros(nblk * bk, hkv, dh, dtype=torch.float64)
        kz[:n], vz[:n] = k.double(), v.double()
        for ri, row in enumerate(keep):
            vis = cols <= row
            if not bool(vis.any()):
                continue
            defined[ri] = True
            for h in range(hq):
                kv = h // (hq // hkv)
                o[ri, h] = attend(q[row, h].double(), kz[cols, kv], vz[cols, kv], vis)
        # every visible column is a real key (padding keys lie after the last query)
        assert bool((inside | (cols > max(keep))).all())
        tensors[f"{name}/block_indices"] = torch.tensor(sel, dtype=torch.int32)
        tensors[f"{name}/rows"] = torch.tensor(keep, dtype=torch.int32)
        tensors[f"{name}/row_defined"] = defined
        tensors[f"{name}/out"] = o.float()
        if name in ("small", "small_padded_topk", "first_block_missing"):
            mask = torch.full((nblk, topk, bk, bk), neg)
            tri = torch.where(torch.arange(bk)[None] <= torch.arange(bk)[:, None], 0.0, neg)
            for qb in range(nblk):
                rows_valid = min(bk, n - qb * bk)
                for i, s in enumerate(sel):
                    if s == qb:
                        mask[qb, i, :rows_valid] = tri[:rows_valid]
                    elif s < qb:
                        mask[qb, i, :rows_valid] = 0.0
            # 0 = visible, 1 = hidden; value to add is 0 or -1e9
            tensors[f"{name}/block_mask_hidden"] = (mask != 0).to(torch.uint8)
            # the masked dense computation over the gathered blocks gives the same numbers
            kg = torch.zeros(topk * bk, hkv, dh, dtype=torch.float64)
            vg = torch.zeros(topk * bk, hkv, dh, dtype=torch.float64)
            kg[: len(cols)], vg[: len(cols)] = kz[cols], vz[cols]
            m2 = mask.transpose(1, 2).reshape(nblk * bk, topk * bk).double()
            for ri, row in enumerate(keep):
                if not bool(defined[ri]):
                    continue
                for h in range(hq):
                    kv = h // (hq // hkv)
                    s_ = kg[:, kv] @ q[row, h].double() / math.sqrt(dh) + m2[row]
                    alt = torch.softmax(s_, -1) @ vg[:, kv]
                    assert float((alt - o[ri, h]).abs().max()) < 1e-9
        meta[name] = {"N": n, "hq": hq, "hkv": hkv, "dh": dh, "bk": bk, "topk": topk, "inputs": r.items}
        log(f"msa_main_branch {name}: rows {len(keep)} defined {int(defined.sum())} out std {o.std():.3f}")
    write_safetensors(os.path.join(out, "msa_main_branch.safetensors"), tensors, meta)


# ------------------------------------------------------------------------------------------------


def finalize_routing(out, log):
    tensors, meta = {}, {}
    cases = [
        # name, fp8, transpose_x2, group_list_type, counts, K, N, batch, logit, shared rows (0 = off), offset, weight, rows
        ("e4m3_counts", E4M3, False, 1, [3, 3, 3, 3], 128, 24, 6, True, 6, 0, 1.0, "mod"),
        ("e4m3_t_prefix_uneven", E4M3, True, 0, [0, 5, 1, 0, 6], 192, 20, 6, True, 6, 0, 1.0, "mod"),
        ("e5m2_prefix", E5M2, False, 0, [2, 4, 6], 128, 24, 4, True, 4, 0, 1.0, "mod"),
        ("e5m2_t_counts_nologit", E5M2, True, 1, [4, 0, 8], 64, 32, 6, False, 6, 0, 1.0, "mod"),
        ("e4m3_noshared", E4M3, False, 1, [7, 5], 128, 24, 5, True, 0, 0, 1.0, "mod"),
        ("e4m3_plain", E4M3, True, 1, [6, 6], 128, 24, 4, False, 0, 0, 1.0, "mod"),
        ("collisions_offset_weight", E4M3, False, 0, [4, 4, 4], 128, 24, 6, True, 3, 2, 0.5, "collide"),
        ("odd_scale_groups", E4M3, True, 0, [5, 0, 3], 160, 16, 4, True, 4, 0, 0.25, "mod"),
        ("odd_scale_groups_nt", E4M3, False, 1, [5, 0, 3], 160, 16, 4, True, 4, 0, 0.25, "mod"),
    ]
    for ci, (name, fp8, tr, glt, counts, k, n, batch, has_logit, sh, off, wt, how) in enumerate(cases):
        g = torch.Generator().manual_seed(900 + ci)
        e, m = len(counts), sum(counts)
        kb = -(-k // 64)
        x1 = torch.randn(m, k, generator=g).to(fp8)
        x2 = torch.randn(*((e, n, k) if tr else (e, k, n)), generator=g).to(fp8)
        # one weight-scale table, shared by all experts, as in the operator description
        ws = torch.randint(121, 129, (n, kb, 2) if tr else (kb, n, 2), generator=g).to(torch.uint8)
        ps = torch.randint(122, 130, (m, kb, 2), generator=g).to(torch.uint8)
        logit = torch.rand(m, generator=g)
        shared = torch.randn(sh, n, generator=g).bfloat16() if sh else None
        init = torch.randn(batch, n, generator=g) if ci % 2 else torch.zeros(batch, n)
        row = torch.arange(m) % batch if how == "mod" else torch.tensor([0, 0, 5, 0, 5, 5, 0, 1, 0, 0, 5, 1])
        groups = -(-k // 32)
        wsn = ws if tr else ws.permute(1, 0, 2)  # [N, kb, 2]
        sw = e8m0_to_f32(wsn.reshape(n, kb * 2)[:, :groups]).repeat_interleave(32, 1)[:, :k]  # [N, K]
        sx = e8m0_to_f32(ps.reshape(m, kb * 2)[:, :groups]).repeat_interleave(32, 1)[:, :k]  # [M, K]
        o = init.double().clone()
        start = 0
        for ex in range(e):
            end = start + counts[ex]
            w = x2[ex].double() if tr else x2[ex].double().T  # [N, K]
            mm = (x1[start:end].double() * sx[start:end].double()) @ (w * sw.double()).T
            if has_logit:
                mm = mm * logit[start:end, None].double()
            o.index_add_(0, row[start:end], mm)
            start = end
        if sh:
            o[off : off + sh] += shared.double() * wt
        t = {
            "x1": x1, "x2": x2, "scale": ws, "pertoken_scale": ps,
            "group_list": torch.tensor(np.cumsum(counts) if glt == 0 else counts, dtype=torch.int64),
            "row_index": row.to(torch.int64), "out_init": init, "output": o.float(),
        }
        if has_logit:
            t["logit"] = logit
        if sh:
            t["shared_input"] = shared
        tensors.update({f"{name}/{a}": b for a, b in t.items()})
        meta[name] = {
            "transpose_x2": tr, "group_list_type": glt, "has_logit": has_logit, "has_shared_input": bool(sh),
            "shared_input_offset": off, "shared_input_weight": wt, "M": m, "K": k, "N": n, "E": e, "batch": batch,
            "in_dtype": "e4m3" if fp8 is E4M3 else "e5m2",
        }
        log(f"finalize_routing {name}: out max {o.abs().max():.2f}")
    write_safetensors(os.path.join(out, "grouped_matmul_finalize_routing.safetensors"), tensors, meta)


def build_all(out, log):
    activation(out)
    weight_layout(out)
    router(out, log)
    norm_rope(out)
    quant(out)
    msa_indexer(out, log)
    msa_sparse_decode(out, log)
    msa_main_branch(out, log)
    finalize_routing(out, log)
    grouped_gemm(out, log)
