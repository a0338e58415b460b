#!/usr/bin/env python3
"""The tree's checkers, tried on small planted trees: each must pass a clean one and name each violation."""
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
HEADER = "// What.\n//\n// Contract: none.\n#pragma once\n"
LAYERS = """anyone = ["sluice/status.h"]
[rooms]
base = []
io = ["base"]
api = ["public", "base", "io"]
"""
CMAKE = "# sluice_room(ghost)\nsluice_room(base)\nsluice_room(io base)\nsluice_room(api base io)\n"
CLEAN = {
    "tools/layers.toml": LAYERS,
    "src/CMakeLists.txt": CMAKE,
    "include/sluice/status.h": HEADER,
    "include/sluice/engine.h": HEADER + '#include "sluice/status.h"\n',
    "src/base/a.h": HEADER + '#include "sluice/status.h"\n#include <vector>\n',
    "src/io/b.cc": '#include "base/a.h"\n',
    "src/api/c.cc": '#include "io/d.h"\n#include "sluice/engine.h"\n',
    "src/io/d.h": HEADER,
}


class CheckerTest(unittest.TestCase):
    def run_tool(self, tool, changes):
        with tempfile.TemporaryDirectory() as root:
            for name, text in (CLEAN | changes).items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            run = subprocess.run([sys.executable, TOOLS / tool, "--root", root], capture_output=True, text=True)
            return run.returncode, run.stderr + run.stdout

    def check_fails(self, tool, changes, *words):
        code, output = self.run_tool(tool, changes)
        self.assertEqual(code, 1, output)
        self.assertIn(" 1 violations", output)
        for word in words:
            self.assertIn(word, output)

    def check_passes(self, tool, changes):
        code, output = self.run_tool(tool, changes)
        self.assertEqual(code, 0, output)


class Layers(CheckerTest):
    def test_clean_tree(self):
        self.check_passes("layers.py", {})

    def test_arrow_up(self):
        self.check_fails("layers.py", {"src/base/x.cc": '#include "io/d.h"\n'}, "src/base/x.cc:1", "base may not include io")

    def test_public_header_below_the_door(self):
        self.check_fails("layers.py", {"src/io/x.cc": '\n#include "sluice/engine.h"\n'}, "src/io/x.cc:2", "may not include public")

    def test_public_header_includes_private(self):
        self.check_fails("layers.py", {"include/sluice/x.h": HEADER + '#include "base/a.h"\n'}, "public may not include base")

    def test_path_tricks(self):
        self.check_fails("layers.py", {"src/base/x.cc": '#  include "../io/d.h"\n'}, "base may not include io")

    def test_missing_file(self):
        self.check_fails("layers.py", {"src/io/x.cc": '#include "io/nowhere.h"\n'}, "is no file of the tree")

    def test_cycle(self):
        changes = {"src/io/d.h": HEADER + '#include "io/e.h"\n', "src/io/e.h": HEADER + '#include "io/d.h"\n'}
        self.check_fails("layers.py", changes, "cycle: src/io/d.h -> src/io/e.h -> src/io/d.h")

    def test_file_in_no_room(self):
        self.check_fails("layers.py", {"src/attic/x.cc": ""}, "in no room")

    def test_link_list_differs(self):
        self.check_fails("layers.py", {"src/CMakeLists.txt": CMAKE.replace("io base", "io")}, "sluice_room(io)")

    def test_room_only_in_one_place(self):
        self.check_fails("layers.py", {"src/CMakeLists.txt": CMAKE + "sluice_room(extra)\n"}, "room extra")

    def test_table_with_a_loop(self):
        changes = {"tools/layers.toml": LAYERS.replace("base = []", 'base = ["io"]'),
                   "src/CMakeLists.txt": CMAKE.replace("(base)", "(base io)")}
        self.check_fails("layers.py", changes, "base names io, which is not above it")


def body(lines):
    return "".join(f"  int v{i} = {i};\n" for i in range(lines))


