#!/usr/bin/env python3
"""Instructions that the aarch64 int8 products execute per weight byte and token, counted by qemu.

  bench/kernels/instructions.py BUILD_DIR              a cross build (tools/arm64 makes one)
  bench/kernels/instructions.py BUILD_DIR --check DOC  is the table in DOC still true (within 3 %)?

qemu's user mode runs products.cc one instruction at a time and logs each. Counted is what a product of twice as many
rows executes more: reading the weights, products, scales and sums, the tiles' own bookkeeping. No time is measured and
none is claimed.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = [  # heading, set, tokens, rows
    ("one token, baseline", "neon", 1, 16), ("one token, dotprod", "neon_dotprod", 1, 16),
    ("64 tokens, dotprod", "neon_dotprod", 64, 4), ("64 tokens, i8mm", "neon_i8mm", 64, 4),
]


def compile_program(build, program):
    libraries = [build / f"src/libsluice_{room}.a" for room in ("kernels", "quant", "base")]
    subprocess.run(["aarch64-linux-gnu-g++", "-std=c++20", "-O2", "-static", f"-I{HERE.parents[1] / 'src'}",
                    f"-I{HERE.parents[1] / 'include'}", HERE / "products.cc", "-Wl,--start-group", *libraries,
                    "-Wl,--end-group", "-o", program], check=True)


def counts_between_marks(log):
    """Instructions between the calls of Mark() that belong together."""
    counts, count, inside = [], 0, False
    for line in log:
        if line.endswith(b" Mark\n"):
            if inside:
                counts.append(count)
            count, inside = -1, not inside  # Mark's own return
        count += 1
    return counts


def measure(program, isa, tokens, rows):
    """{type: instructions per weight byte and token}"""
    read, write = os.pipe()
    command = ["qemu-aarch64-static", "-cpu", "max", "-singlestep", "-d", "nochain,exec", "-D", f"/dev/fd/{write}",
               program, isa, str(tokens), str(rows)]
    with subprocess.Popen(command, pass_fds=[write], stdout=subprocess.PIPE, text=True) as process:
        os.close(write)
        with open(read, "rb") as log:
            counts = counts_between_marks(log)
        types = [line.split() for line in process.stdout]
    if process.returncode != 0 or len(counts) != 2 * len(types):
        sys.exit(f"instructions: {isa}: {len(types)} types, {len(counts)} counts, status {process.returncode}")
    return {name: (counts[2 * i + 1] - counts[2 * i]) / (rows * tokens * int(row_bytes))
            for i, (name, row_bytes) in enumerate(types)}


def table_of(build):
    """{type: [a number per column]}"""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/products"
        compile_program(build, program)
        columns = [measure(program, *column[1:]) for column in COLUMNS]
    return {name: [column[name] for column in columns] for name in columns[0]}


def stale_rows(table, document):
    """Lines that say what in the document's table is not what was counted."""
    stale = []
    for name, values in table.items():
        row = re.search(rf"^\| {name} \|" + r" ([\d.]+) \|" * len(values) + "$", document, re.M)
        if row is None:
            stale.append(f"{name}: no row with {len(values)} numbers")
            continue
        for column, said, counted in zip(COLUMNS, map(float, row.groups()), values):
            if abs(said - counted) > 0.005 + 0.03 * counted:
                stale.append(f"{name}, {column[0]}: {said:.2f} there, {counted:.2f} counted")
    return stale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path, metavar="DOC")
    args = parser.parse_args()
    table = table_of(args.build)
    if args.check:
        stale = stale_rows(table, args.check.read_text())
        for line in stale:
            print(f"instructions: {args.check}: {line}", file=sys.stderr)
        print(f"instructions: {len(table)} types, {len(stale)} stale numbers")
        return 1 if stale else 0
    print("| type | " + " | ".join(column[0] for column in COLUMNS) + " |\n|" + "---|" * (1 + len(COLUMNS)))
    for name, values in table.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
