#!/usr/bin/env python3
"""House rules that a formatter does not know (STYLE: small pieces, contracts, no hidden switches).

  tools/tidy.py [--root DIR]      exit 0 and one line, or 1 and one line per violation

- a function has at most 70 lines, a file at most 800, a line at most 100 characters;
- every header has `#pragma once` and opens with a comment that contains "Contract:";
- the environment is read in src/cli only.

tools/tidy.exempt lists exceptions by name, one a line: `function FILE NAME LINES` or `file FILE LINES`. It is a
ratchet: a row that is no longer needed, or allows more than the code has, is a violation too.
"""
import argparse
import pathlib
import re
import sys

FUNCTION_LINES_MAX, FILE_LINES_MAX, COLUMNS_MAX = 70, 800, 100
FOLDERS = ("include", "src", "tests", "bench", "bindings")

LITERAL = re.compile(
    r'R"(?P<tag>[^()\\ ]{0,16})\((?:.|\n)*?\)(?P=tag)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\''
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
TYPE_HEAD = re.compile(r"^(?:template\s*<.*>\s*)?(?:typedef\s+)?(?:class|struct|union|enum)\b(?!.*\)\s*(?:const|noexcept|->|$))", re.S)
NAMESPACE_HEAD = re.compile(r"^(?:inline\s+)?namespace\b|^extern\s*\"?\s*\"?\s*$")


def blank(match):
    """Keeps the line structure of what is blanked out."""
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    return DIRECTIVE.sub(blank, LITERAL.sub(blank, text))


def function_name(head):
    opening = head.find("(")
    match = re.search(r"([~\w:]+)\s*$", head[:opening])
    name = match.group(1) if match else "?"
    if re.fullmatch(r"(TEST|TEST_F|TEST_P|TYPED_TEST|BENCHMARK\w*)", name):
        inside = re.match(r"\(\s*(\w+)\s*(?:,\s*(\w+))?", head[opening:])
        if inside:
            name = ".".join(part for part in inside.groups() if part)
    return name


def is_function(head):
    """Of the text before a brace at namespace or class scope: a signature, not a type, table or argument."""
    if "(" not in head or head.endswith("=") or head.count("(") != head.count(")"):
        return False
    return not NAMESPACE_HEAD.match(head) and not TYPE_HEAD.match(head)


def functions(code):
    """Yields (name, first line, lines) of each function body at namespace or class scope."""
    stack = []  # per open brace: None, or (name, first line) when it is a function's
    head_start, depth_in_function, line, head_line = 0, 0, 1, 1
    closed = None  # the pair just closed, when nothing followed yet: `y_{a}` of a constructor
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        if char not in "{};":
            continue
        if char == "{":
            raw = code[head_start:position]
            head = raw.strip()
            entry = None
            if depth_in_function == 0:
                head_line = line - raw.lstrip().count("\n")
                if closed and (not head or head[0] == ","):
                    entry = closed
                elif is_function(head):
                    entry = (function_name(head), head_line)
            if entry or depth_in_function:
                depth_in_function += 1
            stack.append(entry)
            closed = None
        elif char == "}" and stack:
            entry = stack.pop()
            if depth_in_function:
                depth_in_function -= 1
            closed = entry
            if entry:
                yield entry[0], entry[1], line - entry[1] + 1
        else:
            closed = None
        head_start = position + 1


def check_header(relative, text, problems):
    comment = re.match(r"(?://[^\n]*\n)+", text)
    if not comment or "Contract:" not in comment.group(0):
        problems.append(f"{relative}:1: a header opens with its contract (a comment with \"Contract:\")")
    if "#pragma once" not in text:
        problems.append(f"{relative}:1: no #pragma once")


def check_file(root, path, excused, problems):
    relative = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    count = len(lines) - (1 if text.endswith("\n") else 0)
    if count > FILE_LINES_MAX and not excused.allows(("file", relative), count):
        problems.append(f"{relative}: {count} lines, at most {FILE_LINES_MAX}")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and not re.match(r'^\s*(#include|// https?://\S+$)', line):
            problems.append(f"{relative}:{number}: {len(line)} columns, at most {COLUMNS_MAX}")
    if path.suffix == ".h" and relative.startswith(("src/", "include/")):
        check_header(relative, text, problems)
    code = strip(text)
    if relative.startswith(("src/", "include/")) and not relative.startswith("src/cli/"):
        for match in re.finditer(r"\b(?:secure_)?getenv\b|\benviron\b", code):
            number = code.count("\n", 0, match.start()) + 1
            problems.append(f"{relative}:{number}: the environment is read in src/cli only")
    for name, first, length in functions(code):
        if length > FUNCTION_LINES_MAX and not excused.allows(("function", relative, name), length):
            problems.append(f"{relative}:{first}: {name} has {length} lines, at most {FUNCTION_LINES_MAX}")


class Exemptions:
    def __init__(self, path):
        self.limits, self.used = {}, {}
        if not path.exists():
            return
        for row in path.read_text(encoding="utf-8").splitlines():
            fields = row.split("#")[0].split()
            if fields:
                self.limits[tuple(fields[:-1])] = int(fields[-1])

    def allows(self, key, lines):
        self.used[key] = max(lines, self.used.get(key, 0))
        return lines <= self.limits.get(key, 0)

    def check_ratchet(self, problems):
        for key, limit in self.limits.items():
            needed = self.used.get(key, 0)
            if needed < limit:
                problems.append(f"tools/tidy.exempt: {' '.join(key)} {limit}: " +
                                (f"tighten it to {needed}" if needed else "no longer needed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    excused, problems, count = Exemptions(root / "tools/tidy.exempt"), [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".h", ".inc") and path.is_file():
                count += 1
                check_file(root, path, excused, problems)
    excused.check_ratchet(problems)
    for problem in problems:
        print(f"tidy: {problem}", file=sys.stderr)
    print(f"tidy: {count} files, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
