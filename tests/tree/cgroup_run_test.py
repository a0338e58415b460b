#!/usr/bin/env python3
"""The cgroup runner itself: it limits, reports, passes exit codes on and leaves no group behind."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/cgroup_run.py"


def run(limit, *command):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        process = subprocess.run([sys.executable, RUNNER, "--limit", limit, "--report", report, "--", *command],
                                 capture_output=True, text=True, timeout=120)
        return process, json.loads(report.read_text()) if report.exists() else None


class CgroupRun(unittest.TestCase):
    def test_output_and_exit_code_pass_through(self):
        process, report = run("64M", "sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual((process.returncode, process.stdout, process.stderr), (3, "out\n", "err\n"))
        self.assertEqual(report["exit_code"], 3)
        self.assertEqual(report["limit_bytes"], 64 << 20)
        self.assertEqual(report["oom_kills"], 0)

    def test_command_is_inside_before_it_starts(self):
        process, _ = run("64M", "cat", "/proc/self/cgroup")
        self.assertIn("/sluice-", process.stdout)

    def test_memory_is_counted_and_the_limit_bites(self):
        touch = "x = bytearray({} << 20); print(len(x))"
        process, report = run("64M", sys.executable, "-c", touch.format(32))
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertGreater(report["peak_rss_bytes"], 32 << 20)
        self.assertLessEqual(report["peak_rss_bytes"], 64 << 20)
        process, report = run("64M", sys.executable, "-c", touch.format(128))
        self.assertEqual(process.returncode, 137)
        self.assertGreaterEqual(report["oom_kills"], 1)

    def test_missing_command(self):
        process, report = run("64M", "/nonexistent/command")
        self.assertEqual(process.returncode, 126)
        self.assertIn("cannot start", process.stderr)

    def test_stragglers_end_and_the_group_goes(self):
        process, _ = run("64M", "sh", "-c", "sleep 60 & cat /proc/self/cgroup")
        self.assertNotIn("could not be removed", process.stderr)
        names = {line.rsplit("/", 1)[1] for line in process.stdout.splitlines() if "/sluice-" in line}
        self.assertEqual(len(names), 1)
        self.assertEqual(list(pathlib.Path("/sys/fs/cgroup").rglob(names.pop())), [])


if __name__ == "__main__":
    probe, _ = run("64M", "true")
    if probe.returncode == 77:
        print(probe.stderr, file=sys.stderr)
        sys.exit(77)
    unittest.main()
