#!/usr/bin/env python3
"""Tells the topics of prompts from the sizes and times of encrypted records, without and with an answer shape.

usage: traffic_attack.py BINARY [--streams N] [--shape BYTES/MS/SLOTS] [--steps-too] [--record FILE] [--folder FOLDER]
The attack is of the kind of "Whisper Leak" (arXiv:2511.03675): the prompts of one topic are to be told from others by
somebody who sees the network. A tiny model, made here, answers through a gateway with TLS; a proxy between client and
gateway reads only the headers of the records (RFC 8446 section 5.1) and a clock. The tiny model makes a token in less
than a millisecond, so that several leave together; a relay behind the gateway slows its events down to the pace of a
large one. No prompt is in both the training and the test set, but wordings of one question may be; the classifier is
trained anew for each kind of traffic.

Status 1 if the attack fails without a shape (area under the curve below 0.9), or succeeds with one (its 95 % interval,
over the test prompts, excludes 0.5). Such an interval misses one time in twenty, so that a second set of streams is
then taken; both are reported.
"""

import argparse
import asyncio
import bisect
import collections
import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from fault_peers import Address, Connection, parse_address, unverified_tls
from fault_site import Site

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY / "crates/native/src/make/corpus.txt"
# The sensitive topic: doubts about the protection. All other questions that the tiny model learned are the rest.
TOPIC = re.compile(
    r"secure|broken|trust your|my prompt|my words|guarantee|not protect|dangerous|simulated"
    r"|debug|price|protection cost|not enough",
    re.IGNORECASE,
)
# How people write one question; the tiny model knows the questions themselves, and hardly others.
WORDINGS = ["{}", "{}?", " {}", "{} ", "{}\n", "{}!", "{} ?", "{}."]
TOKENS_MAX = 64
# A little chance in the choice of tokens, so that two streams of one prompt differ.
TEMPERATURE = 0.2
# The pace of the events of an answer: 100 tokens/s.
EVENT_S = 0.01
STREAMS_AT_ONCE = 8
# The records, in order, whose sizes and times are features of their own.
RECORDS_READ = 64
BOOSTING_ROUNDS = 120
BOOSTING_RATE = 0.3
NEIGHBOURS = 3
# What TLS and HTTP add to the payload of a record, in most cases.
ADDED_BYTES = 24
RESAMPLES = 2000
APPLICATION_DATA = 23


@dataclasses.dataclass
class Stream:
    """What an observer sees of one answer, and what it wants to know."""

    prompt: str
    is_sensitive: bool
    # Sizes in bytes, and times in seconds since the request.
    sizes: list[int]
    times: list[float]


Features = list[float]
# How sensitive a stream looks.
Score = Callable[[Stream], float]
Trainer = Callable[[list[Stream]], Score]


class RecordReader:
    """Reads the headers of the records of one direction."""

    def __init__(self) -> None:
        self.pending = bytearray()

    def read(self, data: bytes) -> list[int]:
        """Returns the sizes of the records of application data that are now complete."""
        self.pending += data
        sizes = []
        while len(self.pending) >= 5:
            length = int.from_bytes(self.pending[3:5], "big")
            if len(self.pending) < 5 + length:
                break
            if self.pending[0] == APPLICATION_DATA:
                sizes.append(length)
            del self.pending[: 5 + length]
        return sizes


