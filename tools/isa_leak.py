#!/usr/bin/env python3
"""Looks for instructions above the baseline (x86-64, ARMv8.0) where they must not be.

  tools/isa_leak.py BUILD_DIR

Only objects under src/kernels/{avx2,avxvnni,avx512,amx,neon_dotprod,neon_i8mm}/ are built for newer processors.
Two leaks would crash an older one: a newer instruction in any other object, and an inline function that such an
object shares with another (the linker keeps one copy and may keep the newer one). Both are violations.
"""
import collections
import pathlib
import re
import subprocess
import sys

ISA_FOLDER = re.compile(r"/kernels/(avx2|avxvnni|avx512|amx|neon_dotprod|neon_i8mm)/")
# VEX and EVEX mnemonics all begin with v; the few others that do are system instructions.
AVX = re.compile(r"\t(?!verr|verw|vm(?:call|launch|resume|xoff|xon|read|write|clear|ptr|func))v[a-z]\w*\b|%[yz]mm\d")
# What SSE3 and later brought without v, tiles and mask registers. Not here: tzcnt (as bsf an older processor runs it),
# xgetbv (asked for by CPUID first).
OTHER_X86 = re.compile(
    r"\t(?:addsubp[sd]|h(?:add|sub)p[sd]|lddqu|mov(?:ddup|shdup|sldup)|fisttp\w*"
    r"|pshufb|palignr|pabs[bwd]|pmaddubsw|ph(?:add|sub)(?:w|d|sw)|psign[bwd]|pmulhrsw"
    r"|p?blendv?\w+|dpp[sd]|extractps|insertps|mpsadbw|packusdw|pcmpeqq|pextr[bdq]|pinsr[bdq]|phminposuw"
    r"|p(?:max|min)(?:sb|sd|uw|ud)|pmov[sz]x\w+|pmuldq|pmulld|ptest|round[ps][sd]|movntdqa"
    r"|crc32\w?|pcmp[ei]str[im]|pcmpgtq|popcnt\w?|lzcnt\w?|andn[lq]?|bextr|bls(?:r|i|msk)|bzhi|pdep|pext|mulx|rorx"
    r"|s[ah][rl]x|ad[co]x|movbe\w?|aes\w+|sha(?:1|256)\w+|pclmul\w+|gf2p8\w+"
    r"|ldtilecfg|sttilecfg|tile\w+|tdp\w+)\b|%k[0-7]\b|%tmm\d")
# Dot products, matrix products, atomics in one instruction and half arithmetic: ARMv8.1 and later.
ARM = re.compile(r"\t(?:[su]dot|usdot|sudot|[su]mmla|usmmla|bfdot|bfmmla|bfmlal[bt]|bfcvt\w*|sqrdml[as]h"
                 r"|(?:ld(?:add|clr|eor|set)|swp|casp?)(?:a|l|al)?[bh]?)\t|\tf(?:mul|add|sub|mla|mls)\tv\d+\.[48]h")
AARCH64 = 183  # e_machine
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")


def isa_of(path):
    match = ISA_FOLDER.search(path.as_posix())
    return match.group(1) if match else "baseline"


def is_arm(path):
    with open(path, "rb") as file:
        return int.from_bytes(file.read(20)[18:20], "little") == AARCH64


def leaking_functions(path):
    """Names of the functions of an object that hold an instruction above the baseline."""
    arm = is_arm(path)
    objdump, patterns = ("aarch64-linux-gnu-objdump", [ARM]) if arm else ("objdump", [AVX, OTHER_X86])
    process = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path],
                             capture_output=True, text=True, check=True)
    function, found = "?", set()
    for line in process.stdout.splitlines():
        head = FUNCTION.match(line)
        if head:
            function = head.group(1)
        elif any(pattern.search(line) for pattern in patterns):
            found.add(function)
    return sorted(found)


def weak_functions(path):
    process = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True)
    rows = (line.split() for line in process.stdout.splitlines())
    return {row[2] for row in rows if len(row) == 3 and row[1] == "W"}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    objects = sorted(p for p in build.rglob("*.o") if re.search(r"/sluice(_\w+)?\.dir/", p.as_posix()))
    if not objects:
        sys.exit(f"isa_leak: no objects of a room in {build}")
    problems, homes = [], collections.defaultdict(dict)
    for path in objects:
        isa = isa_of(path)
        for symbol in weak_functions(path):
            homes[symbol].setdefault(isa, path)
        if isa == "baseline":
            for function in leaking_functions(path):
                problems.append(f"{path.relative_to(build)}: newer instructions in {function}")
    for symbol, by_isa in sorted(homes.items()):
        if len(by_isa) > 1:
            places = ", ".join(f"{isa} ({path.relative_to(build)})" for isa, path in sorted(by_isa.items()))
            problems.append(f"{symbol}: the linker may pick any of {places}")
    for problem in problems:
        print(f"isa_leak: {problem}", file=sys.stderr)
    print(f"isa_leak: {len(objects)} objects, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
