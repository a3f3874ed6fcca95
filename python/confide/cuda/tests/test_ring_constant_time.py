"""No branch and no address of the ring's kernels depends on a secret, by the flow of values through their PTX.

Every register carries the names of the memory that it was computed from, along every path. Shared memory is one
value for each array. What ptxas makes of the PTX afterwards is not looked at.
"""

from __future__ import annotations

import ctypes
import re
import unittest

from confide.cuda import nvrtc, source

try:
    nvrtc.library()
    MISSING = ""
except nvrtc.NvrtcMissing:
    MISSING = "no nvidia-cuda-nvrtc"

# Memory that holds secrets: by kernel, its parameters, and the polynomial in dynamic shared memory. The words of `seed`
# and `seeds` are public polynomials, skipped by value; `scan` counts them.
SECRETS = {
    "encrypt.cu": {
        "keystream": {"key"},
        "secret_key": {"key", "shared"},
        "encrypt": {"messages", "key", "secret", "shared"},
        "hide": {"plain", "key", "shared"},
    },
    "keys.cu": {"decrypt": {"secret", "shared", "c0", "c1"}},
    "mask_stream.cu": {"mask_rows": {"key"}, "mask_columns": {"key"}},
    "products.cu": {"scalar_products": {"weights", "tile"}},
    "ntt.cu": {"ntt_forward": {"values", "shared"}, "ntt_inverse": {"values", "shared"}},
}
_INSTRUCTION = re.compile(r"(?:@!?(%p\d+)\s+)?([a-z][\w.]*)\s*([^;]*);")
_REGISTER = re.compile(r"%[a-z]+\d+")


def ptx(file: str) -> str:
    """The file's PTX for sm_90."""
    read, library = source.read(file, {}), nvrtc.library()
    told = [
        option.encode() for option in nvrtc.options(read, "compute_90") if "ptxas" not in option
    ]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(
        ctypes.byref(program), read.text.encode(), file.encode(), 0, None, None
    )
    try:
        status = library.nvrtcCompileProgram(
            program, len(told), (ctypes.c_char_p * len(told))(*told)
        )
        assert status == 0, file
        return nvrtc._bytes(program, "PTX").rstrip(b"\0").decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


class Flow:
    """What each register holds at each place: `at X` for addresses into X, `of X` for what was computed from its
    values. Registers are written again and again, so states flow along the branches until nothing changes.
    """

    def __init__(self, body: str, names: dict[str, str]) -> None:
        self.names = names
        self.blocks, self.successors = blocks(body)
        self.states: list[dict[str, frozenset[str]]] = [{} for _ in self.blocks]
        self.seen: set[str] = set()
        waiting = list(range(len(self.blocks)))
        while waiting:
            block = waiting.pop(0)
            state = dict(self.states[block])
            for instruction in self.blocks[block]:
                self.step(state, instruction)
            for after in self.successors[block]:
                if self.join(after, state) and after not in waiting:
                    waiting.append(after)

    def join(self, block: int, state: dict[str, frozenset[str]]) -> bool:
        """Adds what comes along one branch; whether that was new."""
        known, changed = self.states[block], False
        for register, labels in state.items():
            if not labels <= known.get(register, frozenset()):
                known[register] = known.get(register, frozenset()) | labels
                changed = True
        return changed

    def step(self, state: dict[str, frozenset[str]], instruction: tuple[str, str, str]) -> None:
        """The state after one instruction."""
        predicate, opcode, operands = instruction
        if opcode.startswith(("st.", "bra", "ret", "bar", "membar", "red.")):
            return
        parts = re.match(r"(\{[^}]*\}|[^,]*)(?:, *)?(.*)", operands, re.DOTALL)
        assert parts
        target, sources = parts.groups()
        found = self.labels(state, sources)
        if opcode.startswith(("ld.", "atom.")) and not opcode.startswith("ld.param"):
            found = frozenset(
                f"of {label[3:]}" if label.startswith("at ") else label for label in found
            )
        self.seen |= found
        for register in _REGISTER.findall(target):
            state[register] = found | (
                state.get(register, frozenset()) if predicate else frozenset()
            )

    def labels(self, state: dict[str, frozenset[str]], text: str) -> frozenset[str]:
        """The labels of all registers, parameters and shared arrays named in the text."""
        found = [state.get(register, frozenset()) for register in _REGISTER.findall(text)]
        named = {
            f"at {name}" for symbol, name in self.names.items() if re.search(rf"\b{symbol}\b", text)
        }
        return frozenset(named).union(*found)

    def leaks(self, secrets: set[str]) -> list[str]:
        """Branches, addresses and divisions that depend on values of a secret."""
        forbidden, found = {f"of {name}" for name in secrets}, []
        for block, state in zip(self.blocks, map(dict, self.states)):
            for instruction in block:
                predicate, opcode, operands = instruction
                looked_at = [predicate or ""]
                if opcode.startswith(("ld.", "st.", "atom.", "red.")):
                    looked_at += re.findall(r"\[([^\]]*)\]", operands)
                if opcode.startswith(("div", "rem")):
                    looked_at.append(operands)
                if any(self.labels(state, text) & forbidden for text in looked_at):
                    found.append(f"{opcode} {operands}")
                self.step(state, instruction)
        return found