class Relay:
    """Passes requests on to the model server, and its events back at a pace."""

    def __init__(self, model: Address) -> None:
        self.model = model

    async def open(self) -> tuple[asyncio.Server, str]:
        """Listens on an address of its own."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        return server, f"{host}:{port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes the requests of one connection on."""
        # At the end of the attack, what is open is cancelled.
        cancelled = asyncio.CancelledError
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, cancelled):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: *([0-9]+)\r\n", head.lower())
                body = await reader.readexactly(int(length[1])) if length else b""
                model_reader, model_writer = await asyncio.open_connection(*self.model)
                model_writer.write(head + body)
                await self.pass_answer(model_reader, writer)
                model_writer.transport.abort()
        writer.transport.abort()

    async def pass_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one answer on: each event of a stream is a chunk of its own."""
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        length = re.search(rb"\r\ncontent-length: *([0-9]+)\r\n", head.lower())
        if length:
            writer.write(await reader.readexactly(int(length[1])))
            await writer.drain()
            return
        events = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            events += (await reader.readexactly(size + 2))[:size]
            *whole, events = events.split(b"\n\n")
            for event in whole:
                piece = event + b"\n\n"
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(EVENT_S)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class Observer:
    """A proxy that passes the bytes of one connection on, and notes the records of the server."""

    def __init__(self, gateway: Address) -> None:
        self.gateway = gateway
        self.asked_at = 0.0
        self.sizes: list[int] = []
        self.times: list[float] = []

    async def open(self) -> tuple[asyncio.Server, Address]:
        """Listens on an address of its own."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        return server, (host, port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on."""
        upstream_reader, upstream_writer = await asyncio.open_connection(*self.gateway)

        async def pass_on(
            source: asyncio.StreamReader,
            target: asyncio.StreamWriter,
            note: Callable[[bytes], None],
        ) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                while data := await source.read(65_536):
                    note(data)
                    target.write(data)
                    await target.drain()
            target.transport.abort()

        passing = asyncio.gather(
            pass_on(reader, upstream_writer, self.note_client(RecordReader())),
            pass_on(upstream_reader, writer, self.note_server(RecordReader())),
        )
        # At the end of the attack, what is open is cancelled.
        with contextlib.suppress(asyncio.CancelledError):
            await passing

    def note_client(self, records: RecordReader) -> Callable[[bytes], None]:
        """Notes when the client sent its last record."""

        def note(data: bytes) -> None:
            if records.read(data):
                self.asked_at = time.monotonic()
                # What came before is the handshake.
                self.sizes.clear()
                self.times.clear()

        return note

    def note_server(self, records: RecordReader) -> Callable[[bytes], None]:
        """Notes the server's records."""

        def note(data: bytes) -> None:
            sizes = records.read(data)
            self.sizes += sizes
            self.times += [time.monotonic() - self.asked_at] * len(sizes)

        return note


