#!/usr/bin/env python3
"""Fully resident models, here and in llama.cpp, taking turns; medians and ratios.

  bench/bench_resident.py MODEL.gguf... [--prompt 512] [--decode 64] [--rounds 3] [--threads 2] [--budget 20G] [--extra "--act q8"]
                          [--no-repack]

The rival is the prebuilt llama.cpp of npm, driven by rival.py ($SLUICE_RIVAL, default ../shared/tools/rival.py) with its defaults
(weights repacked at load), or with --no-repack where memory does not hold them twice. No memory limit, warm files: the first
round of each engine is thrown away. Appends a section per model to bench/results/resident.md.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from places import PYTHON, RESULTS, RIVAL, SLUICE, commit


def call(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(f"bench_resident: {command[0]} failed: {done.stderr[-300:]}", file=sys.stderr)
        return None


def ours(a, model, ids):
    return call([str(SLUICE), "bench", model, "--budget", a.budget, "--ids-file", ids, "--decode", str(a.decode), "--repeat", "1",
                 "--threads", str(a.threads), "--ctx", str(a.prompt + a.decode + 64), "--json"] + shlex.split(a.extra))


def theirs(a, model, ids):
    return call([PYTHON, str(RIVAL), model, "--ids-file", ids, "--decode", str(a.decode), "--threads", str(a.threads)] +
                (["--no-repack", "--load", "mmap"] if a.no_repack else []))


def section(a, model, runs):
    med = lambda engine, key: statistics.median([r[key] for r in runs[engine][1:] or runs[engine]])
    rate = {e: (med(e, "decode_tok_s"), med(e, "prefill_tok_s")) for e in runs}
    fraction = med("sluice", "bound_fraction")
    them = "llama.cpp, not repacked" if a.no_repack else "llama.cpp"
    lines = [f"## {pathlib.Path(model).name}, {a.prompt} + {a.decode} tokens, {a.threads} threads", "",
             f"{datetime.date.today()}, {os.cpu_count()} cores ({runs['sluice'][-1]['isa']}), commit {commit()}, medians of {a.rounds} interleaved rounds after "
             f"one that is thrown away, options `{a.extra or 'defaults'}`", "",
             "| engine | decode tok/s | ratio | prefill tok/s | ratio | of the memory bound |", "|---|---|---|---|---|---|",
             f"| Sluice | {rate['sluice'][0]:.2f} | {rate['sluice'][0] / rate['rival'][0]:.2f}x | {rate['sluice'][1]:.1f} | "
             f"{rate['sluice'][1] / rate['rival'][1]:.2f}x | {fraction:.2f} |",
             f"| {them} | {rate['rival'][0]:.2f} | | {rate['rival'][1]:.1f} | | |", ""]
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--decode", type=int, default=64)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--budget", default="20G")
    ap.add_argument("--extra", default="")
    ap.add_argument("--no-repack", action="store_true")
    a = ap.parse_args()
    out = RESULTS / "resident.md"
    for model in a.models:
        runs = {"sluice": [], "rival": []}
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as ids:
            ids.write(",".join(str(i % 128) for i in range(a.prompt)))
            ids.flush()
            for _ in range(a.rounds + 1):
                for engine, run in (("sluice", ours), ("rival", theirs)):
                    result = run(a, model, ids.name)
                    if result:
                        runs[engine].append(result)
        if not all(runs.values()):
            print(f"bench_resident: {model}: an engine never finished", file=sys.stderr)
            continue
        text = section(a, model, runs)
        print(text, flush=True)
        before = out.read_text() if out.exists() else "# Fully resident, beside llama.cpp\n\n"
        out.write_text(before + text + "\n")


main()