class Tidy(CheckerTest):
    def test_clean_tree(self):
        self.check_passes("tidy.py", {"src/base/x.cc": "int F() {\n" + body(68) + "}\n"})

    def test_long_function(self):
        for head in ("int Foo(int a)", "Foo::Foo(int a)\n    : x_(a), y_{a}", "TEST(A, Foo)",
                     "template <typename T>\nauto Foo(T t) -> int", "struct S {\nint Foo() const", "extern \"C\" {\nint Foo()",
                     "namespace n {\nclass A : public B<int(int)> {\n void Foo()"):
            with self.subTest(head=head):
                tail = "}\n" * (1 + head.count("{\n"))
                self.check_fails("tidy.py", {"src/base/x.cc": head + " {\n" + body(69) + tail}, "Foo", "lines, at most 70")

    def test_braces_in_text_do_not_hide_a_function(self):
        text = 'int Foo() {\n  const char* s = "}{";  // }\n  char c = \'}\';\n  auto r = R"(})";\n' + body(70) + "}\n"
        self.check_fails("tidy.py", {"src/base/x.cc": text}, "Foo has 75 lines")

    def test_tables_and_types_are_no_functions(self):
        self.check_passes("tidy.py", {"src/base/x.cc": "const int kTable[] = {\n" + "  F(1),\n" * 90 + "};\n" +
                                      "struct S {\n" + body(90) + "};\n"})

    def test_long_file(self):
        self.check_fails("tidy.py", {"src/base/x.cc": "int a;\n" * 801}, "801 lines")

    def test_wide_line(self):
        self.check_fails("tidy.py", {"tests/base/x.cc": "int a;  // " + "x" * 90 + "\n"}, "x.cc:1: 101 columns")

    def test_header_without_contract(self):
        self.check_fails("tidy.py", {"src/base/x.h": "// What.\n#pragma once\n"}, "opens with its contract")

    def test_header_without_guard(self):
        self.check_fails("tidy.py", {"src/base/x.h": "// Contract: none.\n"}, "#pragma once")

    def test_getenv(self):
        self.check_fails("tidy.py", {"src/io/x.cc": 'auto a = std::getenv("A");\n'}, "src/io/x.cc:1", "environment")
        self.check_fails("tidy.py", {"src/io/x.cc": 'auto a = secure_getenv("A");\n'}, "environment")
        self.check_passes("tidy.py", {"src/cli/x.cc": 'auto a = getenv("A");\n', "src/io/x.cc": "// no getenv here\n"})

    def test_exemption_and_ratchet(self):
        long_function = {"src/base/x.cc": "int Foo() {\n" + body(78) + "}\n"}
        row = "function src/base/x.cc Foo "
        self.check_passes("tidy.py", long_function | {"tools/tidy.exempt": "# why\n" + row + "80\n"})
        self.check_fails("tidy.py", long_function | {"tools/tidy.exempt": row + "79\n"}, "Foo has 80 lines")
        self.check_fails("tidy.py", long_function | {"tools/tidy.exempt": row + "90\n"}, "tighten it to 80")
        self.check_fails("tidy.py", {"tools/tidy.exempt": row + "80\n"}, "no longer needed")


