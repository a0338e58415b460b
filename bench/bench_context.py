#!/usr/bin/env python3
"""What a long context costs: one text, longer each time, over the same state folder, in a memory cgroup (as root).

  bench/bench_context.py MODEL.gguf [--budget 3G] [--ctx 32768] [--kv q8] [--lengths 1000,8000,32000] [--decode 24]
                         [--text FILE] [--state-dir DIR] [--extra ""]

Each length begins with the text of the one before, so that only what is new is processed; the page cache is dropped before each
run. A length that did not finish can be asked for again with the same --state-dir: what was complete of it is found. The last run
is repeated: that is a start with a stored prefix. Appends a section to bench/results/context.md.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

from places import RESULTS, ROOT, SLUICE, commit


def words(n, seed=1):
    """A text of n letters and more: words that no tokenizer knows, and some that all do."""
    rng = random.Random(seed)
    known, out, size = "the of to and in is it as at or are be for on by".split(), [], 0
    while size < n:
        word = rng.choice(known) if rng.random() < 0.4 else "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 8)))
        out.append(word)
        size += len(word) + 1
    return " ".join(out)


def tokens(a, text):
    done = subprocess.run([str(a.sluice), "tokenize", a.model, "-f", "-"], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.count(",") + 1


def texts(a):
    """For each length a beginning of one text that has almost as many tokens, never more."""
    whole = pathlib.Path(a.text).read_text() if a.text else words(max(a.lengths) * 8)
    per_letter = tokens(a, whole[:65536]) / len(whole[:65536])
    for n in a.lengths:
        letters = int(n / per_letter)
        while tokens(a, whole[:letters]) > n:
            letters = int(letters * 0.995)
        if letters > len(whole):
            sys.exit(f"bench_context: the text has fewer than {n} tokens")
        yield whole[:letters]


def run(a, text, folder):
    prompt, report = folder / "prompt.txt", folder / "report.json"
    prompt.write_text(text)
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    command = [sys.executable, str(ROOT / "tools/cgroup_run.py"), "--limit", a.budget, "--report", str(report), "--", str(a.sluice), "run", a.model,
               "--raw", "-f", str(prompt), "--greedy", "--ignore-eos", "-n", str(a.decode), "--budget", a.budget, "--ctx", str(a.ctx), "--kv", a.kv,
               "--state-dir", a.state_dir, "--json"] + shlex.split(a.extra)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench_context: {' '.join(command)}: {done.stderr[-400:]}")
    stats = json.loads(done.stdout)["stats"]
    stats["cgroup"] = json.loads(report.read_text())
    return stats


def row(s):
    known, new = s["reused_tokens"], s["prompt_tokens"]
    return (f"| {known + new} | {known} | {new} | {s['ttft_s']:.1f} s | {s['prefill_tok_s']:.1f} | {s['decode_tok_s']:.2f} | "
            f"{s['compute_ms_per_token']:.0f} / {s['stall_ms_per_token']:.0f} ms | {s['bytes_per_token'] / 1e6:.0f} MB | "
            f"{s['peak_rss_bytes'] / 2**20:.0f} MiB |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--budget", default="3G")
    ap.add_argument("--ctx", type=int, default=32768)
    ap.add_argument("--kv", default="q8")
    ap.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[1000, 8000, 32000])
    ap.add_argument("--decode", type=int, default=24)
    ap.add_argument("--text", help="a file (default: words made up)")
    ap.add_argument("--state-dir", help="kept; default: a new one, deleted at the end")
    ap.add_argument("--extra", default="")
    ap.add_argument("--sluice", default=SLUICE)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory(dir=a.state_dir and pathlib.Path(a.state_dir).parent) as folder:
        a.state_dir = a.state_dir or folder + "/state"
        plan = json.loads(subprocess.run([str(a.sluice), "plan", a.model, "--budget", a.budget, "--ctx", str(a.ctx), "--kv", a.kv, "--json"] +
                                         shlex.split(a.extra), stdout=subprocess.PIPE, text=True, check=True).stdout)
        lines = [f"## {pathlib.Path(a.model).name}, context {a.ctx}, {a.kv}, in {a.budget}", "",
                 f"{datetime.date.today()}, {os.cpu_count()} cores, commit {commit()}, cgroup and budget {a.budget}, page cache dropped before each run, "
                 f"options `{a.extra or 'defaults'}`. Plan: KV {plan['kv_bytes'] / 2**20:.1f} MiB in memory ({plan['kv_bytes_per_token']} B per token), "
                 f"{plan['kv_spill_bytes'] / 2**20:.1f} MiB on the disk, {plan['expert_slots']} expert slots, chunk {plan['chunk']}.", "",
                 "| tokens | known | processed | first token (with loading) | prefill tok/s | decode tok/s | compute / wait per token | read per token | peak RSS |",
                 "|---|---|---|---|---|---|---|---|---|"]
        prompts = list(texts(a))
        for text in prompts + prompts[-1:]:
            stats = run(a, text, pathlib.Path(folder))
            if stats["cgroup"].get("oom_kills", 0):
                sys.exit("bench_context: killed for memory")
            lines.append(row(stats))
            print(lines[-1], flush=True)
    out = RESULTS / "context.md"
    before = out.read_text() if out.exists() else "# Long contexts\n\n"
    out.write_text(before + "\n".join(lines) + "\n\n")


main()
