#!/usr/bin/env python3
"""What a KV format costs in quality: KL divergence of its next-token distribution from that of an f16 cache.

  bench/kv_quality.py MODEL.gguf [--text FILE] [--tokens 2048] [--formats f32,q8,k8v4]

Feeds the same text through `sluice logits` once per format and prints, over all positions of the second half (where the
cache is long), the mean and 99th percentile of KL(f16 || format) in nats, how often the likeliest token agrees, and the
perplexity. Needs numpy. The default text is this repository's documentation.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

from places import ROOT, SLUICE


def run(*args):
    return subprocess.run([str(SLUICE)] + [str(a) for a in args], check=True, stdout=subprocess.PIPE).stdout


def token_ids(model, text, count):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        return json.loads(run("tokenize", model, "-f", file.name, "--bos", "--json"))["ids"][:count]


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def compare(base, other, ids):
    """KL per position, agreement and mean negative log likelihood, in slices that fit memory."""
    kl, same, loss = [], 0, []
    for begin in range(len(ids) // 2, len(ids) - 1, 64):
        end = min(begin + 64, len(ids) - 1)
        p, q = (log_softmax(np.asarray(m[begin:end], dtype=np.float64)) for m in (base, other))
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
        loss.append(-q[np.arange(end - begin), ids[begin + 1:end + 1]])
    kl, loss = np.concatenate(kl), np.concatenate(loss)
    return kl.mean(), np.quantile(kl, 0.99), same / len(kl), np.exp(loss.mean())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--text", type=pathlib.Path)
    ap.add_argument("--tokens", type=int, default=2048)
    ap.add_argument("--formats", default="f32,q8,k8v4")
    a = ap.parse_args()
    files = [a.text] if a.text else sorted((ROOT / "docs").glob("*.md"))
    ids = token_ids(a.model, "\n\n".join(f.read_text() for f in files), a.tokens)
    print(f"{pathlib.Path(a.model).name}, {len(ids)} tokens, second half counted\n")
    print("| KV | mean KL (nats) | 99th percentile | same likeliest token | perplexity |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = pathlib.Path(folder)
        (folder / "ids").write_text(",".join(map(str, ids)))
        for kv in ["f16"] + a.formats.split(","):
            run("logits", a.model, "--ids-file", folder / "ids", "--kv", kv, "--out", folder / f"{kv}.npy")
            base, other = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("f16", kv))
            mean, p99, same, ppl = compare(base, other, np.array(ids))
            print(f"| {kv} | {mean:.2e} | {p99:.2e} | {100 * same:.2f} % | {ppl:.3f} |", flush=True)
            if kv != "f16":
                (folder / f"{kv}.npy").unlink()


main()
