#!/usr/bin/env python3
"""One token times a matrix, type by type, here and in llama.cpp: GB/s of weight bytes.

  bench/bench_gemv.py [--threads 1] [--rounds 3] [--seconds 20] [--lib DIR]

Ours is `sluice bench --kernels`; theirs is ggml_mul_mat in the CPU library that the prebuilt llama.cpp of npm chooses for
this machine ($RIVAL_CACHE, default ~/.cache/sluice-rival, where rival.py installs it), over rows of 2,048 weights, as many
as make 64 MiB. Where it has a repacked layout for a type that is used, as its loader does when nothing limits memory.
Engines take turns; the best of all rounds counts, because neighbours can only slow a run down. Writes
bench/results/gemv-ISA.md.
"""
import argparse
import ctypes as C
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

from places import RESULTS, SLUICE, commit

VERSION = "3.22.1"
CACHE = pathlib.Path(os.environ.get("RIVAL_CACHE", pathlib.Path.home() / ".cache/sluice-rival"))
COLS, SET_BYTES = 2048, 64 << 20
CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
# ggml's numbers of the types (as in GGUF), in the order of the table.
TYPES = {"F32": 0, "F16": 1, "BF16": 30, "Q8_0": 8, "Q6_K": 14, "Q5_K": 13, "Q5_1": 7, "Q5_0": 6, "Q4_K": 12, "Q4_1": 3,
         "Q4_0": 2, "IQ4_XS": 23, "IQ4_NL": 20, "MXFP4": 39, "Q3_K": 11, "Q2_K": 10, "IQ3_S": 21, "IQ3_XXS": 18, "IQ2_S": 22,
         "IQ2_XS": 17, "IQ2_XXS": 16, "IQ1_M": 29, "IQ1_S": 19, "TQ2_0": 35, "TQ1_0": 34}


class InitParams(C.Structure):
    _fields_ = [("bytes", C.c_size_t), ("memory", C.c_void_p), ("no_alloc", C.c_bool)]


def signatures(library, text):
    """"name: result arguments" lines with p pointer, i int, l int64, z size_t, b bool, s string, v nothing."""
    kinds = {"p": C.c_void_p, "i": C.c_int, "l": C.c_int64, "z": C.c_size_t, "b": C.c_bool, "s": C.c_char_p, "v": None}
    for line in text.split():
        name, letters = line.split(":")
        function = getattr(library, name)
        function.restype, function.argtypes = kinds[letters[0]], [kinds[c] for c in letters[1:]]


class Rival:
    def __init__(self, folder, threads):
        base = self.base = C.CDLL(str(folder / "libggml-base.so"), mode=C.RTLD_GLOBAL)
        whole = C.CDLL(str(next(f for f in sorted(folder.glob("libggml.*so*")))), mode=C.RTLD_GLOBAL)
        base.ggml_init.restype, base.ggml_init.argtypes = C.c_void_p, [InitParams]
        signatures(base, """ggml_free:vp ggml_new_tensor_2d:ppill ggml_mul_mat:pppp ggml_new_graph:pp ggml_get_data:pp
            ggml_build_forward_expand:vpp ggml_row_size:zil ggml_backend_graph_compute:ipp ggml_backend_tensor_set:vppzz
            ggml_backend_alloc_ctx_tensors_from_buft:ppp ggml_backend_buffer_free:vp ggml_backend_buft_name:sp
            ggml_backend_dev_buffer_type:pp ggml_backend_dev_supports_op:bpp ggml_backend_dev_init:pps
            ggml_backend_dev_backend_reg:pp ggml_backend_reg_get_proc_address:pps ggml_log_set:vpp""")
        signatures(whole, "ggml_backend_load_all_from_path:vs ggml_backend_dev_by_type:pi")
        self.quiet = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)
        base.ggml_log_set(self.quiet, None)
        whole.ggml_backend_load_all_from_path(str(folder).encode())
        self.device = whole.ggml_backend_dev_by_type(CPU)
        if not self.device:
            sys.exit("bench_gemv: that library has no CPU device for this machine")
        entry = lambda name: base.ggml_backend_reg_get_proc_address(base.ggml_backend_dev_backend_reg(self.device), name)
        self.backend = base.ggml_backend_dev_init(self.device, None)
        C.CFUNCTYPE(None, C.c_void_p, C.c_int)(entry(b"ggml_backend_set_n_threads"))(self.backend, threads)
        extra = C.CFUNCTYPE(C.POINTER(C.c_void_p), C.c_void_p)(entry(b"ggml_backend_dev_get_extra_bufts"))(self.device)
        self.places = []  # layouts of its own first, then the file's
        while extra and extra[len(self.places)]:
            self.places.append(extra[len(self.places)])
        self.places.append(base.ggml_backend_dev_buffer_type(self.device))

    def best(self, number, data, seconds):
        """(GB/s, whether repacked) of the first layout that takes the type."""
        for place in self.places:
            rate = self.one(number, data, place, seconds)
            if rate:
                return rate, place != self.places[-1]
        return None, False

    def one(self, number, data, place, seconds):
        base = self.base
        row = base.ggml_row_size(number, COLS)
        rows = SET_BYTES // row // 64 * 64
        weights = base.ggml_init(InitParams(1 << 16, None, True))
        rest = base.ggml_init(InitParams((1 << 20) + 8 * (rows + COLS), None, False))
        w = base.ggml_new_tensor_2d(weights, number, COLS, rows)
        x = base.ggml_new_tensor_2d(rest, 0, COLS, 1)
        C.memmove(base.ggml_get_data(x), (C.c_float * COLS)(*(((i * 37) % 200 - 100) / 50 for i in range(COLS))), 4 * COLS)
        y = base.ggml_mul_mat(rest, w, x)
        buffer = base.ggml_backend_alloc_ctx_tensors_from_buft(weights, place)
        best = 0
        if buffer and base.ggml_backend_dev_supports_op(self.device, y):
            base.ggml_backend_tensor_set(w, data, 0, rows * row)
            graph = base.ggml_new_graph(rest)
            base.ggml_build_forward_expand(graph, y)
            end, n = time.perf_counter() + seconds, 0
            while n < 4 or time.perf_counter() < end:
                begin = time.perf_counter()
                if base.ggml_backend_graph_compute(self.backend, graph):
                    sys.exit("bench_gemv: its product failed")
                best, n = max(best, rows * row / (time.perf_counter() - begin) * 1e-9 * (n > 0)), n + 1
        if buffer:
            base.ggml_backend_buffer_free(buffer)
        base.ggml_free(rest)
        base.ggml_free(weights)
        return best


