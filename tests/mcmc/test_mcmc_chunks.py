"""Likelihoods expanded from rows that come in chunks: the expansion of all rows, in as few passes as may be."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

from fastrace import mcmc

N = 6000
FIELDS = ("psi_hat", "slope", "precision", "mode")


class Counted:
    """A table that counts how often each of its rows is read."""

    def __init__(self, table):
        self.table, self.read = np.asarray(table), np.zeros(len(table), dtype=int)
        self.shape, self.dtype, self.most = self.table.shape, self.table.dtype, 0

    def __getitem__(self, rows):
        self.read[rows] += 1
        self.most = max(self.most, len(self.table[rows]))
        return self.table[rows]

    def __len__(self):
        return len(self.table)

    def __array__(self, dtype=None, copy=None):
        self.read += 1
        return self.table.astype(dtype or self.table.dtype)


def rows_of(family="logistic", seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    eta = X @ [0.3, 0.8, -0.5] + rng.normal(size=8)[np.arange(n) % 8] * 0.5
    more = {"offset": rng.normal(size=n) * 0.1, "weights": rng.integers(0, 3, n), "groups": np.arange(n) % 8}
    if family == "logistic":
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-eta))
    elif family == "binomial":
        more["trials"] = rng.integers(1, 5, n)
        y = rng.binomial(more["trials"], 1.0 / (1.0 + np.exp(-eta)))
    elif family == "poisson":
        y = rng.poisson(np.exp(0.3 * eta))
    else:
        y = eta + rng.normal(size=n)
    return {"X": X, "y": y, **more}


def chunk(rows, part, **changed):
    out = {name: value[part] for name, value in rows.items()}
    return out | changed


def split(rows, count=4):
    return [chunk(rows, slice(k * N // count, (k + 1) * N // count)) for k in range(count)]


def model_of(rows, family, part=slice(None), **given):
    own = chunk(rows, part)
    return mcmc.GLM(own.pop("X"), own.pop("y"), family, **own, **given)


def assert_alike(ours, theirs, rtol=1e-9):
    for name in FIELDS:
        a, b = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(), err_msg=name)
    np.testing.assert_allclose(ours.curvature.to_dense(), theirs.curvature.to_dense(), rtol=rtol,
                               atol=rtol * np.abs(theirs.curvature.to_dense()).max())
    assert ours.value == pytest.approx(theirs.value, rel=rtol) and ours.n_rows == theirs.n_rows
    assert ours.from_mode == pytest.approx(theirs.from_mode, rel=1e-6)


@pytest.mark.parametrize("family", ["logistic", "binomial", "poisson", "gaussian", "student-t"])
def test_chunks_give_the_expansion_of_the_table_in_one_pass(family):
    rows = rows_of(family)
    priors = {"prior": mcmc.Normal(0.0, 2.0), "group_prior": mcmc.HalfNormal(1.0)}
    if family in ("gaussian", "student-t"):
        priors["scale_prior"] = mcmc.HalfNormal(1.0)  # which would be in units of the pilot's outcomes
    pilot, whole = (model_of(rows, family, part, **priors) for part in (slice(0, N, 5), slice(None)))
    psi = mcmc.compress(pilot).psi_hat
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = mcmc.compress(pilot, psi, chunks=split(rows))
    assert_alike(ours, mcmc.compress(whole, psi))
    assert (ours.n_chunks, ours.n_passes, ours.n_rows) == (4, 1, N)
    again = pickle.loads(pickle.dumps(ours))
    assert_alike(again, ours)
    assert (again.n_chunks, again.n_passes) == (4, 1)


def test_each_row_is_read_once_in_a_pass_and_few_at_a_time(monkeypatch):
    monkeypatch.setattr("fastrace.mcmc._chunked._PIECE", 500)
    rows = rows_of()
    pilot = model_of(rows, "logistic", slice(0, N, 5))
    tables = [Counted(part["X"]) for part in split(rows)]
    parts = [part | {"X": table} for part, table in zip(split(rows), tables, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = mcmc.compress(pilot, mcmc.compress(pilot), chunks=parts)
    assert all((table.read == 1).all() and table.most == 500 for table in tables) and ours.n_passes == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = mcmc.compress(pilot, chunks=lambda: iter(parts))
    assert ours.n_passes >= 1 and all((table.read == 1 + ours.n_passes).all() for table in tables)
    assert ours.from_mode <= np.sqrt(ours.n_seen)


def test_a_pilot_far_off_takes_another_pass_and_the_expansion_is_that_of_all_rows():
    """The pilot's 40 rows lie some deviations of the whole posterior away."""
    rows = rows_of("poisson")
    del rows["groups"]
    pilot = model_of(rows, "poisson", slice(0, 40), prior=mcmc.Normal(0.0, 2.0))
    whole = mcmc.compress(model_of(rows, "poisson", prior=mcmc.Normal(0.0, 2.0)))
    ours = mcmc.compress(pilot, chunks=split(rows))
    assert 2 <= ours.n_passes <= 4 and ours.from_mode <= np.sqrt(3.0)
    assert whole.distance(ours.psi_hat) <= 1.1 * np.sqrt(3.0) and whole.distance(ours.mode) < 0.05
    with pytest.warns(UserWarning, match=r"expanded .* posterior standard deviations .*psi_hat=compressed"):
        once = mcmc.compress(pilot, chunks=iter(split(rows)))
    assert once.n_passes == 1 and once.from_mode > np.sqrt(3.0)
    further = mcmc.compress(pilot, once, chunks=iter(split(rows)))
    np.testing.assert_array_equal(further.psi_hat, once.mode)
    assert further.from_mode < once.from_mode


