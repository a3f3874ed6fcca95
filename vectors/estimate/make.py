"""Write the bootstrap vectors from scipy.stats.bootstrap.

    python3 -m venv venv && venv/bin/pip install 'scipy==1.17.*' && venv/bin/python make.py

`bca.json` gives, for each data set, scipy's BCa intervals of the mean and the resample indices it
drew, so that another implementation can repeat them exactly; the data sets have no replicate equal
to the mean, where rounding would decide. `bca-large.json` gives intervals without indices: the mean
of 30 runs of 10,000 resamples and the standard deviation of one run, to be met within some of those.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy.stats import bootstrap
from scipy.special import ndtri

HERE = pathlib.Path(__file__).parent
LEVELS = [0.95, 0.999]


def data_sets():
    rng = np.random.default_rng(20260101)
    yield "nine normal", rng.normal(0.02, 0.05, 9)
    yield "twelve log ratios", rng.normal(0.0, 0.02, 12)
    yield "twenty skewed", rng.lognormal(-3, 0.8, 20)
    yield "twenty with an outlier", np.append(rng.normal(0.05, 0.01, 19), 0.6)
    yield "forty left skewed", -rng.gamma(1.5, 0.02, 40)


def moments(values, replicates):
    """Bias and acceleration by their definitions (Efron 1987), as scipy computes them."""
    n = len(values)
    centre = values.mean()
    share = ((replicates < centre).sum() + (replicates <= centre).sum()) / (2 * len(replicates))
    left_out = (values.sum() - values) / (n - 1)
    u = (n - 1) * (left_out.mean() - left_out)
    return float(ndtri(share)), float((u**3).sum() / (6 * (u**2).sum() ** 1.5))


def exact():
    for number, (name, values) in enumerate(data_sets()):
        resamples = 299
        draw = np.random.default_rng(number).integers(0, len(values), (resamples, len(values)))
        case = {"name": name, "values": values.tolist(), "indices": draw.tolist(), "intervals": []}
        for level in LEVELS:
            result = bootstrap(
                (values,), np.mean, n_resamples=resamples, method="BCa", confidence_level=level,
                rng=np.random.default_rng(number),
            )
            assert np.allclose(result.bootstrap_distribution, values[draw].mean(axis=1), rtol=1e-13)
            low, high = result.confidence_interval
            case["intervals"].append({"level": level, "low": low, "high": high})
        assert np.abs(values[draw].mean(axis=1) - values.mean()).min() > 1e-12
        case["bias"], case["acceleration"] = moments(values, values[draw].mean(axis=1))
        yield case


def large():
    for number, (name, values) in enumerate(data_sets()):
        case = {"name": name, "values": values.tolist(), "intervals": []}
        for level in LEVELS:
            ends = []
            for repeat in range(30):
                result = bootstrap(
                    (values,), np.mean, n_resamples=10_000, method="BCa", confidence_level=level,
                    rng=np.random.default_rng(1000 * number + repeat),
                )
                ends.append(tuple(result.confidence_interval))
            (low, high), (low_sd, high_sd) = np.mean(ends, axis=0), np.std(ends, axis=0, ddof=1)
            case["intervals"].append({
                "level": level, "low": low, "high": high, "low_sd": low_sd, "high_sd": high_sd,
            })
        yield case


def paired():
    """The ratio of geometric means of two paired arms, through scipy's own pairing."""
    rng = np.random.default_rng(7)
    drift = rng.normal(0, 0.2, 15)
    reference = np.exp(drift + rng.normal(3, 0.01, 15))
    arm = np.exp(drift + rng.normal(3.05, 0.01, 15))
    draw = np.random.default_rng(77).integers(0, 15, (299, 15))

    def ratio(x, y, axis=-1):
        return np.exp((np.log(y) - np.log(x)).mean(axis=axis))

    result = bootstrap(
        (reference, arm), ratio, paired=True, n_resamples=299, method="BCa",
        rng=np.random.default_rng(77),
    )
    low, high = result.confidence_interval
    return {
        "reference": reference.tolist(), "arm": arm.tolist(), "indices": draw.tolist(),
        "ratio": float(ratio(reference, arm)), "low": low, "high": high,
    }


def write(name, value):
    value = {"made_by": f"make.py with scipy {scipy.__version__}, numpy {np.__version__}", **value}
    (HERE / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write("bca.json", {"cases": list(exact())})
    write("bca-large.json", {"cases": list(large())})
    write("paired.json", {"case": paired()})
