"""Predictions of what the same work would cost under a GPU's confidential computing: crossings of the bus that are
counted here, times tolls that are published elsewhere. Every line is labelled; nothing of them is measured.
"""

from __future__ import annotations

# Toll of one crossing: arXiv 2606.23969 (Blackwell, CPU TEE, June 2026), about 330 us. Bytes: copies through bounce
# buffers under TDX with an H200, about 4.9 GiB/s (vllm issue 55428).
TOLL_US = 330.0
BYTES_PER_S = 4.9 * 2**30
SOURCE = "330 us a crossing: arXiv 2606.23969; 4.9 GiB/s: vllm issue 55428"
TOLLS_HEAD = (
    f"*Prediction*, from counted copies and published tolls ({SOURCE}); without overlap, so an upper bound for these; "
    "what kernels read and write in the host's memory themselves (loopback: masked vectors, answers) is not included.",
    "",
    "| arm | phase | crossings | bytes | the tolls would add |",
    "| --- | --- | --- | --- | --- |",
)


def predict_tolls_ms(crossings: float, moved_bytes: float) -> float:
    """Milliseconds that the tolls add, if no crossing overlaps with work: an upper end."""
    return crossings * TOLL_US / 1e3 + moved_bytes / BYTES_PER_S * 1e3
