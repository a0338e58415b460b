#!/usr/bin/env python3
"""Runs a command inside a fresh memory cgroup (v1 or v2) and reports what it used.

  tools/cgroup_run.py --limit BYTES [--report FILE] -- COMMAND...

The command joins the group before it is started, so every page it ever touches counts. Swap is denied.
The report is one JSON line: exit_code (128 + signal when killed), peak_rss_bytes (VmHWM, from wait4),
cgroup_peak_bytes (page cache included), oom_kills, limit_bytes, version. The group is removed at the end.
Exit code: the command's; 77 with a loud message when no group can be made; 126 when it could not start.
BYTES takes K/M/G suffixes.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import sys
import time

SKIP = 77


def skip(why):
    print(f"cgroup_run: SKIP: no memory cgroup can be made here: {why}", file=sys.stderr)
    sys.exit(SKIP)


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size")
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)]


def mounts():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        head, tail = line.split(" - ", 1)
        kind, _, options = tail.split(" ", 2)
        root, point = head.split(" ")[3:5]
        yield kind, options.split(","), root, point


def own_group(controller):
    """The path of this process in the hierarchy of a v1 controller, or in v2's with None."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (controller in controllers.split(",")) if controller else controllers == "":
            return path
    return None


def parents():
    """(version, directory) pairs in which a child group may be made, the likeliest first."""
    found = []
    for kind, options, root, point in mounts():
        v1 = kind == "cgroup" and "memory" in options
        if not v1 and kind != "cgroup2":
            continue
        own = own_group("memory" if v1 else None) or "/"
        inside = own[len(root):] if root != "/" and own.startswith(root) else own
        here = pathlib.Path(point, inside.lstrip("/"))
        for directory in dict.fromkeys((here, here.parent, pathlib.Path(point))):
            if directory.is_dir() and directory.is_relative_to(point):
                found.append((1 if v1 else 2, directory))
    return found


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def read_int(path):
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def field(path, name):
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


class Group:
    """One child group with a limit; raises OSError when it cannot be made."""

    def __init__(self, version, parent, limit):
        self.version = version
        if version == 2 and "memory" not in (parent / "cgroup.subtree_control").read_text().split():
            write(parent / "cgroup.subtree_control", "+memory")  # refused where processes live in the parent
        self.path = parent / f"sluice-{os.getpid()}"
        self.path.mkdir()
        try:
            self.limit(limit)
        except OSError:
            self.remove()
            raise

    def limit(self, limit):
        if self.version == 1:
            write(self.path / "memory.limit_in_bytes", limit)
            if (self.path / "memory.memsw.limit_in_bytes").exists():
                write(self.path / "memory.memsw.limit_in_bytes", limit)
            elif (self.path / "memory.swappiness").exists():
                write(self.path / "memory.swappiness", 0)
            actual = read_int(self.path / "memory.limit_in_bytes")
        else:
            write(self.path / "memory.max", limit)
            if (self.path / "memory.swap.max").exists():
                write(self.path / "memory.swap.max", 0)
            actual = read_int(self.path / "memory.max")
        if actual is None or actual > limit:
            raise OSError(f"the limit was not taken: {actual}")

    def join(self):
        write(self.path / "cgroup.procs", os.getpid())

    def peak(self):
        return read_int(self.path / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"))

    def oom_kills(self):
        return field(self.path / ("memory.oom_control" if self.version == 1 else "memory.events"), "oom_kill")

    def remove(self):
        for attempt in range(50):
            try:
                self.path.rmdir()
                return
            except OSError:
                if attempt == 0:
                    self.end_stragglers()
                time.sleep(0.05)
        print(f"cgroup_run: {self.path} could not be removed", file=sys.stderr)

    def end_stragglers(self):
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass


def make_group(limit):
    reasons = []
    for version, parent in parents():
        try:
            return Group(version, parent, limit)
        except OSError as error:
            reasons.append(f"{parent} (v{version}): {error.strerror or error}")
    skip("; ".join(reasons) or "no memory controller is mounted")
    return None


def run(group, command):
    pid = os.fork()
    if pid == 0:
        try:
            group.join()
            os.execvp(command[0], command)
        except OSError as error:
            print(f"cgroup_run: cannot start {command[0]}: {error}", file=sys.stderr)
        os._exit(126)
    forward = lambda number, _: os.kill(pid, number)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else 128 - code), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=parse_size, required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    group = make_group(arguments.limit)
    try:
        code, peak_rss = run(group, arguments.command)
        report = {"exit_code": code, "peak_rss_bytes": peak_rss, "cgroup_peak_bytes": group.peak(),
                  "oom_kills": group.oom_kills(), "limit_bytes": arguments.limit, "version": group.version}
    finally:
        group.remove()
    if arguments.report:
        arguments.report.write_text(json.dumps(report) + "\n")
    else:
        print("cgroup_run: " + json.dumps(report), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
