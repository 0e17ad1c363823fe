"""How should guards be shared between two quarters, where thieves don't do you a favour?

Run it, or ``bvfim solve examples/security_game.py``. A share x of the guards is at the harbour, the rest in the old
town. Thieves see it and decide on their effort y at each of four places. It earns them the same at both places of a
quarter, less where more guards are, and the more effort a quarter sees, the less another unit earns. So x decides how
much effort goes into each quarter, and nothing decides how it is divided between the two places there, which are not
worth the same to the town. An optimist counts on the division that suits the town, a pessimist on the worst. (Books on
security games call what the first counts on a strong equilibrium, and what the second does a weak one.)
"""

import numpy as np
import torch

import bvfim

places = ["harbour: warehouse", "harbour: museum", "old town: bank", "old town: market"]
loss = torch.tensor([1.0, 6.0, 3.0, 2.0], dtype=torch.float64)  # to the town, for a unit of effort that is not guarded
quarter = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
prize, fine = torch.tensor([3.0, 4.0], dtype=torch.float64), 2.0  # what thieves get where no guard is, and pay else


def unguarded(x):
    """How likely no guard is met, in each quarter."""
    return torch.cat([1 - x, x])


def upper(x, y):
    """What the town loses."""
    return (loss * y * (unguarded(x) @ quarter)).sum()


def lower(x, y):
    """What thieves want to be small: the cost of their effort less what it earns."""
    effort, free = quarter @ y, unguarded(x)
    return (effort**2 / 2 - (prize * free - fine * (1 - free)) * effort).sum()


x_set, y_set = bvfim.Box(0, 1), bvfim.Box(0, 5)
x, y = torch.tensor([0.5], dtype=torch.float64), torch.ones(4, dtype=torch.float64)
follower = "pessimistic"


def losses(x):
    """In closed form: what the town loses at best and at worst where thieves are indifferent."""
    free = np.array([1 - x, x])
    effort = np.maximum(0.0, prize.numpy() * free - fine * (1 - free))
    of_each = loss.reshape(2, 2).numpy()
    return (effort * free * of_each.min(1)).sum(), (effort * free * of_each.max(1)).sum()


if __name__ == "__main__":
    problem = bvfim.Problem(upper, lower, x_set, y_set, follower=follower)
    both = bvfim.compare_followers(problem, x, y)
    side = np.linspace(0, 1, 10_001)
    table = np.array([losses(share) for share in side])
    for i, (name, solution) in enumerate([("An optimist", both.optimistic), ("A pessimist", both.pessimistic)]):
        share, best = float(solution.x), side[table[:, i].argmin()]
        print(f"{name} sends {share:.1%} to the harbour and counts on a loss of {solution.upper:.3f}", end="; ")
        print(f"in closed form it is {best:.1%}, {table[:, i].min():.3f}, and at worst {losses(best)[1]:.3f}.")
    print(f"Friendly thieves would be worth {both.worth:.3f} to the town.")