def test_memory_maps_sparse_tables_and_frames(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = rows_of("gaussian")
    del rows["groups"], rows["weights"], rows["offset"]
    names = ["one", "age", "dose"]
    pilot = mcmc.GLM(rows["X"][::4], rows["y"][::4], "gaussian", names=names)
    psi = mcmc.compress(pilot).psi_hat
    maps = []
    for k, part in enumerate(split(rows)):
        np.save(tmp_path / f"{k}.npy", part["X"])
        maps.append((np.load(tmp_path / f"{k}.npy", mmap_mode="r"), part["y"]))
    kinds = (maps, [(sparse.csr_array(x), y) for x, y in maps],
             [(pandas.DataFrame(np.array(x), columns=names), y) for x, y in maps])
    found = [mcmc.compress(pilot, psi, chunks=kind) for kind in kinds]
    assert_alike(found[1], found[0])
    assert_alike(found[2], found[0])


def test_groups_are_matched_by_their_names_whatever_a_chunk_holds():
    """A chunk of groups 5 and 2 alone has codes 0 and 1 of its own."""
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(800, 2)), np.repeat(np.arange(8), 100)
    y = rng.random(800) < 0.4
    order = rng.permutation(8)
    priors = {"prior": mcmc.Normal(0.0, 2.0), "group_prior": mcmc.HalfNormal(1.0)}

    def groups(rows):
        return {"clinic": mcmc.Groups(np.array([f"c{k}" for k in codes[rows]]), slopes=[1])}

    whole = mcmc.GLM(X, y, groups=groups(np.arange(800)), **priors)
    psi = np.array(mcmc.compress(whole).psi_hat)
    parts = [np.flatnonzero(np.isin(codes, pair)) for pair in order.reshape(4, 2)]
    ours = mcmc.compress(whole, psi, chunks=[{"X": X[r], "y": y[r], "groups": groups(r)} for r in parts])
    assert_alike(ours, mcmc.compress(whole, psi))
    with pytest.raises(ValueError, match="chunk 0: a row of it is of group 'c9' of 'clinic'"):
        mcmc.compress(whole, psi, chunks=[{"X": X[:1], "y": y[:1], "groups": {"clinic": mcmc.Groups(["c9"], [1])}}])


def test_softmax_reads_chunks():
    rng = np.random.default_rng(0)
    X, offset, times = rng.normal(size=(N, 2)), rng.normal(size=(N, 3)), rng.integers(0, 3, N)
    y = np.argmax(X @ rng.normal(size=(2, 3)) + offset + rng.gumbel(size=(N, 3)), axis=1)

    def model(part):
        return mcmc.Softmax(X[part], y[part], 3, offset=offset[part], weights=times[part], prior_sd=2.0)

    psi = np.array(mcmc.compress(model(slice(None))).psi_hat)
    parts = [slice(0, 1000), slice(1000, N)]
    chunks = [{"X": X[p], "y": y[p], "offset": offset[p], "weights": times[p]} for p in parts]
    assert_alike(mcmc.compress(model(slice(0, 500)), psi, chunks=chunks), mcmc.compress(model(slice(None)), psi))


def test_correct_takes_an_expansion_of_chunks_with_a_model_of_all_rows_and_says_so_of_others():
    rows = rows_of()
    del rows["groups"]
    whole, pilot = (model_of(rows, "logistic", part, prior_sd=2.0) for part in (slice(None), slice(0, N, 5)))
    compressed = mcmc.compress(pilot, chunks=split(rows))
    draws = compressed.mode + np.random.default_rng(1).normal(size=(2, 500, 3)) @ compressed.covariance_root().T
    trace = mcmc.correct(draws, compressed, whole, rng=1)
    assert trace.accepted.mean() > 0.8 and not trace.warnings
    for refused in (lambda: mcmc.correct(draws, compressed, pilot),
                    lambda: mcmc.SurrogateMetropolis(pilot, psi_hat=compressed)):
        with pytest.raises(ValueError, match="rows at random, which chunks do not give"):
            refused()


