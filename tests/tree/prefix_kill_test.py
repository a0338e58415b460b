#!/usr/bin/env python3
"""kill -9 while the prefix store is written: never a wrong byte, only whole entries, no temporary stays.

usage: prefix_kill_test.py TEST_RUNTIME [ROUNDS]

Each round a writer (of one or two) is killed at a random moment between its first write and the 60th millisecond
after; then another process opens the folder and reads everything back (tests/runtime/prefix_kill_test.cc).
"""
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILL_AFTER_S_MAX = 0.06


def start(binary, half, env):
    command = [binary, "--gtest_also_run_disabled_tests", "--gtest_brief=1", f"--gtest_filter=PrefixKill.{half}"]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def temporaries(folder):
    return [p for p in folder.rglob("*.tmp")]


def write_and_kill(binary, env, rng):
    writers = [start(binary, "DISABLED_WritesForEver", env) for _ in range(rng.choice((1, 1, 2)))]
    for writer in writers:
        while (line := writer.stdout.readline()) and line != "ready\n":
            pass
        if not line:
            return f"the writer ended: {writer.wait()}"
    time.sleep(rng.uniform(0, KILL_AFTER_S_MAX))
    for writer in writers:
        if writer.poll() is not None:
            return "the writer stopped by itself: " + writer.stdout.read()
        writer.kill()
    for writer in writers:
        writer.wait()
        writer.stdout.close()
    return None


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
    seed = int.from_bytes(os.urandom(4), "little")
    rng, torn, whole = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "prefix"
        env = {**os.environ, "SLUICE_PREFIX_KILL_DIR": str(folder)}
        for number in range(rounds):
            problem = write_and_kill(binary, env, rng)
            torn += len(temporaries(folder))
            if problem is None:
                reader = start(binary, "DISABLED_LooksAtWhatIsLeft", env)
                output = reader.communicate(timeout=60)[0]
                found = [line for line in output.splitlines() if line.startswith("whole ")]
                if reader.returncode != 0 or not found:
                    problem = output or "the reader did not run"
                else:
                    whole += int(found[0].split()[1])
            if problem is None and temporaries(folder):
                problem = f"temporaries stay: {temporaries(folder)}"
            if problem is not None:
                print(f"FAIL  round {number} (seed {seed}): {problem}")
                return 1
    print(f"{rounds} kills: {torn} in the middle of a file, {whole} entries read back whole (seed {seed})")
    if torn == 0 or whole == 0:
        print("FAIL  no kill fell into a write, or nothing was ever written: the test shows nothing")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
