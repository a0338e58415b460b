#!/usr/bin/env python3
"""A mixture of experts on a disk that misbehaves, seen from outside: the same logits, or one line that says where.

  moe_fault_test.py --sluice PROGRAM

Forges a 185 MB file, runs it inside 80 MiB (experts stream), and compares the hash of all logits with a clean run
under: short reads, EINTR, slow reads, O_DIRECT refused at open, refused at reads, and lying; io_uring forbidden by a
filter that kills. EIO and an early end of file (by a preloaded library, and by truncating the file in the middle of
an answer) end with exit 5 and the file, layer, expert and offset; in a chat only that answer ends.
Exit code 77 (loud) where the shared test doubles are absent. The dense counterpart is fault_io_test.py.
"""
import argparse
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

from moe_support import (EXPERTS, SHARED, SKIP, check, forge, ids, move_to_end, run, skip, stats_of, verdict,
                         words)

TOOLS = SHARED / "cases" / "tools"
URING_CALLS = "425,426,427"
LAYER = 5
VICTIM = f"blk.{LAYER}.ffn_up_exps.weight"
WHERE = re.compile(rf"layer {LAYER}, expert (\d+), .*offset (\d+)")
SURVIVED = [("short", {"FAULTIO_MAX": "65537"}, None), ("eintr", {}, None), ("slow", {"FAULTIO_MS": "1"}, None),
            ("dio-open", {}, "buffered"), ("dio-read", {}, "buffered"), ("dio-lie", {}, "buffered")]


class Bench:
    def __init__(self, sluice, work):
        self.sluice, self.work = sluice, work
        self.shim, self.deny = work / "faultio.so", work / "denycall"
        subprocess.run(words(["cc", "-shared", "-fPIC", "-O2", "-o", self.shim, TOOLS / "faultio.c", "-ldl"]), check=True)
        subprocess.run(words(["cc", "-O2", "-o", self.deny, TOOLS / "denycall.c"]), check=True)
        self.model = forge(sluice, work / "moe.gguf")
        self.at, self.bytes = move_to_end(sluice, self.model, VICTIM)

    def command(self, *more, prompt=None, tokens=16):
        return [self.sluice, "run", self.model, "--ids", prompt or ids(24), "-n", tokens, "--greedy", "--ignore-eos",
                "--json", "--budget", "80M", "--ctx", "4096", *more]

    def denied(self, action="errno"):
        return [self.deny, action, URING_CALLS]

    def faulty(self, mode, extra=()):
        return {"LD_PRELOAD": str(self.shim), "FAULTIO_MATCH": pathlib.Path(self.model).name, "FAULTIO_MODE": mode,
                **dict(extra)}

    def expert_of(self, offset):
        return (offset - self.at) * EXPERTS // self.bytes


def same_as_clean(name, result, clean, backend=None):
    stats = stats_of(result)
    good = result.returncode == 0 and stats.get("logits_hash") == clean["logits_hash"]
    check(f"{name}: same logits", good, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}")
    if good and backend:
        check(f"{name}: reads by {backend}", stats["io"] == backend, stats["io"])
    return good


def check_survivable(bench, clean):
    for mode, extra, backend in SURVIVED:
        result = run([*bench.denied(), *bench.command()], bench.faulty(mode, extra))
        if same_as_clean(mode, result, clean, backend) and backend:
            said = [line for line in result.stderr.splitlines() if line.startswith("sluice: note: ")]
            check(f"{mode}: said once", len(said) == 1 and "page cache" in said[0], result.stderr)
            notices = stats_of(result)["notices"]
            check(f"{mode}: in the notices", len(notices) == 1 and "page cache" in notices[0], notices)


def check_seccomp(bench, clean):
    direct = run(bench.command("--io", "pread")).returncode == 0
    if not direct:
        skip("denycall", f"direct reads are refused in {bench.work}")
    for action in ("trap", "errno", "kill"):
        result = run([*bench.denied(action), *bench.command()])
        if same_as_clean(f"denycall {action}", result, clean, "pread" if direct else "buffered"):
            notices, why = stats_of(result)["notices"], "io_uring is not available" if direct else "page cache"
            check(f"denycall {action}: in the notices", len(notices) == 1 and why in notices[0], notices)


def check_error_line(bench, name, text):
    """One line; it names the file, the layer, the expert, and an offset inside that expert's bytes."""
    lines = [line for line in text.splitlines() if "sluice: error: " in line]
    match = WHERE.search(lines[0]) if len(lines) == 1 else None
    good = match is not None and str(bench.model) in lines[0]
    check(f"{name}: one line with file, layer, expert and offset", good, text)
    if good:
        expert, offset = int(match[1]), int(match[2])
        near = (offset, offset + 4095)  # reads start on a block that may belong to the expert before
        check(f"{name}: offset {offset} belongs to expert {expert}", expert in map(bench.expert_of, near), lines[0])


def check_fatal(bench):
    for mode, what in (("eio", "Input/output error"), ("eof", "end of file")):
        result = run([*bench.denied(), *bench.command()], bench.faulty(mode, {"FAULTIO_AT": str(bench.at)}))
        check(f"{mode}: exit 5 and no answer", result.returncode == 5 and result.stdout == "",
              f"exit {result.returncode}\n{result.stdout}\n{result.stderr}")
        check(f"{mode}: says {what}", what in result.stderr, result.stderr)
        check_error_line(bench, mode, result.stderr)


