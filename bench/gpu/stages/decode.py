"""The headline: base decode at batch 1, and what each scheme in one process adds to it."""

from __future__ import annotations

import steps
from arms import base_arms, open_kit, try_arm
from blocks import StageSession
from variants import MODEL


def run(session: StageSession) -> None:
    with open_kit(session) as kit:
        loop, arms = kit.loop, base_arms(session, kit.loop)
        makers = {
            "plain-lora": kit.load_plain,
            "final-hidden": kit.load_final_hidden,
            "one-graph": kit.load_one_graph,
            "ckks-slots": lambda: steps.CkksAdapter(loop.device, loop.config),
        }
        for name, make in makers.items():
            arms += try_arm(session, loop, "decode", name, make)
        session.run_case_blocks("decode", {"model": MODEL, "batch": 1}, arms)
