import torch

from bvfim.reproduce.experiments.architecture import network, start


def test_one_operation_an_edge_is_what_it_says():
    y, inputs = start(0), torch.rand(3, 64)
    chosen = torch.tensor([1, 0, 1, 0, 0, 1])  # identities along 0 - 1 - 2 - 3, and nothing else
    x = 1e4 * torch.nn.functional.one_hot(chosen, 5).float()
    expected = (inputs @ y["in"].T) @ y["out"].T
    torch.testing.assert_close(network(x, y, inputs), expected)
