"""Write the vectors of bench/estimate from scipy, arch, ruptures and numpy.

    tests/statistics.sh --write      (or: pip install -r requirements.txt && python3 make.py)

`bca.json` gives, for each data set, scipy's BCa intervals of the mean and the resample indices it
drew, so that another implementation can repeat them exactly; the data sets have no replicate equal
to the mean, where rounding would decide. `bca-large.json` gives intervals without indices: the mean
of 30 runs of 10,000 resamples and the standard deviation of one run, to be met within some of those.
`paired.json`: scipy's own pairing. `arch.json`: BCa of independent blocks and percentile ends of
circular stretches, by arch. `clusters.json`: several machines per arm, resampled by their means by
scipy and block by block by numpy. `ranks.json`: signed ranks, Holm, Student, Welch, the binomial
interval. `changes.json`: change points by ruptures' exact search.
"""

import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import arch
import numpy as np
import ruptures
import scipy
from arch.bootstrap import CircularBlockBootstrap, IIDBootstrap
from scipy import stats
from scipy.special import ndtri
from scipy.stats import bootstrap

Case = dict[str, Any]
Values = np.ndarray[Any, Any]


HERE = pathlib.Path(__file__).parent
LEVELS = [0.95, 0.999]


def data_sets() -> Iterator[tuple[str, Values]]:
    rng = np.random.default_rng(20260101)
    yield "nine normal", rng.normal(0.02, 0.05, 9)
    yield "twelve log ratios", rng.normal(0.0, 0.02, 12)
    yield "twenty skewed", rng.lognormal(-3, 0.8, 20)
    yield "twenty with an outlier", np.append(rng.normal(0.05, 0.01, 19), 0.6)
    yield "forty left skewed", -rng.gamma(1.5, 0.02, 40)


def moments(values: Values, replicates: Values) -> tuple[float, float]:
    """Bias and acceleration by their definitions (Efron 1987), as scipy computes them."""
    n = len(values)
    centre = values.mean()
    share = ((replicates < centre).sum() + (replicates <= centre).sum()) / (2 * len(replicates))
    left_out = (values.sum() - values) / (n - 1)
    u = (n - 1) * (left_out.mean() - left_out)
    return float(ndtri(share)), float((u**3).sum() / (6 * (u**2).sum() ** 1.5))


def exact() -> Iterator[Case]:
    for number, (name, values) in enumerate(data_sets()):
        resamples = 299
        draw = np.random.default_rng(number).integers(0, len(values), (resamples, len(values)))
        case: Case = {
            "name": name,
            "values": values.tolist(),
            "indices": draw.tolist(),
            "intervals": [],
        }
        for level in LEVELS:
            result = bootstrap(
                (values,),
                np.mean,
                n_resamples=resamples,
                method="BCa",
                confidence_level=level,
                rng=np.random.default_rng(number),
            )
            assert np.allclose(result.bootstrap_distribution, values[draw].mean(axis=1), rtol=1e-13)
            low, high = result.confidence_interval
            case["intervals"].append({"level": level, "low": low, "high": high})
        assert np.abs(values[draw].mean(axis=1) - values.mean()).min() > 1e-12
        case["bias"], case["acceleration"] = moments(values, values[draw].mean(axis=1))
        yield case


def large() -> Iterator[Case]:
    for number, (name, values) in enumerate(data_sets()):
        case: Case = {"name": name, "values": values.tolist(), "intervals": []}
        for level in LEVELS:
            ends = []
            for repeat in range(30):
                result = bootstrap(
                    (values,),
                    np.mean,
                    n_resamples=10_000,
                    method="BCa",
                    confidence_level=level,
                    rng=np.random.default_rng(1000 * number + repeat),
                )
                ends.append(tuple(result.confidence_interval))
            (low, high), (low_sd, high_sd) = np.mean(ends, axis=0), np.std(ends, axis=0, ddof=1)
            case["intervals"].append(
                {
                    "level": level,
                    "low": low,
                    "high": high,
                    "low_sd": low_sd,
                    "high_sd": high_sd,
                }
            )
        yield case


def ratio_case() -> Case:
    """The ratio of geometric means of two paired arms, through scipy's own pairing."""
    rng = np.random.default_rng(7)
    drift = rng.normal(0, 0.2, 15)
    reference = np.exp(drift + rng.normal(3, 0.01, 15))
    arm = np.exp(drift + rng.normal(3.05, 0.01, 15))
    draw = np.random.default_rng(77).integers(0, 15, (299, 15))

    def ratio(x: Values, y: Values, axis: int = -1) -> Any:
        return np.exp((np.log(y) - np.log(x)).mean(axis=axis))

    result = bootstrap(
        (reference, arm),
        ratio,
        paired=True,
        n_resamples=299,
        method="BCa",
        rng=np.random.default_rng(77),
    )
    low, high = result.confidence_interval
    return {
        "reference": reference.tolist(),
        "arm": arm.tolist(),
        "indices": draw.tolist(),
        "ratio": float(ratio(reference, arm)),
        "low": low,
        "high": high,
    }