def blocks(body: str) -> tuple[list[list[tuple[str, str, str]]], list[list[int]]]:
    """The basic blocks of a kernel and which follow which."""
    found: list[list[tuple[str, str, str]]] = [[]]
    places, jumps = {}, {}
    for line in re.split(r";|(?<=:)\n", body):
        if label := re.search(r"(\$\w+):\s*$", line):
            found.append([])
            places[label.group(1)] = len(found) - 1
        elif instruction := _INSTRUCTION.match(line.strip() + ";"):
            predicate, opcode, operands = instruction.groups()
            found[-1].append((predicate or "", opcode, operands))
            if opcode.startswith(("bra", "ret")):
                jumps[len(found) - 1] = (predicate, operands.strip())
                found.append([])
    successors = []
    for index in range(len(found)):
        predicate, target = jumps.get(index, ("falls through", ""))
        after = [places[target]] if target else []
        if predicate and index + 1 < len(found):
            after.append(index + 1)
        successors.append(after)
    return found, successors


def flow(text: str, file: str, kernel: str) -> Flow:
    """The flow of one kernel of a file's PTX."""
    entry = re.search(rf"\.entry {kernel}\((.*?)^}}$", text, re.DOTALL | re.MULTILINE)
    assert entry
    body = entry.group(1)
    assert "ld.local" not in body, f"{kernel}: memory of a thread's own is not followed"
    parameters = source.read(file, {}).kernels[kernel]
    names = {
        f"{kernel}_param_{index}": one.name for index, one in enumerate(parameters) if one.pointer
    }
    # Static arrays have mangled names that contain the plain one.
    for symbol in set(re.findall(r"\.shared[^;]*?([\w$]+)\[", text)):
        names[symbol] = next(
            (name for name in ("shared", "scan", "tile") if name in symbol), symbol
        )
    return Flow(body, names)


@unittest.skipIf(MISSING, MISSING)
class ConstantTime(unittest.TestCase):
    def test_no_branch_and_no_address_depends_on_a_secret(self) -> None:
        for file, kernels in SECRETS.items():
            text = ptx(file)
            for kernel, secrets in kernels.items():
                with self.subTest(file=file, kernel=kernel):
                    traced = flow(text, file, kernel)
                    for secret in secrets:
                        self.assertIn(
                            f"of {secret}", traced.seen, "not read: the analysis follows nothing"
                        )
                    self.assertEqual(traced.leaks(secrets), [])

    def test_a_draw_that_skips_words_is_found(self) -> None:
        for kernel, known in (("public_polynomials", {"seeds"}), ("encrypt", {"seed"})):
            self.assertNotEqual(flow(ptx("encrypt.cu"), "encrypt.cu", kernel).leaks(known), [])

    def test_a_table_look_up_is_found(self) -> None:
        self.assertNotEqual(flow(ptx("keys.cu"), "keys.cu", "decrypt").leaks({"positions"}), [])


if __name__ == "__main__":
    unittest.main()
