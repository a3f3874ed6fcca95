"""What the same work would cost under a GPU's confidential computing: crossings of the bus counted here, times tolls
published elsewhere. Predictions, labelled in every line; nothing of them is measured.
"""

from __future__ import annotations

from typing import Any

# Toll of one crossing: arXiv 2606.23969 (Blackwell, CPU TEE, June 2026), about 330 us. Bytes: copies through bounce
# buffers under TDX with an H200, about 4.9 GiB/s (vllm issue 55428).
TOLL_US = 330.0
BYTES_PER_S = 4.9 * 2**30
SOURCE = "330 us a crossing: arXiv 2606.23969; 4.9 GiB/s: vllm issue 55428"
CASE = "model=qwen2.5-1.5b phase={}"


def token_ms(crossings: float, moved_bytes: float) -> float:
    """Milliseconds that the tolls add, if no crossing overlaps with work: an upper end."""
    return crossings * TOLL_US / 1e3 + moved_bytes / BYTES_PER_S * 1e3


def rows(slices: list[dict[str, Any]]) -> list[str]:
    """A table with one line for each arm and phase that was counted; `*not measured*` where none was."""
    from table import NOT_MEASURED, of

    lines = [
        f"*Prediction*, from counted copies and published tolls ({SOURCE}); without overlap: an upper end for these; "
        "what kernels read and write in the host's memory themselves (loopback: masked vectors, answers) is not in it.",
        "",
        "| arm | phase | crossings | bytes | the tolls would add |",
        "| --- | --- | --- | --- | --- |",
    ]
    for arm in ("base", "plain-lora", "one-graph", "ipc", "loopback"):
        for phase in ("prefill", "token"):
            told = [
                of(slices, "crossings", CASE.format(phase), arm, name)
                for name in ("crossings_count", "to_card_bytes", "from_card_bytes")
            ]
            if not all(told):
                lines.append(
                    f"| {arm} | {phase} | {NOT_MEASURED} | {NOT_MEASURED} | {NOT_MEASURED} |"
                )
                continue
            count, up, down = (sum(found.values()) / len(found) for found in told)
            added = token_ms(count, up + down)
            lines.append(
                f"| {arm} | {phase} | {count:,.1f} | {up + down:,.0f} | *prediction*: {added:.2f} ms |"
            )
    return lines
