"""`python -m confide.worker.tune SHAPE [--rows N]`: measures on this device how a step's work is best shared out.

What is fastest is kept in the cache folder and serves every later step on such a device (confide.cuda.tune).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

import torch

from confide.cuda import tune
from confide.cuda.decode import DecodeStep
from confide.cuda.tiling import Tilings

from . import config as shapes
from . import rotary, weights
from .cache import Cache, CacheSize
from .kernels import overlaps, shape_of


def main(arguments: list[str] | None = None) -> int:
    """Tunes for one of the worker's shapes with random weights, and prints what was measured."""
    parser = argparse.ArgumentParser(prog="python -m confide.worker.tune", description=__doc__)
    parser.add_argument(
        "shape",
        choices=sorted(shapes.SHAPES),
        metavar="SHAPE",
        help=", ".join(sorted(shapes.SHAPES)),
    )
    parser.add_argument("--rows", type=int, default=1, help="rows of the step, 1 to 8")
    parser.add_argument(
        "--layers",
        type=int,
        help="layers, if not all fit in memory; a small number of them stays in L2",
    )
    parser.add_argument("--context", type=int, default=256, help="tokens that the attention reads")
    parser.add_argument(
        "--candidates",
        type=int,
        default=24,
        help="largest number of tilings to try for each product",
    )
    parser.add_argument("--device", default="cuda:0")
    given = parser.parse_args(arguments)
    step = random_step(given.shape, given.rows, given.layers, given.device, given.context)
    print(f"{'kernel':48} {'by shape':>20} {'best':>20}  tiling")
    for one in tune.tune(step, given.candidates):
        cells = " ".join(
            f"{us:8.2f} us {one.size / us / 1e3:4.0f} GB/s" for us in (one.by_shape_us, one.us)
        )
        print(f"{one.name:48} {cells}  {one.chosen}")
    return 0


def random_step(
    shape: str, rows: int, layers: int | None, device: str, context: int = 256
) -> DecodeStep:
    """Makes a step of the shape with random bf16 weights, and a cache of `context` tokens; `layers` None: all."""
    config = shapes.SHAPES[shape]
    config = config if layers is None else dataclasses.replace(config, layers=layers)
    target = torch.device(device)
    cache = Cache(config, CacheSize(rows, context), target, torch.bfloat16)
    cosines, sines = (table.to(target) for table in rotary.angles(config.rope, cache.length))
    return DecodeStep(
        shape_of(config),
        weights.random(config, 0, target, torch.bfloat16),
        cache.values,
        cosines,
        sines,
        rows,
        device,
        limit=cache.idle_position,
        overlap=target.type == "cuda" and overlaps(target),
        tilings=Tilings(),
    )


if __name__ == "__main__":
    sys.exit(main())
