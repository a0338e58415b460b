#!/usr/bin/env python3
"""The budget is a promise: a real model answers inside a memory cgroup as large as its budget.

  budget_test.py --sluice PROGRAM [--budget 72M]

Checks that the answer is right, that peak resident memory stays within the budget, that nothing is killed,
and that a hopeless budget is refused with the shortfall. Exit code 77 (loud) where no group can be made or
the default model is not there.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/cgroup_run.py"
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def limited(limit_bytes, command):
    """Runs a command under the limit; returns (the finished process, the runner's report)."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        process = subprocess.run([sys.executable, RUNNER, "--limit", str(limit_bytes), "--report", report, "--", *command],
                                 capture_output=True, text=True, timeout=600)
        if process.returncode == SKIP:
            print(process.stderr, file=sys.stderr)
            sys.exit(SKIP)
        return process, json.loads(report.read_text())


def check(ok, what, process):
    if ok:
        return
    print(f"budget_test: FAILED: {what}\n--- stdout\n{process.stdout}\n--- stderr\n{process.stderr}", file=sys.stderr)
    sys.exit(1)


def check_that_the_limit_bites(budget):
    """Without this, a runner that limits nothing would let every budget pass."""
    greedy = f"data = bytearray({budget * 2}); print(len(data))"
    process, report = limited(budget, [sys.executable, "-c", greedy])
    check(process.returncode != 0, "twice the limit was allocated and nothing happened", process)
    check(report["peak_rss_bytes"] < budget * 1.5, f"the limit did not hold: {report}", process)


def check_answer(sluice, model, budget, budget_text):
    command = [sluice, "run", model, "-p", "What is the capital of France?", "--greedy", "-n", "32",
               "--budget", budget_text, "--ctx", "512", "--json"]
    process, report = limited(budget, command)
    check(process.returncode == 0, f"exit code {process.returncode}, report {report}", process)
    check(report["oom_kills"] == 0, f"something was killed: {report}", process)
    answer = json.loads(process.stdout)
    check("Paris" in answer["text"], "the answer does not name Paris", process)
    stats = answer["stats"]
    check(report["peak_rss_bytes"] <= budget, f"peak {report['peak_rss_bytes']} is above the budget {budget}", process)
    check(stats["budget_bytes"] == budget, f"stats give the budget as {stats['budget_bytes']}", process)
    check(0 < stats["peak_rss_bytes"] <= budget, f"stats give the peak as {stats['peak_rss_bytes']}", process)
    check(budget < os.path.getsize(model), "the budget is no smaller than the file: this proves nothing", process)
    print(f"budget_test: peak {report['peak_rss_bytes'] / 2**20:.1f} MiB of {budget / 2**20:.1f} MiB, "
          f"cgroup v{report['version']}, {stats['decode_tok_s']:.1f} tok/s")


def check_refusal(sluice, model):
    process, report = limited(UNITS["M"] * 64, [sluice, "run", model, "-p", "Hi", "--greedy", "-n", "1", "--budget", "4M"])
    check(process.returncode == 4, f"a budget of 4M gave exit code {process.returncode}, not 4: {report}", process)
    check(process.stderr.count("sluice: error: ") == 1, "no one-line error", process)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--budget", default="72M")
    arguments = parser.parse_args()
    folder = os.environ.get("SLUICE_MODELS", os.path.expanduser("~/.cache/sluice"))
    model = os.path.join(folder, MODEL)
    if not os.path.exists(model):
        print(f"budget_test: SKIP: {model} is missing; tools/setup fetches it", file=sys.stderr)
        return SKIP
    budget = int(arguments.budget[:-1]) * UNITS[arguments.budget[-1]]
    check_that_the_limit_bites(budget)
    check_answer(arguments.sluice, model, budget, arguments.budget)
    check_refusal(arguments.sluice, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
