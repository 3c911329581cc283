#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds the golden data: tiny checkpoints with expected outputs, and per-operator goldens.

Needs torch, transformers (with the MiniMax M2 and M3 classes), tokenizers, safetensors, numpy.
    python make_golden.py --out OUT [--only models|ops|NAME] [--work SCRATCH]     (about 10 minutes on two cores)
    python check_golden.py OUT          second implementation, numpy only
    python golden_readme.py OUT         writes OUT/README.md from the files and OUT/models/stats.json
"""

import argparse
import json
import logging
import os
import tempfile
import warnings

import torch

import golden_models as gm
import golden_ops as go

VARIANTS = {
    "m27-tiny-bf16": dict(
        m3=False, form="bf16", shards=1, long=200, cases=True, first_seed=100,
        cfg=dict(hidden=128, layers=2, heads=6, kv=2, head_dim=32, inter=64, experts=8, top_k=3, fp8=False),
    ),
    "m27-tiny-fp8": dict(
        m3=False, form="fp8", shards=2, long=200, cases=False, first_seed=200,
        cfg=dict(hidden=256, layers=2, heads=4, kv=2, head_dim=128, inter=128, experts=8, top_k=2, fp8=True),
    ),
    "m3-tiny-bf16": dict(
        m3=True, form="bf16", shards=2, long=757, cases=True, first_seed=300,
        cfg=dict(hidden=128, layers=5, dense_layers=3, heads=8, kv=4, head_dim=32, inter=32, dense_inter=128,
                 experts=8, top_k=4, topk_blocks=2, mxfp8=False),
    ),
    "m3-tiny-mxfp8": dict(
        m3=True, form="mxfp8", shards=2, long=757, cases=False, first_seed=400,
        cfg=dict(hidden=128, layers=5, dense_layers=3, heads=4, kv=2, head_dim=128, inter=64, dense_inter=256,
                 experts=8, top_k=2, topk_blocks=3, mxfp8=True),
    ),
}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--work", default=None)
    ap.add_argument("--only", default=None)
    a = ap.parse_args()
    torch.set_num_threads(2)
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ["TQDM_DISABLE"] = "1"
    work = a.work or tempfile.mkdtemp()

    def log(msg):
        print(msg, flush=True)

    stats = {}
    for name, v in VARIANTS.items():
        if a.only not in (None, "models", name):
            continue
        cfg = (gm.m3_config if v["m3"] else gm.m27_config)(**v["cfg"])

        def weights(seed, cfg=cfg, v=v):
            return gm.m3_weights(cfg, seed, mtp=v["form"] == "mxfp8") if v["m3"] else gm.m27_weights(cfg, seed)

        seed, w = gm.choose_seed(cfg, weights, v["form"], v["m3"], v["long"], work, log, v["first_seed"])
        stats[name] = {"weight_seed": seed} | gm.build(
            os.path.join(a.out, "models"), name, cfg, w, v["form"], v["shards"], not v["m3"], v["m3"], v["long"],
            work, log, seed, v["cases"],
        )
    if a.only in (None, "ops"):
        go.build_all(os.path.join(a.out, "ops"), log)
    if stats:
        path = os.path.join(a.out, "models", "stats.json")
        old = json.load(open(path)) if os.path.exists(path) else {}
        with open(path, "w") as f:
            json.dump(old | stats, f, indent=1, sort_keys=True)
            f.write("\n")


if __name__ == "__main__":
    main()
