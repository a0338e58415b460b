#!/usr/bin/env python3
"""Streams a model bigger than the memory limit, here and in llama.cpp, under the same cgroup, and writes down both.

  bench/bench_35b.py [--shape qwen3-30b-a3b] [--routing TRACE.csv|uniform] [--limits 3G,4G] [--rounds 2]
                     [--prompt 28] [--decode 100] [--threads 2] [--no-rival] [--extra "--lookahead 0"]

The file is forged once into $SLUICE_MODELS/forge and reused. Each measurement starts cold (page cache dropped) in
its own memory cgroup whose limit is the budget; engines take turns, medians count. The rival is the prebuilt
llama.cpp of npm, driven by rival.py ($SLUICE_RIVAL, default ../shared/tools/rival.py), with its only settings that
survive such a limit: mmap, no repacking, and the block device's read_ahead_kb at 128 (restored afterwards).
Results: a table (.md), the raw numbers (.json) and a plot (.svg) in bench/results.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

from places import MODELS, PYTHON, RESULTS, RIVAL, ROOT, SHARED, SLUICE, commit


def size(text):
    return int(float(text[:-1]) * (1 << {"K": 10, "M": 20, "G": 30}[text[-1].upper()]))


def drop_caches():
    os.sync()
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def read_ahead_file(path):
    """The read_ahead_kb of the disk that holds path (of the whole disk when it lies on a partition)."""
    st = os.stat(path)
    base = pathlib.Path(f"/sys/dev/block/{os.major(st.st_dev)}:{os.minor(st.st_dev)}").resolve()
    for d in (base, base.parent):
        if (d / "queue/read_ahead_kb").exists():
            return d / "queue/read_ahead_kb"
    return None


@contextlib.contextmanager
def read_ahead(path, kb):
    knob = read_ahead_file(path)
    before = knob.read_text() if knob else None
    try:
        if knob:
            knob.write_text(str(kb))
        yield
    finally:
        if knob:
            knob.write_text(before)


def in_cgroup(limit, command):
    """(parsed JSON of stdout or None, report of cgroup_run)"""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        run = subprocess.run([sys.executable, str(ROOT / "tools/cgroup_run.py"), "--limit", str(limit), "--report", report.name,
                              "--"] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text = pathlib.Path(report.name).read_text()
        facts = json.loads(text) if text else {"exit_code": run.returncode}
    try:
        return json.loads(run.stdout), facts
    except ValueError:
        facts["stderr"] = run.stderr[-400:]
        return None, facts


def forge(shape, routing):
    name = "uniform" if routing == "uniform" else pathlib.Path(routing).name.split(".route")[0].split(".")[-1]
    out = MODELS / "forge" / f"{shape}.{name}.gguf"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(SLUICE), "forge", shape, str(out), "--routing", routing], check=True)
    return out


def ours(a, model, limit, ids_file):
    drop_caches()
    result, facts = in_cgroup(limit, [str(SLUICE), "bench", str(model), "--budget", str(limit), "--ids-file", ids_file, "--decode",
                                      str(a.decode), "--repeat", "1", "--threads", str(a.threads), "--ctx",
                                      str(a.prompt + a.decode + 64), "--json"] + shlex.split(a.extra))
    return dict(engine="sluice", limit=limit, facts=facts, **({"run": result} if result else {}))


def rival(a, model, limit, ids_file):
    drop_caches()
    with read_ahead(model, 128):
        result, facts = in_cgroup(limit, [PYTHON, str(RIVAL), str(model), "--ids-file", ids_file, "--decode", str(a.decode),
                                          "--threads", str(a.threads), "--no-repack", "--load", "mmap"])
    return dict(engine="llama.cpp", limit=limit, facts=facts, **({"run": result} if result else {}))


def medians(rows, engine, limit):
    runs = [r["run"] for r in rows if r["engine"] == engine and r["limit"] == limit and "run" in r]
    if not runs:
        return None
    med = lambda key: statistics.median([r[key] for r in runs if r.get(key) is not None] or [0])
    per_token = med("bytes_per_token") if engine == "sluice" else med("read_bytes") / max(1, med("prompt_tokens") + med("decode_tokens"))
    peak = max(r["peak_rss_bytes"] for r in runs)
    return dict(decode=med("decode_tok_s"), ttft=med("ttft_s"), prefill=med("prefill_tok_s"), mb=per_token / 1e6, peak=peak,
                hit=med("hit_rate"), fraction=med("bound_fraction"), bound=med("bound_tok_s"), stall=med("stall_ms_per_token"),
                shared=med("shared_bound_tok_s"), of_shared=med("shared_bound_fraction"),
                compute=med("compute_ms_per_token"), ahead=med("lookahead_accuracy"), runs=len(runs))


def table(a, rows, limits):
    lines = [f"# {a.shape}, routing {a.routing_name}, {a.prompt} + {a.decode} tokens, cold", "",
             f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, commit {commit()}, "
             f"medians of {a.rounds} interleaved rounds, options `{a.extra or 'defaults'}`", "",
             "| limit | engine | decode tok/s | ratio | first token s | prefill tok/s | read MB/token | hit | bound tok/s | reached | shared bound | reached | stall / compute ms | peak MiB |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for limit in limits:
        them = medians(rows, "llama.cpp", limit)
        for engine in ("sluice", "llama.cpp"):
            m = medians(rows, engine, limit)
            if not m:
                failed = [r["facts"] for r in rows if r["engine"] == engine and r["limit"] == limit]
                if failed:
                    lines.append(f"| {limit / 2**30:g} GiB | {engine} | failed: {failed[0].get('exit_code')}, OOM kills {failed[0].get('oom_kills')} |" + " |" * 11)
                continue
            own = engine == "sluice"
            ratio = f"{m['decode'] / them['decode']:.2f}x" if own and them and them["decode"] else ""
            lines.append(f"| {limit / 2**30:g} GiB | {engine} | {m['decode']:.2f} | {ratio} | {m['ttft']:.1f} | {m['prefill']:.2f} | {m['mb']:.0f} | "
                         + (f"{m['hit']:.3f} | {m['bound']:.2f} | {m['fraction']:.2f} | {m['shared']:.2f} | {m['of_shared']:.2f} | {m['stall']:.0f} / {m['compute']:.0f} | " if own else "| | | | | | ")
                         + f"{m['peak'] / 2**20:.0f} |")
    return "\n".join(lines) + "\n"


def plot(a, rows, limits):
    """Decode rate over the memory limit, one line per engine, as a small SVG."""
    w, h, left, bottom = 640, 360, 60, 50
    series = {e: [(l / 2**30, medians(rows, e, l)["decode"]) for l in limits if medians(rows, e, l)] for e in ("sluice", "llama.cpp")}
    top = max([y for s in series.values() for _, y in s] or [1]) * 1.15
    x_max = max(limits) / 2**30 * 1.1
    px = lambda x: left + x / x_max * (w - left - 20)
    py = lambda y: h - bottom - y / top * (h - bottom - 40)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" font-family="sans-serif" font-size="13">',
           f'<rect width="{w}" height="{h}" fill="white"/><text x="{left}" y="22" font-size="15">{a.shape}, {a.routing_name}: decode tokens per second</text>']
    for i in range(6):
        y = top * i / 5
        out.append(f'<line x1="{left}" x2="{w - 20}" y1="{py(y):.1f}" y2="{py(y):.1f}" stroke="#ddd"/><text x="{left - 8}" y="{py(y) + 4:.1f}" text-anchor="end">{y:.1f}</text>')
    for limit in limits:
        x = limit / 2**30
        out.append(f'<text x="{px(x):.1f}" y="{h - bottom + 20}" text-anchor="middle">{x:g} GiB</text>')
    for (engine, points), colour in zip(series.items(), ("#0b6e99", "#c4572b")):
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="4" fill="{colour}"/><text x="{px(x):.1f}" y="{py(y) - 9:.1f}" text-anchor="middle" fill="{colour}">{y:.2f}</text>' for x, y in points]
        if points:
            out.append(f'<text x="{px(points[0][0]) - 14:.1f}" y="{py(points[0][1]) + 4:.1f}" fill="{colour}" text-anchor="end">{engine}</text>')
    out.append(f'<text x="{(w + left) / 2}" y="{h - 10}" text-anchor="middle">memory limit of the cgroup (the whole budget)</text></svg>')
    return "\n".join(out)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shape", default="qwen3-30b-a3b")
    ap.add_argument("--routing", default=str(SHARED / "traces/qwen3-30b-a3b.top6.route.csv"))
    ap.add_argument("--limits", default="3G")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--prompt", type=int, default=28)
    ap.add_argument("--decode", type=int, default=100)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--no-rival", action="store_true")
    ap.add_argument("--extra", default="")
    ap.add_argument("--tag", default="")
    a = ap.parse_args()
    a.routing_name = "uniform" if a.routing == "uniform" else pathlib.Path(a.routing).name.replace(".route.csv", "")
    if not RIVAL.exists() and not a.no_rival:
        print(f"bench_35b: SKIP the rival: no {RIVAL}", file=sys.stderr)
        a.no_rival = True
    model = forge(a.shape, a.routing)
    limits = [size(x) for x in a.limits.split(",")]
    rows = []
    with tempfile.NamedTemporaryFile("w", suffix=".ids") as ids:
        ids.write(",".join(str(i) for i in range(a.prompt)))
        ids.flush()
        for r in range(a.rounds):
            for limit in limits:
                for run in [ours] + ([] if a.no_rival else [rival]):
                    rows.append(run(a, model, limit, ids.name))
                    got = rows[-1].get("run", {})
                    print(f"round {r + 1} {limit / 2**30:g} GiB {rows[-1]['engine']}: decode {got.get('decode_tok_s')} tok/s, first token {got.get('ttft_s')} s, "
                          f"{rows[-1]['facts']}", file=sys.stderr, flush=True)
    stem = f"{a.shape}.{a.routing_name.split('.')[-1]}.p{a.prompt}" + (f".{a.tag}" if a.tag else "")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{stem}.md").write_text(table(a, rows, limits))
    (RESULTS / f"{stem}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / f"{stem}.svg").write_text(plot(a, rows, limits))
    print(table(a, rows, limits))


main()
