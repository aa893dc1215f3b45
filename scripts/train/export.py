"""Write the Hugging Face folder of a trained model."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from model import load
from safetensors.torch import save_file


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=Path("build/train/tokenizer.json"))
    args = parser.parse_args()
    model = load(args.weights, "cpu")
    args.folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, args.folder / "model.safetensors", metadata={"format": "pt"})
    config = json.dumps(model.shape.hf_config(), indent=2) + "\n"
    (args.folder / "config.json").write_text(config, encoding="utf-8")
    shutil.copyfile(args.tokenizer, args.folder / "tokenizer.json")


if __name__ == "__main__":
    main()
