import numpy as np
import pytest
import torch

from forecaster.errors import ConfigError
from forecaster.foreign.tokens import patches, single, tokens

# Of 10 bars: patches of 4 bars, 3 apart, that end at the last bar.
OVERLAPPING = np.array(
    [
        [1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
    ],
    dtype=bool,
)


def test_patches_end_at_the_last_bar():
    np.testing.assert_array_equal(patches(10, 4, 3), OVERLAPPING)
    np.testing.assert_array_equal(patches(11, 4, 3)[:, 1:], OVERLAPPING)
    assert not patches(11, 4, 3)[:, 0].any()
    assert tokens(OVERLAPPING).at == (3, 6, 9)


def test_attention_to_a_patch_lies_on_its_bars_and_overlapping_patches_add_up():
    attention = torch.tensor([[0.2, 0.3, 0.5]])[None, None]
    by_bar = tokens(OVERLAPPING).spread(attention)[0, 0, 0]
    expected = torch.tensor([0.05, 0.05, 0.05, 0.125, 0.075, 0.075, 0.2, 0.125, 0.125, 0.125])
    torch.testing.assert_close(by_bar, expected)


def test_the_value_of_a_bar_is_the_mean_of_its_patches_and_0_in_none():
    v = torch.tensor([1.0, 3.0, 7.0])[None, None, :, None]
    found = tokens(np.pad(OVERLAPPING, ((0, 0), (1, 0)))).mean_values(v)[0, 0, :, 0]
    assert found.tolist() == [0, 1, 1, 1, 2, 3, 3, 5, 7, 7, 7]


@pytest.mark.parametrize("bars", [OVERLAPPING, patches(10, 5, 5), patches(11, 4, 3), np.eye(10, dtype=bool)])
def test_an_edit_by_bar_moves_z_as_if_the_weight_had_lain_on_the_bars(bars):
    generator = torch.Generator().manual_seed(0)
    of = tokens(bars)
    count, length = bars.shape
    v, mean = (torch.randn((2, 3, count, 4), generator=generator, dtype=torch.float64) for _ in range(2))
    flags = torch.rand(length, generator=generator) < 0.5
    shown: list[torch.Tensor] = []
    of.edited(mean, lambda x: shown.append(x) or x)  # what an edit sees of the means is what it puts in
    edited = of.edited(v, lambda x: torch.where(flags[:, None], shown[0], x))
    by_hand = v.clone()
    for token in range(count):
        for bar in np.flatnonzero(bars[token]):
            if flags[bar]:
                by_hand[:, :, token] += (mean[:, :, token] - v[:, :, token]) / bars[token].sum()
    torch.testing.assert_close(edited, by_hand)
    torch.testing.assert_close(of.edited(v, lambda x: torch.zeros_like(x)), torch.zeros_like(v))
    assert torch.equal(of.edited(v, lambda x: x.clone()), v)


def test_each_bar_a_token_changes_no_bit():
    attention = torch.rand(2, 3, 1, 7)
    assert single(7).spread(attention) is attention
    assert not tokens(OVERLAPPING).each


def test_tokens_that_can_not_be_are_refused():
    with pytest.raises(ConfigError, match="token 1 has no bar"):
        tokens(np.array([[True, True], [False, False]]))
    with pytest.raises(ConfigError, match="the last token stands at bar 2 of 3"):
        tokens(np.eye(3, dtype=bool)[[2, 0, 1]])
