"""What anybody would try instead of a bilevel method, and the ceiling: the same network, trained once."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch.nn import functional

from bvfim.reproduce.experiments.cleaning import LabelledRows, Task, f1, network

STEPS, EVERY, LR = 300, 10, (0.001, 0.01)
ALONE = "trusted rows alone"


def fit(task: Task, rows: LabelledRows) -> dict[str, Tensor]:
    """The network trained on rows by Adam, with the step size and at the step that are best on the held-out rows."""
    best, found = -1.0, task.y
    for lr in LR:
        y = {key: t.clone().requires_grad_() for key, t in task.y.items()}
        adam = torch.optim.Adam(y.values(), lr=lr)
        for step in range(1, STEPS + 1):
            loss = functional.cross_entropy(network(y, rows.inputs, task.activation), rows.labels)
            adam.zero_grad()
            loss.backward()
            adam.step()
            if step % EVERY == 0 and (score := task.accuracy(y, task.held)) >= best:
                best, found = score, {key: t.detach().clone() for key, t in y.items()}
    return found


def trusted_alone(task: Task) -> dict[str, Any]:
    """Training on the trusted rows alone.

    A row of the training set counts as wrong where this network gives it another label; its rank is the probability of
    the label that it was given.
    """
    alone = fit(task, task.trusted)
    with torch.no_grad():
        logits = network(alone, task.noisy.inputs, task.activation)
    given = functional.log_softmax(logits, 1).gather(1, task.noisy.labels[:, None])[:, 0]
    flagged = (logits.argmax(1) != task.noisy.labels).cpu().numpy()
    return {"method": ALONE, "accuracy": task.accuracy(alone), "F1": f1(task.wrong, flagged)} | ranking(task, given)


def baselines(task: Task) -> list[dict[str, Any]]:
    """Training on the trusted rows alone, on everything as it is, and on everything with the true labels."""
    inputs = torch.cat([task.trusted.inputs, task.noisy.inputs])
    as_is = fit(task, LabelledRows(inputs, torch.cat([task.trusted.labels, task.noisy.labels])))
    oracle = fit(task, LabelledRows(inputs, torch.cat([task.trusted.labels, task.truth])))
    return [
        trusted_alone(task),
        {"method": "no cleaning", "accuracy": task.accuracy(as_is)},
        {"method": "true labels", "accuracy": task.accuracy(oracle)},
    ]


def ranking(task: Task, score: Tensor) -> dict[str, float]:
    """How well a low score finds the wrong labels: average precision and the area under the ROC curve."""
    found = -score.detach().double().cpu().numpy()
    return {
        "AP": float(average_precision_score(task.wrong, found)),
        "AUROC": float(roc_auc_score(task.wrong, found)),
    }
