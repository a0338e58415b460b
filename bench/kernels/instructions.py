#!/usr/bin/env python3
"""Instructions per weight byte of the aarch64 int8 products, read off the compiled loops.

  bench/kernels/instructions.py BUILD_DIR      a cross build (tools/arm64 makes one)

No time is measured and none is claimed: this counts what a processor has to issue. For one token it is the loop over
blocks (four rows: reading, products, the float chain); for many it is the loop over a panel's groups with four tokens
(reading the panel is paid once per 64 tokens and left out). A dot product instruction multiplies 16 pairs, a matrix
one 32, so a loop's products say how many weights and tokens it handles.
"""
import pathlib
import re
import subprocess
import sys

TYPES = {  # elements and bytes of a block
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "IQ4_NL": (32, 18),
    "MXFP4": (32, 17), "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176),
    "Q6_K": (256, 210), "IQ4_XS": (256, 136), "TQ2_0": (256, 66),
}
PRODUCTS = {"sdot": 16, "smmla": 32}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+([\w.]+)\s*(.*)$")
BRANCH = re.compile(r"^(?:b|b\..*|cbn?z|tbn?z)$")
TARGET = re.compile(r"\b([0-9a-f]+) <")


def disassemble(path):
    """{function: [(address, mnemonic, operands)]}"""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", path],
                          capture_output=True, text=True, check=True).stdout
    functions, body = {}, None
    for line in text.splitlines():
        if head := FUNCTION.match(line):
            body = functions.setdefault(head.group(1), [])
        elif (row := LINE.match(line)) and body is not None:
            body.append((int(row.group(1), 16), row.group(2), row.group(3)))
    return functions


def product_loops(body):
    """[(begin, end, instructions, products)] of loops that hold products, inner ones first."""
    loops = []
    for end, mnemonic, operands in body:
        target = TARGET.search(operands) if BRANCH.match(mnemonic) else None
        if target and body[0][0] <= int(target.group(1), 16) <= end:
            begin = int(target.group(1), 16)
            inside = [row[1] for row in body if begin <= row[0] <= end]
            products = sum(PRODUCTS.get(name, 0) for name in inside)
            if products:
                loops.append((begin, end, len(inside), products))
    return sorted(loops, key=lambda loop: loop[2])


def one_token(loops, elems):
    """(instructions, products) of a block of four rows: the rows are a loop within the loop over blocks, or unrolled."""
    begin, end, count, products = loops[0]
    if products == 4 * elems:
        return count, products
    outer = [n for b, e, n, p in loops[1:] if b <= begin and e >= end and p == products]
    return (outer[0] + 3 * count, 4 * products) if products == elems and outer else None


def many_tokens(loops, _):
    """The loop of four tokens: the one with the fewest instructions per product."""
    _, _, count, products = min(loops, key=lambda loop: loop[2] / loop[3])
    return count, products


def measure(build, folder, pattern, choose):
    """{type: instructions per weight byte and token}"""
    path = build / f"src/CMakeFiles/sluice_kernels.dir/kernels/{folder}/matmul.cc.o"
    result = {}
    for function, body in disassemble(path).items():
        match = re.search(pattern, function)
        loops = product_loops(body) if match else []
        if loops:
            elems, size = TYPES[match.group(1)]
            chosen = choose(loops, elems)
            if chosen:
                result[match.group(1)] = chosen[0] * elems / (chosen[1] * size)
    return result


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    columns = [measure(build, "neon_dotprod", r"FewTokens<.*Type(\w+), .*Isa, 1>", one_token),
               measure(build, "neon_dotprod", r"PanelTile<.*Type(\w+), ", many_tokens),
               measure(build, "neon_i8mm", r"PanelTile<.*Type(\w+), ", many_tokens)]
    print("| type | one token, dotprod | 64 tokens, dotprod | 64 tokens, i8mm |\n|---|---|---|---|")
    for name in TYPES:
        print(f"| {name} | " + " | ".join(f"{c[name]:.2f}" if name in c else "?" for c in columns) + " |")
    return 0 if all(len(c) == len(TYPES) for c in columns) else 1


if __name__ == "__main__":
    sys.exit(main())
