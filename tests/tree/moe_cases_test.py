#!/usr/bin/env python3
"""Memory and traffic of a mixture of experts bigger than its budget, as a process. One subtest per case of the bug
collection, named by its id:

  M01  a cgroup of budget + 64 MiB, 512 tokens in, 64 out: finishes, peak within the budget, nothing is killed
  M02  2,000 tokens out, memory sampled all along: never above the budget
  M04  the file already in the page cache: nothing is thrown away for it, same hits
  M05  routing that moves to other experts: memory stays where it was
  M06  no slot, one slot, one slot less than a token needs, the smallest budget: the resident answer
  M10  prompts of 256, 1k and 8k tokens under one budget: the peak differs by KV pages only
  M13  file twice the limit: reads are those of the missed experts, large, and not page faults
  E04  prompt lengths around the chunk and page sizes, default and smallest cache
  E08  prefill with a cache of a tenth: each expert once per chunk, a quarter of decode's bytes per token
  I08  a slow card: few large reads while loading

Elsewhere: E01, E03, E06 tests/runtime/expert_store_test.cc; E02 tests/gates/identity_test.cc
(LongPromptTwiceWithTheSmallestCache); E07 tests/memory/expert_cache_test.cc (CostDoesNotGrowWithTheCache); I01, I02,
I04's short reads, I05, A01 moe_fault_test.py and fault_io_test.py; I04's offsets tests/runtime/huge_file_test.cc.

  moe_cases_test.py --sluice PROGRAM [CASE...]

Exit code 77 (loud) where no memory cgroup can be made, after the other cases ran.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from moe_support import (EXPERT_BYTES, EXPERTS, LAYERS, ROOT, SKIP, USED, check, forge, ids, run, skip,
                         stats_of, verdict, words)

MIB = 1 << 20
RUNNER = ROOT / "tools" / "cgroup_run.py"
COUNT_READS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static long calls, bytes;
static ssize_t count(const char *name, int fd, void *b, size_t n, off_t o) {
  ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
  const ssize_t r = real(fd, b, n, o);
  if (r > 0) { __atomic_fetch_add(&calls, 1, 5); __atomic_fetch_add(&bytes, r, 5); }
  return r;
}
ssize_t pread(int fd, void *b, size_t n, off_t o) { return count("pread", fd, b, n, o); }
ssize_t pread64(int fd, void *b, size_t n, off_t o) { return count("pread64", fd, b, n, o); }
__attribute__((destructor)) static void tell(void) {
  FILE *f = fopen(getenv("COUNT_READS"), "w");
  if (f) { fprintf(f, "%ld %ld", calls, bytes); fclose(f); }
}
"""


class Measured:
    """A finished command, the highest VmRSS seen every few milliseconds, its VmHWM and its major faults."""

    def __init__(self, command, period_s=0.02, env=None):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(words(command), stdout=out, stderr=err, env={**os.environ, **(env or {})})
            self.samples, done = [], threading.Event()
            sampler = threading.Thread(target=self.sample, args=(process.pid, period_s, done))
            sampler.start()
            _, status, usage = os.wait4(process.pid, 0)
            done.set()
            sampler.join()
            self.returncode = process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            self.stdout, self.stderr = out.read(), err.read()
        self.major_faults, self.peak = usage.ru_majflt, usage.ru_maxrss * 1024
        self.stats = stats_of(self)

    def sample(self, pid, period_s, done):
        while not done.wait(period_s):
            try:
                with open(f"/proc/{pid}/status") as file:
                    rss = re.search(r"VmRSS:\s+(\d+) kB", file.read())
            except OSError:
                return
            if rss:
                self.samples.append(int(rss[1]) * 1024)


