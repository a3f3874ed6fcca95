"""Asks PEFT and `confide-lora` for the same deltas, field by field of the configuration.

    python tests/python/test_peft.py [PATH-OF-THE-EXAMPLE-delta]

The adapters are PEFT's own, on a small model with random weights and Qwen2's names. Without the
argument the example's path is $CONFIDE_DELTA. Ends 0 when all checks hold or torch is missing, 1
otherwise. Needs torch and the packages of requirements-peft.txt.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit(0)

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")

import peft
import safetensors.torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers.pytorch_utils import Conv1D

# The fields of a PEFT configuration, and vectors by the site of their module.
Fields = dict[str, Any]
Deltas = dict[str, list[float]]
LAYERS, HIDDEN, KEYS, INNER = 3, 24, 8, 40
WIDTHS = {
    "q_proj": (HIDDEN, HIDDEN),
    "k_proj": (HIDDEN, KEYS),
    "v_proj": (HIDDEN, KEYS),
    "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (HIDDEN, INNER),
    "up_proj": (HIDDEN, INNER),
    "down_proj": (INNER, HIDDEN),
}
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = list(WIDTHS)

# Of the largest expected value. PEFT computes in float64 here, with the matrices as they were saved;
# what it folds for DoRA is one rounding to float32 away.
TOLERANCE = 1e-5
# Where PEFT itself computes in bfloat16: it rounds three times to 8 bits.
TOLERANCE_BF16 = 2.0**-7

PATTERNS = {
    "rank_pattern": {
        "q_proj": 2,
        r"model\.layers\.[12]\.mlp\..*": 5,
        "^model.layers.0.self_attn.v_proj": 6,
    },
    "alpha_pattern": {"k_proj|v_proj": 3, "layers.2.mlp.down_proj": 11, r"(?!.*mlp).*o_proj": 1},
}

# Each is accepted, and gives what PEFT gives.
ACCEPTED: dict[str, Fields] = {
    "defaults": {"target_modules": ["q_proj", "v_proj"]},
    "r and lora_alpha": {"r": 3, "lora_alpha": 7, "target_modules": ALL},
    "lora_alpha not whole": {"r": 3, "lora_alpha": 0.7, "target_modules": ALL},
    "rank 1": {"r": 1, "target_modules": ["down_proj"]},
    "use_rslora": {"r": 5, "lora_alpha": 4, "use_rslora": True, "target_modules": ALL},
    "rank_pattern and alpha_pattern": dict(target_modules=ALL, **PATTERNS),
    "patterns with use_rslora": dict(target_modules=ALL, use_rslora=True, **PATTERNS),
    "a pattern's order": {"target_modules": ALL, "rank_pattern": {"(q|k)_proj": 3, "k_proj": 7}},
    "layers_to_transform, list": {"target_modules": ALL, "layers_to_transform": [0, 2]},
    "layers_to_transform, one": {"target_modules": ["q_proj"], "layers_to_transform": 1},
    "layers_pattern": {
        "target_modules": ALL,
        "layers_to_transform": [1],
        "layers_pattern": "layers",
    },
    "layers_pattern, list": {
        "target_modules": ALL,
        "layers_to_transform": [1],
        "layers_pattern": ["h", "layers"],
    },
    "target_modules, pattern": {"target_modules": r".*\.(q|down)_proj"},
    "target_modules, look-ahead": {"target_modules": r"^(?!.*mlp).*_proj$"},
    "target_modules, paths": {
        "target_modules": ["model.layers.0.mlp.up_proj", "layers.1.self_attn.q_proj"]
    },
    "target_modules, all-linear": {"target_modules": "all-linear"},
    "exclude_modules, list": {
        "target_modules": ALL,
        "exclude_modules": ["k_proj", "1.mlp.up_proj"],
    },
    "exclude_modules, pattern": {"target_modules": ALL, "exclude_modules": r".*\.0\..*"},
    "lora_dropout": {"target_modules": ALL, "lora_dropout": 0.3},
    "task_type": {"target_modules": ALL, "task_type": "FEATURE_EXTRACTION"},
    "init gaussian": {"target_modules": ALL, "init_lora_weights": "gaussian"},
    "init orthogonal": {"target_modules": ALL, "init_lora_weights": "orthogonal"},
    "init mica": {"target_modules": ALL, "init_lora_weights": "mica"},
    "init eva": {"target_modules": ALL, "init_lora_weights": "eva"},
    "use_dora": {"r": 4, "lora_alpha": 6, "target_modules": ALL, "use_dora": True},
    "use_dora, rslora, patterns": dict(
        target_modules=ALL, use_dora=True, use_rslora=True, **PATTERNS
    ),
    "use_dora, some layers": {
        "target_modules": ["q_proj"],
        "use_dora": True,
        "layers_to_transform": [2],
    },
}

# Each is refused, with this in the message.
REFUSED: dict[str, Fields] = {
    "bias": {"bias": "all", "target_modules": ALL},
    "modules_to_save": {"modules_to_save": ["norm"], "target_modules": ["q_proj"]},
    "lora_bias": {"lora_bias": True, "target_modules": ALL},
    "init_lora_weights": {"init_lora_weights": "pissa", "target_modules": ALL},
    "embed_tokens": {"target_modules": ["q_proj", "embed_tokens"]},
    "target_parameters": {
        "target_modules": ["q_proj"],
        "target_parameters": ["model.layers.0.mlp.up_proj.weight"],
    },
    "alora_invocation_tokens": {"target_modules": ["q_proj"], "alora_invocation_tokens": [1, 2]},
}


def main() -> None:
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CONFIDE_DELTA")
    if not binary:
        sys.exit("wanted the path of the example `delta` as an argument or in CONFIDE_DELTA")
    torch.manual_seed(7)
    checks = Checks(binary)
    for name, fields in ACCEPTED.items():
        checks.run(name, lambda: checks.agrees(fields))
    for name in ("float16", "bfloat16"):
        plain: Fields = {"target_modules": ALL}
        for fields in (plain, plain | {"use_dora": True}):
            label = f"{name}{' use_dora' if len(fields) > 1 else ''}"
            checks.run(label, lambda: checks.agrees(fields, dtype=getattr(torch, name)))
    checks.run("bfloat16 computing", checks.agrees_in_bfloat16)
    checks.run(
        "fan_in_fan_out",
        lambda: checks.agrees({"target_modules": ALL, "fan_in_fan_out": True}, linear=conv1d),
    )
    checks.run(
        "fan_in_fan_out, use_dora",
        lambda: checks.agrees(
            {"target_modules": ALL, "fan_in_fan_out": True, "use_dora": True}, linear=conv1d
        ),
    )
    checks.run(
        "an adapter with a name", lambda: checks.agrees({"target_modules": ALL}, adapter="banking")
    )
    for init in ("pissa", "olora"):
        checks.run(f"{init}, converted", lambda: checks.agrees_converted(init))
    for name in (
        "defaults",
        "rank_pattern and alpha_pattern",
        "patterns with use_rslora",
        "layers_to_transform, list",
        "use_dora",
    ):
        checks.run(f"saved by us: {name}", lambda: checks.is_loaded_by_peft(ACCEPTED[name]))
    for name, fields in REFUSED.items():
        checks.run(f"refused: {name}", lambda: checks.refuses(name, fields))
    checks.run(
        "refused: float64",
        lambda: checks.refuses("F64", {"target_modules": ALL}, dtype=torch.float64),
    )
    checks.run("another alpha is noticed", checks.notices_another_alpha)
    checks.end()


class Checks:
    def __init__(self, binary: str) -> None:
        self.binary, self.done = binary, 0
        self.failed: list[str] = []

    def run(self, name: str, check: Callable[[], float | None]) -> None:
        try:
            error = check()
            print(f"ok      {name}" + (f": {error:.1e}" if error is not None else ""))
        except Exception as error:  # a failed check must not hide the others
            print(f"FAILED  {name}: {type(error).__name__}: {error}")
            self.failed.append(name)
        self.done += 1

    def end(self) -> None:
        held = self.done - len(self.failed)
        print(
            f"peft {peft.__version__}, torch {torch.__version__}: {held} of {self.done} checks hold"
        )
        sys.exit(1 if self.failed else 0)

    def agrees(
        self,
        fields: Fields,
        dtype: Any = torch.float32,
        linear: Any = None,
        adapter: str = "default",
    ) -> float:
        """Our delta of every adapted module is PEFT's, adapted less base."""
        with tempfile.TemporaryDirectory() as folder:
            base, model = make_adapted(fields, dtype, linear, adapter)
            model.save_pretrained(folder)
            if adapter != "default":
                folder = os.path.join(folder, adapter)
            inputs, wanted = deltas(model.double())
            got = self.ask(folder, inputs, base_folder(base, folder))
            return compare(got, wanted, TOLERANCE)

    def agrees_in_bfloat16(self) -> float:
        with tempfile.TemporaryDirectory() as folder:
            # A base of zeroes, so that the sum's rounding is not what is compared.
            base = Model(linear_layer)
            for parameter in base.parameters():
                parameter.data.zero_()
            model = randomise(get_peft_model(base, LoraConfig(target_modules=ALL)))
            model = model.to(torch.bfloat16)
            model.save_pretrained(folder)
            inputs, wanted = deltas(model, torch.bfloat16)
            return compare(self.ask(folder, inputs), wanted, TOLERANCE_BF16)

    def agrees_converted(self, init: str) -> float:
        """PEFT turns an adapter that changed the base weights into one that did not."""
        with tempfile.TemporaryDirectory() as folder:
            base = Model(linear_layer)
            original = {name: value.clone() for name, value in base.state_dict().items()}
            config = LoraConfig(r=4, target_modules=ALL, init_lora_weights=init)
            model = get_peft_model(base, config).eval()
            model.peft_config["default"].init_lora_weights = True
            start, end = os.path.join(folder, "start"), os.path.join(folder, "end")
            model.save_pretrained(start)
            model.peft_config["default"].init_lora_weights = init
            randomise(model, spread=0.1)
            model.save_pretrained(end, path_initial_model_for_weight_conversion=start)
            inputs, wanted = deltas(model.double(), original=original)
            # The start and the end are float32 and nearly cancel.
            return compare(self.ask(end, inputs), wanted, 1e-4)

    def is_loaded_by_peft(self, fields: Fields) -> float:
        """An adapter that we wrote gives in PEFT what ours gives, with no key missing or left."""
        with tempfile.TemporaryDirectory() as folder:
            base, model = make_adapted(fields)
            state = {name: value.clone() for name, value in base.state_dict().items()}
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            model.save_pretrained(theirs)
            inputs, wanted = deltas(model.double())
            self.ask(theirs, inputs, base_folder(base, theirs), save=ours)
            fresh = Model(linear_layer)
            fresh.load_state_dict(
                {plain_name(name): value for name, value in state.items() if "lora_" not in name}
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loaded = PeftModel.from_pretrained(fresh, ours).eval()
            _, got = deltas(loaded.double(), inputs=inputs)
            return compare(got, wanted, TOLERANCE)

    def notices_another_alpha(self) -> None:
        """The comparison notices another `lora_alpha`."""
        with tempfile.TemporaryDirectory() as folder:
            _, model = make_adapted({"target_modules": ALL, "lora_alpha": 8})
            model.peft_config["default"].lora_alpha = 8.001
            model.save_pretrained(folder)
            inputs, wanted = deltas(model.double())
            got = self.ask(folder, inputs)
            try:
                compare(got, wanted, TOLERANCE)
            except AssertionError:
                return
            raise AssertionError("deltas of another alpha passed for the same")

    def refuses(self, word: str, fields: Fields, dtype: Any = torch.float32) -> None:
        with tempfile.TemporaryDirectory() as folder:
            base, model = make_adapted(fields, dtype)
            model.save_pretrained(folder)
            answer = self.call(folder, {}, base_folder(base, folder))
            assert answer.returncode == 2, f"it was accepted: {answer.stdout[:200]}"
            assert word in answer.stderr, answer.stderr

    def ask(
        self, folder: str, inputs: Deltas, base: str | None = None, save: str | None = None
    ) -> Deltas:
        answer = self.call(folder, inputs, base, save)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def call(
        self, folder: str, inputs: Deltas, base: str | None = None, save: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [self.binary, folder]
        command += ["--base", base] if base else []
        command += ["--save", save] if save else []
        return subprocess.run(
            command, input=json.dumps(inputs), capture_output=True, text=True, timeout=60
        )


class Block(torch.nn.Module):  # type: ignore[misc]  # torch is Any here
    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.self_attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        for name, (wide, long) in WIDTHS.items():
            part = self.self_attn if name in ATTENTION else self.mlp
            setattr(part, name, linear(wide, long, name in ("q_proj", "k_proj", "v_proj")))


class Model(torch.nn.Module):  # type: ignore[misc]  # torch is Any here
    """The matrices of a small Qwen2, under its names. Each is asked by itself."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.config = {"model_type": "custom"}
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(16, HIDDEN)
        self.model.layers = torch.nn.ModuleList([Block(linear) for _ in range(LAYERS)])
        self.model.norm = torch.nn.LayerNorm(HIDDEN)

    def prepare_inputs_for_generation(self) -> None:
        """PEFT wants a causal language model to have it."""


def linear_layer(wide: int, long: int, bias: bool) -> Any:
    return torch.nn.Linear(wide, long, bias=bias)


def conv1d(wide: int, long: int, bias: bool) -> Any:
    layer = Conv1D(long, wide)
    torch.nn.init.normal_(layer.weight, std=0.3)
    torch.nn.init.normal_(layer.bias)
    return layer


def make_adapted(
    fields: Fields, dtype: Any = torch.float32, linear: Any = None, adapter: str = "default"
) -> tuple[Any, Any]:
    base = Model(linear or linear_layer).to(dtype)
    model = get_peft_model(base, LoraConfig(**fields), adapter, autocast_adapter_dtype=False)
    return base, randomise(model.to(dtype)).eval()


def randomise(model: Any, spread: float = 1.0) -> Any:
    for name, parameter in model.named_parameters():
        if "lora_magnitude" in name:
            parameter.data *= 1 + 0.5 * torch.rand(parameter.shape).to(parameter.dtype)
        elif "lora_" in name:
            parameter.data += (spread * torch.randn(parameter.shape)).to(parameter.dtype)
    return model


def plain_name(name: str) -> str:
    return name.replace(".base_layer", "")


def base_folder(base: Any, folder: str) -> str:
    """The base model's weights as a checkpoint has them, output by input."""
    path = os.path.join(folder, "base")
    os.makedirs(path)
    weights = {}
    for name, module in base.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and "lora_" not in name:
            weight = module.weight.data.T if isinstance(module, Conv1D) else module.weight.data
            weights[f"{plain_name(name)}.weight"] = weight.float().contiguous()
    safetensors.torch.save_file(weights, os.path.join(path, "model.safetensors"))
    return path


def deltas(
    model: Any, dtype: Any = torch.float64, inputs: Deltas | None = None, original: Any = None
) -> tuple[Deltas, Deltas]:
    """Random vectors for every adapted module, and what the adapter adds to its output."""
    asked, answers = {}, {}
    for layer in range(LAYERS):
        for name, (wide, _) in WIDTHS.items():
            block = model.base_model.model.model.layers[layer]
            module = getattr(block.self_attn if name in ATTENTION else block.mlp, name)
            if not getattr(module, "lora_A", None):
                continue
            site = f"{layer}.{name}"
            x = torch.tensor(inputs[site], dtype=torch.float64) if inputs else torch.randn(wide)
            x = x.to(dtype)
            with torch.no_grad():
                output = module(x[None])[0]
                with model.disable_adapter():
                    before = module(x[None])[0]
                if original:
                    part = "self_attn" if name in ATTENTION else "mlp"
                    weight = original[f"model.layers.{layer}.{part}.{name}.weight"]
                    bias = original.get(f"model.layers.{layer}.{part}.{name}.bias")
                    before = torch.nn.functional.linear(
                        x, weight.double(), None if bias is None else bias.double()
                    )
            asked[site] = x.tolist()
            answers[site] = (output - before).tolist()
    assert answers, "PEFT adapted nothing"
    return asked, answers


def compare(got: Deltas, wanted: Deltas, tolerance: float) -> float:
    assert got.keys() == wanted.keys(), (sorted(got), sorted(wanted))
    worst = 0.0
    for site, expected in wanted.items():
        expected = torch.tensor(expected, dtype=torch.float64)
        actual = torch.tensor(got[site], dtype=torch.float64)
        assert expected.shape == actual.shape, site
        error = ((expected - actual).abs().max() / expected.abs().max()).item()
        assert error <= tolerance, f"{site}: relative error {error:.2e}"
        worst = max(worst, error)
    return worst


if __name__ == "__main__":
    main()
