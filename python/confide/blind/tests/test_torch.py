"""Both placements where arrays are torch tensors, as on a CUDA device, without one (cuda/tests/torch_on_cpu.py)."""

import os
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None

import numpy

from confide.blind.tests import adapters, hosts, test_batches, test_one_graph
from confide.cuda import arrays
from confide.cuda.tests.torch_on_cpu import DEVICE, OnTensors


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("no torch")


class OneGraph(OnTensors, test_one_graph.OneGraphTest):
    """Both roles in one process again, every array a tensor."""


class Batches(OnTensors, test_batches.Batches):
    """A key holder's batches again, every array a tensor."""


class KeyHolder(OnTensors):
    def test_a_key_holder_on_a_device_gets_loras_deltas_over_many_batches(self) -> None:
        with hosts.folder() as folder:
            pairs = adapters.write_adapter(folder)
            host = hosts.Running("python", folder, "127.0.0.1:0", hosts.TOY, "--budget", "100000")
            self.addCleanup(host.stop)
            adapter = host.adapter(device=DEVICE)
            self.addCleanup(adapter.close)
            deltas = adapter.open()
            for count in (1, 3, 300):
                rows = (
                    numpy.random.default_rng(count).normal(0, 1, (count, 64)).astype(numpy.float32)
                )
                outputs = {"q": arrays.zeros((count, 64), "float32", DEVICE)}
                deltas.add(0, "attention", arrays.upload(rows, DEVICE), outputs)
                wanted = adapters.plain(pairs, 0, "q", rows)
                error = numpy.linalg.norm(outputs["q"].numpy() - wanted) / numpy.linalg.norm(wanted)
                self.assertLess(error, 1e-3)
            self.assertEqual(deltas.report()["answered_vectors"], 304)


if __name__ == "__main__":
    unittest.main()
