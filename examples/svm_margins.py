"""How soft should the margin of a support vector machine be? Run it, or ``bvfim solve examples/svm_margins.py``.

The lower level is the machine as textbooks state it, margins and all: over weights w, a bias b and slacks s >= 0,

    minimise |w|^2 / 2 + C sum of s    subject to    label (w . row + b) >= 1 - s    for each row,

and the upper level chooses C = e^x for the logistic loss on rows that were held out. The multipliers of the margins are
what scikit-learn calls dual coefficients; rows that have none could be left out. The rows are tumours of the breast,
known by their texture and symmetry.
"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC
from torch.nn.functional import softplus

import bvfim

rows, labels = load_breast_cancer(return_X_y=True)
rows = (rows - rows.mean(0))[:, [1, 8]] / rows.std(0)[[1, 8]]
order = np.random.default_rng(3).permutation(len(rows))
train, held_out = order[:20], order[20:220]
rows, labels = torch.from_numpy(rows), torch.from_numpy(2.0 * labels - 1)


def margins(y, which):
    """How far each row is on its right side."""
    return labels[which] * (rows[which] @ y["w"] + y["b"])


def upper(x, y):
    """The loss on the rows that were held out."""
    return softplus(-margins(y, held_out)).mean()


def lower(x, y):
    """What a machine makes small."""
    return y["w"].square().sum() / 2 + x.exp() * y["s"].sum()


def lower_constraints(x, y):
    """The margin of each row, at most zero."""
    return 1 - y["s"] - margins(y, train)


x_set, y_set = bvfim.Box(-6, 4), {"w": None, "b": None, "s": bvfim.Box(0, torch.inf)}
x = torch.tensor(-2.0, dtype=torch.float64)
y = {"w": torch.zeros(2).double(), "b": torch.zeros(()).double(), "s": torch.ones(20).double()}


def fitted(x):
    """scikit-learn's machine, and its loss on the rows that were held out."""
    machine = SVC(kernel="linear", C=np.exp(x), tol=1e-8).fit(rows[train].numpy(), labels[train].numpy())
    right = labels[held_out].numpy() * machine.decision_function(rows[held_out].numpy())
    return machine, np.logaddexp(0, -right).mean()


if __name__ == "__main__":
    problem = bvfim.Problem(upper, lower, x_set, y_set, lower_constraints=lower_constraints)
    solution = bvfim.solve(problem, x, y)
    machine, loss = fitted(float(solution.x))
    dual = np.zeros(len(train))
    dual[machine.support_] = np.abs(machine.dual_coef_[0])
    apart = np.abs(solution.multipliers["lower_constraints"].numpy() - dual).max()
    print(f"C = {float(solution.x.exp()):.3f} has a loss of {solution.upper:.4f} ({solution.status.value}).")
    print(f"scikit-learn, at that C: {loss:.4f}; {len(machine.support_)} of 20 rows hold the margin.")
    print(f"Its dual coefficients and the multipliers of the margins differ by at most {apart:.1e}.")
    best = min((fitted(x)[1], np.exp(x)) for x in np.linspace(-6, 4, 101))
    print(f"scikit-learn, the best of 101 values of C: {best[0]:.4f} at {best[1]:.3f}.")
