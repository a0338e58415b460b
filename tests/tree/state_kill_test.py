#!/usr/bin/env python3
"""kill -9 while `sluice run` keeps what it computed: whatever is left, the next run's logits are those of a cold one.

usage: state_kill_test.py --sluice BINARY [--rounds N]

Every round one or two runs of a tiny mixture (KV pages) or hybrid (recurrent states, too), whose prompts share a beginning
with those of earlier rounds, are killed at a random moment of their life. Then the same prompt must give the ids, and the hash
of all logits behind them, that it gives without a store. The folder stays from round to round and is small, so that
entries are deleted, too.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TINY = ("--layers 4 --experts 16 --used 3 --hidden 256 --ff 256 --heads 4 --kv-heads 2 --head-dim 64 --vocab 640 "
        "--context 2048").split()
SHAPES = {"qwen3-30b-a3b": [],
          "qwen3.6-35b-a3b": "--shared-ff 256 --key-heads 2 --value-heads 4 --delta-dim 64".split()}
STORE_BYTES = 4 << 20


class Runs:
    def __init__(self, sluice, work, shape):
        self.sluice, self.model, self.state = sluice, f"{work}/{shape}.gguf", f"{work}/state"
        subprocess.run([sluice, "forge", shape, self.model, *TINY, *SHAPES[shape]], check=True, capture_output=True)

    def command(self, ids, keep):
        store = ["--state-dir", self.state, "--prefix-store", str(STORE_BYTES)] if keep else ["--no-prefix-store"]
        return [self.sluice, "run", self.model, "--ids", ",".join(map(str, ids)), "-n", "4", "--greedy", "--json",
                "--ctx", "512", "--threads", "1", *store]

    def answer(self, ids, keep):
        """The ids and the hash of their logits; how many tokens were known; notices."""
        done = subprocess.run(self.command(ids, keep), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        result = json.loads(done.stdout)
        stats = result["stats"]
        return (result["ids"], stats["logits_hash"]), stats["reused_tokens"], done.stderr

    def killed(self, ids, count, after_s):
        runs = [subprocess.Popen(self.command(ids, True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for _ in range(count)]
        time.sleep(after_s)
        alive = sum(run.poll() is None for run in runs)
        for run in runs:
            run.kill()
            run.wait()
        return alive

    def temporaries(self):
        return list(Path(self.state).rglob("*.tmp"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little")
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as work:
        models = [Runs(options.sluice, work, shape) for shape in SHAPES]
        text = [rng.randrange(1, 640) for _ in range(460)]
        for runs in models:
            runs.answer(text, True)  # the model is in the page cache, the device is measured
        killed = torn = reused = 0
        for number in range(options.rounds):
            runs = models[number % 2]
            text = text[:rng.randrange(100, 300)]
            text += [rng.randrange(1, 640) for _ in range(460 - len(text))]
            start = time.monotonic()
            cold = runs.answer(text, False)[0]
            life_s = time.monotonic() - start
            killed += runs.killed(text, rng.choice((1, 1, 2)), rng.uniform(0.05, 1.6) * life_s)
            torn += len(runs.temporaries())
            warm, known, notices = runs.answer(text, True)
            reused += known > 0
            if warm != cold or "damaged" in notices:
                print(f"FAIL  round {number} (seed {seed}): {warm} after {known} known tokens, cold {cold}; {notices}")
                return 1
        stored = sum(p.stat().st_size for p in Path(runs.state, "prefix").rglob("*") if p.is_file())
        print(f"{options.rounds} rounds: {killed} runs killed, {torn} in the middle of a file; {reused} of the runs "
              f"after them began with stored state, {stored} bytes stored (seed {seed})")
        if runs.temporaries() or stored > STORE_BYTES:
            print(f"FAIL  left behind: {runs.temporaries()}, {stored} bytes")
            return 1
        if killed < options.rounds // 4 or reused < options.rounds // 4:
            print("FAIL  hardly anything was killed, or hardly anything reused: the test shows nothing")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