@pytest.mark.parametrize("chunks, said", [
    (5, "chunks is 5; an iterable of"),
    ("rows.parquet", "an iterable of"),
    ([], "chunks gave no rows in 0 chunks"),
    ([np.ones((3, 2))], "chunk 0: it is .*a pair"),
    ([{"X": np.ones((3, 2)), "y": [0, 1, 1]}], "chunk 0: it lacks 'offset', which the model has"),
    ([{"X": np.ones((3, 2)), "y": [0, 1, 1], "offset": np.zeros(3), "weights": np.ones(3)}],
     "chunk 0: it has 'weights', which the model does not have"),
    ([{"X": np.ones((3, 2)), "Y": [0, 1, 1]}], "chunk 0: it has 'Y'; of 'X', 'y'"),
    ([{"X": np.ones((3, 3)), "y": [0, 1, 1], "offset": np.zeros(3)}], r"its X has shape \(3, 3\); \(k, 2\) is needed"),
    ([{"X": np.ones((3, 2)), "y": [0, 1], "offset": np.zeros(3)}], r"its y has shape \(2,\), and its X 3 rows"),
    ([{"X": np.ones((3, 2)), "y": [0, 1, 2], "offset": np.zeros(3)}], r"chunk 0: y\[2\] is 2"),
    ([{"X": {"a": [1.0], "c": [1.0]}, "y": [0], "offset": [0.0]}], "its columns are 'a', 'c', and those of the model"),
    ([{"X": [[np.nan, 1.0]], "y": [0], "offset": [0.0]}], r"chunk 0: X\[0, 0\] is nan"),
])
def test_chunks_that_are_not_what_is_needed_are_told(chunks, said):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    model = mcmc.GLM(X, rng.integers(0, 2, 50), offset=np.zeros(50), names=["a", "b"], prior_sd=1.0)
    with pytest.raises((ValueError, TypeError), match=said):
        mcmc.compress(model, [0.0, 0.0], chunks=chunks)


def test_models_that_read_no_chunks_say_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    grouped = mcmc.Softmax(X, y, groups=np.arange(60) % 4)
    with pytest.raises(ValueError, match="it lacks 'groups', which the model has"):
        mcmc.compress(grouped, chunks=[(X, y)])
    with pytest.raises(TypeError, match="chunks are read by a GLM or a Softmax"):
        mcmc.compress(mcmc.ARCH(X[:, 0], 1), chunks=[(X, y)])
    right = X[:, 0] + rng.logistic(size=60) > 0.0
    parts = [[(X, right)] * 20, [(X, right)] * 19]
    with pytest.raises(ValueError, match="1200 rows in one pass and 1140 in the next"):
        mcmc.compress(mcmc.GLM(X, ~right, prior_sd=1.0), chunks=lambda: parts.pop(0))
    assert mcmc.compress(mcmc.GLM(X, right, prior_sd=1.0), chunks=[(X, right)]).n_passes == 1


def test_frames_of_chunks_go_by_the_names_of_columns_and_slopes():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    S = pandas.DataFrame(rng.normal(size=(400, 2)), columns=["s1", "s2"])
    codes, y = np.arange(400) % 4, rng.random(400) < 0.5 + 0.4 * np.sign(X["a"] * S["s1"])

    def chunk_of(x, slopes):
        return [{"X": x, "y": y.to_numpy(), "groups": {"g": mcmc.Groups(codes, slopes)}}]

    model = mcmc.GLM(X, y, groups={"g": mcmc.Groups(codes, S)}, prior_sd=1.0)
    psi = 0.2 * rng.normal(size=model.n_seen)
    wanted = mcmc.compress(model, psi)
    for x in (X, X[["b", "a"]], X.set_axis(range(2), axis=1), {"b": X["b"].to_numpy(), "a": X["a"].to_numpy()}):
        for slopes in (S, S[["s2", "s1"]], S.to_numpy()):
            assert_alike(mcmc.compress(model, psi, chunks=chunk_of(x, slopes)), wanted)
    with pytest.raises(ValueError, match="chunk 0: the table of slopes of groups 'g' has the names 's1', 's3'"):
        mcmc.compress(model, psi, chunks=chunk_of(X, S.rename(columns={"s2": "s3"})))


@pytest.mark.parametrize("known", [np.arange(3), np.arange(3.0), np.array([True, False, True])])
def test_groups_of_chunks_are_found_as_those_of_predictions_are(known):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(300, 2)), known[np.arange(300) % 3]
    y = rng.random(300) < 0.4
    model = mcmc.GLM(X, y, groups={"g": codes})
    psi = np.array(mcmc.compress(model).psi_hat)
    wanted = mcmc.compress(model, psi)
    for kind in (int, float):
        assert_alike(mcmc.compress(model, psi, chunks=[{"X": X, "y": y, "groups": {"g": codes.astype(kind)}}]), wanted)
    with pytest.raises(ValueError, match="a row of it is of group '1.5' of 'g'"):
        mcmc.compress(model, psi, chunks=[{"X": X[:1], "y": y[:1], "groups": {"g": [1.5]}}])
