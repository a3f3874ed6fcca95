"""Whole long generations with a private adapter while its masks are prepared: what a token takes in the long run."""

from __future__ import annotations

from arms import AdapterKit, open_kit, wait_until_prepared
from blocks import Arm, ArmFailed, Measurement, StageSession
from decode_loop import PROMPT
from device import Device
from variants import MODEL

# Two batches of masks of 4,096: what was prepared beforehand is used up once.
TOKENS, CPU_TOKENS = 8192, 24
# Steps are recorded before the clock runs.
WARM_TOKENS = 4


def run(session: StageSession) -> None:
    tokens = CPU_TOKENS if session.cpu else TOKENS
    with open_kit(session, context=PROMPT + tokens + 8) as kit:
        arms = prepare_arms(session, kit, "base", tokens)
        arms = arms and arms[0].with_twin()
        for name in ("one-graph", "final-hidden"):
            arms += prepare_arms(session, kit, name, tokens)
        session.run_case_blocks("sustained", {"model": MODEL, "batch": 1}, arms)


def prepare_arms(session: StageSession, kit: AdapterKit, name: str, tokens: int) -> list[Arm]:
    """The arm, its steps recorded; nothing where it cannot be had."""
    makers = {
        "base": lambda: None,
        "one-graph": kit.load_one_graph,
        "final-hidden": kit.load_final_hidden,
    }

    def make() -> Arm:
        held = makers[name]()
        kit.loop.run(session.seed, WARM_TOKENS, PROMPT, [held])
        return sustained_arm(session, kit, name, held, tokens)

    arm = session.make_or_leave_out("sustained", name, make)
    return [] if arm is None else [arm]


def sustained_arm(
    session: StageSession, kit: AdapterKit, name: str, held: object, tokens: int
) -> Arm:
    """One generation of `tokens` tokens while masks are prepared, then the time until as many are there as before."""
    loop, device = kit.loop, Device(session.cpu)

    def measure(seed: int) -> Measurement:
        floor = loop.weight_read_floor(1)
        if held is not None:
            wait_until_prepared(held, session.remaining_s())
        decoded = loop.run(seed, tokens, PROMPT, [held])
        if decoded.seconds <= 0 or decoded.tokens < tokens // 2:
            raise ArmFailed(f"{decoded.tokens} tokens in {decoded.seconds} s")
        restock_ms = 0.0
        if held is not None:
            restock_ms = device.time_wall_ms(
                lambda: wait_until_prepared(held, session.remaining_s())
            )
        token_ms = (decoded.seconds * 1e3 + restock_ms) / decoded.tokens
        metrics = {
            "tokens_per_s": 1e3 / token_ms,
            "token_ms": token_ms,
            "restock_ms": restock_ms,
        }
        return Measurement([metrics], floor=floor)

    guarantee = "none" if held is None else getattr(held, "guarantee", None)
    return Arm(name, measure, says=f"{loop.says}, {tokens} tokens in one run", guarantee=guarantee)
