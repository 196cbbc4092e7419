"""The answers of `GLM.from_formula` beside those of bambi, on the data and formulae of bambi's own notebooks.

python bench/bambi_answers.py FOLDER [NAME ...]

FOLDER holds the tables as .csv files: those in docs/notebooks/data and tests/data of bambi's source distribution, and
what `bambi.load_data` downloads ("sleepstudy"); "dietox" is a table of statsmodels. It needs bambi and NumPyro, and
takes some minutes. `tests/mcmc/test_mcmc_bambi.py` tests most of these answers. For each model it prints the largest
|z| of a mean and the root mean square of all z, over intercepts, slopes, scales and effects of groups, and the range of
standard deviations (ours over theirs). A scale of three groups has a tail in which NUTS can stick: see "cars".
"""

import importlib.resources
import importlib.util
import pathlib
import re
import sys
import time
import warnings

import numpy as np

from fastrace import mcmc

SHOT = "S(race) * S(object)"
ROACHES = "y ~ roach1 + treatment + senior + offset(log(exposure2))"
# name: (table, its columns, family here, family there, options of bambi, formula)
MODELS = {
    "sleepstudy": ("sleepstudy", "gaussian", "gaussian", {}, "Reaction ~ 1 + Days + (Days | Subject)"),
    "pigs": ("dietox", "gaussian", "gaussian", {}, "Weight ~ Time + (Time | Pig)"),
    "cars": ("mtcars", "gaussian", "gaussian", {}, "mpg ~ wt + hp + (1 | cyl)"),
    "cars, Student": ("mtcars", "student-t", "t", {"priors": {"nu": 4}}, "mpg ~ wt * hp"),
    "cars, gamma": ("mtcars", "gamma", "gamma", {"link": "log"}, "disp ~ wt + (1 | gear)"),
    "cars, gamma, no groups": ("mtcars", "gamma", "gamma", {"link": "log"}, "disp ~ wt + hp"),
    "cars, yes or no": ("mtcars", "logistic", "bernoulli", {}, "am ~ drat + qsec"),
    "roaches, Poisson": ("roaches", "poisson", "poisson", {}, ROACHES),
    "roaches": ("roaches", "negative-binomial", "negativebinomial", {}, ROACHES),
    "sites": ("poisson_data", "poisson", "poisson", {}, "Count ~ X1 + (1 | Site)"),
    "crossed": ("crossed_random", "gaussian", "gaussian", {}, "Y ~ continuous + dummy + (1 | subj) + (1 | item)"),
    "shooter, subjects": ("shooter", "gaussian", "gaussian", {}, f"rate ~ {SHOT} + ({SHOT} | subject)"),
    "shooter": ("shooter", "gaussian", "gaussian", {}, f"rate ~ {SHOT} + ({SHOT} | subject) + (S(object) | target)"),
    "shooter, yes or no": ("shooter", "logistic", "bernoulli", {},
                           f"shot ~ {SHOT} + ({SHOT} | subject) + (S(object) | target)"),
    "faces": ("rrr_long", "gaussian", "gaussian", {}, "value ~ condition + (1 | uid)"),
}


def table(name, folder):
    import pandas as pd

    found = sorted(folder.rglob(f"{name}.csv"))
    if not found and name == "dietox" and importlib.util.find_spec("statsmodels"):
        found = [importlib.resources.files("statsmodels") / "regression" / "tests" / "results" / "dietox.csv"]
    if not found:
        return None
    frame = pd.read_csv(found[0], na_values=".")
    if name == "roaches":
        frame["roach1"] /= 100.0
    if name == "shooter":
        late = frame["response"].isin(["timeout"])
        shot = (frame["response"] == "incorrect") ^ (frame["object"] == "gun")
        frame = frame.assign(rate=1000.0 / frame["time"], shot=shot)[~late]
        frame["shot"] = frame["shot"].astype(int)
    for column in {"subject", "Subject", "Pig", "uid", "cyl", "gear", "subj", "item"} & set(frame.columns):
        frame[column] = frame[column].astype("category" if column in ("cyl", "gear") else str)
    keep = {"rrr_long": ["value", "condition", "uid"]}.get(name, list(frame.columns))
    return frame[keep].dropna()


