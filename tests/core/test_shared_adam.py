"""SharedAdam: equal gradients give equal steps, and it is Adam where y and z see the same."""

import torch

from bvfim.core.shared_adam import SharedAdam

DOUBLE = torch.float64


def pair(count=4):
    return [torch.zeros(count, dtype=DOUBLE, requires_grad=True) for _ in range(2)]


def test_where_both_see_the_same_it_is_adam_on_each():
    (y, z), alone = pair(), torch.zeros(4, dtype=DOUBLE, requires_grad=True)
    shared, adam = SharedAdam([y, z], lr=0.1), torch.optim.Adam([alone], lr=0.1)
    for gradient in torch.randn(20, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)):
        y.grad = z.grad = alone.grad = gradient
        shared.step()
        adam.step()
    assert torch.equal(y, z)
    torch.testing.assert_close(y, alone, rtol=1e-12, atol=1e-12)


def test_the_scale_is_the_mean_of_both():
    y, z = pair(1)
    optimizer = SharedAdam([y, z], lr=0.1, betas=(0.9, 0.5))
    square = 0.0
    for of_y, of_z in [(1.0, 3.0), (-2.0, 0.0), (0.5, 0.25)]:
        y.grad, z.grad = (torch.tensor([g], dtype=DOUBLE) for g in (of_y, of_z))
        optimizer.step()
        square = 0.5 * square + 0.5 * (of_y**2 + of_z**2) / 2
        for p in (y, z):
            assert optimizer.state[p]["exp_avg_sq"].item() == square


def test_noise_that_both_see_leaves_their_difference_alone():
    """After one gradient that differed: Adam remembers for a thousand steps that it was larger in y."""
    noise = torch.randn(300, 50, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))

    def drift(kind):
        y, z = pair(50)
        optimizer, apart = kind([y, z], lr=0.1), []
        for k, e in enumerate(noise):
            y.grad, z.grad = e + (5.0 if k == 0 else 0.0), e.clone()
            optimizer.step()
            apart.append((y - z).detach().clone())
        return (apart[-1] - apart[150]).norm().item()  # by then the first gradient's momentum has died out

    assert drift(torch.optim.Adam) > 0.1
    assert drift(SharedAdam) < 1e-5
