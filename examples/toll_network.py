"""Which tolls earn most when drivers choose their way? Run it, or ``bvfim solve examples/toll_network.py``.

Six thousand drivers go from home to work. A road takes longer the more drivers are on it, and the owner of two of them
sets tolls, x. Traffic y settles where nobody gains by another way (Wardrop, 1952), which is where

    f(x, y) = sum of (free + toll) y + jam y^2 / 2    is least, as many leaving each place as arrive there:

that conservation is a constraint of the lower level, and its multipliers are how long it takes from each place to work.
"""

import numpy as np
import torch
from scipy.optimize import minimize

import bvfim

roads = ["home-west", "home-east", "west-east", "west-work", "east-work", "home-work"]
free = torch.tensor([2.0, 6.0, 1.0, 5.0, 1.0, 12.0], dtype=torch.float64)  # time and petrol, in money
jam = torch.tensor([1.0, 0.5, 1.0, 0.5, 1.0, 0.2], dtype=torch.float64)  # more of it for each thousand drivers
places = ["home", "west", "east"]  # work takes the rest
leaving = torch.tensor([[place == road.split("-")[0] for road in roads] for place in places]).double()
arriving = torch.tensor([[place == road.split("-")[1] for road in roads] for place in places]).double()
drivers = torch.tensor([6.0, 0.0, 0.0], dtype=torch.float64)  # who starts where
tolled = torch.tensor([[road == own for road in roads] for own in ("home-west", "east-work")]).double()


def upper(x, y):
    """What the owner wants to be small: the revenue with its sign changed."""
    return -(x @ tolled @ y)


def lower(x, y):
    """What settled traffic makes least."""
    return ((free + x @ tolled + jam * y / 2) * y).sum()


def lower_equalities(x, y):
    """Nobody stays on the way."""
    return leaving @ y - arriving @ y - drivers


x_set, y_set = bvfim.Box(0, 10), bvfim.Box(0, 6)
x = torch.ones(2, dtype=torch.float64)
y = torch.tensor([3.0, 1.5, 1.5, 1.5, 3.0, 1.5], dtype=torch.float64)  # as many on each of the four ways


def settled(toll):
    """The traffic that SciPy finds for some tolls, from the drivers on each way through the network."""
    ways = [(0, 3), (1, 4), (0, 2, 4), (5,)]
    on = np.array([[road in way for way in ways] for road in range(len(roads))], dtype=float)
    cost = free.numpy() + toll @ tolled.numpy()
    found = minimize(
        lambda h: (cost * (on @ h) + jam.numpy() * (on @ h) ** 2 / 2).sum(),
        np.full(4, 1.5),
        jac=lambda h: on.T @ (cost + jam.numpy() * (on @ h)),
        bounds=[(0, 6)] * 4,
        constraints={"type": "eq", "fun": lambda h: h.sum() - 6},
        method="SLSQP",
    )
    return on @ found.x


def revenue(toll):
    """What tolls earn."""
    return toll @ tolled.numpy() @ settled(toll)


if __name__ == "__main__":
    problem = bvfim.Problem(upper, lower, x_set=x_set, y_set=y_set, lower_equalities=lower_equalities)
    solution = bvfim.solve(problem, x, y)
    west, work = solution.x.tolist()
    waits = (-solution.multipliers["lower_equalities"]).tolist()
    print(f"Tolls of {west:.2f} (home-west) and {work:.2f} (east-work) earn {-solution.upper:.3f}.")
    print("Drivers: " + ", ".join(f"{road} {flow:.2f}" for road, flow in zip(roads, solution.y.tolist(), strict=True)))
    print("With tolls it takes " + ", ".join(f"{u:.2f} from {place}" for place, u in zip(places, waits, strict=True)))
    side = np.linspace(0, 6, 25)
    best = max((revenue(np.array([a, b])), a, b) for a in side for b in side)
    print(f"The best of 625 pairs of tolls, by SciPy's traffic, is {best[1]:.2f} and {best[2]:.2f}: {best[0]:.3f}.")
