"""Which way of decoding serves a shape and a batch: each is tried on short runs, and the fastest that works is used.

One that breaks or is slow costs its row of the bench `decoder`, and no other row.
"""

from __future__ import annotations

from blocks import Arm, ArmFailed, Measurement, StageSession
from decode_loop import DECODERS, DecodeLoop

TOKENS, CPU_TOKENS = 48, 8


def choose_decoder(session: StageSession, loop: DecodeLoop) -> None:
    """Tries every decoder on this loop, once for a shape and batch in a whole run, and uses the best from then on."""
    params = {"model": loop.model_name, "batch": loop.slots}
    place = f"{loop.model_name} x {loop.slots}"
    known: dict[str, str] = session.facts.get("decoders", {})
    if place not in known:
        names = ["decoder-torch"] if session.cpu else list(DECODERS)
        rates: dict[str, list[float]] = {}
        session.run_case_blocks(
            "decoder", params, [decoder_arm(session, loop, name, rates) for name in names]
        )
        # The first run of each recorded its steps.
        best = {name: sum(found[1:]) / len(found[1:]) for name, found in rates.items() if found[1:]}
        chosen = max(best, key=best.__getitem__, default="decoder-torch")
        known = known | {place: chosen}
        session.share_fact("decoders", known)
        shown = ", ".join(f"{name} {rate:,.0f} tokens/s" for name, rate in best.items())
        session.print_line(f"{place}: {DECODERS[chosen].says} ({shown or 'none could be timed'})")
    loop.use_decoder(known[place])


def decoder_arm(
    session: StageSession, loop: DecodeLoop, name: str, rates: dict[str, list[float]]
) -> Arm:
    """Short runs by one decoder; its rates go into `rates` too."""
    tokens = CPU_TOKENS + loop.slots if session.cpu else TOKENS + loop.slots

    def measure(seed: int) -> Measurement:
        loop.use_decoder(name)
        decoded = loop.run(seed, tokens, 8)
        if decoded.seconds <= 0:
            raise ArmFailed("no time passed")
        rate = decoded.tokens / decoded.seconds
        rates.setdefault(name, []).append(rate)
        return Measurement([{"tokens_per_s": rate}], floor=loop.weight_read_floor(loop.slots))

    return Arm(name, measure, says=f"{loop.model_name}, {DECODERS[name].says}", guarantee="none")