def arch_cases() -> Iterator[Case]:
    """The package arch draws its indices from its own generator; they are read off the same seed."""
    for number, (name, values) in enumerate(data_sets()):

        def list_indices(make: Callable[[], Any]) -> list[Any]:
            return [np.asarray(boot.index).tolist() for boot in steps(make())]

        def steps(boot: Any) -> Iterator[Any]:
            for _ in boot.bootstrap(299):
                yield boot

        def make_bootstrap() -> Any:
            return IIDBootstrap(values, seed=np.random.default_rng(number))

        length = 3

        def make_block_bootstrap() -> Any:
            return CircularBlockBootstrap(length, values, seed=np.random.default_rng(number))

        bca = make_bootstrap().conf_int(np.mean, reps=299, method="bca", size=0.95)
        circular = make_block_bootstrap().conf_int(
            np.mean, reps=299, method="percentile", size=0.95
        )
        large = [
            CircularBlockBootstrap(length, values, seed=np.random.default_rng(900 + repeat))
            .conf_int(np.mean, reps=10_000, method="percentile", size=0.95)
            .ravel()
            for repeat in range(10)
        ]
        yield {
            "name": name,
            "values": values.tolist(),
            "length": length,
            "indices": list_indices(make_bootstrap),
            "bca": bca.ravel().tolist(),
            "stretches": list_indices(make_block_bootstrap),
            "circular": circular.ravel().tolist(),
            "large": np.mean(large, axis=0).tolist(),
            "large_sd": np.std(large, axis=0, ddof=1).tolist(),
        }


def clusters() -> Iterator[Case]:
    """Machines (or boots) of two arms, with unlike numbers of blocks; the ratio of geometric means
    of cluster means. scipy resamples the means; numpy resamples clusters and gathers their blocks.
    """
    rng = np.random.default_rng(41)
    for name, counts, spread in [
        ("five and five", (5, 5), 0.03),
        ("seven and twelve", (7, 12), 0.1),
    ]:
        arms = [
            [
                np.exp(level + rng.normal(0, spread) + rng.normal(0, 0.02, rng.integers(6, 15)))
                for _ in range(count)
            ]
            for level, count in zip((2.0, 2.06), counts)
        ]
        means = [np.array([np.log(blocks).mean() for blocks in arm]) for arm in arms]

        def difference(x: Values, y: Values, axis: int = -1) -> Any:
            return y.mean(axis=axis) - x.mean(axis=axis)

        result = bootstrap(
            means,
            difference,
            n_resamples=299,
            method="BCa",
            rng=np.random.default_rng(5),
        )
        draw = np.random.default_rng(5)
        indices = [draw.integers(0, count, (299, count)) for count in counts]
        assert np.allclose(
            result.bootstrap_distribution,
            difference(means[0][indices[0]], means[1][indices[1]]),
            rtol=1e-12,
        )
        large = [
            bootstrap(
                means,
                difference,
                n_resamples=10_000,
                method="BCa",
                rng=np.random.default_rng(70 + repeat),
            ).confidence_interval
            for repeat in range(20)
        ]

        def mean_of_clusters(arm: list[Values], of: Values) -> Any:
            """One resample, block by block: every cluster drawn brings all its blocks."""
            return np.mean([np.log(arm[cluster]).mean() for cluster in of])

        slow = [
            mean_of_clusters(arms[1], y) - mean_of_clusters(arms[0], x) for x, y in zip(*indices)
        ]
        assert np.allclose(np.sort(slow), np.sort(result.bootstrap_distribution), rtol=1e-12)
        welch = stats.ttest_ind(means[1], means[0], equal_var=False).confidence_interval(0.95)
        yield {
            "name": name,
            "reference": [blocks.tolist() for blocks in arms[0]],
            "arm": [blocks.tolist() for blocks in arms[1]],
            "indices": [rows.tolist() for rows in indices],
            "ratio": float(np.exp(difference(means[0], means[1]))),
            "bca": list(result.confidence_interval),
            "large": np.mean(large, axis=0).tolist(),
            "large_sd": np.std(large, axis=0, ddof=1).tolist(),
            "welch": [welch.low, welch.high],
        }


