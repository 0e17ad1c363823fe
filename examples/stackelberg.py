"""A leader and a follower sell the same goods in three markets; run it with ``bvfim solve examples/stackelberg.py``.

The leader decides first how much to bring to each market, x. The follower sees it and decides on y. In each market the
price falls by one for each unit on sale, and each firm wants the most profit: price less cost, times its own amount.
The leader knows how the follower will answer, which is what makes the problem bilevel.
"""

import torch

import bvfim

demand = torch.tensor([10.0, 8.0, 12.0], dtype=torch.float64)  # the price of the first unit in each market
leader_cost, follower_cost = 1.0, 2.0


def price(x, y):
    """What a unit costs in each market."""
    return demand - x - y


def upper(x, y):
    """What the leader wants to be small: the profit with its sign changed."""
    return -(x * (price(x, y) - leader_cost)).sum()


def lower(x, y):
    """The same for the follower."""
    return -(y * (price(x, y) - follower_cost)).sum()


x = torch.ones(3, dtype=torch.float64)  # where to start
y = torch.ones(3, dtype=torch.float64)

x_set = bvfim.Box(0, 5.5)  # the leader can't bring more than 5.5 units to any market
y_set = bvfim.Box(0, 8)

# Not needed: method = "adaptivebvfim" (the default), steps = 500, optimizer = lambda xs: torch.optim.SGD(xs, 0.1).