def of_bambi(posterior, names):
    """Draws by our names, arrays of shape (chains, draws): scales of effects, sigma and alpha by theirs."""
    scales = {"scale": "sigma", "log(scale)": "sigma", "dispersion": "alpha", "log(dispersion)": "alpha"}
    out = {}
    for name in names:
        if name in scales:
            values = posterior[scales[name]].values
            values = 1.0 / values if "dispersion" in name else values
            out[name] = np.log(values) if "log" in name else values
            continue
        own = f"{name[3:-1]}_sigma" if name.startswith("sd(") else name
        term, levels = re.sub(r"\[[^]]*\]", "", own), re.findall(r"\[([^]]*)\]", own)
        array = posterior.get(term)
        if array is None:
            continue
        if "|" in term and "_sigma" not in term:  # the last level is the group's
            axis = next(dim for dim in array.dims if dim.endswith("__factor_dim"))
            array = at_level(array, axis, levels.pop())
        for axis in set(array.dims) - {"chain", "draw"}:
            array = at_level(array, axis, ", ".join(levels))
        out[name] = array.transpose("chain", "draw").values
    return out


def at_level(array, axis, level):
    return array.isel({axis: [str(own) for own in array.coords[axis].values].index(level)})


def fitted(name, frame, draws):
    """Draws of all that both have, by name, as pairs of arrays (ours, theirs) of shape (chains, draws), and the runs:
    our trace, names that bambi has not, CPU seconds of both."""
    import bambi

    _, family, called, options, formula = MODELS[name]
    model = mcmc.GLM.from_formula(formula, frame, family=family)
    began = time.process_time()
    trace = mcmc.sample(model, n_draws=4 * draws, n_chains=4, rng=1)
    ours = time.process_time() - began
    mine = dict(zip(trace.names, np.moveaxis(trace.draws, -1, 0), strict=True))
    began = time.process_time()
    fit = bambi.Model(formula, frame, family=called, **options).fit(
        draws=draws, tune=1000, chains=2, inference_method="numpyro", random_seed=1, target_accept=0.95,
        progressbar=False)
    theirs = of_bambi(fit["posterior"], mine)
    spent = time.process_time() - began
    return {key: (mine[key], own) for key, own in theirs.items()}, trace, set(mine) - set(theirs), (ours, spent)


def z_of_means(ours, theirs):
    """Difference of two means of correlated draws over its Monte Carlo error."""
    errors = [draws.std() / np.sqrt(mcmc.effective_sample_size(draws)) for draws in (ours, theirs)]
    return (ours.mean() - theirs.mean()) / np.hypot(*errors)


def z_of_spreads(ours, theirs):
    """The same of mean squares about one centre, so that a spread of other width or a mean elsewhere shows."""
    centre = theirs.mean()
    return z_of_means(np.square(ours - centre), np.square(theirs - centre))


def compare(name, folder, draws=2000):
    """One line of the table, or None where the table is not there."""
    frame = table(MODELS[name][0], folder)
    if frame is None:
        return None
    pairs, trace, without, (ours, spent) = fitted(name, frame, draws)
    z = [z_of_means(*pair) for pair in pairs.values()]
    ratios = [mine.std() / own.std() for mine, own in pairs.values()]
    least = min(mcmc.effective_sample_size(own) for _, own in pairs.values())
    worst = int(np.argmax(np.abs(z)))
    rms = np.sqrt(np.mean(np.square(z)))
    return (f"{name:22} {len(frame):6} {len(z):4} of {len(z) + len(without):4} {z[worst]:6.2f} {rms:5.2f} "
            f"{min(ratios):5.2f} {max(ratios):5.2f} {trace.ess().min():7.0f} {least:6.0f} {ours:7.1f} {spent:7.1f} "
            f"{trace.kernel['kernel']}{' !' if trace.warnings else ''} {list(pairs)[worst]}")


def main(folder, *names):
    print(f"{'model':22} {'rows':>6} {'compared':>12} {'max z':>6} {'rms':>5} {'sd ratio':>11} {'ess':>7} {'ess b':>6} "
          f"{'cpu s':>7} {'cpu b':>7}")
    for name in names or MODELS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            line = compare(name, pathlib.Path(folder))
        print(line or f"{name:22} no {MODELS[name][0]}.csv", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
