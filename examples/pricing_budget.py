"""Which prices earn most from a shopper with so much to spend? Run it, or ``bvfim solve examples/pricing_budget.py``.

A shop sells bread and wine at prices x. The shopper buys amounts y of both, and of a third thing sold elsewhere, that
are worth most to her: sum of taste ln(1 + y), for no more than the money that she has, which is a constraint of the
lower level. Its multiplier is what one more coin would be worth to her. The shop may not ask more for bread than the
law says: a constraint of the upper level.
"""

import itertools

import numpy as np
import torch

import bvfim

taste = torch.tensor([4.0, 2.0, 3.0], dtype=torch.float64)
cost = torch.tensor([0.5, 0.3], dtype=torch.float64)  # of a unit of bread, of wine, to the shop
money, elsewhere, law = 5.0, 1.0, 1.5


def upper(x, y):
    """What the shop wants to be small: the profit with its sign changed."""
    return -((x - cost) * y[:2]).sum()


def lower(x, y):
    """The same for what the shopper's basket is worth to her."""
    return -(taste * torch.log1p(y)).sum()


def lower_constraints(x, y):
    """The bill is at most what she has."""
    return x @ y[:2] + elsewhere * y[2] - money


def upper_constraints(x, y):
    """Bread costs at most what the law says."""
    return x[0] - law


x_set, y_set = bvfim.Box(0.1, 10), bvfim.Box(0, torch.inf)
x, y = torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
method = bvfim.AdaptiveBVFIM(starts=4)  # one start may end where she buys no wine at all, which is a local optimum


def basket(prices):
    """What she buys, y = max(0, taste / (u p) - 1), and what a coin is worth to her, u: she spends all of them."""
    p, a = np.array([*prices, elsewhere]), taste.numpy()
    for bought in (np.array(s, dtype=bool) for s in itertools.product([1, 0], repeat=3) if any(s)):
        u = a[bought].sum() / (money + p[bought].sum())
        amounts = np.where(bought, a / (u * p) - 1, 0.0)
        if (amounts >= 0).all() and (a[~bought] <= u * p[~bought]).all():
            return amounts, u
    raise ValueError("no basket found")


def profit(prices):
    """What prices earn."""
    return (np.array(prices) - cost.numpy()) @ basket(prices)[0][:2]


def listed(amounts):
    """Amounts in a row."""
    return ", ".join(f"{float(amount):.3f}" for amount in amounts)


if __name__ == "__main__":
    problem = bvfim.Problem(
        upper, lower, x_set, y_set, lower_constraints=lower_constraints, upper_constraints=upper_constraints
    )
    solution = bvfim.solve(problem, x, y, method)
    bread, wine = solution.x.tolist()
    coin = float(solution.multipliers["lower_constraints"])
    print(f"Bread at {bread:.3f} and wine at {wine:.3f} earn {-solution.upper:.4f} ({solution.status.value}).")
    print(f"She buys {listed(solution.y)}, and one more coin is worth {coin:.3f} to her.")
    best = max((profit((a, b)), a, b) for a in np.linspace(0.5, law, 41) for b in np.linspace(0.3, 3.0, 109))
    amounts, coin = basket(best[1:])
    print("The best of 4469 pairs of prices, with her basket in closed form:")
    print(f"bread at {best[1]:.3f} and wine at {best[2]:.3f} earn {best[0]:.4f}.")
    print(f"She buys {listed(amounts)}, and one more coin is worth {coin:.3f} to her.")
