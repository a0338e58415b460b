#!/usr/bin/env python3
"""Reads under a misbehaving libc and a seccomp filter.

usage: fault_io_test.py TEST_IO [SLUICE]

Builds the two small C programs of the shared cases (found by $SLUICE_SHARED, default ../shared beside the
checkout; exit 77 = skipped when absent) and runs the io room's tests under each fault. With the program
SLUICE, `logits` of a small model must come out byte for byte the same under every fault that can be
survived, and exit 5 with one line under the others.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
TOOLS = SHARED / "cases" / "tools"
MODEL = SHARED / "cases" / "dev" / "gguf" / "ok-llama-f32.gguf"
SCRATCH = "sluice_io_"
SUITE = "All/QueueSuite.*/Auto:All/QueueSuite.*/Buffered:All/QueueSuite.*/Pread:FileTest.ReadsWhat*"

# mode, further variables, what PreloadTest must see, whether the suite must pass too
FAULTS = [
    ("short", {"FAULTIO_MAX": "7"}, "ok", False),
    ("short", {"FAULTIO_MAX": "4097"}, "ok", True),
    ("eintr", {}, "ok", True),
    ("eio", {"FAULTIO_AT": "2100000"}, "error:read failed: Input/output error", False),
    ("eio", {"FAULTIO_AT": "0"}, "error:read failed: Input/output error", False),
    ("eof", {"FAULTIO_AT": "2100000"}, "error:unexpected end of file", False),
    ("dio-open", {}, "ok:buffered", True),
    ("dio-read", {}, "ok:buffered", True),
    ("dio-lie", {}, "ok:buffered", True),
    ("slow", {"FAULTIO_MS": "2"}, "ok", True),
]
URING_CALLS = "425,426,427"
failures = []


def check(name, condition, detail=""):
    print(("ok    " if condition else "FAIL  ") + name, flush=True)
    if not condition:
        failures.append(name)
        print(detail)


def run(command, env=None, timeout=300):
    return subprocess.run(command, env={**os.environ, **(env or {})}, text=True, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def build(work):
    shim, deny = work / "faultio.so", work / "denycall"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, TOOLS / "faultio.c", "-ldl"], check=True)
    subprocess.run(["cc", "-O2", "-o", deny, TOOLS / "denycall.c"], check=True)
    return shim, deny


def gtest(binary, pattern):
    return [str(binary), "--gtest_brief=1", f"--gtest_filter={pattern}"]


def no_test_ran(output):
    return " 0 tests from" in output or "[  SKIPPED ] 1 test" in output and "[  PASSED  ] 0" in output


def test_room(binary, shim, deny):
    for mode, extra, expect, suite in FAULTS:
        # io_uring does not pass through libc: it is denied, so that every read meets the shim.
        env = {"LD_PRELOAD": str(shim), "FAULTIO_MATCH": SCRATCH, "FAULTIO_MODE": mode, **extra}
        name = " ".join([mode, *(f"{k}={v}" for k, v in extra.items())])
        under = [str(deny), "errno", URING_CALLS]
        result = run(under + gtest(binary, "PreloadTest.*"), {**env, "SLUICE_IO_EXPECT": expect})
        check(f"{name}: {expect}", result.returncode == 0 and not no_test_ran(result.stdout), result.stdout)
        if suite:
            result = run(under + gtest(binary, SUITE), env)
            check(f"{name}: queue suite", result.returncode == 0, result.stdout)
    for action in ("trap", "errno", "kill"):
        env = {"SLUICE_IO_EXPECT": "ok:pread"}
        result = run([str(deny), action, URING_CALLS] + gtest(binary, "PreloadTest.*"), env)
        if "Which is: \"buffered\"" in result.stdout:
            print(f"SKIP  denycall {action}: direct reads are refused in /tmp")
            continue
        check(f"denycall {action}: ok:pread", result.returncode == 0 and not no_test_ran(result.stdout), result.stdout)
        result = run([str(deny), action, URING_CALLS] + gtest(binary, SUITE))
        check(f"denycall {action}: queue suite", result.returncode == 0, result.stdout)
    # Old sandboxes kill statx as well; the io room must not need it.
    result = run([str(deny), "trap", URING_CALLS + ",332"] + gtest(binary, "FileTest.ReadsWhat*"))
    check("denycall trap statx", result.returncode == 0, result.stdout)


def test_program(sluice, shim, deny, work):
    out = work / "logits.npy"

    def logits(env=None, under=(), backend=None):
        out.unlink(missing_ok=True)
        command = [*under, str(sluice), "logits", str(MODEL), "--ids", "1,2,3,4", "--out", str(out)]
        command += ["--io", backend] if backend else []
        result = run([str(c) for c in command], env)
        return result, out.read_bytes() if out.exists() else None

    result, expected = logits()
    check("logits: no fault", result.returncode == 0 and expected is not None, result.stdout)
    denied = (deny, "errno", URING_CALLS)
    size = MODEL.stat().st_size
    for mode, extra, _, _ in FAULTS:
        if "FAULTIO_AT" in extra:
            extra = {"FAULTIO_AT": str(size // 2)}
        env = {"LD_PRELOAD": str(shim), "FAULTIO_MATCH": MODEL.name, "FAULTIO_MODE": mode, **extra}
        result, got = logits(env, denied)
        if mode in ("eio", "eof"):
            lines = [line for line in result.stdout.splitlines() if line.startswith("sluice: error: ")]
            good = result.returncode == 5 and len(lines) == 1 and MODEL.name in lines[0] and got is None
            check(f"logits {mode}: exit 5, one line, no output left", good, result.stdout)
        else:
            check(f"logits {mode}: same bytes", result.returncode == 0 and got == expected, result.stdout)
    for action in ("trap", "errno", "kill"):
        result, got = logits(under=(deny, action, URING_CALLS))
        check(f"logits denycall {action}: same bytes", result.returncode == 0 and got == expected, result.stdout)


def main():
    if not (TOOLS / "faultio.c").exists():
        print(f"SKIP: {TOOLS} is absent (set SLUICE_SHARED)")
        return 77
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        print("SKIP: the system call numbers here are those of x86-64")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shim, deny = build(work)
        test_room(Path(sys.argv[1]), shim, deny)
        if len(sys.argv) > 2 and Path(sys.argv[2]).exists():
            test_program(Path(sys.argv[2]), shim, deny, work)
        else:
            print("SKIP: no sluice program given; logits under faults not tried")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
