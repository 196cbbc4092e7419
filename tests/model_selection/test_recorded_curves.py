"""Methods on recorded learning curves: the loader and the replay of the experiments on LCDB."""

import numpy as np
import pytest

from fastrace.model_selection import DAUB
from papers.sabharwal_2016._curves import LearningCurves, curves_from_frame, regret_at
from reference import daub as twin
from trainings import tables


def test_recorded_curves(rng):
    sizes = np.array([50, 100, 200, 400, 800, 1000])
    train, valid = tables(rng, 5, sizes)
    curves = LearningCurves(sizes, valid, train, np.ones((5, 6)), valid + 1.0)
    assert curves.thin(90, 2.0) == [100, 200, 400, 1000] and curves.thin(1000, 2.0) == [1000]
    result = curves.replay(DAUB(5, 1000, sizes=curves.thin(50, 2.0)))
    log, winner = twin.daub(train[:, [0, 1, 2, 3, 5]], valid[:, [0, 1, 2, 3, 5]], [50, 100, 200, 400, 1000])
    assert (result.allocations, result.best) == (log, winner)
    assert curves.loss(result.best) == pytest.approx(valid[:, -1].max() - valid[result.best, -1])
    seconds = curves.replay(DAUB(5, 1000, sizes=curves.thin(50, 2.0)), seconds=True)
    assert seconds.cost.sum() == len(log)
    with pytest.raises(ValueError, match="70 rows were not measured"):
        curves.replay(DAUB(5, 1000, 70))
    with pytest.raises(ValueError, match="valid has shape|train has shape"):
        LearningCurves(sizes, valid, train[:, :3])
    with pytest.raises(ValueError, match="increasing numbers of rows"):
        LearningCurves(sizes[::-1], valid)
    found = regret_at([0.1, 0.2, 0.3, 0.4], [4.0, 3.5, 1.0, 2.0], [0.05, 0.1, 0.2, 0.3, 1.0])
    assert np.isnan(found[0]) and found[1:] == pytest.approx([4.0, 2.5, 1.0, 1.0])


def test_curves_from_a_table(rng):
    pandas = pytest.importorskip("pandas")
    lines = [{"set": 7, "learner": word, "size_train": n, "score_valid": 0.1 * k + n / 1000, "score_train": 0.9,
              "y": 0.5, "traintime": 0.01} for k, word in enumerate("abc") for n in (16, 64, 128)
             if (word, n) != ("b", 64)]
    frame = pandas.DataFrame(lines).sample(frac=1.0, random_state=1)
    (key, curves), = curves_from_frame(frame, by=["set"]).items()
    assert key == (7,) and curves.names == ("a", "c") and curves.sizes.tolist() == [64, 128]
    assert curves.valid == pytest.approx(np.array([[0.064, 0.128], [0.264, 0.328]]))
