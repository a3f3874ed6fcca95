"""The adapters that the worker loads from this package: their kinds, and what specs may say (docs/worker.md)."""

from __future__ import annotations

import ipaddress
import threading
from typing import Any

from ..cuda import parameters
from .channel import dial_tcp
from .errors import AdapterRefused, RequestAbandoned
from .holder import RemoteAdapter
from .session import HolderOptions
from .terms import PROTECTS

MODES = ("full", "final-hidden")
_COMMON = {"adapter", "parameters", "protect", "dangerous_parameters"}
_MORE = {
    "one-graph": {"path", "mode"},
    "ipc": {"path", "mode", "budget"},
    "blind": {"address", "name", "credential_hex", "dangerous_plain"},
}
_LOCK = threading.Lock()


def make_adapter(kind: str, spec: dict[str, Any], context: Any) -> Any:
    """Makes or reaches an adapter of `confide.worker.deltas`, which may take as long as preparing the first batch of
    masks. Raises `AdapterRefused` for a spec that is not one.
    """
    if kind not in _MORE:
        raise AdapterRefused(f"adapter kind: wanted {', '.join(_MORE)}, got {kind!r}")
    unknown = sorted(set(spec) - _COMMON - _MORE[kind])
    if unknown:
        raise AdapterRefused(f"adapter spec: {', '.join(unknown)}: not known for the kind {kind}")
    name = str(spec.get("adapter") or spec.get("name") or "adapter")
    device = _device(context)
    set_name = str(spec.get("parameters") or parameters.DEFAULT)
    dangerous = spec.get("dangerous_parameters") is True
    protect, mode = spec.get("protect"), spec.get("mode") or "full"
    if protect not in (None, *PROTECTS):
        raise AdapterRefused(f"protect: wanted {' or '.join(PROTECTS)}, got {protect!r}")
    if mode not in MODES:
        raise AdapterRefused(f"mode: wanted {' or '.join(MODES)}, got {mode!r}")
    try:
        if kind == "one-graph":
            from .one_graph import OneGraphAdapter

            bank = _shared_bank(context, device)
            return OneGraphAdapter(
                name, _spec_path(spec), bank, set_name, protect or "a", mode, dangerous
            )
        if kind == "ipc":
            from .ipc import IpcAdapter

            made = IpcAdapter(
                name,
                _spec_path(spec),
                device,
                set_name,
                protect or "a",
                mode,
                spec.get("budget"),
                dangerous,
            )
            return _step_others_meanwhile(made, context)
        options = HolderOptions(
            str(spec.get("name") or name),
            set_name,
            protect,
            bytes.fromhex(str(spec.get("credential_hex") or "")),
            device,
            dangerous_parameters=dangerous,
        )
        return _step_others_meanwhile(_connect_adapter(name, spec, options), context)
    except ValueError as error:
        raise AdapterRefused(f"adapter {name}: {error}") from error


def _connect_adapter(name: str, spec: dict[str, Any], options: HolderOptions) -> RemoteAdapter:
    host, _, port = str(spec.get("address", "")).rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise AdapterRefused(f"address: wanted HOST:PORT, got {spec.get('address')!r}")
    if not _is_loopback(host) and spec.get("dangerous_plain") is not True:
        raise AdapterRefused(
            f"address {host}: wanted loopback, since the channel is plain; hint: let `confide serve` reach the host "
            "over its attested channel (kind relay), or set dangerous_plain"
        )
    return RemoteAdapter(name, dial_tcp(host, int(port)), f"{host}:{port}", options)


def _step_others_meanwhile(adapter: RemoteAdapter, context: Any) -> RemoteAdapter:
    """Lets the worker's other generations step while a host computes or is silent."""
    line: Any = getattr(context, "line", None)

    def idle() -> None:
        line.pump()
        if adapter.asking and all(line.is_cancelled(number) for number in adapter.asking):
            raise RequestAbandoned("the generation was cancelled")

    if line is not None:
        adapter.idle = idle
    return adapter


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _spec_path(spec: dict[str, Any]) -> str:
    if not isinstance(spec.get("path"), str) or not spec["path"]:
        raise AdapterRefused("path: wanted the folder of a PEFT adapter")
    return spec["path"]


def _device(context: Any) -> str:
    device = getattr(context, "device", "cpu")
    kind = getattr(device, "type", str(device).partition(":")[0])
    index = getattr(device, "index", None)
    if kind == "cpu":
        return "cpu"
    return (
        str(device)
        if not hasattr(device, "type") and ":" in str(device)
        else f"{kind}:{index or 0}"
    )


def _shared_bank(context: Any, device: str) -> Any:
    """Gives the worker's one bank: rows of all its one-graph adapters share launches."""
    from .one_graph import OneGraphBank

    with _LOCK:
        bank = getattr(context, "one_graph_bank", None)
        if bank is None:
            bank = context.one_graph_bank = OneGraphBank(device, int(context.slots))
        return bank
