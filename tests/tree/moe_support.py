"""A small forged mixture of experts and the program that runs it, for the tests beside this file.

The file is far bigger than the budgets used with it, so its experts stream. Token ids 0 to 1023 have a routing of
their own in every layer, and greedy decoding answers t with t + 1: any prompt of ids is as good as another.
"""
import json
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
SKIP = 77
LAYERS, EXPERTS, USED, HIDDEN, FF = 6, 32, 4, 1024, 512
EXPERT_BYTES = 3 * HIDDEN * FF // 256 * 144  # Q4_K: 144 bytes per 256 weights
SHAPE = ["--layers", LAYERS, "--experts", EXPERTS, "--used", USED, "--hidden", HIDDEN, "--ff", FF, "--heads", 8,
         "--kv-heads", 2, "--head-dim", 64, "--vocab", 4096, "--context", 16384]
failures = []


def check(name, condition, detail=""):
    print(("ok    " if condition else "FAIL  ") + name, flush=True)
    if not condition:
        failures.append(name)
        print(detail, flush=True)


def skip(name, why):
    print(f"SKIP  {name}: {why}", flush=True)


def verdict():
    print(f"{len(failures)} failures" + "".join(f"\n  {name}" for name in failures), flush=True)
    return 1 if failures else 0


def words(command):
    return [str(word) for word in command]


def run(command, env=None, timeout=300):
    return subprocess.run(words(command), env={**os.environ, **(env or {})}, text=True, timeout=timeout,
                          capture_output=True)


def forge(sluice, path, shape=(), **replaced):
    options = {str(SHAPE[i]): SHAPE[i + 1] for i in range(0, len(SHAPE), 2)}
    options.update({"--" + name.replace("_", "-"): value for name, value in replaced.items()})
    flags = [word for pair in options.items() for word in pair]
    result = run([sluice, "forge", shape or "qwen3-30b-a3b", path, *flags])
    if result.returncode != 0:
        raise RuntimeError(f"forge failed: {result.stderr}")
    return path


def stats_of(result):
    """The stats object of `run --json` or `bench --json`; {} when there was no answer."""
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        return {}
    return answer.get("stats", answer)


def ids(count, first=0, step=37, codes=1024):
    return ",".join(str((first + i * step) % codes) for i in range(count))


def tensors(sluice, path):
    listing = json.loads(run([sluice, "inspect", path, "--tensors", "--json"]).stdout)
    return {tensor["name"]: tensor for tensor in listing["tensors"]}


def offset_field(header, name):
    """Where in a GGUF header the offset of a tensor is written: behind its name, dimensions and type."""
    key = struct.pack("<Q", len(name)) + name.encode()
    at = header.index(key) + len(key)
    (dims,) = struct.unpack_from("<I", header, at)
    return at + 4 + 8 * dims + 4


def move_to_end(sluice, path, name):
    """Moves one tensor's bytes behind all others (ones are left behind), so that a fault "from here to the end of the
    file" meets this tensor alone. Returns (offset, bytes) of its new place."""
    tensor = tensors(sluice, path)[name]
    with open(path, "r+b") as file:
        field = offset_field(file.read(8 << 20), name)
        file.seek(field)
        (relative,) = struct.unpack("<Q", file.read(8))
        start = tensor["offset"] - relative
        end = file.seek(0, os.SEEK_END)
        place = -(-(end - start) // 4096) * 4096
        file.seek(tensor["offset"])
        data = file.read(tensor["bytes"])
        for position, content in ((field, struct.pack("<Q", place)), (tensor["offset"], b"\xff" * len(data)),
                                  (start + place, data)):
            file.seek(position)
            file.write(content)
    moved = tensors(sluice, path)[name]
    assert moved["offset"] == start + place and moved["bytes"] == len(data)
    return moved["offset"], moved["bytes"]
