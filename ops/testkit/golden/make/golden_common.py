# SPDX-License-Identifier: MIT OR Apache-2.0

"""Shared helpers for the golden generator: portable PRNG, FP8 / E8M0 codecs, safetensors writing."""

import json
import os

import numpy as np
import torch
from safetensors.torch import save_file

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2

# ----------------------------------------------------------------------------------------------
# Portable generator ("splitmix-u24"): element i of a tensor (row-major) is
#   z = seed + (i + 1) * 0x9E3779B97F4A7C15        (mod 2^64)
#   z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9       (mod 2^64)
#   z = (z ^ (z >> 27)) * 0x94D049BB133111EB       (mod 2^64)
#   z = z ^ (z >> 31)
#   f = float32(z >> 40) * 2^-23 - 1               (exact in float32, in [-1, 1))
#   v = float32(f * float32(scale)), then rounded to the stated dtype (round to nearest even)
# ----------------------------------------------------------------------------------------------


def splitmix_f32(seed: int, shape, scale: float) -> np.ndarray:
    n = int(np.prod(shape)) if len(shape) else 1
    out = np.empty(n, dtype=np.float32)
    step = 1 << 24
    with np.errstate(over="ignore"):
        for lo in range(0, n, step):
            hi = min(n, lo + step)
            i = np.arange(lo + 1, hi + 1, dtype=np.uint64)
            z = np.uint64(seed) + i * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            f = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
            out[lo:hi] = f * np.float32(scale)
    return out.reshape(shape)


def recipe_tensor(seed: int, shape, scale: float, dtype=torch.bfloat16) -> torch.Tensor:
    return torch.from_numpy(splitmix_f32(seed, tuple(shape), scale)).to(dtype)


def raw_bytes(t: torch.Tensor) -> bytes:
    return t.contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b""


def checksum(t: torch.Tensor) -> str:
    """sum over little-endian 16/32-bit words w_i of w_i * (i + 1), modulo 2^64, as 16 hex digits."""
    b = raw_bytes(t)
    width = t.element_size()
    dt = {1: np.uint8, 2: np.uint16, 4: np.uint32}[width]
    w = np.frombuffer(b, dtype=dt).astype(np.uint64)
    with np.errstate(over="ignore"):
        i = np.arange(1, w.size + 1, dtype=np.uint64)
        s = int((w * i).sum(dtype=np.uint64))
    return f"{s:016x}"


class Recipes:
    """Collects the recipe of every generated (not stored) tensor of one golden file."""

    NAMES = {torch.bfloat16: "bf16", torch.float32: "f32", torch.float16: "f16"}

    def __init__(self):
        self.items = {}

    def make(self, name, seed, shape, scale, dtype=torch.bfloat16):
        t = recipe_tensor(seed, shape, scale, dtype)
        self.items[name] = {
            "generator": "splitmix-u24",
            "seed": seed,
            "scale": scale,
            "shape": list(shape),
            "dtype": self.NAMES[dtype],
            "checksum": checksum(t),
        }
        return t


# ----------------------------------------------------------------------------------------------
# Quantisation exactly as the published checkpoints lay it out
# ----------------------------------------------------------------------------------------------


def quant_fp8_block(w: torch.Tensor, block: int = 128):
    """[O, I] f32 -> (E4M3 [O, I], F32 scale_inv [ceil(O/128), ceil(I/128)]); w ~= q * scale_inv."""
    o, i = w.shape
    bo, bi = -(-o // block), -(-i // block)
    scale = torch.zeros(bo, bi, dtype=torch.float32)
    q = torch.zeros(o, i, dtype=torch.float32)
    for a in range(bo):
        for b in range(bi):
            blk = w[a * block : (a + 1) * block, b * block : (b + 1) * block]
            s = blk.abs().max().clamp(min=1e-12) / 448.0
            scale[a, b] = s
            q[a * block : (a + 1) * block, b * block : (b + 1) * block] = (blk / s).clamp(-448, 448)
    return q.to(E4M3), scale


def dequant_fp8_block(q: torch.Tensor, scale: torch.Tensor, block: int = 128) -> torch.Tensor:
    o, i = q.shape
    s = scale.repeat_interleave(block, 0)[:o].repeat_interleave(block, 1)[:, :i]
    return q.to(torch.float32) * s


def quant_mxfp8(w: torch.Tensor, group: int = 32, fp8=E4M3):
    """[.., K] f32 -> (fp8 [.., K], U8 E8M0 [.., K/32]); w ~= q * 2^(u8 - 127)."""
    maxv = torch.finfo(fp8).max
    k = w.shape[-1]
    assert k % group == 0
    g = w.reshape(*w.shape[:-1], k // group, group)
    amax = g.abs().amax(-1).clamp(min=1e-30)
    e = torch.ceil(torch.log2(amax.double() / maxv)).clamp(-127, 127)
    q = (g.double() / torch.exp2(e)[..., None]).float().clamp(-maxv, maxv)
    return q.reshape(w.shape).to(fp8), (e + 127).to(torch.uint8)


def e8m0_to_f32(u: torch.Tensor) -> torch.Tensor:
    v = torch.exp2(u.to(torch.float64) - 127.0).to(torch.float32)
    return torch.where(u == 255, torch.full_like(v, float("nan")), v)


def dequant_mxfp8(q: torch.Tensor, u8: torch.Tensor, group: int = 32) -> torch.Tensor:
    s = e8m0_to_f32(u8).repeat_interleave(group, -1)[..., : q.shape[-1]]
    return q.to(torch.float32) * s


# ----------------------------------------------------------------------------------------------


def write_safetensors(path, tensors, metadata=None):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    clean = {}
    for k, v in tensors.items():
        if isinstance(v, np.ndarray):
            v = torch.from_numpy(v)
        clean[k] = v.detach().clone().contiguous()
    meta = {"format": "pt"}
    for k, v in (metadata or {}).items():
        meta[k] = v if isinstance(v, str) else json.dumps(v, sort_keys=True)
    save_file(clean, path, metadata=meta)
    os.chmod(path, 0o644)


def write_json(path, obj):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, ensure_ascii=False, indent=1)
        f.write("\n")