class Cases:
    def __init__(self, sluice, work):
        self.sluice, self.work, self.no_cgroup = sluice, work, False
        self.big = forge(sluice, work / "big.gguf")
        # A fifth of the size and a tenth of the work, for long runs.
        self.small = forge(sluice, work / "small.gguf", layers=3, hidden=512, ff=256)
        self.resident = {}

    def command(self, model, prompt, tokens, budget, *more):
        return [self.sluice, "run", model, "--ids", prompt, "-n", tokens, "--greedy", "--ignore-eos", "--json", "--budget",
                budget, *more]

    def want(self, model, prompt, tokens, *more):
        """The hash of the logits with every expert in memory."""
        key = (model, prompt, tokens, more)
        if key not in self.resident:
            stats = stats_of(run(self.command(model, prompt, tokens, "2G", *more)))
            self.resident[key] = stats.get("logits_hash")
            slots = [line["detail"] for line in stats.get("streamed", []) if line["tag"] == "expert slots"]
            check("(the reference run has a slot for every expert)", slots and len(set(slots[0].split(" of "))) == 1, stats)
        return self.resident[key]

    def floor(self, model, *more):
        """The smallest budget that the plan admits, as it names it when refused."""
        refused = run([self.sluice, "plan", model, "--budget", "1M", *more])
        match = re.search(r"use --budget (\d+)M", refused.stderr)
        return int(match[1]) if match else 0

    def limited(self, limit, command):
        report = self.work / "report.json"
        result = run([sys.executable, RUNNER, "--limit", limit, "--report", report, "--", *command])
        if result.returncode == SKIP:
            self.no_cgroup = True
            return None, None
        return result, json.loads(report.read_text())

    def m01(self):
        budget = 80 * MIB
        prompt = ids(512)
        command = self.command(self.big, prompt, 64, "80M", "--ctx", "1024")
        result, report = self.limited(budget + 64 * MIB, command)
        if result is None:
            return skip("M01", "no memory cgroup can be made here")
        stats = stats_of(result)
        detail = f"{report}\n{result.stdout}\n{result.stderr}"
        check("M01 finishes", result.returncode == 0 and report["oom_kills"] == 0, detail)
        check("M01 the file is bigger than the limit", os.path.getsize(self.big) > budget + 64 * MIB)
        check(f"M01 peak {report['peak_rss_bytes'] / MIB:.1f} of 80 MiB", report["peak_rss_bytes"] <= budget, detail)
        check("M01 the answer of a run in memory",
              stats.get("logits_hash") == self.want(self.big, prompt, 64, "--ctx", "1024"), detail)

    def m02(self):
        budget = self.floor(self.small, "--ctx", "2304") + 10
        done = Measured(self.command(self.small, ids(8), 2000, f"{budget}M", "--ctx", "2304"), period_s=0.1)
        top = max(done.samples, default=0)
        check(f"M02 {len(done.samples)} samples, highest {top / MIB:.1f}, peak {done.peak / MIB:.1f} of {budget} MiB",
              done.returncode == 0 and done.samples and max(top, done.peak) <= budget * MIB, done.stderr)
        check("M02 experts streamed all along", 0 < done.stats.get("hit_rate", 1) < 0.95, done.stats)

    def m04(self):
        # Without what the first run computed: the second one must do the same work.
        command = self.command(self.big, ids(24), 40, "60M", "--ctx", "512", "--lookahead", "0", "--expert-slots", 24,
                               "--no-prefix-store")
        with open(self.big, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            cold = stats_of(run(command))
            while file.read(8 * MIB):
                pass
        warm = stats_of(run(command))
        check("M04 the same hits with the file in the page cache", cold and cold["hit_rate"] == warm.get("hit_rate"),
              f"{cold}\n{warm}")
        check("M04 the same bytes read", cold and cold["decode_bytes_read"] == warm.get("decode_bytes_read"),
              f"{cold}\n{warm}")
        check("M04 within the budget", warm.get("peak_rss_bytes", 1 << 60) <= 60 * MIB, warm)

    def m05(self):
        """Even tokens choose from the lower half of the experts, odd ones from the upper half."""
        layers, codes, trace = 3, 128, self.work / "parity.csv"
        with open(trace, "w") as file:
            file.write(f"# route_trace v1\n# model=parity n_layer={layers} n_expert={EXPERTS} n_expert_used={USED}\n")
            file.write("turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n")
            for token in range(codes):
                for layer in range(layers):
                    for slot in range(USED):
                        expert = token % 2 * (EXPERTS // 2) + (token // 2 * USED + slot + layer) % (EXPERTS // 2)
                        file.write(f"0,1,{token},{layer},{slot},{expert},{1 / USED},0,0\n")
        model = forge(self.sluice, self.work / "parity.gguf", layers=layers, hidden=512, ff=256, routing=trace)
        a, b = ids(200, 0, 2, codes), ids(200, 1, 2, codes)
        budget = self.floor(model, "--ctx", "1024", "--chunk", "8") + 8
        more = ["--ctx", "1024", "--chunk", "8"]
        plan = json.loads(run([self.sluice, "plan", model, "--budget", f"{budget}M", "--json", *more]).stdout)
        done = Measured(self.command(model, f"{a},{b}", 60, f"{budget}M", *more), period_s=0.005)
        slots = plan.get("expert_slots", 0)
        check(f"M05 {slots} of {layers * EXPERTS} experts fit: fewer than one prompt needs",
              0 < slots < layers * EXPERTS // 2, plan)
        check(f"M05 {len(done.samples)} samples, highest {max(done.samples, default=0) / MIB:.1f} of {budget} MiB",
              done.returncode == 0 and len(done.samples) > 5 and max([done.peak, *done.samples]) <= budget * MIB,
              done.stderr)
        check("M05 the answer of a run in memory",
              done.stats.get("logits_hash") == self.want(model, f"{a},{b}", 60, *more), done.stats)

    def m06(self):
        prompt, more = ids(70), ["--ctx", "256"]
        want = self.want(self.small, prompt, 12, *more)
        for slots in (0, 1, 3 * USED - 1, 3 * USED):
            stats = stats_of(run(self.command(self.small, prompt, 12, "200M", *more, "--expert-slots", slots)))
            check(f"M06 {slots} slots: the resident answer", stats.get("logits_hash") == want, stats)
        floor = self.floor(self.small, *more)
        for budget in (floor, floor + 1, floor + 2):
            result = run(self.command(self.small, prompt, 12, f"{budget}M", *more))
            check(f"M06 {budget} MiB: the resident answer, or refused with a number",
                  stats_of(result).get("logits_hash") == want or result.returncode == 4 and "--budget" in result.stderr,
                  f"exit {result.returncode}\n{result.stderr}{result.stdout}")
        result = run(self.command(self.small, prompt, 12, f"{floor + 2}M", *more))
        check("M06 2 MiB above the floor is enough", result.returncode == 0, result.stderr)

    def m10(self):
        more = ["--ctx", "8448"]
        budget = 72
        plan = json.loads(run([self.sluice, "plan", self.small, "--budget", f"{budget}M", "--json", *more]).stdout)
        kv = plan["kv_bytes_per_token"]  # what is beyond the share of KV spills and costs no memory
        peaks = {}
        for tokens in (256, 1024, 8192):
            done = Measured(self.command(self.small, ids(tokens), 2, f"{budget}M", *more), period_s=1)
            check(f"M10 {tokens} tokens: peak {done.peak / MIB:.1f} of {budget} MiB",
                  done.returncode == 0 and done.peak <= budget * MIB, done.stderr)
            peaks[tokens] = done.peak
        for tokens in (1024, 8192):
            more_kv = kv * (tokens - 256)
            check(f"M10 {tokens} tokens cost {(peaks[tokens] - peaks[256]) / MIB:.1f} MiB more, KV {more_kv / MIB:.1f}",
                  peaks[tokens] - peaks[256] <= more_kv + 1.5 * MIB)

    def m13(self):
        model = forge(self.sluice, self.work / "twice.gguf", experts=40)
        budget, limit = 42, 106 * MIB
        prompt, tokens = ids(16), 40
        command = self.command(model, prompt, tokens, f"{budget}M", "--ctx", "256")
        result, report = self.limited(limit, command)
        if result is not None:
            check("M13 a file of twice the limit: finishes, nothing is killed",
                  result.returncode == 0 and report["oom_kills"] == 0 and os.path.getsize(model) > 2 * limit,
                  f"{report}\n{result.stderr}")
        done = Measured([*command, "--lookahead", "1"])
        # What was read ahead in time counts as found, so the misses are those of a run without look-ahead.
        plain = Measured([*command, "--lookahead", "0"])
        missed = (1 - plain.stats.get("hit_rate", 1)) * LAYERS * USED * EXPERT_BYTES
        for name, stats in (("no look-ahead", plain.stats), ("look-ahead", done.stats)):
            ratio = stats.get("bytes_per_token", 1 << 60) / max(missed, 1)
            check(f"M13 {name}: {ratio:.3f} bytes read per byte of missed experts", missed > 0 and ratio <= 1.3, stats)
        check(f"M13 {done.major_faults} major faults in {tokens} tokens", done.major_faults <= tokens // 4)
        calls, volume = self.count_reads([*command, "--io", "pread"])
        check(f"M13 {calls} reads of {volume / max(calls, 1) / 1024:.0f} KiB", volume > 0 and volume / calls >= 64 * 1024)

    def count_reads(self, command, env=None):
        shim, told = self.work / "count.so", self.work / "count.txt"
        if not shim.exists():
            source = self.work / "count.c"
            source.write_text(COUNT_READS)
            subprocess.run(words(["cc", "-shared", "-fPIC", "-O2", "-o", shim, source, "-ldl"]), check=True)
        result = run(command, {"LD_PRELOAD": str(shim), "COUNT_READS": str(told), **(env or {})})
        if result.returncode != 0:
            print(result.stderr)
            return 0, 0
        calls, volume = told.read_text().split()
        return int(calls), int(volume)

    def e04(self):
        more = ["--ctx", "4096"]
        for tokens in (1, 63, 64, 65, 1023, 1024, 1025, 4000):
            prompt = ids(tokens)
            want = self.want(self.small, prompt, 2, *more)
            for name, cache in (("default", []), ("smallest", ["--expert-slots", 0])):
                result = run(self.command(self.small, prompt, 2, "56M", *more, *cache))
                check(f"E04 {tokens} tokens, {name} cache", stats_of(result).get("logits_hash") == want,
                      f"exit {result.returncode}\n{result.stderr}{result.stdout}")

    def e08(self):
        total = LAYERS * EXPERTS
        more = ["--ctx", "1152"]
        plan = json.loads(run([self.sluice, "plan", self.big, "--budget", "80M", "--json", *more]).stdout)
        command = self.command(self.big, ids(1024), 16, "80M", *more, "--expert-slots", total // 10)
        stats = stats_of(run(command))
        chunks = -(-1024 // plan["chunk"])
        sweep = total * (EXPERT_BYTES + 3 * 8192)  # each of the three parts with the blocks it touches
        sweep += 1024 * 8192 / chunks  # and the rows of the embedding
        read, decode = stats.get("prefill_bytes_read", 1 << 60), stats.get("bytes_per_token", 0)
        check(f"E08 {chunks} chunks read {read / sweep:.2f} sweeps", 0 < read <= chunks * sweep, stats)
        check(f"E08 {read / 1024 / MIB:.2f} MiB per prompt token, {decode / MIB:.2f} per decoded one",
              0 < read / 1024 < decode / 4, stats)

    def i08(self):
        """Layers of 30 MB and a head of 14 MB; the first read of each run of bytes is the only small one (but for the 64 samples
        by which the prefix store tells models apart)."""
        model = forge(self.sluice, self.work / "dense.gguf", layers=2, experts=2, used=1, hidden=4096, ff=256, heads=32,
                      head_dim=128)
        command = self.command(model, ids(1), 16, "1G", "--ctx", "256", "--io", "pread", "--no-prefix-store")
        calls, volume = self.count_reads(command)
        size = os.path.getsize(model)
        check(f"I08 {calls} reads of {volume / max(calls, 1) / 1024:.0f} KiB while loading {size / MIB:.0f} MiB",
              0.5 * size < volume <= 1.2 * size and volume / calls >= 512 * 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-cases-") as folder:
        cases = Cases(arguments.sluice, pathlib.Path(folder))
        for name in arguments.cases or ("M01", "M02", "M04", "M05", "M06", "M10", "M13", "E04", "E08", "I08"):
            getattr(cases, name.lower())()
    code = verdict()
    return SKIP if code == 0 and cases.no_cgroup else code


if __name__ == "__main__":
    sys.exit(main())