def weights_for(name, noise):
    """Bytes that are finite numbers in every format; exponents of MXFP4 as models have them."""
    if name != "MXFP4":
        return noise
    data = bytearray(noise)
    data[::17] = bytes(0x70 + b % 8 for b in data[::17])
    return bytes(data)


def ours(a):
    run = subprocess.run([str(a.sluice), "bench", "--kernels", "--json", "--threads", str(a.threads), "--seconds", str(a.seconds)],
                         stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def table(a, isa, memory, mine, his):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    lines = ["# One token times a matrix, beside llama.cpp", "",
             f"{datetime.date.today()}, {cpu}, set `{isa}`, {a.threads} thread{'s' * (a.threads > 1)}, commit {commit()}; best of {a.rounds} alternating rounds. GB/s of weight",
             f"bytes, rows of 2,048, from 64 MiB or more. A plain read gives {memory:.1f} GB/s. llama.cpp: ggml_mul_mat of @node-llama-cpp {VERSION};",
             "*: in its repacked layout. Made by `bench/bench_gemv.py`.", "",
             "| type | Sluice | llama.cpp | ratio |", "|---|---|---|---|"]
    for name, (rate, repacked) in his.items():
        if name in mine and rate:
            lines.append(f"| {name} | {mine[name]:.1f} | {rate:.1f}{'*' * repacked} | {mine[name] / rate:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=int, default=20, help="per engine and round")
    ap.add_argument("--lib", type=pathlib.Path, default=CACHE / VERSION / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
    ap.add_argument("--sluice", type=pathlib.Path, default=SLUICE)
    a = ap.parse_args()
    if not (a.lib / "libggml-base.so").exists():
        sys.exit(f"bench_gemv: no ggml in {a.lib}; run bench/bench_resident.py once or: npm i --prefix {CACHE / VERSION} @node-llama-cpp/linux-x64@{VERSION}")
    rival = Rival(a.lib, a.threads)
    noise = os.urandom(SET_BYTES).translate(bytes(i & 0x3B for i in range(256)))
    mine, his, memory = {}, {name: (None, False) for name in TYPES}, 0
    for _ in range(a.rounds):
        for name, number in TYPES.items():
            rate, repacked = rival.best(number, weights_for(name, noise), a.seconds / len(TYPES))
            if rate and rate > (his[name][0] or 0):
                his[name] = (rate, repacked)
        report = ours(a)
        memory = max(memory, report["memory_gb_s"])
        for k in report["kernels"]:
            if k["kernel"] == "matmul, 1 token":
                mine[k["variant"]] = max(mine.get(k["variant"], 0), k["value"])
    text = table(a, report["isa"], memory, mine, his)
    (RESULTS / f"gemv-{report['isa']}.md").write_text(text)
    print(text)


main()
