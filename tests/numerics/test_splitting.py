import pytest
import torch

from subtractive.numerics.leaf_message import LeafMessage, pick, split
from subtractive.numerics.scaled import Scaled, rescale
from subtractive.numerics.signed_log import SignedLog

PARTS = (slice(0, 1), slice(1, 3), slice(3, 6))
REAL = torch.float64


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=REAL)


@pytest.mark.parametrize(
    "message",
    [
        LeafMessage(None, draw(6, 2, 3)),
        LeafMessage(draw(6, 2, 3), None),
        LeafMessage(draw(6, 2, 3, 3), draw(6, 2, 3, 3)),
        Scaled(draw(6, 2, 3), draw(6, 2)),
        Scaled(draw(6, 2, 3), draw(6, 2), draw(6, 2)),
        SignedLog(draw(6, 2, 3).sign(), draw(6, 2, 3)),
    ],
)
@pytest.mark.parametrize("parts", [PARTS, (slice(0, 6),)])
def test_splitting_a_message_takes_every_part(message, parts):
    for part, piece in zip(parts, message.split(parts), strict=True):
        for found, expected in zip(piece, message.take(part), strict=True):
            assert found is expected or torch.equal(torch.as_tensor(found), expected)


def test_nothing_is_split_for_nobody():
    assert split(draw(6, 2), ()) == []


def test_parts_get_their_own_slopes():
    tensor = draw(6, 2).requires_grad_()
    pieces = split(tensor, PARTS)
    (slope,) = torch.autograd.grad(sum((k + 1) * p.sum() for k, p in enumerate(pieces)), tensor)
    expected = torch.tensor([1.0, 2.0, 2.0, 3.0, 3.0, 3.0], dtype=REAL)[:, None].expand(6, 2)
    assert torch.equal(slope, expected)


def test_picking_all_regions_is_no_copy():
    tensor = draw(6, 2)
    assert pick(tensor, slice(None)) is tensor
    assert pick(tensor, slice(0, 6)) is tensor
    assert torch.equal(pick(tensor, slice(1, 6)), tensor[1:])
    assert torch.equal(pick(tensor, torch.tensor([3, 1])), tensor[[3, 1]])


@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_one_doubtful_row_does_not_change_the_others(dtype):
    mantissa = draw(2, 3, 4).to(dtype)
    alone = rescale(Scaled(mantissa, torch.zeros(2, 3, dtype=REAL)), 1.5)
    assert alone.lost == 0.0
    tiny = mantissa.clone()
    tiny[1, 2] = torch.finfo(dtype).tiny
    beside = rescale(Scaled(tiny, torch.zeros(2, 3, dtype=REAL)), 1.5)
    assert beside.log_scale.isnan().tolist() == [[False] * 3, [False, False, True]]
    assert beside.lost.dtype == REAL
    at = ~beside.log_scale.isnan()
    torch.testing.assert_close(beside.mantissa[at], alone.mantissa[at], rtol=0, atol=0)
    torch.testing.assert_close(beside.log_scale[at], alone.log_scale[at], rtol=0, atol=0)
