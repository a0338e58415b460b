#!/usr/bin/env python3
"""Checks the arrows between rooms: includes, file cycles and link lists against tools/layers.toml.

  tools/layers.py [--root DIR]      exit 0 and one line, or 1 and one line per violation
"""
import argparse
import pathlib
import re
import sys
import tomllib

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
ROOM_CALL = re.compile(r"^\s*sluice_room\(\s*([^)]*)\)", re.M)


def source_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".cc", ".h", ".inc"))


def resolve(root, path, name):
    """The file an include names, relative to the repository, or None for a system header."""
    for base in (path.parent, root / "src", root / "include"):
        candidate = (base / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return None


def room_of(relative):
    parts = relative.parts
    if parts[:2] == ("include", "sluice"):
        return "public"
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def check_includes(root, table, problems):
    """Returns the include graph; adds a problem for each arrow that no row allows."""
    rooms, anyone = table["rooms"], {"include/" + name for name in table["anyone"]}
    graph = {}
    for path in source_files(root / "src") + source_files(root / "include"):
        relative = path.relative_to(root)
        room = room_of(relative)
        if room is None or (room != "public" and room not in rooms):
            problems.append(f"{relative}: in no room of tools/layers.toml")
            continue
        allowed = {room} | set(rooms.get(room, []))
        text = path.read_text(encoding="utf-8")
        graph[relative] = set()
        for match in INCLUDE.finditer(text):
            target = resolve(root, path, match.group(1))
            line = text.count("\n", 0, match.start(1)) + 1
            if target is None:
                problems.append(f'{relative}:{line}: "{match.group(1)}" is no file of the tree')
                continue
            graph[relative].add(target)
            if room_of(target) not in allowed and target.as_posix() not in anyone:
                problems.append(f"{relative}:{line}: {room} may not include {room_of(target)} ({target})")
    return graph


def check_cycles(graph, problems):
    done, trail = set(), []

    def visit(node):
        if node in trail:
            cycle = trail[trail.index(node):] + [node]
            problems.append("cycle: " + " -> ".join(map(str, cycle)))
            return
        if node in done:
            return
        trail.append(node)
        for target in sorted(graph.get(node, ())):
            visit(target)
        trail.pop()
        done.add(node)

    for node in sorted(graph):
        visit(node)


def check_order(rooms, problems):
    """A row may name only rooms above it in the file, so the table itself has no cycle."""
    seen = {"public"}
    for room, row in rooms.items():
        for target in row:
            if target not in seen:
                problems.append(f"tools/layers.toml: {room} names {target}, which is not above it")
        seen.add(room)


def check_links(root, rooms, problems):
    text = (root / "src/CMakeLists.txt").read_text(encoding="utf-8")
    text = re.sub(r"#.*", "", text)
    linked = {}
    for match in ROOM_CALL.finditer(text):
        name, *row = match.group(1).split()
        linked[name] = set(row)
    for room in sorted(set(rooms) | set(linked)):
        want = set(rooms.get(room, [])) - {"public"}
        if room not in linked or room not in rooms:
            problems.append(f"src/CMakeLists.txt: room {room} is in only one of CMake and tools/layers.toml")
        elif want != linked[room]:
            problems.append(f"src/CMakeLists.txt: sluice_room({room}) links {sorted(linked[room])}, "
                            f"its row says {sorted(want)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    table = tomllib.loads((root / "tools/layers.toml").read_text(encoding="utf-8"))
    problems = []
    check_order(table["rooms"], problems)
    graph = check_includes(root, table, problems)
    check_cycles(graph, problems)
    check_links(root, table["rooms"], problems)
    for problem in problems:
        print(f"layers: {problem}", file=sys.stderr)
    print(f"layers: {len(graph)} files, {sum(map(len, graph.values()))} includes, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