def ranks() -> Case:
    rng = np.random.default_rng(6)
    cases = []
    for name, values in [
        *list(data_sets()),
        ("rounded, with ties and a zero", np.round(rng.normal(0.5, 1.0, 25), 1)),
        ("seventy", rng.normal(0.1, 1.0, 70)),
    ]:
        # Of many values, or of ties, scipy's answer is the normal approximation.
        distinct = len(set(np.abs(values))) == len(values) and not (values == 0).any()
        method = "exact" if distinct and len(values) <= 60 else "approx"
        result = stats.wilcoxon(values, method=method, correction=False)
        walsh = [(x + y) / 2 for i, x in enumerate(values) for y in values[i:]]
        cases.append(
            {
                "name": name,
                "values": values.tolist(),
                "p": float(result.pvalue),
                "hodges_lehmann": float(np.median(walsh)),
            }
        )
    p = rng.uniform(0, 0.2, 9)
    # Holm by its definition.
    order = np.argsort(p)
    adjusted = np.empty(9)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (9 - np.arange(9))), 1.0)
    quantiles = []
    sample = rng.lognormal(0, 1, 700)
    for q in (0.5, 0.95, 0.99):
        found = stats.quantile_test(sample, p=q).confidence_interval(0.95)
        quantiles.append({"p": q, "low": found.low, "high": found.high})
    return {
        "cases": cases,
        "holm": {"p": p.tolist(), "adjusted": adjusted.tolist()},
        "student": [
            {"p": q, "degrees": d, "t": float(stats.t.ppf(q, d))}
            for q in (0.005, 0.9, 0.975, 0.9995, 0.9999995)
            for d in (1, 2.5, 4, 11, 19.7, 39, 1000)
        ],
        "binomial": [
            {"k": k, "n": n, "p": q, "cdf": float(stats.binom.cdf(k, n, q))}
            for k, n, q in ((0, 5, 0.1), (3, 10, 0.5), (950, 1000, 0.95), (995, 1000, 0.99))
        ],
        "sample": sample.tolist(),
        "quantiles": quantiles,
    }


def changes() -> Iterator[Case]:
    rng = np.random.default_rng(12)
    series = {
        "steady": rng.normal(10, 0.2, 40),
        "warm-up": np.concatenate([rng.normal(12, 0.2, 7), rng.normal(10, 0.2, 33)]),
        "two changes": np.concatenate(
            [rng.normal(10, 0.2, 15), rng.normal(10.8, 0.2, 10), rng.normal(9.9, 0.2, 20)]
        ),
        "drift": 10 + np.arange(50) * 0.05 + rng.normal(0, 0.2, 50),
    }
    for name, values in series.items():
        for penalty in (0.3, 2.0):
            found = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(values).predict(penalty)
            yield {
                "name": name,
                "values": values.tolist(),
                "penalty": penalty,
                "changes": found[:-1],
            }


def write(name: str, value: Case) -> None:
    versions = ", ".join(
        f"{module.__name__} {module.__version__}" for module in (scipy, np, arch, ruptures)
    )
    value = {"made_by": f"make.py with {versions}", **value}
    text = json.dumps(value, separators=(",", ":")) + "\n"
    if "--check" in sys.argv:
        assert_equal(name, json.loads((HERE / name).read_text()), json.loads(text))
    else:
        (HERE / name).write_text(text)


def assert_equal(place: str, kept: Any, made: Any) -> None:
    """Checks that the kept value is what these versions make, but for the last digits that a platform may change."""
    if isinstance(made, dict):
        for key in made.keys() - {"made_by"}:
            assert_equal(f"{place}: {key}", kept[key], made[key])
    elif isinstance(made, list):
        assert len(kept) == len(made), place
        for index, (one, other) in enumerate(zip(kept, made)):
            assert_equal(f"{place}[{index}]", one, other)
    elif isinstance(made, float):
        assert math.isclose(kept, made, rel_tol=1e-9, abs_tol=1e-12), f"{place}: {kept}, {made}"
    else:
        assert kept == made, f"{place}: {kept}, {made}"


if __name__ == "__main__":
    write("bca.json", {"cases": list(exact())})
    write("bca-large.json", {"cases": list(large())})
    write("paired.json", {"case": ratio_case()})
    write("arch.json", {"cases": list(arch_cases())})
    write("clusters.json", {"cases": list(clusters())})
    write("ranks.json", ranks())
    write("changes.json", {"cases": list(changes())})
    print(
        "scipy, arch and ruptures make what vectors/estimate holds"
        if "--check" in sys.argv
        else "written"
    )