def check_truncated_run(bench):
    """The file really loses its tail while an answer is being written."""
    command = [word for word in bench.command(tokens=100000) if word != "--json"]
    with subprocess.Popen(words(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(8)
        tail = cut(bench)
        try:
            process.stdout.read()
            error = process.stderr.read().decode()
            code = process.wait(timeout=60)
        finally:
            mend(bench, tail)
    check("truncated in mid-answer: exit 5", code == 5, f"exit {code}\n{error}")
    check_error_line(bench, "truncated in mid-answer", error)


def cut(bench):
    with open(bench.model, "r+b") as file:
        file.seek(bench.at)
        tail = file.read()
        file.truncate(bench.at)
    return tail


def mend(bench, tail):
    with open(bench.model, "r+b") as file:
        file.seek(bench.at)
        file.write(tail)


class Terminal:
    """A chat at a pseudo-terminal."""

    def __init__(self, command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", NO_COLOR="1")
            os.execv(command[0], command)
        self.seen = ""

    def ask(self, line, until):
        """Sends a line (None: nothing) and returns what came until the pattern did."""
        if line is not None:
            os.write(self.fd, (line + "\n").encode())
        start, deadline = len(self.seen), time.monotonic() + 60
        while not re.search(until, self.seen[start:]):
            if time.monotonic() > deadline or not select.select([self.fd], [], [], 5)[0]:
                break
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                break
        return self.seen[start:]

    def close(self):
        try:
            os.write(self.fd, b"/quit\n")
        except OSError:
            pass
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            self.ask(None, r"\Z.")  # drains, so that the child can write and leave
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None


def check_truncated_chat(bench):
    """Only the answer that needs the lost bytes fails; when they are back the chat goes on."""
    command = words([bench.sluice, "run", bench.model, "-n", "200", "--greedy", "--ignore-eos", "--budget", "80M", "--ctx",
                     "4096"])
    prompt, error = r"\n> \Z", r"sluice: error: .*\n(.*\n)*> \Z"
    chat = Terminal(command)
    chat.ask(None, prompt)
    first = chat.ask("one", prompt)
    if "built without chat templates" in first:
        chat.close()
        return skip("chat over a truncated file", "this build has no chat templates")
    tail = cut(bench)
    try:
        lost = chat.ask("two", error)
    finally:
        mend(bench, tail)
    later = chat.ask("two", prompt)
    code = chat.close()
    check("chat: the first answer", "cut at the token limit" in first and "error" not in first, chat.seen)
    check_error_line(bench, "chat over a truncated file", lost.replace("\r", ""))
    check("chat: the process lives and answers when the bytes are back",
          code == 0 and "cut at the token limit" in later and "error" not in later, chat.seen)
    clean = Terminal(command)
    clean.ask(None, prompt)
    clean.ask("one", prompt)
    expected = clean.ask("two", prompt)
    clean.close()
    # Without the echo of the question, and the progress of a slow run.
    later, expected = (re.sub(r"\r?\x1b\[K(?:(?:load|prefill)[^\r]*)?", "", text.rsplit("two\r\n", 1)[-1]) for text in (later, expected))
    check("chat: the later answer is the one of a chat without the fault", later == expected, f"{later!r}\n{expected!r}")


def check_streamed_head(bench):
    """At the floor the head streams as well: its read error names it."""
    model = forge(bench.sluice, bench.work / "head.gguf", layers=2, experts=8)
    at, _ = move_to_end(bench.sluice, model, "output.weight")
    plan = run([bench.sluice, "plan", model, "--budget", "1M", "--ctx", "256"])
    match = re.search(r"use --budget (\d+)M", plan.stderr)
    if not match:
        return check("head: the plan names the floor", False, plan.stderr)
    command = [bench.sluice, "run", model, "--ids", ids(8), "-n", "4", "--greedy", "--ignore-eos", "--json", "--ctx", "256"]
    floor = ["--budget", f"{int(match[1]) + 1}M"]
    clean, small = run([*command, "--budget", "1G"]), run([*command, *floor])
    same_as_clean("at the floor", small, stats_of(clean))
    env = {"LD_PRELOAD": str(bench.shim), "FAULTIO_MATCH": model.name, "FAULTIO_MODE": "eio", "FAULTIO_AT": str(at)}
    result = run([*bench.denied(), *command, *floor], env)
    lines = [line for line in result.stderr.splitlines() if "sluice: error: " in line]
    check("eio in the streamed head: exit 5, one line that names it",
          result.returncode == 5 and len(lines) == 1 and "output head" in lines[0] and str(model) in lines[0],
          f"exit {result.returncode}\n{result.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    arguments = parser.parse_args()
    if not (TOOLS / "faultio.c").exists():
        print(f"SKIP: {TOOLS} is absent (set SLUICE_SHARED)")
        return SKIP
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        print("SKIP: the system call numbers here are those of x86-64")
        return SKIP
    with tempfile.TemporaryDirectory(prefix="sluice-moe-") as folder:
        bench = Bench(arguments.sluice, pathlib.Path(folder))
        result = run(bench.command())
        clean = stats_of(result)
        streams = clean.get("bytes_per_token", 0) > 0 and 0 < clean.get("hit_rate", 1) < 1
        check("clean: answers, and experts stream", result.returncode == 0 and streams, result.stdout + result.stderr)
        resident = run([*bench.command(), "--budget", "1G"])
        same_as_clean("all experts in memory", resident, clean)
        if result.returncode == 0:
            check_survivable(bench, clean)
            check_seccomp(bench, clean)
            check_fatal(bench)
            check_truncated_run(bench)
            check_truncated_chat(bench)
            check_streamed_head(bench)
    return verdict()


if __name__ == "__main__":
    sys.exit(main())
