#!/usr/bin/env python3
"""How long a second chat with the same long beginning waits for its first token, in the same process and after a restart.

  bench/bench_state.py MODEL.gguf... [--prefix 1000] [--question 16] [--rounds 3] [--budget auto] [--threads N] [--extra "--kv q8"]

Per round, in a state folder of its own: one process asks twice (the first asks for everything, the second begins alike), then
another one asks a third time, the page cache dropped before it (as root; else the pages of the model and the store only). Waits
are from the question to the first token, without and with loading the model. Fails when the second waits longer than 5 % of the
first, or the third, model loaded, longer than 10 %, unless --no-limits. Appends a section per model to bench/results/state.md.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from places import RESULTS, SLUICE, commit


def drop_caches(paths):
    os.sync()
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ask(a, model, state, repeat, seed):
    command = [str(a.sluice), "bench", str(model), "--budget", a.budget, "--ctx", str(a.prefix + a.question + 64), "--state-dir", state,
               "--prefix-tokens", str(a.prefix), "--prompt-tokens", str(a.question), "--decode", "1", "--repeat", str(repeat), "--seed",
               str(seed), "--json"] + (["--threads", str(a.threads)] if a.threads else []) + shlex.split(a.extra)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench_state: {' '.join(command)}: {done.stderr[-400:]}")
    answer = json.loads(done.stdout)
    for run in answer["runs"]:
        run["load_s"] = answer["load_s"]
        run["wait_s"] = run["ttft_s"] - answer["load_s"]
    return answer


def one_round(a, model):
    with tempfile.TemporaryDirectory(dir=a.state_dir) as state:
        drop_caches([model])
        both = ask(a, model, state, 2, 1)
        kept = [path for path in pathlib.Path(state).rglob("*") if path.is_file()]
        stored = sum(path.stat().st_size for path in kept)
        drop_caches([model, *kept])
        later = ask(a, model, state, 1, 2)
    return {"first": both["runs"][0], "second, same process": both["runs"][1], "third, after a restart": later["runs"][0],
            "stored": stored, "io": later["io"], "isa": later["isa"]}


def section(a, model, rounds):
    names = [name for name in rounds[0] if isinstance(rounds[0][name], dict)]
    med = lambda name, key: statistics.median(r[name][key] for r in rounds)
    first = med("first", "wait_s")
    lines = [f"## {pathlib.Path(model).name}, {a.prefix} + {a.question} tokens", "",
             f"{datetime.date.today()}, {os.cpu_count()} cores ({rounds[0]['isa']}, {rounds[0]['io']}), commit {commit()}, budget {a.budget}, "
             f"options `{a.extra or 'defaults'}`, medians of {a.rounds} rounds; {rounds[0]['stored'] / 2**20:.1f} MiB stored", "",
             "| question | processed | known | read for it | to the first token | of the first | with loading |", "|---|---|---|---|---|---|---|"]
    for name in names:
        wait = med(name, "wait_s")
        total = "" if name.startswith("second") else f"{wait + med(name, 'load_s'):.2f} s"
        lines.append(f"| {name} | {med(name, 'prompt_tokens'):.0f} | {med(name, 'reused_tokens'):.0f} | "
                     f"{med(name, 'prefill_bytes_read') / 1e6:.0f} MB | {wait * 1000:.0f} ms | {wait / first:.1%} | {total} |")
    ratios = [med(name, "wait_s") / first for name in names]
    return "\n".join(lines) + "\n", ratios[1] <= 0.05 and ratios[2] <= 0.10


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--prefix", type=int, default=1000)
    ap.add_argument("--question", type=int, default=16)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--budget", default="auto")
    ap.add_argument("--threads", type=int)
    ap.add_argument("--extra", default="")
    ap.add_argument("--sluice", type=pathlib.Path, default=SLUICE)
    ap.add_argument("--state-dir", help="make the state folders here (a real disk; default: the system's temporary folder)")
    ap.add_argument("--no-limits", action="store_true")
    ap.add_argument("--out", type=pathlib.Path, default=RESULTS / "state.md")
    a = ap.parse_args()
    good = True
    for model in a.models:
        text, within = section(a, model, [one_round(a, model) for _ in range(a.rounds)])
        print(text)
        good = good and within
        known = a.out.read_text() if a.out.exists() else "# Waiting for a first token that others have waited for\n"
        a.out.write_text(known + "\n" + text)
    return 0 if good or a.no_limits else 1


if __name__ == "__main__":
    sys.exit(main())
