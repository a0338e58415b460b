"""What the bench scripts share: where the program, models and the rival are, and the commit that is measured."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
SLUICE = ROOT / "build/release/sluice"
MODELS = pathlib.Path(os.environ.get("SLUICE_MODELS") or pathlib.Path.home() / ".cache/sluice")
SHARED = pathlib.Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared")
RIVAL = pathlib.Path(os.environ.get("SLUICE_RIVAL") or SHARED / "tools/rival.py")
PYTHON = str(MODELS / "venv/bin/python3") if (MODELS / "venv/bin/python3").exists() else sys.executable


def commit():
    return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