def main() -> None:
    """Runs the attack and prints its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--shape", default="1024/20/64")
    parser.add_argument("--steps-too", action="store_true", help="also shapes with smaller steps")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        site = Site(arguments.binary, folder)
        try:
            figures = asyncio.run(attack(site, arguments))
        finally:
            site.kill_all()
    if arguments.record:
        arguments.record.write_text(json.dumps(figures, indent=2) + "\n")
    broken = judge(figures)
    for line in broken:
        print(f"broken: {line}")
    sys.exit(1 if broken else 0)


def judge(figures: dict[str, object]) -> list[str]:
    """Returns the promises that do not hold."""
    broken = []
    for attempts in figures["traffic"].values():  # type: ignore[attr-defined]
        last = attempts[-1]
        if last["wanted"] == "found" and last["auc"] < 0.9:
            broken.append("the attack finds the topic in unshaped traffic")
        if last["wanted"] == "hidden" and not includes_half(last):
            broken.append(f"shape {last['shape']} hides the topic")
    return broken


def includes_half(figure: dict[str, float]) -> bool:
    """Whether the interval of a figure includes an attacker who guesses."""
    return figure["auc_low"] <= 0.5 <= figure["auc_high"]


async def attack(site: Site, arguments: argparse.Namespace) -> dict[str, object]:
    """Attacks the traffic of a gateway without and with shapes."""
    model = site.folder / "tiny"
    if not model.exists():
        site.run(["model", "make", "--shape", "tiny", "--seed", "1", str(model)])
    _, serve = site.start(["serve", "--listen", "127.0.0.1:0", "--model", str(model)])
    _relaying, relay = await Relay(parse_address(serve["listen"])).open()
    kinds: list[tuple[str, str | None, str]] = [
        ("unshaped", None, "found"),
        (f"shape {arguments.shape}", arguments.shape, "hidden"),
    ]
    if arguments.steps_too:
        size_and_time = arguments.shape.rsplit("/", 1)[0]
        kinds += [
            (f"shape {size_and_time}/{step}", f"{size_and_time}/{step}", "") for step in (1, 8)
        ]
    traffic: dict[str, list[dict[str, object]]] = {}
    for name, shape, wanted in kinds:
        more = ["--answer-shape", shape] if shape else []
        gateway = await asyncio.to_thread(start_gateway, site, relay, more)
        traffic[name] = []
        for attempt in range(2):
            prompts = choose_prompts(random.Random(attempt), arguments.streams)
            streams = await observe(gateway, prompts)
            figure = measure(streams, random.Random(attempt))
            figure |= {"shape": shape, "wanted": wanted}
            traffic[name].append(figure)
            print(f"{name}: {describe(figure)}", flush=True)
            if wanted != "hidden" or includes_half(figure):  # type: ignore[arg-type]
                break
    return {
        "command": "python3 tests/traffic_attack.py BINARY"
        + (" --steps-too" if arguments.steps_too else ""),
        "model": "tiny, made by `confide model make --shape tiny --seed 1`",
        "temperature": TEMPERATURE,
        "tokens_max": TOKENS_MAX,
        "streams_at_once": STREAMS_AT_ONCE,
        "ms_between_events": EVENT_S * 1e3,
        "traffic": traffic,
    }


def start_gateway(site: Site, upstream: str, more: list[str]) -> Address:
    """Starts a gateway with ordinary TLS: evidence changes nothing of what is observed."""
    arguments = ["gateway", "--listen", "127.0.0.1:0", "--upstream", f"http://{upstream}"]
    _, ready = site.start([*arguments, "--binding", "none", *more])
    return parse_address(ready["listen"])


def choose_prompts(chance: random.Random, streams: int) -> list[tuple[str, bool]]:
    """Returns as many prompts as streams, half of them sensitive, each several times."""
    questions = [
        line.removeprefix("? ") for line in CORPUS.read_text().splitlines() if line.startswith("? ")
    ]
    kinds = []
    for is_sensitive in (True, False):
        chosen = [
            question for question in questions if bool(TOPIC.search(question)) == is_sensitive
        ]
        prompts = [wording.format(text.rstrip("?.!")) for text in chosen for wording in WORDINGS]
        prompts += chosen
        chance.shuffle(prompts)
        # As many different prompts of either kind.
        del prompts[150:]
        kinds.append([(prompt, is_sensitive) for prompt in prompts])
    half = streams // 2
    together = [kind[index % len(kind)] for index in range(half) for kind in kinds]
    chance.shuffle(together)
    return together


async def observe(gateway: Address, prompts: Sequence[tuple[str, bool]]) -> list[Stream]:
    """Streams the answers to all prompts, a few at once, and returns what an observer saw."""
    turn = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def stream(number: int, prompt: str, is_sensitive: bool) -> Stream:
        body = {
            "model": "tiny",
            "stream": True,
            "temperature": TEMPERATURE,
            "seed": number,
            "max_tokens": TOKENS_MAX,
            "messages": [{"role": "user", "content": prompt}],
        }
        async with turn:
            observer = Observer(gateway)
            server, address = await observer.open()
            async with server:
                connection = await Connection.open(address, unverified_tls())
                answer = await connection.request(body)
                connection.close()
        if answer.status != 200 or not answer.is_complete or b"[DONE]" not in answer.body:
            raise SystemExit(f"{prompt!r}: status {answer.status}, {answer.body[-200:]!r}")
        return Stream(prompt, is_sensitive, list(observer.sizes), list(observer.times))

    return await asyncio.gather(*(stream(number, *prompt) for number, prompt in enumerate(prompts)))


def measure(streams: list[Stream], chance: random.Random) -> dict[str, object]:
    """Trains on one half of the prompts, and attacks the other half."""
    prompts = sorted({stream.prompt for stream in streams})
    chance.shuffle(prompts)
    halves = set(prompts[: len(prompts) // 2])
    known = [stream for stream in streams if stream.prompt in halves]
    unknown = [stream for stream in streams if stream.prompt not in halves]
    classifier, score = train(known, chance)
    scores = [score(stream) for stream in unknown]
    auc = area_under_curve([(value, s.is_sensitive) for value, s in zip(scores, unknown)])
    by_prompt: dict[str, list[tuple[float, bool]]] = {}
    for value, stream in zip(scores, unknown):
        by_prompt.setdefault(stream.prompt, []).append((value, stream.is_sensitive))
    low, high = bootstrap(list(by_prompt.values()), chance)
    records = [len(stream.sizes) for stream in streams]
    return {
        "streams": len(streams),
        "training_prompts": len(halves),
        "test_prompts": len(by_prompt),
        "test_streams": len(unknown),
        "classifier": classifier,
        "auc": round(auc, 4),
        "auc_low": round(low, 4),
        "auc_high": round(high, 4),
        "records_median": statistics.median(records),
        "different_size_sequences": len({tuple(stream.sizes) for stream in streams}),
        "bytes_mean": round(statistics.fmean(sum(stream.sizes) for stream in streams)),
        "first_record_ms_median": round(
            statistics.median(stream.times[0] for stream in streams) * 1e3, 2
        ),
        "duration_ms_median": round(
            statistics.median(stream.times[-1] for stream in streams) * 1e3, 1
        ),
    }


def describe(figure: dict[str, object]) -> str:
    """Returns a figure as a line of text."""
    return (
        f"area under the curve {figure['auc']} [{figure['auc_low']}, {figure['auc_high']}], "
        f"{figure['streams']} streams, {figure['test_prompts']} test prompts, "
        f"classifier: {figure['classifier']}, "
        f"{figure['different_size_sequences']} different sequences of sizes, "
        f"{figure['bytes_mean']} bytes and {figure['duration_ms_median']} ms each"
    )


def features_of(stream: Stream) -> Features:
    """Returns what can be computed from the sizes and times of records."""
    sizes = [float(size) for size in stream.sizes]
    gaps = [later - earlier for earlier, later in zip(stream.times, stream.times[1:])] or [0.0]
    logs = [math.log(max(gap, 1e-6)) for gap in gaps]
    sums = [
        # The length of the answer, however its pieces were joined.
        sum(sizes) - ADDED_BYTES * len(sizes),
        float(len(sizes)),
        sum(sizes),
        stream.times[0],
        stream.times[-1],
        statistics.pstdev(sizes),
        statistics.pstdev(gaps),
    ]
    for values in (sorted(sizes), sorted(gaps)):
        sums += [values[(len(values) - 1) * part // 10] for part in range(11)]

    def first(values: list[float]) -> list[float]:
        return (values + [0.0] * RECORDS_READ)[:RECORDS_READ]

    return sums + first(sizes) + first(logs)


def train(streams: list[Stream], chance: random.Random) -> tuple[str, Score]:
    """Trains each classifier, and returns the one that is best on prompts that it was not trained with."""
    prompts = sorted({stream.prompt for stream in streams})
    chance.shuffle(prompts)
    held_out = set(prompts[: len(prompts) // 4])
    trainers: dict[str, Trainer] = {
        "boosted stumps": train_stumps,
        "neighbours by all features": train_neighbours,
        "neighbours by runs of sizes": train_runs,
    }
    seen = [stream for stream in streams if stream.prompt not in held_out]
    rest = [stream for stream in streams if stream.prompt in held_out]

    def try_out(trainer: Trainer) -> float:
        score = trainer(seen)
        scored = [(score(stream), stream.is_sensitive) for stream in rest]
        # A classifier to which all streams look alike attacks nothing.
        return area_under_curve(scored) if len({value for value, _ in scored}) > 1 else 0.0

    best = max(trainers, key=lambda name: try_out(trainers[name]))
    return best, trainers[best](streams)


def train_stumps(streams: list[Stream]) -> Score:
    """Boosts decisions on one feature each, for the logistic loss (Friedman 2001)."""
    features = [features_of(stream) for stream in streams]
    labels = [stream.is_sensitive for stream in streams]
    orders = [
        sorted(range(len(features)), key=lambda index: features[index][column])
        for column in range(len(features[0]))
    ]
    margins = [0.0] * len(features)
    stumps: list[tuple[int, float, float, float]] = []
    for _ in range(BOOSTING_ROUNDS):
        chances = [1 / (1 + math.exp(-margin)) for margin in margins]
        slopes = [label - chance for label, chance in zip(labels, chances)]
        weights = [chance * (1 - chance) + 1e-6 for chance in chances]
        total_slope, total_weight = sum(slopes), sum(weights)
        best: tuple[float, int, float, float, float] | None = None
        for column, order in enumerate(orders):
            slope = weight = 0.0
            for index, following in itertools.pairwise(order):
                slope += slopes[index]
                weight += weights[index]
                here, there = features[index][column], features[following][column]
                if here == there:
                    continue
                other_slope, other_weight = total_slope - slope, total_weight - weight
                gain = slope * slope / (weight + 1) + other_slope * other_slope / (other_weight + 1)
                if best is None or gain > best[0]:
                    cut = (here + there) / 2
                    best = (
                        gain,
                        column,
                        cut,
                        slope / (weight + 1),
                        other_slope / (other_weight + 1),
                    )
        if best is None:
            break
        _, column, cut, below, above = best
        stumps.append((column, cut, below * BOOSTING_RATE, above * BOOSTING_RATE))
        for index, row in enumerate(features):
            margins[index] += BOOSTING_RATE * (below if row[column] <= cut else above)

    def score(stream: Stream) -> float:
        row = features_of(stream)
        return sum(below if row[column] <= cut else above for column, cut, below, above in stumps)

    return score


def train_neighbours(streams: list[Stream]) -> Score:
    """Compares with the nearest known streams, in units of each feature's spread."""
    features = [features_of(stream) for stream in streams]
    spreads = [statistics.pstdev(column) or math.inf for column in zip(*features)]

    def scale(row: Features) -> Features:
        return [value / spread for value, spread in zip(row, spreads)]

    known = [(scale(row), stream.is_sensitive) for row, stream in zip(features, streams)]

    def score(stream: Stream) -> float:
        row = scale(features_of(stream))
        return weigh_neighbours([(math.dist(row, other), kind) for other, kind in known])

    return score