@unittest.skipUnless(platform.machine() == "x86_64" and shutil.which("g++") and shutil.which("objdump"), "x86-64 only")
class IsaLeak(CheckerTest):
    SUM = "float Sum(const float* x) { float s = 0; for (int i = 0; i < 64; ++i) s += x[i] * x[i]; return s; }\n"

    def check_objects(self, code, *rows, compiler="g++", target="sluice_kernels"):
        """rows: (object below the target's folder, source, flags)"""
        with tempfile.TemporaryDirectory() as root:
            for name, source, *flags in rows:
                path = pathlib.Path(root, f"src/CMakeFiles/{target}.dir", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run([compiler, "-O2", "-std=c++20", *flags, "-c", "-o", path, "-x", "c++", "-"],
                               input=source, text=True, check=True)
            run = subprocess.run([sys.executable, TOOLS / "isa_leak.py", root], capture_output=True, text=True)
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)
            return run.stderr

    def test_clean(self):
        self.check_objects(0, ("kernels/avx2/a.o", self.SUM, "-mavx2"), ("kernels/scalar/b.o", self.SUM))

    def test_instructions_in_a_common_object(self):
        self.assertIn("newer instructions in Sum", self.check_objects(1, ("kernels/ops.o", self.SUM, "-mavx2")))
        self.assertIn("newer instructions in Sum", self.check_objects(1, ("kernels/ops.o", self.SUM, "-mavx")))

    def test_instructions_older_than_avx(self):
        count = "int Sum(unsigned long long x) { return __builtin_popcountll(x); }\n"
        mask = "unsigned long long Sum(unsigned long long a, unsigned long long b) { return ~a & b; }\n"
        signs = "#include <tmmintrin.h>\n__m128i Sum(__m128i a, __m128i b) { return _mm_sign_epi8(a, b); }\n"
        tiles = "#include <immintrin.h>\nvoid Sum() { _tile_zero(0); _tile_dpbssd(0, 1, 2); }\n"
        for source, flag in ((count, "-mpopcnt"), (mask, "-mbmi"), (signs, "-mssse3"), (tiles, "-mamx-int8"),
                             (self.SUM.replace("float", "int"), "-msse4.1"), (tiles, "-mamx-tile")):
            flags = (flag, "-mamx-tile") if "amx" in flag else (flag,)
            if "int8" not in flag and source is tiles:
                source = tiles.replace("_tile_dpbssd(0, 1, 2);", "")
            if flag == "-msse4.1":
                flags += ("-O3",)
            with self.subTest(flag):
                output = self.check_objects(1, ("base/cpu.o", source, *flags), target="sluice_base")
                self.assertIn("newer instructions in Sum", output)
                self.check_objects(0, ("kernels/amx/cpu.o", source, *flags))

    def test_the_programs_own_object(self):
        self.assertIn("newer instructions in Sum",
                      self.check_objects(1, ("cli/main.cc.o", self.SUM, "-mavx2"), target="sluice"))

    def test_shared_inline_function(self):
        shared = "__attribute__((noinline)) inline " + self.SUM + "float {}(const float* x) {{ return Sum(x); }}\n"
        shared = shared.replace("{ float s", "{{ float s").replace("return s; }", "return s; }}")
        output = self.check_objects(1, ("kernels/avx2/a.o", shared.format("A"), "-mavx2"),
                                    ("kernels/scalar/b.o", shared.format("B")))
        self.assertIn("the linker may pick any of avx2", output)

    @unittest.skipUnless(shutil.which("aarch64-linux-gnu-g++"), "no cross compiler for aarch64")
    def test_aarch64(self):
        dot = ('#include <arm_neon.h>\n#pragma GCC target("arch=armv8.2-a+dotprod")\n'
               "int32x4_t Sum(int32x4_t a, int8x16_t b) { return vdotq_s32(a, b, b); }\n")
        newer, flags = "-march=armv8.2-a+dotprod", {"compiler": "aarch64-linux-gnu-g++"}
        self.check_objects(0, ("kernels/neon_dotprod/a.o", dot, newer), ("kernels/neon/b.o", self.SUM), **flags)
        self.assertIn("newer instructions in Sum", self.check_objects(1, ("kernels/neon/a.o", dot), **flags))
        atomic = "int Sum(int* p) { return __atomic_fetch_add(p, 1, 5); }\n"
        self.assertIn("newer instructions in Sum", self.check_objects(1, ("kernels/ops.o", atomic, newer), **flags))

    def test_nothing_to_check(self):
        self.check_objects(1)


if __name__ == "__main__":
    unittest.main()
