#!/usr/bin/env python3
"""Gathers start inputs for the fuzz targets from files that are there anyway.

usage: seeds.py BUILD_DIR [TARGET...]      then tools/fuzz BUILD_DIR SECONDS [TARGET...]

They come from tests/fixtures and $SLUICE_SHARED (default ../shared), cut to SEED_BYTES_MAX, and are written to
BUILD_DIR/fuzz/corpus/TARGET, where tools/fuzz keeps what it finds. Safe to repeat.
"""
import json
import os
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED_BYTES_MAX = 64 * 1024


def found(pattern):
    shared = pathlib.Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
    for base in (ROOT / "tests" / "fixtures", shared):
        if base.is_dir():
            yield from sorted(p for p in base.rglob(pattern) if p.is_file())


def header_text(path):
    with open(path, "rb") as f:
        size = f.read(8)
        if len(size) < 8 or struct.unpack("<Q", size)[0] > (1 << 20):
            return b""
        return f.read(struct.unpack("<Q", size)[0])


def gguf_seeds():
    for path in found("*.gguf"):
        yield path.read_bytes()[:SEED_BYTES_MAX]


def safetensors_seeds():
    for path in found("*.safetensors"):
        text = header_text(path)
        yield struct.pack("<Q", len(text)) + text
        if path.stat().st_size <= SEED_BYTES_MAX:
            yield path.read_bytes()


def json_seeds():
    for path in found("*.json"):
        if path.stat().st_size <= SEED_BYTES_MAX:
            yield path.read_bytes()


def folder_seeds():
    for path in found("config.json"):
        model = path.parent / "model.safetensors"
        config = json.dumps(json.loads(path.read_text()), separators=(",", ":")).encode()
        yield config + (b"\0" + header_text(model) if model.is_file() else b"")


SEEDS = {
    "fuzz_gguf": gguf_seeds,
    "fuzz_safetensors": safetensors_seeds,
    "fuzz_json": json_seeds,
    "fuzz_hf_bind": folder_seeds,
}


def own_inputs():
    """Targets without file formats of their own start from a few plain texts."""
    return [b"a", "a<|im_end|> b\u00e9 {{ x }} 123".encode(), b'{"a": [1, "b"]}']


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for target in sys.argv[2:] or sorted(SEEDS):
        corpus = pathlib.Path(sys.argv[1]) / "fuzz" / "corpus" / target
        corpus.mkdir(parents=True, exist_ok=True)
        count = 0
        for seed in SEEDS.get(target, own_inputs)():
            (corpus / f"seed-{count:04}").write_bytes(seed)
            count += 1
        print(f"{target}: {count} seeds in {corpus}")


if __name__ == "__main__":
    main()
