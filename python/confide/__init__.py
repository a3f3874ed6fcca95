"""confide's Python side: the torch worker, its kernels, and both roles of the blind protocol on a GPU.

`confide.worker` speaks to `confide serve` (docs/worker.md), `confide.cuda` holds the kernels and is the only place that
names CUDA, `confide.blind` the key holder and the adapter host (docs/blind-protocol.md). Nothing is imported here, so
that the kernels can be compiled and checked where there is no torch.
"""
