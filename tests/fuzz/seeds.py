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
TEMPLATE_BYTES_MAX = 8 * 1024  # longer ones are rendered too slowly to be varied


def found(pattern):
    shared = pathlib.Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared")
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


def session_seeds():
    """A chat of one turn (docs/session-file.md); the target makes the header right itself."""
    def text(s):
        return struct.pack("<I", len(s)) + s

    identity = text(b"m.gguf") + text(b"llama") + text(b"00ff") + struct.pack("<I", 300) + text(b"ff00")
    chat = text(b"be brief") + text(b"") + struct.pack("<I", 1) + text(b"hi") + text(b"ho")
    chat += struct.pack("<BIiiIB", 1, 2, 5, 299, 1, 1)
    options = text(b"") + text(b"{}") + struct.pack("<BqqB", 1, -1, 12, 0) + struct.pack("<I", 1) + text(b"STOP")
    sampling = struct.pack("<IQ9d4i", 1, 7, 0.8, 0.95, 0.05, 1, 1, 0, 0, 0, 1.75, 40, 64, 2, -1)
    sampling += struct.pack("<Ii", 1, 4) + struct.pack("<IIi", 1, 1, 6) + struct.pack("<Iid", 1, 9, 1.5)
    yield bytes(48) + identity + chat + options + sampling
    yield bytes(48) + identity


def kernel_seeds():
    """One start for each kind of kernel call (the first byte), short and long."""
    for kind in range(16):
        for size in (2, 40, 600):
            yield bytes([kind, 0]) + bytes((kind * 31 + i * 7 + i * i // 3) % 256 for i in range(size))


def prefix_entry_seeds():
    """Heads of a page and of checkpoints; the fuzzer puts the checksum right."""
    texts = [b"0123abcd tiny", b"f16", b"avx2 q8 1"]
    for kind, tokens, sections, page in ((1, 64, [], 100), (2, 5, [3000, 2000], 100), (2, 0, [4096], 0), (2, 0, [], 0)):
        length = 64 if kind == 1 else 128 + tokens
        body = b"".join(texts)
        body += bytes(-len(body) % 8) + struct.pack(f"<{tokens}i", *range(tokens))
        body += bytes(-len(body) % 8) + b"".join(struct.pack("<QQQ", n, 1, 2) for n in sections)
        header = b"SLUICEPX" + struct.pack("<II2Q", 1, 0, 0, 0)
        header += struct.pack("<9Q", 4096, sum(sections), page, 1, 2, 3, 4, 5, 6)
        header += struct.pack("<4I4H", kind, length, tokens, len(sections), *map(len, texts), 0)
        yield (header + body).ljust(4096, b"\0")


def template_seeds():
    """Published templates with a conversation each, and the short ones of the feature tests."""
    for path in found("*.json"):
        golden = json.loads(path.read_text()) if path.stat().st_size <= SEED_BYTES_MAX else None
        if not isinstance(golden, dict) or not isinstance(golden.get("cases"), list):
            continue
        for case in golden["cases"]:
            template, messages = case.get("template", golden.get("template")), case.get("messages")
            if isinstance(template, str) and len(template) <= TEMPLATE_BYTES_MAX:
                yield template.encode() + (b"\0" + json.dumps(messages).encode() if messages else b"")


def text_seeds():
    """The texts of the tokenizer goldens; the first byte says where markup ends and text begins."""
    for path in found("*.json*"):
        if "tok" not in path.as_posix().replace("tests/fixtures", ""):
            continue
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for case in (case for line in lines for case in cases_of(json.loads(line))):
            text = case.get("text", case.get("t"))
            if isinstance(text, str) and len(text) <= 1024:
                yield b"\x80" + text.encode("utf-8", "surrogatepass")


def cases_of(golden):
    cases = golden.get("cases", [golden]) if isinstance(golden, dict) else []
    return [case for case in cases if isinstance(case, dict)]


def tokenizer_json_seeds():
    for path in found("tokenizer.json"):
        yield path.read_bytes()[:SEED_BYTES_MAX]
    for path in found("tok_structures.jsonl"):
        for line in path.read_text().splitlines():
            yield json.dumps(json.loads(line)["tokenizer"], separators=(",", ":")).encode()


SEEDS = {
    "fuzz_template": template_seeds,
    "fuzz_tokenizer": text_seeds,
    "fuzz_tokenizer_json": tokenizer_json_seeds,
    "fuzz_prefix_entry": prefix_entry_seeds,
    "fuzz_gguf": gguf_seeds,
    "fuzz_safetensors": safetensors_seeds,
    "fuzz_json": json_seeds,
    "fuzz_hf_bind": folder_seeds,
    "fuzz_kernels": kernel_seeds,
    "fuzz_session_file": session_seeds,
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