def train_runs(streams: list[Stream]) -> Score:
    """Compares runs of three sizes, which are the lengths of three tokens wherever records were joined."""
    known = [(runs_of(stream), stream.is_sensitive) for stream in streams]

    def score(stream: Stream) -> float:
        runs = runs_of(stream)

        def distance(other: collections.Counter[tuple[int, ...]]) -> float:
            shared = sum((runs & other).values())
            return 1 - shared / max(1, min(runs.total(), other.total()))

        return weigh_neighbours([(distance(other), kind) for other, kind in known])

    return score


def runs_of(stream: Stream) -> collections.Counter[tuple[int, ...]]:
    """Returns how often each run of three sizes occurs."""
    sizes = stream.sizes
    return collections.Counter(zip(sizes, sizes[1:], sizes[2:]))


def weigh_neighbours(distances: list[tuple[float, bool]]) -> float:
    """Returns what the nearest known streams say, the nearer the louder."""
    near = sorted(distances)[:NEIGHBOURS]
    return sum((1 if kind else -1) / (distance + 0.05) for distance, kind in near)


def area_under_curve(scored: list[tuple[float, bool]]) -> float:
    """Returns the chance that a sensitive stream has a higher score than another; equal scores count half."""
    others = sorted(score for score, is_sensitive in scored if not is_sensitive)
    sensitive = [score for score, is_sensitive in scored if is_sensitive]
    if not others or not sensitive:
        return 0.5
    wins = sum(
        (bisect.bisect_left(others, score) + bisect.bisect_right(others, score)) / 2
        for score in sensitive
    )
    return wins / (len(others) * len(sensitive))


def bootstrap(
    prompts: list[list[tuple[float, bool]]], chance: random.Random
) -> tuple[float, float]:
    """Returns the 95 % interval of the area over the prompts: the streams of one prompt are alike."""
    kinds = [[p for p in prompts if p[0][1] == kind] for kind in (True, False)]
    areas = sorted(
        area_under_curve(
            [
                scored
                for kind in kinds
                for prompt in chance.choices(kind, k=len(kind))
                for scored in prompt
            ]
        )
        for _ in range(RESAMPLES)
    )
    return areas[RESAMPLES // 40], areas[-1 - RESAMPLES // 40]


if __name__ == "__main__":
    main()
