"""Who is protected from whom, computed from what runs: the words of crates/lora/src/guarantee.rs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """What is hidden from each side, as far as this end can know it."""

    host_is_blind: bool
    adapter_stays: bool
    b_is_handed_over: bool
    adapter_can_be_learned: bool
    simulated: bool = False

    def __str__(self) -> str:
        if not self.adapter_stays:
            text = (
                "adapter host is blind; adapter is not protected" if self.host_is_blind else "none"
            )
        elif not self.host_is_blind and self.adapter_can_be_learned:
            text = "adapter can be learned; activations are not hidden"
        elif not self.host_is_blind:
            text = "adapter is not handed over; activations are not hidden"
        elif self.adapter_can_be_learned:
            text = "adapter host is blind; adapter can be learned"
        elif self.b_is_handed_over:
            text = "adapter host is blind; A is not handed over, B is"
        else:
            text = "adapter host is blind; adapter is not handed over"
        return text + (" (simulated)" if self.simulated else "")


# Adapter and activations are in one process.
NONE = Guarantee(False, False, True, True)
